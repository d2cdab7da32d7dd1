//! From what happened to each call to the figures that are compared.

use std::time::Duration;

use holdoff::Tier;
use serde::Serialize;

use super::callers::End;
use super::load::{Arrival, Phase, start_of};
use super::server::PHASES;
use crate::stats::quantile_of;

/// What a service that has recovered serves.
const WELL: f64 = 0.99;

/// Over how long it has to.
const WINDOW: Duration = Duration::from_secs(1);

/// How finely the moment of recovery is looked for.
const STEP: Duration = Duration::from_millis(100);

/// How often the time lines have a point.
const POINT: Duration = Duration::from_millis(500);

/// A call that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) call: Arrival,
    pub(super) end: End,
    /// Since the beginning.
    pub(super) ended: Duration,
}

impl Record {
    fn served(&self) -> bool {
        self.end == End::Served
    }

    /// From its arrival.
    fn took(&self) -> Duration {
        self.ended.saturating_sub(self.call.at)
    }
}

/// One stack through one run.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Calls of the stretch that is judged.
    pub calls: usize,
    /// Share of the workers' time that became answers in time, while the load was high or the workers stood still.
    pub goodput: f64,
    /// Requests that reached the server for each call, whoever made it: a call that was held back counts with none, one that
    /// was tried four times with four.
    pub attempts: f64,
    /// Share of calls that ended without a request: their client knew already.
    pub unsent: f64,
    /// 99th percentile of the time to an answer, of calls that were served, seconds.
    pub p99_seconds: Option<f64>,
    /// Share of calls that were served in time.
    pub served: f64,
    /// The same by tier: critical, non-sheddable, deferrable.
    pub served_by_tier: [f64; 3],
    /// Share of calls that were told no before their time was up.
    pub refused: f64,
    /// Seconds after the end of the trouble from which 99 % of the calls of a second were served in time, with at most
    /// twice the median time of before; `None` where that did not come.
    pub recovered_seconds: Option<f64>,
    /// Share of calls served, by time of arrival: (seconds, share).
    pub line: Vec<(f64, f64)>,
}

/// Which part of a run is judged for attempts, latency and success.
#[derive(Clone, Copy, Debug)]
pub(super) enum Judged {
    /// Calls that arrived in the trouble.
    Trouble,
    /// Those and the ones that came after: what a stall leaves behind hits both.
    FromThere,
}

/// Judges a run of three phases: before, the trouble, after.
pub(super) fn judge(
    records: &[Record],
    phases: &[Phase],
    received: [u64; PHASES],
    workers: u32,
    judged: Judged,
) -> Figures {
    let last = match judged {
        Judged::Trouble => 1,
        Judged::FromThere => 2,
    };
    let of: Vec<&Record> = records
        .iter()
        .filter(|record| (1..=last).contains(&record.call.phase))
        .collect();
    let (begin, end) = (start_of(phases, 1), start_of(phases, 2));
    let useful: Duration = records
        .iter()
        .filter(|record| record.served() && record.ended >= begin && record.ended < end)
        .map(|record| record.call.work)
        .sum();
    let could = (end - begin).as_secs_f64() * f64::from(workers);
    let mut times: Vec<f64> = of
        .iter()
        .filter(|record| record.served())
        .map(|record| record.took().as_secs_f64())
        .collect();
    let sent: u64 = received.iter().take(last + 1).skip(1).sum();
    let by_tier = |tier: Tier| {
        share(of.iter().filter(|record| record.call.tier == tier), |r| {
            r.served()
        })
    };
    Figures {
        calls: of.len(),
        goodput: useful.as_secs_f64() / could,
        attempts: sent as f64 / (of.len().max(1) as f64),
        p99_seconds: quantile_of(&mut times, 0.99),
        served: share(of.iter(), |record| record.served()),
        served_by_tier: [Tier::Critical, Tier::NonSheddable, Tier::Deferrable].map(by_tier),
        unsent: share(of.iter(), |record| record.end == End::HeldBack),
        refused: share(of.iter(), |record| {
            matches!(record.end, End::Refused | End::HeldBack)
        }),
        recovered_seconds: recovered(records, phases).map(|after| after.as_secs_f64()),
        line: line(records, phases),
    }
}

fn share<'a>(records: impl Iterator<Item = &'a &'a Record> + Clone, counts: impl Fn(&Record) -> bool) -> f64 {
    let all = records.clone().count();
    let of = records.filter(|record| counts(record)).count();
    if all == 0 { 0.0 } else { of as f64 / all as f64 }
}

/// The first second after the trouble in which the service is well, counted from the trouble's end.
fn recovered(records: &[Record], phases: &[Phase]) -> Option<Duration> {
    let (end, over) = (start_of(phases, 2), start_of(phases, 3));
    let mut before: Vec<f64> = records
        .iter()
        .filter(|record| record.call.phase == 0 && record.served())
        .map(|record| record.took().as_secs_f64())
        .collect();
    let usual = quantile_of(&mut before, 0.5)?;
    let mut from = end;
    while from + WINDOW <= over {
        let within: Vec<&Record> = records
            .iter()
            .filter(|record| record.call.at >= from && record.call.at < from + WINDOW)
            .collect();
        let mut times: Vec<f64> = within
            .iter()
            .filter(|record| record.served())
            .map(|record| record.took().as_secs_f64())
            .collect();
        let prompt = quantile_of(&mut times, 0.5).is_some_and(|median| median <= 2.0 * usual);
        if prompt && share(within.iter(), |record| record.served()) >= WELL {
            return Some(from - end);
        }
        from += STEP;
    }
    None
}

fn line(records: &[Record], phases: &[Phase]) -> Vec<(f64, f64)> {
    let over = start_of(phases, phases.len());
    let mut points = Vec::new();
    let mut from = Duration::ZERO;
    while from < over {
        let within: Vec<&Record> = records
            .iter()
            .filter(|record| record.call.at >= from && record.call.at < from + POINT)
            .collect();
        if !within.is_empty() {
            points.push((from.as_secs_f64(), share(within.iter(), |record| record.served())));
        }
        from += POINT;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn phases() -> [Phase; 3] {
        [1.0, 5.0, 1.0].map(|load| Phase {
            length: Duration::from_secs(4),
            load,
            stalled: false,
        })
    }

    fn record(at: u64, took: u64, tier: Tier, end: End) -> Record {
        let call = Arrival {
            at: ms(at),
            phase: (at / 4_000) as usize,
            tier,
            tenant: 0,
            work: ms(100),
            patience: ms(1_000),
        };
        Record {
            call,
            end,
            ended: ms(at + took),
        }
    }

    #[test]
    fn goodput_is_the_share_of_the_workers_time_that_was_answered_in_time() {
        let mut records: Vec<_> = (0..10)
            .map(|n| record(4_000 + n * 300, 200, Tier::Critical, End::Served))
            .collect();
        records.push(record(5_000, 900, Tier::Deferrable, End::Failed));
        records.push(record(5_000, 10, Tier::Deferrable, End::Refused));
        records.push(record(5_000, 0, Tier::Deferrable, End::HeldBack));
        let figures = judge(&records, &phases(), [0, 26, 99], 1, Judged::Trouble);
        // Ten tasks of 100 ms in four seconds of one worker.
        assert!((figures.goodput - 0.25).abs() < 1e-9, "{}", figures.goodput);
        assert!((figures.attempts - 2.0).abs() < 1e-9, "{}", figures.attempts);
        assert_eq!(figures.served_by_tier, [1.0, 0.0, 0.0]);
        assert!((figures.refused - 2.0 / 13.0).abs() < 1e-9);
        assert!((figures.unsent - 1.0 / 13.0).abs() < 1e-9);
        assert_eq!(figures.p99_seconds, Some(0.2));
    }

    #[test]
    fn a_service_has_recovered_when_it_serves_nearly_all_as_promptly_as_before() {
        let calls = |from: u64, to: u64, took: u64, end: End| {
            (from / 50..to / 50).map(move |n| record(n * 50, took, Tier::Critical, end))
        };
        let before = || calls(0, 4_000, 100, End::Served);
        let judge = |records: Vec<Record>| recovered(&records, &phases());
        let prompt: Vec<_> = before().chain(calls(8_000, 12_000, 150, End::Served)).collect();
        assert_eq!(judge(prompt), Some(ms(0)));
        let late = before().chain(calls(8_000, 9_000, 100, End::Failed)).chain(calls(
            9_000,
            12_000,
            100,
            End::Served,
        ));
        assert_eq!(judge(late.collect()), Some(ms(1_000)));
        let slow: Vec<_> = before().chain(calls(8_000, 12_000, 500, End::Served)).collect();
        assert_eq!(judge(slow), None, "served, but five times as slow");
        assert_eq!(judge(before().collect()), None, "no calls, no recovery");
    }
}
