//! What happens when it is too much? The same workers, the same calls at the same instants, once behind tower's limits
//! with callers that retry, and once with Holdoff on both sides. Two troubles: five times the load that the workers can
//! do, and workers that stand still for two seconds under a load that they could do.

mod callers;
mod judge;
mod load;
mod server;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Serialize;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use callers::{Caller, Retries};
pub use judge::Figures;
use judge::{Judged, Record, judge};
use load::{Phase, arrivals, start_of};
use server::Workers;

use crate::clock;
use crate::host::Host;
use crate::stats::Spread;

/// The task class of every call.
pub(crate) const CLASS: &str = "job";

/// Calls under way at once, beyond which the load generator would be what breaks.
const MAX_UNDER_WAY: usize = 20_000;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Runs of each stack, one after the other.
    pub runs: usize,
    /// Workers of the server.
    pub workers: u32,
    /// Divides every length and the callers' patience: 1 for figures, more for a look whether everything works.
    pub hurry: u32,
    /// Whether the variants that show what the others' settings do are run too.
    pub variants: Variants,
    /// The first run's seed; each further run takes the next.
    pub seed: u64,
}

/// Which stacks of the others are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variants {
    /// The one that targets are judged by.
    First,
    /// All.
    All,
}

/// The trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// Five times what the workers can do.
    Overload,
    /// The workers stand still for two seconds at 0.8 of what they can do.
    Stall,
}

impl Trouble {
    fn phases(self, hurry: u32) -> [Phase; 3] {
        let phase = |seconds: u64, load: f64, stalled: bool| Phase {
            length: Duration::from_secs(seconds) / hurry,
            load,
            stalled,
        };
        match self {
            Self::Overload => [phase(3, 0.7, false), phase(12, 5.0, false), phase(8, 0.7, false)],
            Self::Stall => [phase(4, 0.8, false), phase(2, 0.8, true), phase(10, 0.8, false)],
        }
    }

    fn judged(self) -> Judged {
        match self {
            Self::Overload => Judged::Trouble,
            Self::Stall => Judged::FromThere,
        }
    }
}

/// Both sides of a service.
#[derive(Clone, Copy, Debug)]
enum Stack {
    Others {
        name: &'static str,
        /// Requests inside at once, as a multiple of the workers.
        limit: usize,
        retries: Retries,
    },
    Holdoff,
}

/// Ours.
pub const OURS: &str = "Holdoff on both sides";

const OTHERS: [Stack; 3] = [
    Stack::Others {
        name: "tower (limit = workers) + reqwest-retry (3 retries from 1 s)",
        limit: 1,
        retries: Retries::AsDocumented,
    },
    Stack::Others {
        name: "tower (limit = workers) + reqwest-retry (100 ms to 1 s while patient)",
        limit: 1,
        retries: Retries::Eager,
    },
    Stack::Others {
        name: "tower (limit = 64 x workers) + reqwest-retry (3 retries from 1 s)",
        limit: 64,
        retries: Retries::AsDocumented,
    },
];

impl Stack {
    fn name(self) -> &'static str {
        match self {
            Self::Others { name, .. } => name,
            Self::Holdoff => OURS,
        }
    }
}

/// One stack's runs.
#[derive(Clone, Debug, Serialize)]
pub struct StackFigures {
    /// Which.
    pub name: &'static str,
    /// One entry a run.
    pub runs: Vec<Figures>,
}

impl StackFigures {
    /// The spread of one figure over the runs in which there is one.
    pub fn spread(&self, figure: impl Fn(&Figures) -> Option<f64>) -> Option<Spread> {
        let figures: Vec<f64> = self.runs.iter().filter_map(figure).collect();
        Spread::of(&figures)
    }

    /// One figure of every run.
    pub fn each(&self, figure: impl Fn(&Figures) -> f64) -> Vec<f64> {
        self.runs.iter().map(figure).collect()
    }
}

/// All stacks through one trouble.
#[derive(Clone, Debug, Serialize)]
pub struct Storm {
    /// What kind.
    pub trouble: Trouble,
    /// Workers of each server.
    pub workers: u32,
    /// Seconds at which the trouble begins and ends.
    pub between: (f64, f64),
    /// The others first, ours last.
    pub stacks: Vec<StackFigures>,
}

/// Runs every stack through the trouble, in turn, as often as planned. `told` is handed what begins.
///
/// # Errors
/// When a server or client cannot be set up, or the load generator reached its own limit.
pub fn measure(plan: Plan, trouble: Trouble, mut told: impl FnMut(&str)) -> anyhow::Result<Storm> {
    let phases = trouble.phases(plan.hurry);
    let others = match plan.variants {
        Variants::First => &OTHERS[..1],
        Variants::All => &OTHERS[..],
    };
    let stacks: Vec<Stack> = others.iter().copied().chain([Stack::Holdoff]).collect();
    let mut results: Vec<StackFigures> = stacks
        .iter()
        .map(|stack| StackFigures {
            name: stack.name(),
            runs: Vec::new(),
        })
        .collect();
    for run in 0..plan.runs {
        for (stack, result) in stacks.iter().zip(&mut results) {
            told(&format!("run {} of {}: {}", run + 1, plan.runs, stack.name()));
            let figures = once(*stack, plan, trouble, plan.seed.wrapping_add(run as u64))?;
            result.runs.push(figures);
        }
    }
    let seconds = |phase| start_of(&phases, phase).as_secs_f64();
    Ok(Storm {
        trouble,
        workers: plan.workers,
        between: (seconds(1), seconds(2)),
        stacks: results,
    })
}

fn once(stack: Stack, plan: Plan, trouble: Trouble, seed: u64) -> anyhow::Result<Figures> {
    let phases = trouble.phases(plan.hurry);
    let workers = Workers::new(plan.workers);
    let host = Host::start({
        let (workers, count) = (Arc::clone(&workers), plan.workers);
        move || match stack {
            Stack::Others { limit, .. } => Ok(server::limited(&workers, limit * count as usize)),
            Stack::Holdoff => server::admitted(&workers, count),
        }
    })?;
    let caller = match stack {
        Stack::Others { retries, .. } => Caller::retrying(retries)?,
        Stack::Holdoff => Caller::holdoff()?,
    };
    let url = format!("{}/work", host.url());
    let calls = arrivals(&phases, plan.workers, plan.hurry, seed);
    // Two threads: callers must not wait for each other's parsing.
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let records = runtime.block_on(drive(calls, phases, caller, url, Arc::clone(&workers)))?;
    let figures = judge(
        &records,
        &phases,
        workers.received(),
        plan.workers,
        trouble.judged(),
    );
    ensure!(
        figures.served > 0.0,
        "{}: not one call was served in time",
        stack.name()
    );
    Ok(figures)
}

/// Makes the calls at their instants, and waits for the last one to end: its patience bounds that.
async fn drive(
    calls: Vec<load::Arrival>,
    phases: [Phase; 3],
    caller: Caller,
    url: String,
    workers: Arc<Workers>,
) -> anyhow::Result<Vec<Record>> {
    let begun = clock::now();
    let stalls = tokio::spawn(async move {
        for (index, phase) in phases.iter().enumerate() {
            let at = begun + start_of(&phases, index);
            tokio::time::sleep_until(at.into()).await;
            workers.stall(phase.stalled);
        }
    });
    let (url, caller) = (Arc::<str>::from(url), Arc::new(caller));
    let mut dropped = 0_u64;
    let (mut under_way, mut records) = (JoinSet::new(), Vec::with_capacity(calls.len()));
    for call in calls {
        tokio::time::sleep_until((begun + call.at).into()).await;
        while let Some(done) = under_way.try_join_next() {
            records.push(done.context("a caller panicked")?);
        }
        if under_way.len() >= MAX_UNDER_WAY {
            dropped += 1;
            continue;
        }
        let (url, caller) = (Arc::clone(&url), Arc::clone(&caller));
        under_way.spawn(async move {
            let (end, ended) = caller.call(&url, &call).await;
            Record {
                call,
                end,
                ended: ended - begun,
            }
        });
    }
    while let Some(done) = under_way.join_next().await {
        records.push(done.context("a caller panicked")?);
    }
    stalls.await.context("the workers' switch panicked")?;
    ensure!(
        dropped == 0,
        "{dropped} calls were not made: more than {MAX_UNDER_WAY} under way"
    );
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stacks_that_are_compared_have_different_names() {
        let mut names: Vec<_> = OTHERS.iter().map(|stack| stack.name()).collect();
        names.push(OURS);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OTHERS.len() + 1);
    }

    #[test]
    fn the_trouble_is_the_second_of_three_phases() {
        let [before, overload, after] = Trouble::Overload.phases(1);
        assert!(before.load < 1.0 && overload.load > 4.0 && after.load < 1.0);
        let [before, stall, after] = Trouble::Stall.phases(4);
        assert!(!before.stalled && stall.stalled && !after.stalled);
        assert_eq!(stall.length, Duration::from_millis(500));
    }
}
