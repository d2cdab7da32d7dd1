//! When would this work start? The fluid answer for the scheduler that is there.
//!
//! Queued work divided by workers is wrong twice: it forgets what runs (two 20-minute tasks on two workers and an
//! empty queue are not a wait of zero), and it treats queues that take turns as one line.

use holdoff_contract::Tier;

use crate::slots::Nanos;

/// Up to this many workers each residual counts; above, their mean (the two agree there).
const EXACT: usize = 64;

/// A task on a worker.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) slot: u32,
    pub(crate) tier: Tier,
    pub(crate) started: Nanos,
    pub(crate) mean: Nanos,
    pub(crate) p95: Nanos,
}

impl Run {
    /// What is left of it: the rest of its mean, and once that is over a quarter of the rest of its p95. What is over
    /// its p95 is taken to last as long again: that is how a held worker leaves the capacity.
    pub(crate) fn residual(&self, now: Nanos) -> Nanos {
        let ran = now.saturating_sub(self.started);
        if ran < self.p95 {
            self.mean.saturating_sub(ran).max((self.p95 - ran) / 4)
        } else {
            ran - self.p95
        }
    }

    /// Held or vanished: no sign of life for longer than any sample would count.
    pub(crate) fn is_held(&self, now: Nanos) -> bool {
        let most = self
            .mean
            .saturating_mul(8)
            .max(self.p95.saturating_mul(2))
            .max(1_000_000_000);
        now.saturating_sub(self.started) > most
    }
}

/// The smallest t at which `workers` have done `work`, those in `running` beginning when their residual is over:
/// sum of max(0, t - residual) = work. With no work ahead it is the smallest residual.
pub(crate) fn fluid<'a>(
    now: Nanos,
    workers: u32,
    running: impl Iterator<Item = &'a Run> + Clone,
    work: Nanos,
) -> Nanos {
    let (mut busy, mut sum, mut least) = (0_u32, 0_u64, Nanos::MAX);
    let exact = workers as usize <= EXACT;
    for run in running.clone() {
        let residual = if exact { run.residual(now) } else { run.mean };
        busy += 1;
        sum = sum.saturating_add(residual);
        least = least.min(residual);
    }
    let workers = workers.max(1);
    if !exact {
        // n busy workers end a task every mean / n.
        let mean = if busy >= workers { sum / u64::from(busy) } else { 0 };
        return work.saturating_add(mean) / u64::from(workers);
    }
    let idle = workers.saturating_sub(busy);
    if work == 0 {
        return if idle > 0 || busy == 0 { 0 } else { least };
    }
    // Water filling: take everybody in, then leave out those that are busy beyond the level, until nobody is.
    let (mut n, mut level) = (u64::from(busy + idle), Nanos::MAX);
    loop {
        let next = work.saturating_add(sum) / n.max(1);
        if next >= level {
            return level;
        }
        level = next;
        (n, sum) = (u64::from(idle), 0);
        for residual in running
            .clone()
            .map(|run| run.residual(now))
            .filter(|residual| *residual <= level)
        {
            n += 1;
            sum = sum.saturating_add(residual);
        }
        if n == 0 {
            return least;
        }
    }
}

/// What would be served before a newcomer of one tenant in one tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// Work of the same tenant and of the whole tier that waits.
    pub(crate) own: Nanos,
    pub(crate) tier: Nanos,
    /// Tenants of the tier that wait.
    pub(crate) tenants: u32,
    /// What the newcomer is charged.
    pub(crate) charge: Nanos,
}

impl Ahead {
    /// The tier's work that goes before: the tenant's own, and of the others at most their turns meanwhile. The
    /// others' sub-queues are taken as equally long (a first cut; exact would be a sum over the tenants).
    pub(crate) fn in_tier(&self) -> Nanos {
        let others = self.tier.saturating_sub(self.own);
        if self.own == 0 {
            // The least-served tenant goes next: a newcomer waits for no turn but those that are level with it.
            return others.min(u64::from(self.tenants) * self.charge);
        }
        let turns =
            u64::from(self.tenants.saturating_sub(1)).saturating_mul(self.own.saturating_add(self.charge));
        self.own.saturating_add(others.min(turns))
    }
}

/// Adds what the other tiers get meanwhile, by weight, of what they have.
pub(crate) fn with_other_tiers(ahead: Nanos, tier: usize, waiting: [Nanos; 3], weights: [f64; 3]) -> Nanos {
    let share = |other: usize| ahead as f64 * weights[other] / weights[tier];
    (0..3).filter(|other| *other != tier).fold(ahead, |sum, other| {
        sum.saturating_add(waiting[other].min(share(other) as Nanos))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn run(started: Nanos, mean_ms: u64) -> Run {
        Run {
            slot: 0,
            tier: Tier::Deferrable,
            started,
            mean: mean_ms * MS,
            p95: mean_ms * 3 / 2 * MS,
        }
    }

    #[test]
    fn two_long_tasks_on_two_workers_and_an_empty_queue_are_not_a_wait_of_zero() {
        let running = [run(0, 1_200_000), run(0, 1_200_000)];
        assert_eq!(fluid(600_000 * MS, 2, running.iter(), 0), 600_000 * MS);
        assert_eq!(fluid(0, 3, running.iter(), 0), 0);
    }

    #[test]
    fn work_fills_the_workers_in_the_order_they_come_free() {
        let running = [run(0, 100), run(0, 300), run(0, 10_000)];
        // 100..300 on one, then two share: 200 + 2 x 50 = 300.
        assert_eq!(fluid(0, 3, running.iter(), 300 * MS), 350 * MS);
        // An idle fourth takes it all.
        assert_eq!(fluid(0, 4, running.iter(), 100 * MS), 100 * MS);
    }

    #[test]
    fn above_64_workers_the_mean_field_agrees_with_the_exact_answer() {
        let runs: Vec<Run> = (0..64).map(|n| run(n * MS * 100 / 64, 100)).collect();
        let exact = fluid(100 * MS, 64, runs.iter(), 6_400 * MS);
        let more: Vec<Run> = (0..65).map(|n| run(n * MS * 100 / 65, 100)).collect();
        let mean = fluid(100 * MS, 65, more.iter(), 6_500 * MS);
        assert!(exact.abs_diff(mean) < 60 * MS, "{exact} {mean}");
    }

    #[test]
    fn a_worker_over_its_p95_is_taken_to_last_as_long_again() {
        let r = run(0, 100);
        assert_eq!(r.residual(0), 100 * MS);
        assert_eq!(r.residual(150 * MS), 0);
        assert_eq!(r.residual(2_150 * MS), 2_000 * MS);
        assert!(!r.is_held(900 * MS) && r.is_held(1_001 * MS));
    }

    #[test]
    fn a_quiet_tenant_waits_for_turns_and_not_for_the_backlog() {
        let a = Ahead {
            own: 0,
            tier: 10_000 * MS,
            tenants: 1,
            charge: 100 * MS,
        };
        assert_eq!(a.in_tier(), 100 * MS);
        let heavy = Ahead {
            own: 10_000 * MS,
            tier: 10_100 * MS,
            tenants: 2,
            charge: 100 * MS,
        };
        assert_eq!(heavy.in_tier(), 10_100 * MS);
    }

    #[test]
    fn other_tiers_count_by_weight_and_by_what_they_have() {
        let waiting = [1_000 * MS, 10 * MS, 0];
        let all = with_other_tiers(100 * MS, 2, waiting, [0.5, 0.3, 0.2]);
        assert_eq!(all, (100 + 250 + 10) * MS);
    }
}
