//! Why a call stopped, with everything its caller needs to pass it on.

use std::time::{Duration, Instant};

use holdoff_contract::Overload;

/// Why a call stopped. The closed set of CONTRACT section 5, as the adapter protocol spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The server said retry=no.
    RetryForbidden,
    /// Not idempotent, no key, and the server did not say applied=no.
    NotSafe,
    /// The body cannot be sent again byte for byte.
    NotReplayable,
    /// Attempts, or waits without a server window, are used up.
    AttemptsExhausted,
    /// This call answers a request that is itself retried further up.
    UpstreamRetries,
    /// The hint is over the cap; never clamped, since that would retry early.
    HintTooLong,
    /// The hint ends after the deadline.
    DeadlineBeforeHint,
    /// The destination's retry budget is empty.
    BudgetExhausted,
    /// A hold-off of this destination covers this call and its deadline does not allow the wait.
    HeldOff,
    /// Too many calls of this destination wait already.
    TooManyWaiting,
    /// Time ran out while an attempt was under way.
    DeadlineExceeded,
    /// The caller dropped the call.
    Cancelled,
    /// The transport failed and may not, or no longer, be tried again.
    Transport,
}

/// An overload with the instant its head was received: an instant, not a length, so that it ages by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// What was said.
    pub overload: Box<Overload>,
    /// When its head was received, monotonic.
    pub received: Instant,
}

/// The end of a call that was not answered.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct GiveUp {
    /// Why it stopped.
    pub why: StopReason,
    /// The last overload, where there was one: also when a later attempt failed otherwise (CLI-27).
    pub last: Option<Refusal>,
    /// Sends made; zero when held back before the first.
    pub attempts: u32,
    /// Time spent waiting, without the attempts themselves.
    pub waited: Duration,
    /// When a call like this can go: what is left of D, where the server said one to this call, not cut by any cap
    /// (CLI-14); where a hold-off stopped it, what is left of that, at most 30 s. The longer where both bind.
    pub retry_in: Option<Duration>,
}

impl StopReason {
    /// The word for labels and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryForbidden => "retry_forbidden",
            Self::NotSafe => "not_safe",
            Self::NotReplayable => "not_replayable",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::UpstreamRetries => "upstream_retries",
            Self::HintTooLong => "hint_too_long",
            Self::DeadlineBeforeHint => "deadline_before_hint",
            Self::BudgetExhausted => "budget_exhausted",
            Self::HeldOff => "held_off",
            Self::TooManyWaiting => "too_many_waiting",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Cancelled => "cancelled",
            Self::Transport => "transport",
        }
    }
}
