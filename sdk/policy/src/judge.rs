//! May this be tried again, and when? The rules of CONTRACT section 5 in their order, as a pure function.
//!
//! Several reasons to stop often apply at once, and which one is reported decides what the caller does next: so the
//! order is part of the contract, and it stands here in one place, top to bottom. [`crate::Call`] adds what needs state
//! shared with other calls: the waiting room and the budget.

use std::time::Duration;

use holdoff_contract::{Applied, Hint, Overload, Retry};

use crate::{CallSpec, Instance, Policy, Price, Replay, Safety, StopReason, Window};

/// What is kept between the end of a wait and the end of the call's time, 10 ms: a retry that could only be sent in
/// the last moment cannot be answered (CONTRACT section 5).
pub(crate) const SEND_MARGIN: Duration = Duration::from_millis(10);

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Sends made: the k of CONTRACT section 5, 1 after the first.
    pub attempt: u32,
    /// Waits so far that no server window scheduled.
    pub own_waits: u32,
    /// Age of the refusal: time since its head was received.
    pub age: Duration,
    /// What was left of the call's time when the head was received: the lesser of deadline and waiting in all.
    pub time_left: Duration,
    /// Where a retry=elsewhere would lead to an instance that has spoken before: its own window, from receipt of this
    /// refusal, and whether a hint of its own set it. `None`: that instance has said nothing yet.
    pub elsewhere: Option<(Window, bool)>,
}

impl Progress {
    /// After the first attempt of a call that has this much of its time left.
    pub const fn first(time_left: Duration) -> Self {
        Self {
            attempt: 1,
            own_waits: 0,
            age: Duration::ZERO,
            time_left,
            elsewhere: None,
        }
    }
}

/// A retry that the rules allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Retrial {
    /// When it may leave.
    pub window: Window,
    /// What it costs.
    pub price: Price,
    /// Where it goes.
    pub instance: Instance,
    /// The D that binds it: `None` without a hint, and at another instance.
    pub hint: Option<Duration>,
}

/// How an attempt failed that was not a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection was made: certainly not applied.
    NotConnected,
    /// The connection broke, the time of the attempt ran out, or a gateway answered 502 or an unmarked 504.
    PerhapsApplied,
}

impl Policy {
    /// Judges an overload: a retry with its window, or the reason to stop. Pure, so that a decision can be shown
    /// without a wait; a [`crate::Call`] asks the same function, and then the waiting room and the budget.
    ///
    /// # Errors
    /// The first reason to stop, in the order of CONTRACT section 5, except `TooManyWaiting` and `BudgetExhausted`.
    pub fn judge(
        &self,
        spec: &CallSpec,
        overload: &Overload,
        progress: Progress,
    ) -> Result<Retrial, StopReason> {
        let retrial = self.retrial(spec, overload, progress);
        if overload.retry == Retry::No {
            return Err(StopReason::RetryForbidden);
        }
        if spec.safety == Safety::Unsafe && overload.applied != Applied::No {
            return Err(StopReason::NotSafe);
        }
        if spec.replay == Replay::Once {
            return Err(StopReason::NotReplayable);
        }
        if self.attempts_used(retrial.price, progress) {
            return Err(StopReason::AttemptsExhausted);
        }
        if is_held_to_one_send(spec) {
            return Err(StopReason::UpstreamRetries);
        }
        if overload.hint.delay_or_zero() > self.hint_cap {
            return Err(StopReason::HintTooLong);
        }
        if !fits(retrial.window, progress) {
            return Err(StopReason::DeadlineBeforeHint);
        }
        Ok(retrial)
    }

    /// Judges a failure of the transport, a 502 or an unmarked 504.
    pub(crate) fn judge_failure(
        &self,
        spec: &CallSpec,
        failure: Failure,
        progress: Progress,
    ) -> Result<Retrial, StopReason> {
        let window = self.transport_window(progress.attempt);
        let retrial = Retrial {
            window,
            price: Price::Blind,
            instance: Instance::Same,
            hint: None,
        };
        let unsafe_to_send = spec.safety == Safety::Unsafe && failure != Failure::NotConnected;
        if unsafe_to_send || spec.replay == Replay::Once || self.attempts_used(retrial.price, progress) {
            return Err(StopReason::Transport);
        }
        if is_held_to_one_send(spec) {
            return Err(StopReason::UpstreamRetries);
        }
        if !fits(window, progress) {
            return Err(StopReason::DeadlineExceeded);
        }
        Ok(retrial)
    }

    /// The retry after this overload, if nothing stops it.
    fn retrial(&self, spec: &CallSpec, overload: &Overload, progress: Progress) -> Retrial {
        if overload.retry == Retry::Elsewhere && spec.instances.another() {
            let (window, hint) = match progress.elsewhere {
                None => (self.elsewhere_window(), None),
                Some((window, hinted)) => (self.not_before(window), hinted.then_some(window.lo)),
            };
            return Retrial {
                window,
                price: Price::Hinted,
                instance: Instance::Another,
                hint,
            };
        }
        let delay = overload.hint.delay_or_zero();
        let (price, hint) = match overload.hint {
            Hint::Absent => (Price::Blind, None),
            _ if delay.is_zero() => (Price::Blind, Some(delay)),
            Hint::After { .. } => (Price::Hinted, Some(delay)),
            Hint::Window { .. } => (Price::Scheduled, Some(delay)),
        };
        Retrial {
            window: self.window(overload.hint, progress.attempt),
            price,
            instance: Instance::Same,
            hint,
        }
    }

    /// All sends are used, or the waits that no server window schedules are, and this would be one more.
    fn attempts_used(&self, price: Price, progress: Progress) -> bool {
        let own = price != Price::Scheduled;
        progress.attempt >= u32::from(self.max_attempts_scheduled)
            || (own && progress.own_waits.saturating_add(1) >= u32::from(self.max_attempts))
    }
}

/// A relay sends once, unless it opted in to retries and nobody above it retries (retry at one layer).
fn is_held_to_one_send(spec: &CallSpec) -> bool {
    spec.incoming
        .is_some_and(|incoming| !incoming.retries || incoming.attempt.get() > 1)
}

/// The window opens early enough, also where the answer took so long to read that its opening is past.
fn fits(window: Window, progress: Progress) -> bool {
    window.lo.max(progress.age).saturating_add(SEND_MARGIN) < progress.time_left
}
