//! What happened, for the adapter to count and log.

use std::time::Duration;

use holdoff_contract::{Code, ServiceState, Tier};

use crate::{ClassId, GhostOutcome, HintOutcome, TenantId};

/// One thing worth counting.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Decided at the door.
    Decided {
        /// `None` = accept or defer.
        code: Option<Code>,
        /// True for outcome=defer.
        deferred: bool,
        /// Effective tier.
        tier: Tier,
        /// Kind.
        class: ClassId,
        /// Whose; for sampled logs only, never a label.
        tenant: TenantId,
        /// The wait that was predicted.
        predicted_wait: Duration,
    },
    /// Started on a worker.
    Started {
        /// Kind.
        class: ClassId,
        /// Effective tier.
        tier: Tier,
        /// Time since admission.
        start_delay: Duration,
        /// The wait that was predicted at admission.
        predicted_wait: Duration,
    },
    /// Left, having run.
    Finished {
        /// Kind.
        class: ClassId,
        /// Effective tier.
        tier: Tier,
        /// Time from start to end.
        service: Duration,
        /// True when it ended after its deadline.
        late: bool,
    },
    /// Taken out of the queue before it started.
    Refused {
        /// Kind.
        class: ClassId,
        /// Effective tier.
        tier: Tier,
        /// Why.
        code: Code,
    },
    /// It is known what a caller made of its hint.
    HintEnded {
        /// Effective tier.
        tier: Tier,
        /// What.
        outcome: HintOutcome,
    },
    /// It is known what would have become of refused work.
    Ghost {
        /// Kind.
        class: ClassId,
        /// Effective tier.
        tier: Tier,
        /// Why it was refused.
        code: Code,
        /// What.
        outcome: GhostOutcome,
    },
    /// The state changed.
    Transition {
        /// Old state.
        from: ServiceState,
        /// New state.
        to: ServiceState,
    },
}

/// Where events go; `()` drops them.
pub trait Events {
    /// Called once an event.
    fn emit(&mut self, event: Event);
}

impl Events for () {
    fn emit(&mut self, _event: Event) {}
}

impl Events for Vec<Event> {
    fn emit(&mut self, event: Event) {
        self.push(event);
    }
}
