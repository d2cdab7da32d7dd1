//! The controller: order of the test, queues, dispatch.

use std::time::{Duration, Instant};

use holdoff_contract::{Overload, ServiceState};

use crate::{ClassId, Ending, Events, Profile, ProfileError, Snapshot, TenantId, Ticket, Work};

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
    /// It has a place: running or queued; [`Controller::next_step`] says when to start it.
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

/// Decides admission, order and expiry for one pool of workers.
#[derive(Debug)]
pub struct Controller {
    _todo: (),
}

impl Controller {
    /// A controller with empty queues.
    ///
    /// # Errors
    /// When the profile is outside its ranges; the error names key, value and limit.
    pub fn new(profile: Profile, now: Instant) -> Result<Self, ProfileError> {
        let _ = (profile, now);
        unimplemented!("admission helper")
    }

    /// The class with this name, else `other`.
    pub fn class(&self, name: Option<&str>) -> ClassId {
        let _ = name;
        unimplemented!("admission helper")
    }

    /// The slot of this tenant (`None` = anonymous); bounded.
    pub fn tenant(&mut self, name: Option<&str>) -> TenantId {
        let _ = name;
        unimplemented!("admission helper")
    }

    /// The deadline to use for this class when the request says none or more than its maximum (SRQ-01, SRQ-03).
    pub fn deadline(&self, class: ClassId, asked: Option<Duration>) -> Duration {
        let _ = (class, asked);
        unimplemented!("admission helper")
    }

    /// Decides. Constant time, no allocation that outlives the work.
    pub fn admit(&mut self, now: Instant, work: Work, events: &mut impl Events) -> Decision {
        let _ = (now, work, events);
        unimplemented!("admission helper")
    }

    /// The next thing to do, `None` when there is nothing. Call until `None` after `admit`, `finish` and `tick`.
    pub fn next_step(&mut self, now: Instant, events: &mut impl Events) -> Option<Step> {
        let _ = (now, events);
        unimplemented!("admission helper")
    }

    /// Ends a ticket: releases exactly what was charged. A spent ticket does nothing.
    pub fn finish(&mut self, now: Instant, ticket: Ticket, ending: Ending, events: &mut impl Events) {
        let _ = (now, ticket, ending, events);
        unimplemented!("admission helper")
    }

    /// Moves the state machine; call every [`Controller::TICK`], traffic or not (ADM-19).
    pub fn tick(&mut self, now: Instant, events: &mut impl Events) {
        let _ = (now, events);
        unimplemented!("admission helper")
    }

    /// Period of [`Controller::tick`].
    pub const TICK: Duration = Duration::from_millis(100);

    /// When the earliest queued deadline passes: call [`Controller::next_step`] then (ADM-04).
    pub fn next_expiry(&self) -> Option<Instant> {
        unimplemented!("admission helper")
    }

    /// The instance goes away: everything new is refused with `draining`; what was accepted finishes.
    pub fn drain(&mut self) {
        unimplemented!("admission helper")
    }

    /// Pins the state (test fixture `force_state`), `None` to let it go.
    pub fn force_state(&mut self, now: Instant, state: Option<ServiceState>, events: &mut impl Events) {
        let _ = (now, state, events);
        unimplemented!("admission helper")
    }

    /// Gauges.
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let _ = now;
        unimplemented!("admission helper")
    }
}
