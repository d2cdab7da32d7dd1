//! `backoff`'s trait and its error.
//!
//! In `backoff`'s loop an error with `retry_after` goes around the `Backoff` altogether: neither its `max_elapsed_time`
//! nor any other limit is asked, and everybody with the same hint comes back in the same instant. [`PacedCall::bind`]
//! puts such a hint before the policy first.

use std::time::Duration;

use backoff::backoff::Backoff;
use holdoff_contract::{Applied, Code, Granularity, Hint, Overload};
use holdoff_policy::Outcome;

use crate::PacedCall;

impl Backoff for PacedCall {
    /// `backoff` calls this before its first attempt: a call that has begun starts anew.
    fn reset(&mut self) {
        self.restart();
    }

    fn next_backoff(&mut self) -> Option<Duration> {
        self.next_wait()
    }
}

impl PacedCall {
    /// Puts an error of existing code before the policy. What comes out is permanent where the policy stops, and else
    /// transient with the policy's wait as `retry_after`: so it keeps to hint and limits also in a loop whose `Backoff`
    /// is still `backoff`'s own.
    ///
    /// An error with `retry_after` counts as a refusal with that hint, of which nobody said whether anything was done; a
    /// transient one without as a broken connection, unless its end was told already ([`PacedCall::tell`], with the
    /// whole refusal, says more); a permanent one ends the call.
    pub fn bind<E>(&self, error: backoff::Error<E>) -> backoff::Error<E> {
        let (err, retry_after) = match error {
            backoff::Error::Permanent(err) => {
                self.tell(Outcome::Answered);
                return backoff::Error::Permanent(err);
            }
            backoff::Error::Transient { err, retry_after } => (err, retry_after),
        };
        if let Some(delay) = retry_after {
            self.tell(Outcome::Overload(Box::new(refusal(delay))));
        }
        match self.next_wait() {
            Some(wait) => backoff::Error::retry_after(err, wait),
            None => backoff::Error::Permanent(err),
        }
    }
}

/// A refusal of which only the delay is known.
fn refusal(delay: Duration) -> Overload {
    // Whole seconds came out of a Retry-After, which lines callers up on the second.
    let granularity = if delay.subsec_nanos() == 0 {
        Granularity::Seconds
    } else {
        Granularity::Milliseconds
    };
    Overload {
        code: None,
        applied: Applied::Maybe,
        hint: Hint::After { delay, granularity },
        ..Overload::new(Code::QueueFull)
    }
}
