//! The clairvoyant bound: the most work that could have been done in time, had everything been known beforehand.
//!
//! Work is a fluid that any worker can do at any time, and the work whose deadline is next goes first. For work that
//! counts by the amount done before its deadline, that order is optimal (an exchange argument: whatever another order does
//! in time, this one does too), and every real schedule is one of the fluid's, so nothing real can do better. It counts
//! what it did of tasks that it could not end, so it is an upper bound and not a schedule. A task whose need is longer
//! than its caller's patience is left out: one worker at a time cannot do it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Nanos;

/// Work with the time in which it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// From when.
    pub release: Nanos,
    /// Until when.
    pub deadline: Nanos,
    /// Worker time.
    pub need: Nanos,
}

/// Workers available from an instant on, until the next entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Supply {
    /// From when.
    pub from: Nanos,
    /// How many; a fraction is a worker for part of the time.
    pub workers: f64,
}

/// The most work of these jobs that this supply can do in time, in worker nanoseconds. `supply` is sorted by time.
pub fn fluid_edf(jobs: &[Job], supply: &[Supply]) -> f64 {
    schedule(jobs, supply, |_, _, _| {})
}

/// The same, telling when it works: from, until, and the work done between.
pub fn schedule(jobs: &[Job], supply: &[Supply], mut works: impl FnMut(Nanos, Nanos, f64)) -> f64 {
    let feasible = |job: &&Job| job.release.saturating_add(job.need) <= job.deadline;
    let mut jobs: Vec<&Job> = jobs.iter().filter(feasible).collect();
    jobs.sort_by_key(|job| job.release);
    let mut ready: BinaryHeap<Reverse<(Nanos, usize)>> = BinaryHeap::new();
    let mut left: Vec<f64> = jobs.iter().map(|job| job.need as f64).collect();
    let (mut done, mut now, mut next, mut at) = (0.0, 0, 0, 0);
    loop {
        while next < jobs.len() && jobs[next].release <= now {
            ready.push(Reverse((jobs[next].deadline, next)));
            next += 1;
        }
        while at + 1 < supply.len() && supply[at + 1].from <= now {
            at += 1;
        }
        while ready
            .peek()
            .is_some_and(|Reverse((deadline, _))| *deadline <= now)
        {
            ready.pop();
        }
        let change = jobs.get(next).map(|job| job.release);
        let change = change.into_iter().chain(supply.get(at + 1).map(|s| s.from)).min();
        let Some(Reverse((deadline, index))) = ready.peek().copied() else {
            // Nothing to do: on to the next job.
            let Some(job) = jobs.get(next) else { return done };
            now = job.release;
            continue;
        };
        let workers = supply
            .get(at)
            .filter(|s| s.from <= now)
            .map_or(0.0, |s| s.workers);
        let until = change.unwrap_or(Nanos::MAX).min(deadline);
        let possible = workers * (until - now) as f64;
        if possible >= left[index] {
            done += left[index];
            // Rounded up, so that time moves on whatever the numbers are.
            let end = (now + (left[index] / workers).ceil() as Nanos).min(until);
            works(now, end, left[index]);
            now = end;
            ready.pop();
        } else {
            done += possible;
            works(now, until, possible);
            left[index] -= possible;
            now = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1_000_000_000;

    fn job(release: f64, deadline: f64, need: f64) -> Job {
        let at = |s: f64| (s * S as f64) as Nanos;
        Job {
            release: at(release),
            deadline: at(deadline),
            need: at(need),
        }
    }

    fn bound(jobs: &[Job], supply: &[(f64, f64)]) -> f64 {
        let supply: Vec<Supply> = supply
            .iter()
            .map(|(from, workers)| Supply {
                from: (from * S as f64) as Nanos,
                workers: *workers,
            })
            .collect();
        (fluid_edf(jobs, &supply) / S as f64 * 1000.0).round() / 1000.0
    }

    #[test]
    fn one_worker_does_what_fits_before_each_deadline() {
        let one = [(0.0, 1.0)];
        assert_eq!(bound(&[job(0.0, 2.0, 1.0)], &one), 1.0);
        // Two of a second each until 1.5 s: one and a half are done.
        assert_eq!(bound(&[job(0.0, 1.5, 1.0), job(0.0, 1.5, 1.0)], &one), 1.5);
        // Longer than its patience: nobody can do it.
        assert_eq!(bound(&[job(0.0, 1.0, 2.0)], &one), 0.0);
    }

    #[test]
    fn the_nearer_deadline_goes_first_even_when_it_comes_later() {
        let one = [(0.0, 1.0)];
        // The long one is interrupted at 1 s for the urgent one and still ends by 4 s: 3 + 1.
        assert_eq!(bound(&[job(0.0, 4.0, 3.0), job(1.0, 2.0, 1.0)], &one), 4.0);
        // With a second less something is lost, and only that second.
        assert_eq!(bound(&[job(0.0, 3.0, 3.0), job(1.0, 2.0, 1.0)], &one), 3.0);
    }

    #[test]
    fn a_stall_takes_its_time_and_no_more() {
        let stall = [(0.0, 2.0), (1.0, 0.0), (3.0, 2.0)];
        let jobs = [job(0.0, 10.0, 4.0), job(0.5, 2.5, 2.0), job(3.0, 4.0, 1.0)];
        // Until 1 s two workers do 2 of the 7, from 3 s on they do the rest. The second job goes from 0.5 s to 1 s and
        // loses the second of work that the stall left it.
        assert_eq!(bound(&jobs, &stall), 6.0);
    }

    #[test]
    fn nothing_is_done_in_idle_time_or_without_workers() {
        assert_eq!(bound(&[], &[(0.0, 8.0)]), 0.0);
        assert_eq!(bound(&[job(0.0, 5.0, 1.0)], &[(0.0, 0.0)]), 0.0);
        assert_eq!(
            bound(&[job(0.0, 5.0, 1.0), job(100.0, 105.0, 1.0)], &[(0.0, 8.0)]),
            2.0
        );
    }

    #[test]
    fn no_order_of_small_jobs_beats_it() {
        // Unit slots, one worker: an exhaustive search over which unit of which job runs in each slot.
        fn best(slot: usize, left: &mut [u64; 3], jobs: &[(u64, u64); 3]) -> u64 {
            if slot == 6 {
                return 0;
            }
            let mut most = best(slot + 1, left, jobs);
            for n in 0..3 {
                let (release, deadline) = jobs[n];
                if left[n] > 0 && release <= slot as u64 && (slot as u64) < deadline {
                    left[n] -= 1;
                    most = most.max(1 + best(slot + 1, left, jobs));
                    left[n] += 1;
                }
            }
            most
        }
        let times = [(0, 3), (0, 6), (1, 4), (2, 4), (3, 6)];
        for a in times {
            for b in times {
                for c in times {
                    let (jobs, need) = ([a, b, c], [1, 2, 2]);
                    let fluid: Vec<Job> = (0..3)
                        .map(|n| job(jobs[n].0 as f64, jobs[n].1 as f64, need[n] as f64))
                        .collect();
                    let most = best(0, &mut need.clone(), &jobs);
                    assert_eq!(bound(&fluid, &[(0.0, 1.0)]), most as f64, "{jobs:?}");
                }
            }
        }
    }
}
