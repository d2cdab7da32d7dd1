//! The controller's gauges at one instant.

use std::time::{Duration, Instant};

use holdoff_contract::{ServiceState, Tier};

use crate::Controller;
use crate::queues::BACKLOG;
use crate::slots::Nanos;

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
    /// Mean absolute error of the predicted wait (A6).
    pub wait_error: Duration,
    /// Mean absolute error of the mean as a prediction of one service time (A6).
    pub service_error: Duration,
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
    /// Deferred tasks that wait for the state to be normal.
    pub backlog: u32,
    /// Payload bytes queued.
    pub queued_bytes: u64,
    /// Workers that are not held.
    pub effective_workers: u32,
    /// The wait bound W of each tier, as far as the state opens it.
    pub wait_bounds: [Duration; 3],
    /// True once [`crate::Controller::drain`] was called.
    pub draining: bool,
    /// Tickets that hold a charge.
    pub tickets: u32,
    /// Age of the controller's data (time since the last tick).
    pub staleness: Duration,
}

impl Controller {
    /// Gauges, computed from what is there: nothing to drift (ADM-15).
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let now = self.nanos(now);
        let tiers: Vec<TierSnapshot> = Tier::ALL
            .iter()
            .map(|tier| self.tier_snapshot(*tier, now))
            .collect();
        Snapshot {
            state: self.machine.state(),
            state_age: Duration::from_nanos(self.machine.age(now)),
            workers: self.pool.workers,
            busy: self.pool.busy(),
            estimated_work: Duration::from_nanos(self.queues.work + self.running_work),
            oldest_age: tiers.iter().map(|tier| tier.oldest_age).max().unwrap_or_default(),
            tiers,
            classes: self.class_snapshots(),
            backlog: self.queues.len(BACKLOG),
            queued_bytes: self.queues.bytes,
            effective_workers: self.pool.effective,
            wait_bounds: [Tier::Critical, Tier::NonSheddable, Tier::Deferrable]
                .map(|tier| Duration::from_nanos(self.open_wait(tier))),
            draining: self.draining,
            tickets: self.slots.in_use() as u32,
            staleness: Duration::from_nanos(now.saturating_sub(self.last_tick)),
        }
    }

    fn tier_snapshot(&self, tier: Tier, now: Nanos) -> TierSnapshot {
        let lane = tier.index();
        let oldest = self
            .queues
            .oldest(lane)
            .map_or(0, |index| now.saturating_sub(self.slots[index].admitted));
        TierSnapshot {
            tier,
            queued: self.queues.len(lane),
            queue_limit: self.bounds.queue[lane],
            running: self.pool.running(tier),
            queued_work: Duration::from_nanos(self.queues.lane_work(lane)),
            oldest_age: Duration::from_nanos(oldest),
        }
    }

    fn class_snapshots(&self) -> Vec<ClassSnapshot> {
        let snapshot = |class: &crate::estimator::Class| ClassSnapshot {
            name: class.name.clone(),
            mean: Duration::from_nanos(class.times.mean),
            p50: Duration::from_nanos(class.times.p50),
            p95: Duration::from_nanos(class.times.p95),
            samples: class.samples,
            wait_error: Duration::from_nanos(class.wait_error as u64),
            service_error: Duration::from_nanos(class.service_error as u64),
        };
        self.classes.iter().map(snapshot).collect()
    }
}
