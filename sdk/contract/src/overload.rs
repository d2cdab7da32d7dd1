//! The one value that both sides share.

use std::fmt;
use std::time::Duration;

use crate::{Applied, Code, Retry, Scope, ServiceState, Tier};

/// The three HTTP statuses an overload can have (section 1). Parsed, so nothing downstream checks a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OverloadStatus {
    /// 429: the caller's own limit.
    TooManyRequests,
    /// 503: everything else a server decides itself.
    ServiceUnavailable,
    /// 504: a relay that got no answer in time.
    GatewayTimeout,
}

impl OverloadStatus {
    /// 429, 503 or 504.
    pub const fn as_u16(self) -> u16 {
        match self {
            Self::TooManyRequests => 429,
            Self::ServiceUnavailable => 503,
            Self::GatewayTimeout => 504,
        }
    }

    /// The status, if it is one of the three.
    pub const fn from_u16(status: u16) -> Option<Self> {
        match status {
            429 => Some(Self::TooManyRequests),
            503 => Some(Self::ServiceUnavailable),
            504 => Some(Self::GatewayTimeout),
            _ => None,
        }
    }
}

/// How fine the source of a delay was. It decides how wide a window the caller makes for itself (section 5): a
/// whole-second figure lines callers up on the second, so they get at least a second to spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// A field in milliseconds.
    Milliseconds,
    /// A field in seconds, or an HTTP-date.
    Seconds,
}

/// What the server said about coming back. Three different things, never merged (section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hint {
    /// Nothing usable was said.
    Absent,
    /// A least wait D without an end. Zero is valid: no minimum, the caller's own backoff applies (HNT-05).
    After {
        /// D, at most [`crate::limits::MAX_HINT`].
        delay: Duration,
        /// How fine its source was.
        granularity: Granularity,
    },
    /// A window [D, M] that the server drew for this caller; D is larger than zero.
    Window {
        /// D, at most [`crate::limits::MAX_HINT`].
        delay: Duration,
        /// M, between D and D + [`crate::limits::MAX_WINDOW`].
        max: Duration,
    },
}

impl Hint {
    /// D, zero where nothing was said: for arithmetic that only needs a lower bound.
    pub const fn delay_or_zero(self) -> Duration {
        match self {
            Self::Absent => Duration::ZERO,
            Self::After { delay, .. } | Self::Window { delay, .. } => delay,
        }
    }
}

/// A signal key of contract version 1 that this version does not know, kept for relays (INT-17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The dictionary key.
    pub key: String,
    /// Its member as it stood in the signal, serialized by RFC 9651 (value and parameters, without the key).
    pub member: String,
}

/// A body member of contract version 1 that this version does not know, kept for relays (INT-17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyMember {
    /// The member's name.
    pub name: String,
    /// Its value as JSON text.
    pub json: String,
}

/// A quota for `RateLimit` and `RateLimit-Policy`, sent with `rate_limited` (SRV-23,
/// draft-ietf-httpapi-ratelimit-headers).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyQuota {
    /// Name of the policy: a structured-field String, printable ASCII.
    pub name: String,
    /// Quota units of a window (`q`).
    pub quota: u64,
    /// Length of the window in seconds (`w`).
    pub window_seconds: u64,
    /// Units left (`r`).
    pub remaining: u64,
    /// Seconds until more is available (`t`).
    pub reset_seconds: u64,
}

/// A refusal: why, whether to come back, when, and whether anything was done. One value in all encodings.
///
/// Made by [`Overload::new`] where a server refuses, by [`crate::read`] where a caller is refused, and by
/// [`Overload::for_caller`] where a relay passes it up.
#[derive(Clone, Debug, PartialEq)]
pub struct Overload {
    /// The HTTP status, the actual one where the body says another (HNT-16).
    pub status: OverloadStatus,
    /// Why; `None` only for a refusal read from someone who does not speak the contract.
    pub code: Option<Code>,
    /// May the caller come back?
    pub retry: Retry,
    /// Can it have had a side effect?
    pub applied: Applied,
    /// When to come back; with retry=no it paces new work.
    pub hint: Hint,
    /// What else the hint speaks for.
    pub scope: Scope,
    /// State of the admission control; written to trusted callers only.
    pub state: Option<ServiceState>,
    /// The tier that was used, when the request named one.
    pub tier: Option<Tier>,
    /// Hops towards the dependency that decided, 0..=16.
    pub hop: u8,
    /// A sentence for humans, cut to [`crate::limits::MAX_DETAIL_BYTES`]. Peer text when read: escape it before
    /// logging, as `Display` does (SEC-04).
    pub detail: Option<String>,
    /// Id of the decision, for logs.
    pub instance: Option<uuid::Uuid>,
    /// With `deadline_unattainable`: the smallest deadline that would have been admitted (SRV-19).
    pub min_deadline: Option<Duration>,
    /// The wait that was predicted; written to trusted callers only, two significant digits (SEC-07).
    pub predicted_wait: Option<Duration>,
    /// Logical name of the service that decided, hop > 0; written to trusted callers only.
    pub origin: Option<String>,
    /// With `rate_limited`: the quotas to publish, at most [`crate::limits::MAX_QUOTAS`]. An exhausted one makes the
    /// hint at least as long as its reset (SRV-23).
    pub quotas: Vec<PolicyQuota>,
    /// Unknown v=1 signal keys, at most 16, kept for relays.
    pub extensions: Vec<Extension>,
    /// Unknown v=1 body members, at most 16, kept for relays.
    pub members: Vec<BodyMember>,
}

impl Overload {
    /// A refusal of this service itself (hop 0) with what the code says by default, and no hint yet.
    pub fn new(code: Code) -> Self {
        Self {
            status: code.status(),
            retry: code.default_retry(),
            applied: code.default_applied(),
            scope: code.default_scope(),
            code: Some(code),
            hint: Hint::Absent,
            state: None,
            tier: None,
            hop: 0,
            detail: None,
            instance: None,
            min_deadline: None,
            predicted_wait: None,
            origin: None,
            quotas: Vec::new(),
            extensions: Vec::new(),
            members: Vec::new(),
        }
    }

    /// The code as text, for labels and logs of our own codes; `"none"` where nothing was said and `"other"` for a
    /// code outside the registry, so that the set stays closed.
    pub fn code_label(&self) -> &'static str {
        match &self.code {
            None => "none",
            Some(code) => Code::REGISTERED
                .iter()
                .find(|known| *known == code)
                .map_or("other", |known| {
                    // REGISTERED is 'static, so its text is too.
                    known.as_str()
                }),
        }
    }
}

/// One line, safe to log: what a peer wrote is cut and escaped to printable ASCII (SEC-04).
impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.as_ref().map_or("no_code", Code::as_str);
        write!(
            f,
            "{} {code} retry={} applied={}",
            self.status.as_u16(),
            self.retry,
            self.applied
        )?;
        match self.hint {
            Hint::Absent => {}
            Hint::After { delay, .. } => write!(f, " after={}ms", delay.as_millis())?,
            Hint::Window { delay, max } => {
                write!(f, " after={}ms max={}ms", delay.as_millis(), max.as_millis())?;
            }
        }
        if self.scope != Scope::Request {
            write!(f, " scope={}", self.scope)?;
        }
        if let Some(tier) = self.tier {
            write!(f, " tier={tier}")?;
        }
        if self.hop > 0 {
            write!(f, " hop={}", self.hop)?;
        }
        for (name, text) in [("origin", &self.origin), ("detail", &self.detail)] {
            if let Some(text) = text {
                write!(f, " {name}=\"")?;
                text.chars()
                    .take(MAX_LOGGED_CHARS)
                    .try_for_each(|c| write!(f, "{}", c.escape_default()))?;
                f.write_str("\"")?;
            }
        }
        Ok(())
    }
}

/// Characters of a peer's text in a log line: enough to recognise it.
const MAX_LOGGED_CHARS: usize = 200;
