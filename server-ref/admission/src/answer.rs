//! What the controller answers, and what it asks the adapter to do.

use std::time::Duration;

use holdoff_contract::Overload;

use crate::Ticket;

/// A refusal, ready to be encoded; the adapter adds `instance` and what its trust border allows.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// Code, retry, window, scope, state, tier, min_deadline, predicted_wait.
    pub overload: Box<Overload>,
}

/// The answer at the door.
#[derive(Debug, PartialEq)]
#[must_use]
pub enum Decision {
    /// It has a place: running or queued; [`crate::Controller::next_step`] says when to start it.
    Accept {
        /// The place.
        ticket: Ticket,
        /// When it is expected to start, from now.
        predicted_wait: Duration,
    },
    /// Accepted into the bounded backlog, to be run when the state is normal again (202 routes only).
    Defer {
        /// The place.
        ticket: Ticket,
        /// When to poll first.
        poll_after: Duration,
    },
    /// Refused.
    Reject(Rejection),
}

/// Something the adapter must do now, in this order.
#[derive(Debug, PartialEq)]
#[must_use]
pub enum Step {
    /// Start the work with this [`Ticket::key`].
    Start(u64),
    /// Answer the work with this [`Ticket::key`] with the refusal; its charge is already released, and its ticket
    /// is spent.
    Refuse(u64, Rejection),
}
