//! The workers: who runs, and who may start.

use holdoff_contract::Tier;

use crate::profile::Profile;
use crate::slots::Nanos;
use crate::wait::{Residuals, Run};

/// Workers and what is on them.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) workers: u32,
    reserved: u32,
    slots: [u32; 3],
    running: Vec<Run>,
    by_tier: [u32; 3],
    /// Charges of what runs, a tier.
    work: [Nanos; 3],
    /// Workers that are not held, measured each tick.
    pub(crate) effective: u32,
}

impl Pool {
    pub(crate) fn new(profile: &Profile) -> Self {
        Self {
            workers: profile.workers,
            reserved: profile.reserved_workers(),
            slots: [Tier::Critical, Tier::NonSheddable, Tier::Deferrable].map(|tier| profile.slots(tier)),
            running: Vec::with_capacity(profile.workers as usize),
            by_tier: [0; 3],
            work: [0; 3],
            effective: profile.workers,
        }
    }

    /// Takes another profile's numbers; who runs goes on running.
    pub(crate) fn reload(&mut self, profile: &Profile) {
        let running = std::mem::take(&mut self.running);
        *self = Self {
            by_tier: self.by_tier,
            work: self.work,
            running,
            ..Self::new(profile)
        };
    }

    pub(crate) fn busy(&self) -> u32 {
        self.running.len() as u32
    }

    /// Workers with nothing to do; after a reload more may run than there are workers now.
    pub(crate) fn idle(&self) -> u32 {
        self.workers.saturating_sub(self.busy())
    }

    pub(crate) fn running(&self, tier: Tier) -> u32 {
        self.by_tier[tier.index()]
    }

    /// A tier with no slot is closed, idle server or not.
    pub(crate) fn is_closed(&self, tier: Tier) -> bool {
        self.slots[tier.index()] == 0
    }

    /// Is there a worker for this tier now? One reserved for critical is lent only to work that fits inside its slack.
    pub(crate) fn can_start(&self, tier: Tier, may_borrow: bool) -> bool {
        self.room(tier, may_borrow) > 0
    }

    /// Workers this tier could have now.
    pub(crate) fn room(&self, tier: Tier, may_borrow: bool) -> u32 {
        let idle = self.idle();
        let own = self.slots[tier.index()].saturating_sub(self.by_tier[tier.index()]);
        let unreserved = if tier == Tier::Critical || may_borrow {
            idle
        } else {
            let others = self.busy() - self.by_tier[Tier::Critical.index()];
            (self.workers - self.reserved).saturating_sub(others)
        };
        idle.min(own).min(unreserved)
    }

    /// When the workers that this tier can have come free.
    pub(crate) fn residuals(&self, now: Nanos, tier: Tier, may_borrow: bool) -> Residuals {
        let slots = self.slots[tier.index()];
        // Which workers, and the tiers that run on them.
        let (workers, counts): (u32, [bool; 3]) = if slots < self.workers {
            (slots, [0, 1, 2].map(|other| other == tier.index()))
        } else if tier == Tier::Critical || may_borrow || self.reserved == 0 {
            (self.workers, [true; 3])
        } else {
            let critical = Tier::Critical.index();
            (
                self.workers - self.reserved,
                [0, 1, 2].map(|other| other != critical),
            )
        };
        if workers > Residuals::MOST_EXACT {
            let counted = (0..3).filter(|other| counts[*other]);
            let busy = counted.clone().map(|other| self.by_tier[other]).sum();
            let work = counted.map(|other| self.work[other]).sum();
            return Residuals::mean_field(workers, self.effective, busy, work);
        }
        let running = self.running.iter().filter(|run| counts[run.tier.index()]);
        Residuals::read(now, workers, running)
    }

    /// Puts a task on a worker; its index in the list.
    pub(crate) fn start(&mut self, run: Run) -> usize {
        self.by_tier[run.tier.index()] += 1;
        self.work[run.tier.index()] += run.mean;
        self.running.push(run);
        self.running.len() - 1
    }

    /// Takes it off; the slot that moved to its index, if one did.
    pub(crate) fn stop(&mut self, index: usize) -> Option<u32> {
        let run = self.running.swap_remove(index);
        self.by_tier[run.tier.index()] -= 1;
        self.work[run.tier.index()] -= run.mean;
        self.running.get(index).map(|moved| moved.slot)
    }

    /// Was the task at this index held, or is it?
    pub(crate) fn is_held(&self, index: usize, now: Nanos) -> bool {
        self.running.get(index).is_some_and(|run| run.is_held(now))
    }

    pub(crate) fn measure(&mut self, now: Nanos) {
        let held = self.running.iter().filter(|run| run.is_held(now)).count() as u32;
        self.effective = self.workers.saturating_sub(held).max(1);
    }
}
