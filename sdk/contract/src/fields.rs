//! What a caller says about its work (section 3): typed, so that a value that is here fits the grammar, and no
//! header can be injected through it (REQ-10).

use std::fmt;
use std::time::Duration;

use http::HeaderMap;

use crate::Tier;

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
    InvalidField { field, value: value.chars().take(64).collect(), limit }
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
        let _ = headers;
        unimplemented!("contract helper")
    }

    /// Sets every field that has a value, and removes the others, replacing what stood there.
    pub fn write(&self, headers: &mut HeaderMap) {
        let _ = headers;
        unimplemented!("contract helper")
    }
}
