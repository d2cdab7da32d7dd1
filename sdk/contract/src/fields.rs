//! What a caller says about its work (section 3): typed, so that a value that is here fits the grammar, and no
//! header can be injected through it (REQ-10).

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Item, ItemSerializer, Parser, StringRef};

use crate::Tier;
use crate::limits::{MAX_DEADLINE, MAX_FIELD_BYTES};

/// The names of the contract's fields, in the lower case that `http` wants.
pub mod header {
    use http::HeaderName;

    /// `Overload-Signal` (section 2).
    pub const OVERLOAD_SIGNAL: HeaderName = HeaderName::from_static("overload-signal");
    /// `retry-after-ms`, for clients that read only that (SRV-27).
    pub const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
    /// `Overload-Deadline-Ms` (section 3).
    pub const OVERLOAD_DEADLINE_MS: HeaderName = HeaderName::from_static("overload-deadline-ms");
    /// `Overload-Tier` (section 3).
    pub const OVERLOAD_TIER: HeaderName = HeaderName::from_static("overload-tier");
    /// `Overload-Task-Class` (section 3).
    pub const OVERLOAD_TASK_CLASS: HeaderName = HeaderName::from_static("overload-task-class");
    /// `Overload-Tenant` (section 3).
    pub const OVERLOAD_TENANT: HeaderName = HeaderName::from_static("overload-tenant");
    /// `Overload-Attempt` (section 3).
    pub const OVERLOAD_ATTEMPT: HeaderName = HeaderName::from_static("overload-attempt");
    /// `Overload-Cost-Ms` (section 3).
    pub const OVERLOAD_COST_MS: HeaderName = HeaderName::from_static("overload-cost-ms");
    /// `Idempotency-Key` (section 3).
    pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
}

/// A request value outside its grammar, refused when it is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value:?} is not allowed: {limit}")]
pub struct InvalidField {
    /// Which value.
    pub field: &'static str,
    /// What was given, cut to 64 characters.
    pub value: String,
    /// The rule it breaks.
    pub limit: &'static str,
}

fn invalid(field: &'static str, value: &str, limit: &'static str) -> InvalidField {
    InvalidField {
        field,
        value: value.chars().take(64).collect(),
        limit,
    }
}

macro_rules! text_field {
    ($(#[$meta:meta])* $name:ident, $field:literal, $limit:literal, $fits:expr) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Box<str>);

        impl $name {
            /// Checks the value.
            ///
            /// # Errors
            /// When it is outside the grammar; the error names field, value and rule.
            pub fn new(value: impl AsRef<str>) -> Result<Self, InvalidField> {
                let value = value.as_ref();
                let fits: fn(&str) -> bool = $fits;
                if fits(value) { Ok(Self(value.into())) } else { Err(invalid($field, value, $limit)) }
            }

            /// The value as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&&*self.0).finish()
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidField;
            fn from_str(s: &str) -> Result<Self, InvalidField> { Self::new(s) }
        }

        impl TryFrom<&str> for $name {
            type Error = InvalidField;
            fn try_from(s: &str) -> Result<Self, InvalidField> { Self::new(s) }
        }

        impl TryFrom<&String> for $name {
            type Error = InvalidField;
            fn try_from(s: &String) -> Result<Self, InvalidField> { Self::new(s) }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidField;
            fn try_from(s: String) -> Result<Self, InvalidField> { Self::new(s) }
        }
    };
}

text_field!(
    /// Kind of work, for the estimate of how long it takes: `[a-z][a-z0-9._-]*`, at most 64 bytes.
    TaskClass,
    "task class",
    "it must fit [a-z][a-z0-9._-]* and be at most 64 bytes",
    |s| s.len() <= crate::limits::MAX_CLASS_BYTES
        && s.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
        && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
);

text_field!(
    /// Whose work it is: 1 to 128 printable ASCII characters. From an authenticated identity; the field counts
    /// only from trusted hops.
    Tenant,
    "tenant",
    "it must be 1 to 128 printable ASCII characters",
    |s| (1..=crate::limits::MAX_TENANT_BYTES).contains(&s.len())
        && s.bytes().all(|b| (0x20..0x7f).contains(&b))
);

text_field!(
    /// One key for one operation, the same on every attempt (REQ-08): 1 to 255 printable ASCII characters.
    IdempotencyKey,
    "idempotency key",
    "it must be 1 to 255 printable ASCII characters",
    |s| (1..=crate::limits::MAX_KEY_BYTES).contains(&s.len())
        && s.bytes().all(|b| (0x20..0x7f).contains(&b))
);

/// Number of a send, 1 for the first; saturates at 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(u8);

impl Attempt {
    /// The first send of a call.
    pub const FIRST: Self = Self(1);

    /// The attempt with this number, saturating at 255; zero is no attempt and becomes the first.
    pub fn saturating(number: u32) -> Self {
        Self(u8::try_from(number).unwrap_or(u8::MAX).max(1))
    }

    /// 1..=255.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The contract's request fields, each absent where it was not sent, was malformed, or came twice (section 3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFields {
    /// What is left of the call's time. Zero is a value: it has run out (SRQ-02).
    pub deadline: Option<Duration>,
    /// The tier asked for.
    pub tier: Option<Tier>,
    /// Kind of work.
    pub task_class: Option<TaskClass>,
    /// Whose work; the reader decides whether the hop is trusted.
    pub tenant: Option<Tenant>,
    /// Which attempt.
    pub attempt: Option<Attempt>,
    /// Estimate of the work's cost.
    pub cost: Option<Duration>,
    /// Key of the operation.
    pub idempotency_key: Option<IdempotencyKey>,
}

impl RequestFields {
    /// Reads the fields; a malformed one is absent (section 3, SRQ-01, SRQ-05, SRQ-09). A deadline, cost or attempt
    /// above its limit is clamped to it.
    pub fn read(headers: &HeaderMap) -> Self {
        // Most requests of most programs have none.
        if !Self::are_among(headers) {
            return Self::default();
        }
        let lines = Lines::of(headers);
        let duration = |field| Some(Duration::from_millis(lines.integer(field)?).min(MAX_DEADLINE));
        Self {
            deadline: duration(DEADLINE),
            tier: lines.token(TIER).and_then(|tier| tier.parse().ok()),
            task_class: lines.token(CLASS).and_then(|class| TaskClass::new(&*class).ok()),
            tenant: lines
                .item(TENANT)
                .and_then(|value| Tenant::new(value.as_string()?.as_str()).ok()),
            attempt: lines
                .integer(ATTEMPT)
                .filter(|number| *number > 0)
                .map(|number| Attempt::saturating(u32::try_from(number).unwrap_or(u32::MAX))),
            cost: duration(COST),
            idempotency_key: lines.key(),
        }
    }

    /// Whether one of them may be among these, malformed or not: looking at the names that are there costs less than
    /// looking up seven that are mostly not.
    pub fn are_among(headers: &HeaderMap) -> bool {
        headers.keys().any(|name| is_ours(name.as_str()))
    }

    /// Sets every field that has a value, and removes the others, replacing what stood there. Durations are written
    /// as whole milliseconds, rounded down: a deadline must not grow.
    pub fn write(&self, headers: &mut HeaderMap) {
        let had_some = Self::are_among(headers);
        match self {
            // Most first sends say no more.
            Self {
                deadline: None,
                tier: None,
                task_class: None,
                tenant: None,
                attempt: Some(Attempt::FIRST),
                cost: None,
                idempotency_key: None,
            } if !had_some => {
                headers.insert(header::OVERLOAD_ATTEMPT, FIRST_ATTEMPT);
            }
            _ => self.write_all(headers, had_some),
        }
    }

    #[inline(never)]
    fn write_all(&self, headers: &mut HeaderMap, had_some: bool) {
        // Integers and tokens are their own serialization; only strings may have to be escaped.
        let ms = |duration: Duration| HeaderValue::from(whole_ms(duration));
        let string = |text: &str| {
            let string = StringRef::from_str(text).ok()?;
            HeaderValue::try_from(ItemSerializer::new().bare_item(string).finish()).ok()
        };
        let class = |class: &TaskClass| HeaderValue::from_str(class.as_str()).ok();
        let attempt = |attempt: Attempt| match attempt {
            Attempt::FIRST => FIRST_ATTEMPT,
            later => HeaderValue::from(u16::from(later.get())),
        };
        let mut put = |field: usize, value: Option<HeaderValue>| match value {
            Some(value) => drop(headers.insert(&FIELDS[field], value)),
            None if had_some => drop(headers.remove(&FIELDS[field])),
            None => {}
        };
        put(DEADLINE, self.deadline.map(ms));
        put(TIER, self.tier.map(tier_value));
        put(CLASS, self.task_class.as_ref().and_then(class));
        put(
            TENANT,
            self.tenant.as_ref().and_then(|tenant| string(tenant.as_str())),
        );
        put(ATTEMPT, self.attempt.map(attempt));
        put(COST, self.cost.map(ms));
        put(
            KEY,
            self.idempotency_key.as_ref().and_then(|key| string(key.as_str())),
        );
    }
}

/// Checked when this is compiled, as the tiers are: checking the letters costs more than writing them.
const FIRST_ATTEMPT: HeaderValue = HeaderValue::from_static("1");

fn tier_value(tier: Tier) -> HeaderValue {
    const CRITICAL: HeaderValue = HeaderValue::from_static(Tier::Critical.as_str());
    const NON_SHEDDABLE: HeaderValue = HeaderValue::from_static(Tier::NonSheddable.as_str());
    const DEFERRABLE: HeaderValue = HeaderValue::from_static(Tier::Deferrable.as_str());
    match tier {
        Tier::Critical => CRITICAL,
        Tier::NonSheddable => NON_SHEDDABLE,
        Tier::Deferrable => DEFERRABLE,
    }
}

/// Rounded down and within the limit of section 3, which fits in 32 bits.
fn whole_ms(duration: Duration) -> u32 {
    u32::try_from(duration.min(MAX_DEADLINE).as_millis()).unwrap_or(u32::MAX)
}

/// The fields, in one order; the constants below are places in it.
const NAMES: [&str; 7] = [
    "overload-deadline-ms",
    "overload-tier",
    "overload-task-class",
    "overload-tenant",
    "overload-attempt",
    "overload-cost-ms",
    "idempotency-key",
];
static FIELDS: [HeaderName; NAMES.len()] = [
    header::OVERLOAD_DEADLINE_MS,
    header::OVERLOAD_TIER,
    header::OVERLOAD_TASK_CLASS,
    header::OVERLOAD_TENANT,
    header::OVERLOAD_ATTEMPT,
    header::OVERLOAD_COST_MS,
    header::IDEMPOTENCY_KEY,
];
const DEADLINE: usize = 0;
const TIER: usize = 1;
const CLASS: usize = 2;
const TENANT: usize = 3;
const ATTEMPT: usize = 4;
const COST: usize = 5;
const KEY: usize = 6;

/// May this be one of those fields?
fn is_ours(name: &str) -> bool {
    name.starts_with("overload-") || name == NAMES[KEY]
}

/// The lines of those fields, found in one pass: most requests have few fields, and looking up seven names that are
/// mostly absent costs more than looking at each that is there.
#[derive(Default)]
struct Lines<'a>([Line<'a>; NAMES.len()]);

#[derive(Clone, Copy, Default)]
enum Line<'a> {
    #[default]
    Absent,
    Once(&'a HeaderValue),
    Twice,
}

impl<'a> Lines<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let mut lines = Self::default();
        for (name, value) in headers {
            let name = name.as_str();
            if !is_ours(name) {
                continue;
            }
            if let Some(at) = NAMES.iter().position(|known| *known == name) {
                lines.0[at] = match lines.0[at] {
                    Line::Absent => Line::Once(value),
                    Line::Once(_) | Line::Twice => Line::Twice,
                };
            }
        }
        lines
    }

    /// The value of a field that came exactly once.
    fn only(&self, field: usize) -> Option<&'a HeaderValue> {
        match self.0[field] {
            Line::Once(value) => Some(value),
            Line::Absent | Line::Twice => None,
        }
    }

    /// The RFC 9651 Item in a field that came exactly once; its parameters are ignored (VER-02).
    fn item(&self, field: usize) -> Option<BareItem> {
        let value = self.only(field).filter(|value| value.len() <= MAX_FIELD_BYTES)?;
        Parser::new(value.as_bytes())
            .parse::<Item>()
            .ok()
            .map(|item| item.bare_item)
    }

    /// An Integer that is not negative. What is only digits needs no parser.
    fn integer(&self, field: usize) -> Option<u64> {
        const MOST_DIGITS: usize = 15;
        let bytes = self.only(field)?.as_bytes();
        if (1..=MOST_DIGITS).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_digit) {
            let digits = bytes.iter().map(|digit| u64::from(digit - b'0'));
            return Some(digits.fold(0, |number, digit| number * 10 + digit));
        }
        u64::try_from(i64::from(self.item(field)?.as_integer()?)).ok()
    }

    /// A Token. What is only letters, digits, `_`, `-` and `.` behind a letter needs no parser.
    fn token(&self, field: usize) -> Option<Cow<'a, str>> {
        let value = self.only(field).filter(|value| value.len() <= MAX_FIELD_BYTES)?;
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let bytes = value.as_bytes();
        if bytes.first().is_some_and(u8::is_ascii_alphabetic) && bytes.iter().all(plain) {
            return value.to_str().ok().map(Cow::Borrowed);
        }
        Some(Cow::Owned(self.item(field)?.as_token()?.as_str().to_owned()))
    }

    /// A String Item, or the bare value that many callers send: all of the line, as long as it cannot be taken for a
    /// String that is broken or for a list of two keys.
    fn key(&self) -> Option<IdempotencyKey> {
        let text = self.only(KEY)?.to_str().ok()?.trim_matches([' ', '\t']);
        if text.starts_with('"') {
            let quoted = self.item(KEY)?;
            return IdempotencyKey::new(quoted.as_string()?.as_str()).ok();
        }
        IdempotencyKey::new(text).ok().filter(|_| !text.contains(','))
    }
}
