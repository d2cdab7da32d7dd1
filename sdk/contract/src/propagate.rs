//! Passing a refusal up (section 6): a relay answers its own caller with what it was told, aged and never widened.

use std::time::Duration;

use crate::limits::{MAX_EXTENSIONS, MAX_HOP, MAX_WINDOW};
use crate::{Applied, Code, Granularity, Hint, Overload, OverloadStatus, Retry, Scope};

/// With whose identity the dependency was called: it decides what a 429 means one hop up (INT-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalledAs {
    /// As the caller's own tenant: its limit, so 429 stays 429.
    CallersTenant,
    /// With this service's own identity: not the caller's fault, so 503 dependency_overloaded.
    OwnService,
}

/// What this hop knows about the failed call.
#[derive(Clone, Copy, Debug)]
pub struct Relay {
    /// Time since the dependency's answer was received.
    pub elapsed: Duration,
    /// Whose identity was used.
    pub called_as: CalledAs,
    /// This hop itself retried the call (INT-04).
    pub retried: bool,
    /// The incoming request's method is idempotent, or it carries a key.
    pub idempotent: bool,
    /// An earlier step of this request had a side effect (INT-08).
    pub side_effect: bool,
}

/// What a relay says where it was told no delay, or one of zero (section 6.4, INT-03).
const DEFAULT_AFTER: Duration = Duration::from_secs(1);
/// A delay that ran out on the way is still one: zero would mean that there is no minimum.
const LEAST_AFTER: Duration = Duration::from_millis(1);

impl Overload {
    /// The answer to this service's own caller: aged, one hop further, and never wider than what was received
    /// (sections 6.3 to 6.8).
    ///
    /// `detail` goes away, because it was written for this service; set one of your own if you have something to
    /// say. State, origin and predicted wait stay, and [`crate::write`] keeps them from strangers.
    pub fn for_caller(&self, relay: &Relay) -> Self {
        let (status, code) = self.status_for_caller(relay.called_as);
        let timeout = status == OverloadStatus::GatewayTimeout;
        let hop = self.hop.saturating_add(1).min(MAX_HOP);
        let applied = if relay.side_effect || timeout {
            Applied::Maybe
        } else {
            self.applied
        };
        let unsafe_again = applied == Applied::Maybe && !relay.idempotent;
        let retry = if relay.retried || unsafe_again || timeout || hop == MAX_HOP {
            Retry::No
        } else {
            self.retry
        };
        let mut quotas = if status == OverloadStatus::TooManyRequests {
            self.quotas.clone()
        } else {
            Vec::new()
        };
        for quota in &mut quotas {
            quota.reset_seconds = quota.reset_seconds.saturating_sub(relay.elapsed.as_secs());
        }
        Self {
            status,
            code: Some(code),
            retry,
            applied,
            hint: self.hint.aged(relay.elapsed),
            scope: Scope::Request,
            hop,
            detail: None,
            min_deadline: None,
            quotas,
            ..self.clone()
        }
    }

    /// A relay's wait on a dependency ended without an answer, or the connection broke after the request was sent:
    /// 504, it may have been done, do not come back (section 6, SRV-02). The dependency is one hop away.
    pub fn dependency_timeout() -> Self {
        Self {
            hop: 1,
            ..Self::new(Code::DependencyTimeout)
        }
    }

    /// No time is left (section 6.1, INT-12); [`Applied::Maybe`] once a side effect can have happened (section 1).
    pub fn deadline_expired(applied: Applied) -> Self {
        Self {
            applied,
            ..Self::new(Code::DeadlineExpired)
        }
    }

    /// One refusal out of several (section 6, INT-18): the first names the condition; the delay is the largest, the
    /// end of the window the largest that is not before it, the permission the smallest. `None` for none.
    ///
    /// Give it what [`Self::for_caller`] made, since that ages each by its own time.
    pub fn combine(several: impl IntoIterator<Item = Self>) -> Option<Self> {
        several.into_iter().reduce(|first, other| {
            let mut extensions = first.extensions;
            extensions.extend(other.extensions);
            keep_first(&mut extensions, |extension| extension.key.clone());
            let mut members = first.members;
            members.extend(other.members);
            keep_first(&mut members, |member| member.name.clone());
            Self {
                retry: first.retry.max(other.retry),
                applied: first.applied.max(other.applied),
                hint: first.hint.combine(other.hint),
                // Only what both speak for.
                scope: first.scope.min(other.scope),
                hop: first.hop.max(other.hop),
                extensions,
                members,
                ..first
            }
        })
    }

    /// Section 6's table. A code that does not belong to its status is not passed on under it.
    fn status_for_caller(&self, called_as: CalledAs) -> (OverloadStatus, Code) {
        match (self.status, called_as) {
            (OverloadStatus::TooManyRequests, CalledAs::CallersTenant) => {
                let code = self
                    .code
                    .clone()
                    .filter(|code| !code.is_registered() || code.status() == self.status);
                (self.status, code.unwrap_or(Code::RateLimited))
            }
            (OverloadStatus::GatewayTimeout, _) => (self.status, Code::DependencyTimeout),
            _ => (OverloadStatus::ServiceUnavailable, Code::DependencyOverloaded),
        }
    }
}

impl Hint {
    /// What is left of a hint after some time, for a relay's caller: never below 1 ms, and 1000 ms where nothing, or
    /// no minimum, was said. A window stays only where one was received (section 6.4, INT-03).
    #[must_use]
    pub fn aged(self, elapsed: Duration) -> Self {
        let left = |time: Duration| time.saturating_sub(elapsed).max(LEAST_AFTER);
        match self {
            Self::Window { delay, max } if !delay.is_zero() => Self::Window {
                delay: left(delay),
                max: left(max),
            },
            Self::After { delay, granularity } if !delay.is_zero() => Self::After {
                delay: left(delay),
                granularity,
            },
            _ => Self::After {
                delay: DEFAULT_AFTER,
                granularity: Granularity::Milliseconds,
            },
        }
    }

    /// The stricter of two: the largest delay, and the largest end of a window that is not before it. For several
    /// dependencies, and for an own hint beside a received one (section 6.4).
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        let delay = match (self, other) {
            (Self::Absent, hint) | (hint, Self::Absent) => return hint,
            _ => self.delay_or_zero().max(other.delay_or_zero()),
        };
        let end = |hint: Self| match hint {
            Self::Window { max, .. } if max >= delay => Some(max),
            _ => None,
        };
        if let Some(max) = end(self).max(end(other)) {
            return Self::Window {
                delay,
                max: max.min(delay.saturating_add(MAX_WINDOW)),
            };
        }
        let larger = if other.delay_or_zero() > self.delay_or_zero() {
            other
        } else {
            self
        };
        match larger {
            Self::After { .. } | Self::Absent => larger,
            // A window that ends before it begins is none.
            Self::Window { delay, .. } => Self::After {
                delay,
                granularity: Granularity::Milliseconds,
            },
        }
    }
}

/// Leaves one entry a name, the first, and at most as many as the limit.
fn keep_first<T>(entries: &mut Vec<T>, name: impl Fn(&T) -> String) {
    let mut seen = std::collections::BTreeSet::new();
    entries.retain(|entry| seen.len() < MAX_EXTENSIONS && seen.insert(name(entry)));
}
