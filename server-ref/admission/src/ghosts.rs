//! Was it right to refuse? What would have become of refused work, reckoned while the server goes on.
//!
//! Taken one by one, nearly every refusal of an overloaded server looks wrong: that one task would have fitted, had the
//! others been refused in its place. So two figures are kept apart (DESIGN section 4). A *ghost* takes a refused task's
//! place in the queue without weight, and starts when a worker comes free behind what was ahead of it: in time or not,
//! an upper bound of what was refused wrongly. It counts as *avoidable* only where workers also stood idle for as long as it
//! would have run, before its deadline, and no other ghost has used that time.

use std::collections::VecDeque;

use holdoff_contract::{Code, Tier};

use crate::pool::Pool;
use crate::queues::Queues;
use crate::slots::Nanos;
use crate::{ClassId, Event, Events};

/// Ghosts that are followed at once, a tier; what is refused beyond them is not reckoned.
const MOST: usize = 256;

/// What would have become of refused work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GhostOutcome {
    /// Done too late: refusing it was right.
    Missed,
    /// Done in time, had it cost the others nothing.
    InTime,
    /// Done in time by workers that stood idle: a loss that could have been avoided.
    Avoidable,
}

impl GhostOutcome {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Missed, Self::InTime, Self::Avoidable];

    /// The label of the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missed => "missed",
            Self::InTime => "in_time",
            Self::Avoidable => "avoidable",
        }
    }
}

/// Refused work that is followed.
#[derive(Clone, Debug)]
pub(crate) struct Ghost {
    pub(crate) class: ClassId,
    pub(crate) tier: Tier,
    pub(crate) code: Code,
    pub(crate) deadline: Nanos,
    /// How long it would have run.
    pub(crate) service: Nanos,
}

#[derive(Clone, Debug)]
struct Followed {
    ghost: Ghost,
    /// Work that had entered its lane by then: it starts when all of it has left.
    behind: Nanos,
    idle_before: Nanos,
    started: Option<Nanos>,
}

/// The ghosts, and the time that workers stood idle.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    lanes: [VecDeque<Followed>; 3],
    entered: [Nanos; 3],
    idle: Nanos,
    idle_at: Nanos,
    /// Idle time up to here is used up by ghosts.
    used: Nanos,
}

impl Ghosts {
    /// Work enters a lane.
    pub(crate) fn entered(&mut self, lane: usize, charge: Nanos) {
        if let Some(entered) = self.entered.get_mut(lane) {
            *entered = entered.saturating_add(charge);
        }
    }

    /// Adds idle time up to now; call before the number of busy workers changes.
    pub(crate) fn idle(&mut self, now: Nanos, pool: &Pool) {
        let idle = u64::from(pool.idle());
        self.idle += now.saturating_sub(self.idle_at) * idle;
        self.idle_at = now;
    }

    /// Follows refused work. With an idle worker and nothing ahead it would have started at once.
    pub(crate) fn follow(&mut self, now: Nanos, ghost: Ghost, starts: bool) {
        let lane = ghost.tier.index();
        if self.lanes[lane].len() < MOST {
            self.lanes[lane].push_back(Followed {
                ghost,
                behind: self.entered[lane],
                idle_before: self.idle,
                started: starts.then_some(now),
            });
        }
    }

    /// A worker came free: what has nothing ahead of it any more starts.
    pub(crate) fn worker_free(&mut self, now: Nanos, queues: &Queues) {
        for lane in 0..3 {
            let left = self.entered[lane].saturating_sub(queues.lane_work(lane));
            for followed in &mut self.lanes[lane] {
                // In order of arrival, so the first that has something ahead ends the look.
                if followed.behind > left {
                    break;
                }
                followed.started.get_or_insert(now);
            }
        }
    }

    /// Tells what became of those whose deadline has passed.
    pub(crate) fn tick(&mut self, now: Nanos, pool: &Pool, queues: &Queues, events: &mut impl Events) {
        self.idle(now, pool);
        if pool.busy() < pool.workers {
            self.worker_free(now, queues);
        }
        let (idle, used) = (self.idle, &mut self.used);
        for lane in &mut self.lanes {
            lane.retain(|followed| {
                let Followed {
                    ghost, idle_before, ..
                } = followed;
                if ghost.deadline > now {
                    return true;
                }
                let done = followed
                    .started
                    .map(|started| started.saturating_add(ghost.service));
                let in_time = done.is_some_and(|done| done <= ghost.deadline);
                let from = (*used).max(*idle_before);
                let outcome = if !in_time {
                    GhostOutcome::Missed
                } else if from.saturating_add(ghost.service) <= idle {
                    *used = from + ghost.service;
                    GhostOutcome::Avoidable
                } else {
                    GhostOutcome::InTime
                };
                events.emit(Event::Ghost {
                    class: ghost.class,
                    tier: ghost.tier,
                    code: ghost.code.clone(),
                    outcome,
                });
                false
            });
        }
    }
}
