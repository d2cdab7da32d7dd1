//! What asks to be admitted, and what it is given.

use std::time::{Duration, Instant};

use holdoff_contract::Tier;

/// A task class of the profile, by position; unknown names map to `other` (SRQ-07).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassId(pub(crate) u16);

/// A tenant's slot in the controller's bounded table. Unknown tenants beyond its size share 64 slots by hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TenantId(pub(crate) u32);

/// Who named the deadline of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeadlineOf {
    /// Its caller: it will not wait for longer, so a hint that its deadline cannot hold is sent with retry=no.
    Caller,
    /// Its class, since the caller said nothing (SRQ-01). It bounds what is admitted, but a refused caller may come back
    /// whenever it likes: retry=after.
    Class,
}

/// A request for admission. All trust decisions (tenant, tier right, clamps) are made before.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Whose.
    pub tenant: TenantId,
    /// Kind.
    pub class: ClassId,
    /// Effective tier.
    pub tier: Tier,
    /// When its caller stops waiting: never infinity (SRQ-01).
    pub deadline: Instant,
    /// Who said so.
    pub deadline_of: DeadlineOf,
    /// Reported cost; the charge stays within the class's [p50, p95] (ADM-10).
    pub cost: Option<Duration>,
    /// Payload size.
    pub bytes: u64,
    /// The route answers 202 anyway, so deferral is possible (SRV-21).
    pub may_defer: bool,
}

/// A place in the controller: what was charged is what is released, once, by [`crate::Controller::finish`]
/// (ADM-15). Not `Clone`; adapters wrap it in a guard that finishes on drop.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "a ticket holds a charge until `Controller::finish`"]
pub struct Ticket {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Ticket {
    /// A key for the adapter's own table; unique over the controller's life.
    pub fn key(&self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.slot)
    }
}

/// How admitted work ended. Every ending releases; only some are samples of service time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Ran to its end; `service` is a sample.
    Completed {
        /// Time from start to end.
        service: Duration,
    },
    /// The handler failed or panicked.
    Failed {
        /// Time from start to failure.
        service: Duration,
    },
    /// Cut off by its limit: a sample of at least this length.
    TimedOut {
        /// Time from start to cut.
        service: Duration,
    },
    /// The caller went away, queued or running.
    Cancelled,
}
