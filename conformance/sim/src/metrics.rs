//! From a run to figures: what each metric is, exactly.
//!
//! Calls are counted over the whole run, quiet times included, unless it says otherwise; work is worker time.
//!
//! - **goodput**: work of the calls answered in time, over the clairvoyant bound of the same arrivals.
//! - **avoidable loss**: work of failed calls that the same bound fits into the worker time that was idle, over the bound.
//! - **attempts**: sends a call.
//! - **wasted**: worker time of tasks whose answer came after its caller had gone, over all worker time.
//! - **false accepts**: accepted attempts that were not answered in time (missed, evicted, refused in the queue), over
//!   the accepted.
//! - **recovery**: the least whole second after the disturbance from which on, in every two seconds of arrivals, at least
//!   99 % of the critical and non-sheddable calls succeed.
//! - **spike**: the most retries in any 100 ms, over the mean of first attempts in 100 ms at the base load.
//! - **success**: calls answered in time, by tier and by class; victims are all tenants but tenant 0; usual callers those that are
//!   not the scenario's odd ones; late success is that of calls which arrive 35 s or more after the disturbance.

use holdoff_contract::Tier;
use serde::Serialize;

use crate::bound::{Job, Supply, fluid_edf};
use crate::record::{CallRecord, Run};
use crate::scenario::REJECT_COST;
use crate::series::BIN;
use crate::time::{Nanos, SECOND, as_seconds};
use crate::workers::supply;
use crate::workload::{Class, capacity_rate};

/// The figures of a run; shares unless it says otherwise. See the module.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Scenario.
    pub scenario: &'static str,
    /// Seed.
    pub seed: u64,
    /// Rule of admission.
    pub admission: &'static str,
    /// Kind of hint.
    pub hint: &'static str,
    /// Behaviour of callers.
    pub clients: &'static str,
    /// Calls.
    pub calls: u64,
    /// In-deadline work over the bound.
    pub goodput: f64,
    /// Failed work that would have fitted into idle time, over the bound.
    pub avoidable_loss: f64,
    /// Sends a call.
    pub attempts: f64,
    /// Worker time for answers that nobody awaited.
    pub wasted: f64,
    /// Accepted and then not answered in time.
    pub false_accepts: f64,
    /// The same for critical attempts.
    pub false_accepts_critical: f64,
    /// The same for non-sheddable ones.
    pub false_accepts_non_sheddable: f64,
    /// The same for deferrable ones.
    pub false_accepts_deferrable: f64,
    /// Seconds; the whole of the time after the disturbance where it did not come back.
    pub recovery_s: f64,
    /// Retries in the worst 100 ms, in multiples of the base rate.
    pub spike: f64,
    /// Success of critical calls.
    pub critical: f64,
    /// Success of non-sheddable calls.
    pub non_sheddable: f64,
    /// Success of deferrable calls.
    pub deferrable: f64,
    /// Success of short tasks.
    pub short: f64,
    /// Success of long tasks.
    pub long: f64,
    /// Success of all calls.
    pub success: f64,
    /// Success of all tenants but tenant 0.
    pub victims: f64,
    /// Success of the callers that are not odd.
    pub usual: f64,
    /// Success of calls that arrive 35 s or more after the disturbance.
    pub late_success: f64,
    /// Worker time that rejects took, over all worker time there was.
    pub reject_cost: f64,
    /// Retries before the end of a hint; of the product's callers, and zero.
    pub early_retries: u32,
}

/// A figure by its name.
pub type Figure = (&'static str, fn(&Report) -> f64);

/// Every figure, in the order of tables and files.
pub const FIGURES: &[Figure] = &[
    ("calls", |r| r.calls as f64),
    ("goodput", |r| r.goodput),
    ("avoidable_loss", |r| r.avoidable_loss),
    ("attempts", |r| r.attempts),
    ("wasted", |r| r.wasted),
    ("false_accepts", |r| r.false_accepts),
    ("false_accepts_critical", |r| r.false_accepts_critical),
    ("false_accepts_non_sheddable", |r| r.false_accepts_non_sheddable),
    ("false_accepts_deferrable", |r| r.false_accepts_deferrable),
    ("recovery_s", |r| r.recovery_s),
    ("spike", |r| r.spike),
    ("success", |r| r.success),
    ("critical", |r| r.critical),
    ("non_sheddable", |r| r.non_sheddable),
    ("deferrable", |r| r.deferrable),
    ("short", |r| r.short),
    ("long", |r| r.long),
    ("victims", |r| r.victims),
    ("usual", |r| r.usual),
    ("late_success", |r| r.late_success),
    ("reject_cost", |r| r.reject_cost),
    ("early_retries", |r| f64::from(r.early_retries)),
];

/// The middle of these, the mean of the two middle ones for an even number; zero of none.
pub fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    let n = of.len();
    match (of.get(n / 2), of.get((n / 2).wrapping_sub(1))) {
        (Some(high), Some(low)) if n.is_multiple_of(2) => f64::midpoint(*low, *high),
        (Some(middle), _) => *middle,
        _ => 0.0,
    }
}

/// Time of arrivals looked at for recovery.
const RECOVERY_WINDOW: Nanos = 2 * SECOND;
/// Success that counts as recovered.
const RECOVERED: f64 = 0.99;
/// From when after the disturbance late success counts.
const LATE: Nanos = 35 * SECOND;

impl Run {
    /// All figures.
    pub fn report(&self) -> Report {
        let setup = &self.setup;
        let bound = self.bound().max(1.0);
        let accepted: u32 = self.counts.accepted.iter().sum();
        let kept: u32 = self.counts.kept.iter().sum();
        let missed = |tier: Tier| {
            let accepted = self.counts.accepted[tier.index()];
            share(accepted - self.counts.kept[tier.index()], accepted, 0.0)
        };
        let sends: u64 = self.calls.iter().map(|call| u64::from(call.attempts)).sum();
        let refused = self.counts.refused as f64;
        let scenario = &setup.scenario;
        let all_time = scenario.horizon() as f64 * f64::from(scenario.capacity());
        let tier = |tier| self.success(|call| call.arrival.tier == tier);
        Report {
            scenario: scenario.name,
            seed: setup.seed,
            admission: setup.admission.name(),
            hint: setup.hint.name(),
            clients: setup.clients.name(),
            calls: self.calls.len() as u64,
            goodput: self.good_work() / bound,
            avoidable_loss: self.avoidable() / bound,
            attempts: sends as f64 / (self.calls.len() as f64).max(1.0),
            wasted: self.counts.wasted as f64 / (self.counts.busy as f64).max(1.0),
            false_accepts: share(accepted - kept, accepted, 0.0),
            false_accepts_critical: missed(Tier::Critical),
            false_accepts_non_sheddable: missed(Tier::NonSheddable),
            false_accepts_deferrable: missed(Tier::Deferrable),
            recovery_s: as_seconds(self.recovery()),
            spike: self.spike(),
            critical: tier(Tier::Critical),
            non_sheddable: tier(Tier::NonSheddable),
            deferrable: tier(Tier::Deferrable),
            short: self.success(|call| call.arrival.class == Class::Short),
            long: self.success(|call| call.arrival.class == Class::Long),
            success: self.success(|_| true),
            victims: self.success(|call| call.arrival.tenant != 0),
            usual: self.success(|call| !call.arrival.odd),
            late_success: self.success(|call| call.arrival.at >= scenario.calm() + LATE),
            reject_cost: refused * REJECT_COST as f64 / all_time,
            early_retries: self.early_retries,
        }
    }

    /// Work of the calls answered in time, in worker nanoseconds.
    pub fn good_work(&self) -> f64 {
        let served = self.calls.iter().filter(|call| call.served.is_some());
        served.map(|call| call.took as f64).sum()
    }

    /// The clairvoyant bound of this run's arrivals and workers, in worker nanoseconds.
    pub fn bound(&self) -> f64 {
        let jobs: Vec<Job> = self.calls.iter().map(job).collect();
        fluid_edf(&jobs, &supply(&self.setup.scenario))
    }

    /// What the bound fits of the failed calls into idle worker time.
    fn avoidable(&self) -> f64 {
        let failed = self.calls.iter().filter(|call| call.served.is_none());
        let jobs: Vec<Job> = failed.map(job).collect();
        let spans: Vec<(Nanos, Nanos)> = self.spans.iter().map(|span| (span.from, span.to)).collect();
        fluid_edf(&jobs, &idle(&supply(&self.setup.scenario), &spans))
    }

    /// Share of the calls that succeeded, of those that `of` picks; 1 where it picks none.
    pub fn success(&self, of: impl Fn(&CallRecord) -> bool) -> f64 {
        let (all, good) = self
            .calls
            .iter()
            .filter(|call| of(call))
            .fold((0, 0), |(all, good), call| {
                (all + 1, good + u32::from(call.served.is_some()))
            });
        share(good, all, 1.0)
    }

    fn recovery(&self) -> Nanos {
        let scenario = &self.setup.scenario;
        let windows = (scenario.after - RECOVERY_WINDOW) / SECOND;
        let lasts = |second: Nanos| {
            let from = scenario.calm() + second * SECOND;
            let time = from..from + RECOVERY_WINDOW;
            let counts =
                |call: &CallRecord| call.arrival.tier != Tier::Deferrable && time.contains(&call.arrival.at);
            self.success(counts) >= RECOVERED
        };
        let last_bad = (0..=windows).rev().find(|second| !lasts(*second));
        match last_bad {
            None => 0,
            Some(second) if second == windows => scenario.after,
            Some(second) => (second + 1) * SECOND,
        }
    }

    fn spike(&self) -> f64 {
        let scenario = &self.setup.scenario;
        let base = capacity_rate(scenario) * scenario.base_load * as_seconds(BIN);
        let most = self.series.bins().iter().map(|bin| bin.again).max();
        f64::from(most.unwrap_or(0)) / base
    }
}

pub(crate) fn job(call: &CallRecord) -> Job {
    Job {
        release: call.arrival.at,
        deadline: call.arrival.deadline,
        need: call.took,
    }
}

fn share(part: u32, all: u32, of_none: f64) -> f64 {
    if all == 0 {
        of_none
    } else {
        f64::from(part) / f64::from(all)
    }
}

/// Resolution of the idle time: the shortest mean task.
const IDLE_BIN: Nanos = 20_000_000;

/// What of the supply no span used, as the mean of each bin.
pub(crate) fn idle(supply: &[Supply], spans: &[(Nanos, Nanos)]) -> Vec<Supply> {
    let end = spans.iter().map(|(_, to)| *to).max().unwrap_or(0);
    let bins = (end / IDLE_BIN) as usize + 1;
    let mut used = vec![0_u64; bins];
    for (from, to) in spans {
        let mut at = *from;
        while at < *to {
            let bin = at / IDLE_BIN;
            let until = ((bin + 1) * IDLE_BIN).min(*to);
            used[bin as usize] += until - at;
            at = until;
        }
    }
    let workers = |t: Nanos| {
        supply
            .iter()
            .rev()
            .find(|s| s.from <= t)
            .map_or(0.0, |s| s.workers)
    };
    let idle = |(bin, used): (usize, &u64)| {
        let from = bin as Nanos * IDLE_BIN;
        let busy = *used as f64 / IDLE_BIN as f64;
        Supply {
            from,
            workers: (workers(from) - busy).max(0.0),
        }
    };
    let mut out: Vec<Supply> = used.iter().enumerate().map(idle).collect();
    let after = bins as Nanos * IDLE_BIN;
    out.push(Supply {
        from: after,
        workers: workers(after),
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_what_the_spans_leave() {
        let supply = [Supply {
            from: 0,
            workers: 2.0,
        }];
        let idle = idle(&supply, &[(0, IDLE_BIN), (IDLE_BIN / 2, 2 * IDLE_BIN)]);
        let workers: Vec<f64> = idle.iter().map(|s| s.workers).collect();
        assert_eq!(workers, [0.5, 1.0, 2.0, 2.0]);
    }
}
