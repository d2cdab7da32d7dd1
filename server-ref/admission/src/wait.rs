//! When would this work start? The fluid answer for the scheduler that is there.
//!
//! Queued work divided by workers is wrong twice: it forgets what runs (two 20-minute tasks on two workers and an
//! empty queue are not a wait of zero), and it treats queues that take turns as one line.

use holdoff_contract::Tier;

use crate::slots::Nanos;

/// Up to this many workers each residual counts; above, their mean (the two agree there).
const EXACT: usize = Residuals::MOST_EXACT as usize;

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

/// The workers a tier can have, and when each comes free. Read once a decision, asked a few times.
#[derive(Debug)]
pub(crate) struct Residuals {
    workers: u64,
    busy: usize,
    sum: Nanos,
    kind: Kind,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "lives on the stack for one decision")]
enum Kind {
    /// Each residual, and the longest.
    Exact([Nanos; EXACT], Nanos),
    /// So many workers that only their number and their mean count.
    MeanField,
}

impl Residuals {
    /// Workers up to which each counts.
    pub(crate) const MOST_EXACT: u32 = 64;

    /// Of `busy` tasks of `work` in all, on more workers than [`Residuals::MOST_EXACT`], `effective` of which are not held.
    pub(crate) fn mean_field(workers: u32, effective: u32, busy: u32, work: Nanos) -> Self {
        Self {
            workers: u64::from(workers.min(effective.max(1))),
            busy: busy as usize,
            sum: work,
            kind: Kind::MeanField,
        }
    }

    /// Of what runs on `workers` workers, at most [`Residuals::MOST_EXACT`].
    pub(crate) fn read<'a>(now: Nanos, workers: u32, running: impl Iterator<Item = &'a Run>) -> Self {
        let (mut busy, mut sum, mut longest) = (0, 0_u64, 0);
        let mut each = [0; EXACT];
        // After a reload more may run than there are workers; beyond EXACT of them are not looked at.
        for (at, run) in each.iter_mut().zip(running) {
            *at = run.residual(now);
            sum = sum.saturating_add(*at);
            longest = longest.max(*at);
            busy += 1;
        }
        Self {
            workers: u64::from(workers.max(1)),
            busy,
            sum,
            kind: Kind::Exact(each, longest),
        }
    }

    /// The smallest t at which they have done `work`, each beginning when its residual is over: sum of
    /// max(0, t - residual) = work. With no work ahead it is the smallest residual.
    pub(crate) fn fill(&self, work: Nanos) -> Nanos {
        let busy = self.busy as u64;
        let idle = self.workers.saturating_sub(busy);
        let Kind::Exact(each, longest) = &self.kind else {
            // n busy workers end a task every mean / n.
            let mean = if idle == 0 { self.sum / busy.max(1) } else { 0 };
            return work.saturating_add(mean) / self.workers;
        };
        let each = &each[..self.busy];
        if work == 0 {
            let least = each.iter().copied().min().unwrap_or(0);
            return if idle > 0 { 0 } else { least };
        }
        // With enough work for everybody there is nobody to leave out.
        let all = work.saturating_add(self.sum) / (busy + idle).max(1);
        if all >= *longest {
            return all;
        }
        // Water filling: take everybody in, then leave out those that are busy beyond the level, until nobody is. The
        // level only falls, so this ends.
        let (mut n, mut sum, mut level) = (busy + idle, self.sum, Nanos::MAX);
        loop {
            let next = work.saturating_add(sum) / n.max(1);
            if next >= level {
                return level;
            }
            level = next;
            let below = |residual: &Nanos| {
                if *residual <= level {
                    (1, *residual)
                } else {
                    (0, 0)
                }
            };
            (n, sum) = each
                .iter()
                .map(below)
                .fold((idle, 0), |(n, sum), (one, r)| (n + one, sum + r));
        }
    }
}

/// One tier, as a newcomer of another tenant or tier meets it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lane {
    /// Charges that wait.
    pub(crate) work: Nanos,
    /// Tasks that wait.
    pub(crate) tasks: u32,
    /// Tenants of it whose turn can come.
    pub(crate) tenants: u32,
    /// Work it is given, in workers: what comes later takes turns too.
    pub(crate) inflow: f64,
    /// Weight in the dispatch.
    pub(crate) weight: f64,
}

/// What a newcomer's own tenant has in its tier.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    /// Charges that wait.
    pub(crate) work: Nanos,
    /// How far it is ahead of the others' turns by what it was served already.
    pub(crate) lead: Nanos,
    /// Tenants that ask, itself among them: who has nothing waiting now may have before its turn has come.
    pub(crate) askers: u32,
}

/// The work that is done before a newcomer to `lanes[tier]` starts, if that takes `meanwhile`. Of its tier: its tenant's
/// own work, and of those that have something waiting at most their turns until then (they are taken as equally backlogged; exact
/// would be a sum over the tenants). Of those that have nothing waiting yet, a task each, as far as that much comes: where many tenants
/// have little each, most of what passes a tenant's second task is theirs. Of the other tiers: at most their share by weight.
pub(crate) fn ahead(lanes: &[Lane; 3], tier: usize, own: Own, meanwhile: Nanos) -> Nanos {
    let lane = &lanes[tier];
    let comes = |lane: &Lane| (lane.inflow * meanwhile as f64) as Nanos;
    let task = lane.work / u64::from(lane.tasks.max(1));
    let others = u64::from(lane.tenants.saturating_sub(u32::from(own.work > 0)));
    let turn = own.work.saturating_add(own.lead);
    let until = turn.saturating_add(task);
    let waiting = lane.work - own.work.min(lane.work);
    // With no turn to wait for, it lets pass only those that are level with it, and nobody who comes later.
    let passing = if turn == 0 {
        waiting.min(others.saturating_mul(until))
    } else {
        let comes = comes(lane);
        let absent = u64::from(own.askers).saturating_sub(others + 1);
        let of_absent = (comes as f64 * absent as f64 / f64::from(own.askers.max(1))) as Nanos;
        let all = waiting.saturating_add(comes);
        let of_others = all.min(others.saturating_mul(until));
        of_others
            .saturating_add(of_absent.min(absent.saturating_mul(task)))
            .min(all)
    };
    let in_tier = own.work.saturating_add(passing);
    let share = |other: &Lane| (in_tier as f64 * other.weight / lane.weight) as Nanos;
    (0..3)
        .filter(|other| *other != tier)
        .map(|other| &lanes[other])
        .fold(in_tier, |sum, other| {
            sum.saturating_add(other.work.saturating_add(comes(other)).min(share(other)))
        })
}

/// The least wait that is as long as what it itself lets in makes it: `fill(ahead(w)) = w`. Under overload each round of putting the answer
/// in again adds nearly as much as the one before, so a few rounds stop far short of it. But a wait only grows with what is put in, and ever
/// less steeply
/// (each part of it is bounded), so a line through two of its points meets the answer or lies above it: from below that
/// says where to go on, from above it is an answer on the safe side.
pub(crate) fn settled(ahead: impl Fn(Nanos) -> Nanos, fill: impl Fn(Nanos) -> Nanos) -> Nanos {
    let meet = |from: Nanos, to: Nanos, then: Nanos| {
        let slope = to.abs_diff(then) as f64 / (from.abs_diff(to) as f64).max(1.0);
        let rest = to.abs_diff(then) as f64 / (1.0 - slope);
        (slope < 1.0).then_some(rest as Nanos)
    };
    let at_once = ahead(0);
    let first = fill(at_once);
    let more = ahead(first);
    if more <= at_once {
        return first;
    }
    let wait = |meanwhile| fill(ahead(meanwhile));
    let second = fill(more);
    // Where the line never meets it, what bounds its parts is the answer.
    let above = meet(0, first, second).map_or(Nanos::MAX / 4, |rest| first.saturating_add(rest));
    let third = wait(above);
    if third >= above {
        return third;
    }
    let fourth = wait(third);
    let rest = meet(above, third, fourth).unwrap_or(0);
    third.saturating_sub(rest).max(second)
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

    fn fluid(now: Nanos, workers: u32, running: &[Run], work: Nanos) -> Nanos {
        Residuals::read(now, workers, running.iter()).fill(work)
    }

    #[test]
    fn two_long_tasks_on_two_workers_and_an_empty_queue_are_not_a_wait_of_zero() {
        let running = [run(0, 1_200_000), run(0, 1_200_000)];
        assert_eq!(fluid(600_000 * MS, 2, &running, 0), 600_000 * MS);
        assert_eq!(fluid(0, 3, &running, 0), 0);
    }

    #[test]
    fn work_fills_the_workers_in_the_order_they_come_free() {
        let running = [run(0, 100), run(0, 300), run(0, 10_000)];
        // 100..300 on one, then two share: 200 + 2 x 50 = 300.
        assert_eq!(fluid(0, 3, &running, 300 * MS), 350 * MS);
        // An idle fourth takes it all.
        assert_eq!(fluid(0, 4, &running, 100 * MS), 100 * MS);
    }

    #[test]
    fn above_64_workers_the_mean_field_agrees_with_the_exact_answer() {
        let runs: Vec<Run> = (0..64).map(|n| run(n * MS * 100 / 64, 100)).collect();
        let exact = fluid(100 * MS, 64, &runs, 6_400 * MS);
        let mean = Residuals::mean_field(65, 65, 65, 65 * 100 * MS).fill(6_500 * MS);
        assert!(exact.abs_diff(mean) < 60 * MS, "{exact} {mean}");
    }

    #[test]
    fn held_workers_leave_the_mean_field_too() {
        let wait = |effective| Residuals::mean_field(100, effective, 100, 10_000 * MS).fill(10_000 * MS);
        assert_eq!((wait(100), wait(1)), (101 * MS, 10_100 * MS));
    }

    #[test]
    fn a_worker_over_its_p95_is_taken_to_last_as_long_again() {
        let r = run(0, 100);
        assert_eq!(r.residual(0), 100 * MS);
        assert_eq!(r.residual(150 * MS), 0);
        assert_eq!(r.residual(2_150 * MS), 2_000 * MS);
        assert!(!r.is_held(900 * MS) && r.is_held(1_001 * MS));
    }

    fn own(work_ms: u64) -> Own {
        Own {
            work: work_ms * MS,
            ..Own::default()
        }
    }

    fn lane(work_ms: u64, tasks: u32, tenants: u32, weight: f64) -> Lane {
        Lane {
            work: work_ms * MS,
            tasks,
            tenants,
            inflow: 0.0,
            weight,
        }
    }

    #[test]
    fn a_quiet_tenant_waits_for_turns_and_not_for_the_backlog() {
        let lanes = |tenants| {
            [
                lane(0, 0, 0, 0.5),
                lane(0, 0, 0, 0.3),
                lane(10_000, 100, tenants, 0.2),
            ]
        };
        assert_eq!(ahead(&lanes(1), 2, Own::default(), 0), 100 * MS);
        // The heavy one has its own before it, and one turn of the other each time.
        assert_eq!(ahead(&lanes(2), 2, own(9_900), 0), 10_000 * MS);
    }

    #[test]
    fn what_a_tenant_was_served_already_counts_as_turns_of_the_others() {
        let lanes = [lane(0, 0, 0, 0.5), lane(0, 0, 0, 0.3), lane(5_000, 50, 4, 0.2)];
        assert_eq!(
            ahead(
                &lanes,
                2,
                Own {
                    lead: 400 * MS,
                    ..Own::default()
                },
                0
            ),
            4 * 500 * MS
        );
    }

    #[test]
    fn other_tiers_count_by_weight_and_by_what_they_have() {
        let lanes = [lane(1_000, 10, 1, 0.5), lane(10, 1, 1, 0.3), lane(100, 1, 1, 0.2)];
        assert_eq!(ahead(&lanes, 2, own(100), 0), (100 + 250 + 10) * MS);
    }

    #[test]
    fn who_has_nothing_waiting_yet_may_pass_with_a_task_before_a_tenants_second() {
        let mut lanes = [Lane::default(), Lane::default(), lane(400, 4, 4, 1.0)];
        lanes[2].inflow = 1.0;
        let own = |askers| Own { askers, ..own(100) };
        // Three others with a turn of two tasks each.
        assert_eq!(ahead(&lanes, 2, own(4), 10_000 * MS), (100 + 3 * 200) * MS);
        // And six that are not there yet.
        assert_eq!(
            ahead(&lanes, 2, own(10), 10_000 * MS),
            (100 + 3 * 200 + 6 * 100) * MS
        );
        // But not more than comes.
        assert_eq!(ahead(&lanes, 2, own(10), 100 * MS), (100 + 300 + 100) * MS);
    }

    #[test]
    fn a_wait_settles_where_it_lets_in_what_it_takes_and_above_rather_than_below() {
        let slope = |slope: f64, base: u64, most: u64| {
            move |wait: Nanos| ((slope * wait as f64) as Nanos + base).min(most)
        };
        assert_eq!(settled(slope(0.0, 500, 9_000), |work| work), 500);
        assert!(settled(slope(0.9, 500, 90_000), |work| work).abs_diff(5_000) <= 2);
        // What comes in as fast as it goes out never settles: its bound is the answer.
        assert_eq!(settled(slope(1.0, 500, 90_000), |work| work), 90_000);
        assert_eq!(settled(slope(3.0, 500, 90_000), |work| work), 90_000);
        // Half of it up to 1000, from there a quarter: they meet w at 1200.
        let bent = |wait: Nanos| 650 + (wait / 2).min(500) + wait.saturating_sub(1_000) / 4;
        let answer = settled(bent, |work| work);
        assert!((1_199..=1_300).contains(&answer), "{answer}");
    }

    #[test]
    fn what_comes_meanwhile_takes_its_turns_too() {
        let mut lanes = [lane(0, 0, 0, 0.5), lane(0, 0, 0, 0.3), lane(100, 1, 1, 0.2)];
        lanes[0].inflow = 0.5;
        assert_eq!(ahead(&lanes, 2, own(100), 0), 100 * MS);
        assert_eq!(ahead(&lanes, 2, own(100), 200 * MS), 200 * MS);
        assert_eq!(ahead(&lanes, 2, own(100), 10_000 * MS), 350 * MS);
    }
}
