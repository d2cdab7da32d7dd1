//! The work that asks, and when it would start.
//!
//! All limits are about time, so the test needs one prediction: what is ahead in a scheduler that gives each tier its share
//! and each tenant its turn, and what runs by its residual. It is made once for each task that asks.

use holdoff_contract::Tier;

use crate::slots::Nanos;
use crate::wait::ahead;
use crate::{ClassId, Controller, DeadlineOf, TenantId, Work};

/// Rounds of the prediction.
const ROUNDS: u32 = 3;

/// The work that asks, with what was looked up for it once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) now: Nanos,
    pub(crate) tenant: TenantId,
    pub(crate) class: ClassId,
    pub(crate) tier: Tier,
    pub(crate) deadline: Nanos,
    pub(crate) deadline_of: DeadlineOf,
    pub(crate) remaining: Nanos,
    pub(crate) charge: Nanos,
    pub(crate) bytes: u64,
    pub(crate) may_defer: bool,
    /// Its key tells it from others, so that the edge stops it when it asks again before its hint: it stands in a line once.
    pub(crate) known: bool,
    /// A worker is idle and nothing is ahead.
    pub(crate) starts: bool,
    /// Nothing but its tenant's own active limit keeps it from a worker.
    pub(crate) waits_for_itself: bool,
    /// Until it starts.
    pub(crate) wait: Nanos,
    /// The same if its tenant had no active limit of its own: not more.
    pub(crate) wait_for_others: Nanos,
}

impl Ask {
    /// The same without the active limit of its tenant; `None` where that changes nothing.
    pub(crate) fn unlimited(self, starts: bool) -> Option<Self> {
        (self.waits_for_itself || self.wait > self.wait_for_others).then_some(Self {
            starts,
            waits_for_itself: false,
            wait: if starts { 0 } else { self.wait_for_others },
            ..self
        })
    }
}

impl Controller {
    pub(crate) fn ask(&self, now: Nanos, work: &Work) -> Ask {
        let class = &self.classes[usize::from(work.class.0)];
        let deadline = self.nanos(work.deadline);
        let mut ask = Ask {
            now,
            tenant: work.tenant,
            class: work.class,
            tier: work.tier,
            deadline,
            deadline_of: work.deadline_of,
            remaining: deadline.saturating_sub(now),
            charge: class.charge(work.cost),
            bytes: work.bytes,
            may_defer: work.may_defer,
            known: false,
            starts: false,
            waits_for_itself: false,
            wait: 0,
            wait_for_others: 0,
        };
        self.look_ahead(&mut ask);
        ask
    }

    /// When would it start?
    pub(crate) fn look_ahead(&self, ask: &mut Ask) {
        let room = self.pool.room(ask.tier, self.may_borrow(ask.class));
        let at_limit = self.tenants[ask.tenant.0].at_active_limit();
        ask.starts = !at_limit && self.is_first(ask.tier, room);
        ask.waits_for_itself = at_limit && room > 0;
        if !ask.starts {
            (ask.wait, ask.wait_for_others) = self.predict(ask);
        }
    }

    /// Of `room` idle workers, is one left for a newcomer to this tier after what waits?
    pub(crate) fn is_first(&self, tier: Tier, room: u32) -> bool {
        if room == 0 {
            return false;
        }
        let ahead = Tier::ALL.iter().map(|other| {
            let waiting = self.queues.startable(other.index());
            if *other == tier || waiting == 0 {
                waiting
            } else {
                waiting.min(self.pool.room(*other, false))
            }
        });
        room > ahead.sum::<u32>()
    }

    /// Until it starts, with and without its tenant's own active limit.
    fn predict(&self, ask: &Ask) -> (Nanos, Nanos) {
        let lane = ask.tier.index();
        let tenant = &self.tenants[ask.tenant.0];
        let lanes = [0, 1, 2].map(|lane| self.queues.seen(lane, self.bounds.weights[lane]));
        let own = self.queues.own(tenant, lane);
        let workers = self.pool.residuals(ask.now, ask.tier, self.may_borrow(ask.class));
        // What comes while it waits depends on how long it waits; a few rounds are enough.
        let (mut wait, mut work) = (0, Nanos::MAX);
        for _ in 0..ROUNDS {
            let more = ahead(&lanes, lane, own, wait);
            if more == work {
                break;
            }
            work = more;
            wait = workers.fill(work);
        }
        if tenant.active_limit >= self.pool.workers || tenant.running + tenant.lanes[lane].len == 0 {
            return (wait, wait);
        }
        // It waits for itself: what runs of it is on average half done.
        let own = (tenant.queued_work() + tenant.running_work / 2) / u64::from(tenant.active_limit);
        (wait.max(own), wait)
    }

    /// Until the first worker that it can have comes free.
    pub(crate) fn first_worker(&self, ask: &Ask) -> Nanos {
        let workers = self.pool.residuals(ask.now, ask.tier, self.may_borrow(ask.class));
        workers.fill(0)
    }

    /// May this class have a worker that is reserved for critical? Only if its p95 fits critical's tightest slack.
    pub(crate) fn may_borrow(&self, class: ClassId) -> bool {
        self.classes[usize::from(class.0)].times.p95 <= self.bounds.critical_slack
    }

    pub(crate) fn margin(&self, class: ClassId) -> Nanos {
        let p95 = self.classes[usize::from(class.0)].times.p95;
        self.bounds
            .margin
            .max((p95 as f64 * self.profile.margin_share) as Nanos)
    }
}
