//! The workers of one replica: which is free, and when one that starts now would be done.

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

use crate::bound::Supply;
use crate::scenario::{Disturbance, Scenario};
use crate::time::Nanos;

/// A task on a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) key: u64,
    pub(crate) call: u32,
    pub(crate) attempt: u32,
    pub(crate) started: Nanos,
    /// Worker time it takes, with its part of the cost of rejects.
    pub(crate) takes: Nanos,
    /// Index of its span.
    pub(crate) span: usize,
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Workers {
    free: Vec<u32>,
    tasks: Vec<Option<Task>>,
    /// Workers from this index on make no progress in `outage`.
    first_out: u32,
    outage: (Nanos, Nanos),
}

/// How many workers of `workers` the scenario leaves without progress.
fn lost(scenario: &Scenario, workers: u32) -> u32 {
    match scenario.disturbance {
        Disturbance::Stall => workers,
        Disturbance::Vanish(share) => (f64::from(workers) * share).round() as u32,
        _ => 0,
    }
}

/// The workers of all replicas that make progress, over time.
pub(crate) fn supply(scenario: &Scenario) -> Vec<Supply> {
    let all = scenario.capacity();
    let lost = lost(scenario, scenario.workers) * scenario.replicas;
    let from = |from, workers| Supply {
        from,
        workers: f64::from(workers),
    };
    vec![
        from(0, all),
        from(scenario.quiet, all - lost),
        from(scenario.calm(), all),
    ]
}

impl Workers {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            free: (0..scenario.workers).collect(),
            tasks: vec![None; scenario.workers as usize],
            first_out: scenario.workers - lost(scenario, scenario.workers),
            outage: (scenario.quiet, scenario.calm()),
        }
    }

    /// When work that starts now on this worker is done.
    fn done(&self, worker: u32, now: Nanos, takes: Nanos) -> Nanos {
        let (from, to) = self.outage;
        let done = now.saturating_add(takes);
        if worker < self.first_out || now >= to || done <= from {
            done
        } else {
            done + (to - now.max(from))
        }
    }

    /// Puts a task on a free worker, any of them; when it is done. The doors start no more than there are workers, so
    /// `None` never happens; then the task would be lost and its call a miss.
    pub(crate) fn start(&mut self, now: Nanos, task: Task, rng: &mut Pcg64Mcg) -> Option<(u32, Nanos)> {
        if self.free.is_empty() {
            return None;
        }
        let worker = self.free.swap_remove(rng.random_range(0..self.free.len()));
        self.tasks[worker as usize] = Some(task);
        Some((worker, self.done(worker, now, task.takes)))
    }

    /// Takes the task off its worker.
    pub(crate) fn stop(&mut self, worker: u32) -> Option<Task> {
        let task = self.tasks[worker as usize].take()?;
        self.free.push(worker);
        Some(task)
    }
}
