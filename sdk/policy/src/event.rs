//! What happened, for the adapter to count and log: pure crates tell, they do not log.

use std::time::Duration;

use crate::StopReason;

/// One thing worth counting. Closed sets only, so that it can become a label.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A wait was decided: the hint's D and the wait drawn.
    RetryScheduled {
        /// D, `None` without a hint, and for a retry at another instance, which D does not bind.
        hint: Option<Duration>,
        /// The wait from receipt of the head.
        wait: Duration,
    },
    /// A retry left: how long it really waited, against the hint it had. Early is a defect and must stay at zero.
    RetrySent {
        /// Time since receipt of the head.
        waited: Duration,
        /// D, `None` without a hint, and for a retry at another instance, which D does not bind.
        hint: Option<Duration>,
        /// True when it left before D.
        early: bool,
    },
    /// The gauges of the destination, after a wait began or ended or the budget changed.
    Levels {
        /// Tokens left in the retry budget.
        budget: u32,
        /// Calls of the destination that wait, for a retry or behind a hold-off.
        waiting: u32,
    },
    /// A call waits behind a hold-off, until the release that it drew. One that cannot wait so long is told by
    /// `GaveUp(HeldOff)`.
    HeldBack {
        /// The wait from now.
        wait: Duration,
    },
    /// A call that was held back before its first send is sent now. (A retry that was held tells `RetrySent`.)
    Released,
    /// The hold-offs of the destination that are in force, after one was armed, grew or was ended by a success. (Those
    /// that run out are seen the next time.)
    HoldOffs {
        /// How many.
        active: u32,
    },
    /// The call stopped. Once a call, and never for one that delivers an answer.
    GaveUp(StopReason),
}

/// Where events go; `()` drops them.
pub trait Events {
    /// Called once an event.
    fn emit(&mut self, event: Event);
}

impl Events for () {
    fn emit(&mut self, _event: Event) {}
}
