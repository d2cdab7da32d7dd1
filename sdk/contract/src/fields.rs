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
        if headers.is_empty() {
            return Self::default();
        }
        let duration = |name| Some(Duration::from_millis(integer(headers, &name)?).min(MAX_DEADLINE));
        let attempt = integer(headers, &header::OVERLOAD_ATTEMPT);
        Self {
            deadline: duration(header::OVERLOAD_DEADLINE_MS),
            tier: token(headers, &header::OVERLOAD_TIER).and_then(|tier| tier.parse().ok()),
            task_class: token(headers, &header::OVERLOAD_TASK_CLASS)
                .and_then(|class| TaskClass::new(&*class).ok()),
            tenant: item(headers, &header::OVERLOAD_TENANT)
                .and_then(|value| Tenant::new(value.as_string()?.as_str()).ok()),
            attempt: attempt
                .filter(|number| *number > 0)
                .map(|number| Attempt::saturating(u32::try_from(number).unwrap_or(u32::MAX))),
            cost: duration(header::OVERLOAD_COST_MS),
            idempotency_key: key(headers),
        }
    }

    /// Sets every field that has a value, and removes the others, replacing what stood there. Durations are written
    /// as whole milliseconds, rounded down: a deadline must not grow.
    pub fn write(&self, headers: &mut HeaderMap) {
        // Integers and tokens are their own serialization; only strings may have to be escaped.
        let ms = |duration: Duration| HeaderValue::from(whole_ms(duration));
        let string = |text: &str| {
            let string = StringRef::from_str(text).ok()?;
            HeaderValue::try_from(ItemSerializer::new().bare_item(string).finish()).ok()
        };
        let class = |class: &TaskClass| HeaderValue::from_str(class.as_str()).ok();
        let attempt = |attempt: Attempt| match attempt {
            Attempt::FIRST => HeaderValue::from_static("1"),
            later => HeaderValue::from(u16::from(later.get())),
        };
        let values = [
            (header::OVERLOAD_DEADLINE_MS, self.deadline.map(ms)),
            (
                header::OVERLOAD_TIER,
                self.tier.map(|tier| HeaderValue::from_static(tier.as_str())),
            ),
            (
                header::OVERLOAD_TASK_CLASS,
                self.task_class.as_ref().and_then(class),
            ),
            (
                header::OVERLOAD_TENANT,
                self.tenant.as_ref().and_then(|tenant| string(tenant.as_str())),
            ),
            (header::OVERLOAD_ATTEMPT, self.attempt.map(attempt)),
            (header::OVERLOAD_COST_MS, self.cost.map(ms)),
            (
                header::IDEMPOTENCY_KEY,
                self.idempotency_key.as_ref().and_then(|key| string(key.as_str())),
            ),
        ];
        let had_some = !headers.is_empty();
        for (name, value) in values {
            match value {
                Some(value) => drop(headers.insert(name, value)),
                None if had_some => drop(headers.remove(name)),
                None => {}
            }
        }
    }
}

/// Rounded down and within the limit of section 3, which fits in 32 bits.
fn whole_ms(duration: Duration) -> u32 {
    u32::try_from(duration.min(MAX_DEADLINE).as_millis()).unwrap_or(u32::MAX)
}

/// The value of a field that came exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    lines.next().filter(|_| lines.next().is_none())
}

/// The RFC 9651 Item in a field that came exactly once; its parameters are ignored (VER-02).
fn item(headers: &HeaderMap, name: &HeaderName) -> Option<BareItem> {
    let value = only(headers, name).filter(|value| value.len() <= MAX_FIELD_BYTES)?;
    Parser::new(value.as_bytes())
        .parse::<Item>()
        .ok()
        .map(|item| item.bare_item)
}

/// An Integer that is not negative. What is only digits needs no parser.
fn integer(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    const MOST_DIGITS: usize = 15;
    let bytes = only(headers, name)?.as_bytes();
    if (1..=MOST_DIGITS).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_digit) {
        return Some(
            bytes
                .iter()
                .fold(0, |number, digit| number * 10 + u64::from(digit - b'0')),
        );
    }
    u64::try_from(i64::from(item(headers, name)?.as_integer()?)).ok()
}

/// A Token. What is only letters, digits, `_`, `-` and `.` behind a letter needs no parser.
fn token<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, str>> {
    let value = only(headers, name)?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let bytes = value.as_bytes();
    if bytes.first().is_some_and(u8::is_ascii_alphabetic) && bytes.iter().all(plain) {
        return value.to_str().ok().map(Cow::Borrowed);
    }
    Some(Cow::Owned(item(headers, name)?.as_token()?.as_str().to_owned()))
}

/// A String Item, or the bare value that many callers send: all of the line, as long as it cannot be taken for a
/// String that is broken or for a list of two keys.
fn key(headers: &HeaderMap) -> Option<IdempotencyKey> {
    let text = only(headers, &header::IDEMPOTENCY_KEY)?
        .to_str()
        .ok()?
        .trim_matches([' ', '\t']);
    if text.starts_with('"') {
        let quoted = item(headers, &header::IDEMPOTENCY_KEY)?;
        return IdempotencyKey::new(quoted.as_string()?.as_str()).ok();
    }
    IdempotencyKey::new(text).ok().filter(|_| !text.contains(','))
}
