//! The controller's gauges at one instant.

use std::time::Duration;

use holdoff_contract::{ServiceState, Tier};

/// Gauges of one tier.
#[derive(Clone, Debug, PartialEq)]
pub struct TierSnapshot {
    /// Which.
    pub tier: Tier,
    /// Queued tasks.
    pub queued: u32,
    /// Most tasks that may queue.
    pub queue_limit: u32,
    /// Running tasks.
    pub running: u32,
    /// Estimated work queued.
    pub queued_work: Duration,
    /// Age of the oldest queued task.
    pub oldest_age: Duration,
}

/// Estimates of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSnapshot {
    /// Name, from the profile.
    pub name: String,
    /// Mean service time.
    pub mean: Duration,
    /// Median.
    pub p50: Duration,
    /// 95th percentile.
    pub p95: Duration,
    /// Samples seen.
    pub samples: u64,
}

/// All gauges.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// State of admission.
    pub state: ServiceState,
    /// Time spent in that state.
    pub state_age: Duration,
    /// Workers of the profile.
    pub workers: u32,
    /// Workers busy.
    pub busy: u32,
    /// Per tier.
    pub tiers: Vec<TierSnapshot>,
    /// Per class.
    pub classes: Vec<ClassSnapshot>,
    /// Estimated work queued and charged, all tiers.
    pub estimated_work: Duration,
    /// Age of the oldest queued task, all tiers.
    pub oldest_age: Duration,
    /// Tickets that hold a charge.
    pub tickets: u32,
    /// Age of the controller's data (time since the last tick).
    pub staleness: Duration,
}
