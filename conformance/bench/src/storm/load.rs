//! The same calls for everybody: drawn once from a seed, made at their instants whether or not earlier ones were
//! answered. That is what overload is; callers that wait for each other slow down with the server and hide it.

use std::time::Duration;

use holdoff::Tier;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Shares of critical, non-sheddable and deferrable calls.
const SHARES: [f64; 3] = [0.1, 0.3, 0.6];

/// How long a caller waits for its answer, seconds: between these two, by tier.
const PATIENCE: [(f64, f64); 3] = [(1.0, 3.0), (2.0, 5.0), (2.0, 5.0)];

/// Length of a task, seconds: between these two.
const WORK: (f64, f64) = (0.02, 0.06);

/// Mean length of a task.
pub(crate) const MEAN_WORK: Duration = Duration::from_millis(40);

/// Tenants, who call equally often.
pub(crate) const TENANTS: usize = 10;

/// A stretch of time with one load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) length: Duration,
    /// As a multiple of what the workers can do.
    pub(crate) load: f64,
    /// The workers stand still.
    pub(crate) stalled: bool,
}

/// A call to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arrival {
    /// Since the beginning.
    pub(crate) at: Duration,
    pub(crate) phase: usize,
    pub(crate) tier: Tier,
    pub(crate) tenant: usize,
    pub(crate) work: Duration,
    pub(crate) patience: Duration,
}

/// When a phase begins, since the beginning.
pub(crate) fn start_of(phases: &[Phase], phase: usize) -> Duration {
    phases.iter().take(phase).map(|phase| phase.length).sum()
}

/// Poisson arrivals through all phases. Same seed, same calls. Patience is divided by `hurry`.
pub(crate) fn arrivals(phases: &[Phase], workers: u32, hurry: u32, seed: u64) -> Vec<Arrival> {
    let mut rng = StdRng::seed_from_u64(seed);
    let capacity = f64::from(workers) / MEAN_WORK.as_secs_f64();
    let mut arrivals = Vec::new();
    for (index, phase) in phases.iter().enumerate() {
        let (begin, rate) = (start_of(phases, index), capacity * phase.load);
        let mut at = Duration::ZERO;
        loop {
            at += Duration::from_secs_f64(-(1.0 - rng.random::<f64>()).ln() / rate);
            if at >= phase.length {
                break;
            }
            let tier = pick(rng.random());
            let mut between = |(least, most): (f64, f64)| {
                Duration::from_secs_f64(least + (most - least) * rng.random::<f64>())
            };
            arrivals.push(Arrival {
                at: begin + at,
                phase: index,
                tier,
                work: between(WORK),
                patience: between(PATIENCE[tier.index()]) / hurry,
                tenant: rng.random_range(0..TENANTS),
            });
        }
    }
    arrivals
}

fn pick(mut at: f64) -> Tier {
    for (tier, share) in Tier::ALL.iter().copied().zip(SHARES) {
        if at < share {
            return tier;
        }
        at -= share;
    }
    Tier::Deferrable
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(seconds: u64, load: f64) -> Phase {
        Phase {
            length: Duration::from_secs(seconds),
            load,
            stalled: false,
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_calls_at_the_declared_loads() {
        let phases = [phase(10, 0.5), phase(20, 5.0)];
        let calls = arrivals(&phases, 8, 1, 3);
        assert_eq!(calls, arrivals(&phases, 8, 1, 3));
        assert_ne!(calls, arrivals(&phases, 8, 1, 4));
        let of = |phase| calls.iter().filter(|call| call.phase == phase).count() as f64;
        assert!((of(0) / 1_000.0 - 1.0).abs() < 0.15, "{}", of(0));
        assert!((of(1) / 20_000.0 - 1.0).abs() < 0.05, "{}", of(1));
        let work: Duration = calls.iter().map(|call| call.work).sum();
        let mean = work.as_secs_f64() / calls.len() as f64;
        assert!((mean / MEAN_WORK.as_secs_f64() - 1.0).abs() < 0.05, "{mean}");
        let critical = calls.iter().filter(|call| call.tier == Tier::Critical).count() as f64;
        assert!((critical / calls.len() as f64 / SHARES[0] - 1.0).abs() < 0.1);
    }
}
