//! The code registry of section 1: the condition, and what follows from it on each wire.

use std::fmt;
use std::str::FromStr;

use crate::limits::MAX_CODE_BYTES;
use crate::{Applied, OverloadStatus, Retry, Scope};

/// Why the work was refused. Stable: the same condition gives the same code on every occurrence (SRV-17).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// An ingress, worker or fan-out queue is at its declared depth.
    QueueFull,
    /// Predicted or observed time in queue is over its bound.
    QueueAgeExceeded,
    /// A limiter without a queue is full.
    ConcurrencyLimit,
    /// This tier is being shed at the door.
    TierShed,
    /// The tier's own hard budget is used.
    TierBudgetExhausted,
    /// Queued deferrable work taken out before it started.
    Evicted,
    /// Over the recovery ramp.
    Recovering,
    /// The controller's data is too old: fail closed.
    ControllerStale,
    /// This instance is going away.
    Draining,
    /// The predicted finish is later than the deadline.
    DeadlineUnattainable,
    /// The deadline passed on arrival, in queue or while running.
    DeadlineExpired,
    /// This tenant's own queued-work, concurrency or tier budget.
    TenantLimit,
    /// A quota policy.
    RateLimited,
    /// This caller comes back before its hints.
    RetryThrottled,
    /// A dependency said overload.
    DependencyOverloaded,
    /// No answer from a dependency in time.
    DependencyTimeout,
    /// A private (`x_...`) code or one from a later registry: act by retry, applied and status (VER-03).
    Other(OtherCode),
}

/// The name of a code that this version does not know. Made by parsing only, so it always fits the grammar.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OtherCode(Box<str>);

/// A text that is no code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("code {value:?} does not fit [a-z][a-z0-9_]{{1,62}}")]
pub struct InvalidCode {
    /// What was given, cut to 64 characters.
    pub value: String,
}

/// The gRPC status codes an overload maps to (section 7, GRP-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcCode {
    /// 14.
    Unavailable,
    /// 8.
    ResourceExhausted,
    /// 4.
    DeadlineExceeded,
}

impl Code {
    /// Every registered code, in the order of section 1.
    pub const REGISTERED: &'static [Self] = &[
        Self::QueueFull,
        Self::QueueAgeExceeded,
        Self::ConcurrencyLimit,
        Self::TierShed,
        Self::TierBudgetExhausted,
        Self::Evicted,
        Self::Recovering,
        Self::ControllerStale,
        Self::Draining,
        Self::DeadlineUnattainable,
        Self::DeadlineExpired,
        Self::TenantLimit,
        Self::RateLimited,
        Self::RetryThrottled,
        Self::DependencyOverloaded,
        Self::DependencyTimeout,
    ];

    /// The code on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::QueueFull => "queue_full",
            Self::QueueAgeExceeded => "queue_age_exceeded",
            Self::ConcurrencyLimit => "concurrency_limit",
            Self::TierShed => "tier_shed",
            Self::TierBudgetExhausted => "tier_budget_exhausted",
            Self::Evicted => "evicted",
            Self::Recovering => "recovering",
            Self::ControllerStale => "controller_stale",
            Self::Draining => "draining",
            Self::DeadlineUnattainable => "deadline_unattainable",
            Self::DeadlineExpired => "deadline_expired",
            Self::TenantLimit => "tenant_limit",
            Self::RateLimited => "rate_limited",
            Self::RetryThrottled => "retry_throttled",
            Self::DependencyOverloaded => "dependency_overloaded",
            Self::DependencyTimeout => "dependency_timeout",
            Self::Other(other) => &other.0,
        }
    }

    /// A short human title for the problem body.
    pub fn title(&self) -> &'static str {
        match self {
            Self::QueueFull => "Queue is full",
            Self::QueueAgeExceeded => "Wait in queue would be too long",
            Self::ConcurrencyLimit => "Concurrency limit reached",
            Self::TierShed => "This tier is being shed",
            Self::TierBudgetExhausted => "Budget of this tier is used",
            Self::Evicted => "Taken out of the queue before it started",
            Self::Recovering => "Recovering from overload",
            Self::ControllerStale => "Admission data is too old",
            Self::Draining => "This instance is going away",
            Self::DeadlineUnattainable => "Deadline cannot be met",
            Self::DeadlineExpired => "Deadline has passed",
            Self::TenantLimit => "Limit of this tenant reached",
            Self::RateLimited => "Rate limit reached",
            Self::RetryThrottled => "Came back too soon or too often",
            Self::DependencyOverloaded => "A dependency is overloaded",
            Self::DependencyTimeout => "A dependency did not answer in time",
            Self::Other(_) => "Overloaded",
        }
    }

    /// The status this code is sent with. A private code of ours goes out as 503: 429 needs a caller's own limit.
    pub fn status(&self) -> OverloadStatus {
        match self {
            Self::TenantLimit | Self::RateLimited | Self::RetryThrottled => OverloadStatus::TooManyRequests,
            Self::DependencyTimeout => OverloadStatus::GatewayTimeout,
            _ => OverloadStatus::ServiceUnavailable,
        }
    }

    /// The gRPC status this code is sent with (GRP-01).
    pub fn grpc(&self) -> GrpcCode {
        match self {
            Self::TenantLimit | Self::RateLimited | Self::RetryThrottled => GrpcCode::ResourceExhausted,
            Self::DeadlineUnattainable | Self::DeadlineExpired => GrpcCode::DeadlineExceeded,
            _ => GrpcCode::Unavailable,
        }
    }

    /// The permission this code carries where nothing makes it stricter.
    pub fn default_retry(&self) -> Retry {
        match self {
            Self::Draining => Retry::Elsewhere,
            Self::DeadlineUnattainable | Self::DeadlineExpired | Self::DependencyTimeout => Retry::No,
            _ => Retry::After,
        }
    }

    /// What this code says of side effects where nothing makes it more cautious.
    pub fn default_applied(&self) -> Applied {
        match self {
            Self::DependencyTimeout => Applied::Maybe,
            _ => Applied::No,
        }
    }

    /// What else a hint with this code speaks for by default.
    pub fn default_scope(&self) -> Scope {
        match self {
            Self::TenantLimit | Self::RateLimited => Scope::Tenant,
            _ => Scope::Request,
        }
    }

    /// True for the registered codes, false for [`Code::Other`].
    pub fn is_registered(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Code {
    type Err = InvalidCode;

    /// # Errors
    /// When the text does not fit `[a-z][a-z0-9_]{1,62}`.
    fn from_str(s: &str) -> Result<Self, InvalidCode> {
        let bytes = s.as_bytes();
        let fits = (2..=MAX_CODE_BYTES).contains(&bytes.len())
            && bytes[0].is_ascii_lowercase()
            && bytes
                .iter()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_');
        if !fits {
            return Err(InvalidCode {
                value: s.chars().take(64).collect(),
            });
        }
        let known = Self::REGISTERED.iter().find(|code| code.as_str() == s);
        Ok(known.cloned().unwrap_or_else(|| Self::Other(OtherCode(s.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_registered_code_reads_back() {
        for code in Code::REGISTERED {
            assert_eq!(code.as_str().parse::<Code>().as_ref(), Ok(code));
        }
    }

    #[test]
    fn unknown_codes_are_kept_and_malformed_ones_refused() {
        assert_eq!("x_mine".parse::<Code>().unwrap().as_str(), "x_mine");
        for bad in [
            "",
            "q",
            "Queue_full",
            "queue-full",
            "1abc",
            "q\r\n",
            "é_code",
            &"a".repeat(64),
        ] {
            assert!(bad.parse::<Code>().is_err(), "{bad:?}");
        }
    }
}
