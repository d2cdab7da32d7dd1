//! What happened to the calls of one group of callers.

use std::time::Duration;

/// How one call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Served within its deadline.
    Served,
    /// Refused, and passed on as an overload.
    Refused,
    /// Anything else: no answer in time, transport failure, another status.
    Failed,
}

/// One finished call.
#[derive(Clone, Copy, Debug)]
pub struct CallRecord {
    /// Index in `holdoff::Tier::ALL`.
    pub tier: usize,
    /// How it ended.
    pub end: End,
    /// Sends made.
    pub attempts: u32,
    /// Retries sent before the hint had passed, where the caller counts them itself.
    pub early: u32,
    /// From the first send to the end.
    pub took: Duration,
    /// When it ended, since the load began.
    pub ended: Duration,
    /// Wait in queue that the server predicted and measured, where it was served.
    pub wait: Option<(Duration, Duration)>,
}

/// The calls of one group.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Every finished call.
    pub calls: Vec<CallRecord>,
    /// Calls that did not finish: the load was stopped, or had more under way than it may.
    pub cut_off: u64,
    /// The latest that a call was made, after it should have been: how far the machine was behind.
    pub behind: Duration,
    /// Calls that could not be made in time: more than [`LATE`] after they should have been, or not at all.
    pub late: u64,
}

/// A call that is made this much too late is not the call that was meant: patience is counted in seconds here.
pub const LATE: Duration = Duration::from_millis(250);
/// The share of late calls from which on a load was not the load that was meant.
pub const MOST_LATE: f64 = 0.05;

impl Tally {
    /// Calls that arrived: served, refused, failed or cut off.
    pub fn arrived(&self) -> u64 {
        self.calls.len() as u64 + self.cut_off
    }

    /// False where so many calls could not be made in time that what came of the others shows nothing.
    pub fn as_meant(&self) -> bool {
        ratio(self.late, self.arrived()) <= MOST_LATE
    }

    /// Finished calls of which at least one request was sent.
    pub fn sent(&self) -> u64 {
        self.calls.iter().filter(|call| call.attempts > 0).count() as u64
    }

    /// Finished calls of which nothing was sent: held back by an earlier hint, or out of time before they could leave.
    pub fn never_sent(&self) -> u64 {
        self.calls.len() as u64 - self.sent()
    }

    /// Sends after the first of each call.
    pub fn retries(&self) -> u64 {
        self.attempts() - self.sent()
    }

    /// Sends for one call that was sent at all; zero where there were none.
    pub fn attempts_per_call_sent(&self) -> f64 {
        ratio(self.attempts(), self.sent())
    }

    /// Sends made, all calls.
    pub fn attempts(&self) -> u64 {
        self.calls.iter().map(|call| u64::from(call.attempts)).sum()
    }

    /// Sends for one finished call, those that were never sent among them; zero where there were no calls.
    pub fn attempts_per_call(&self) -> f64 {
        ratio(self.attempts(), self.calls.len() as u64)
    }

    /// Calls that ended like this.
    pub fn count(&self, end: End) -> u64 {
        self.calls.iter().filter(|call| call.end == end).count() as u64
    }

    /// Share of calls of a tier that were served, with the number of calls.
    pub fn served_of_tier(&self, tier: usize) -> (f64, u64) {
        let of_tier = || self.calls.iter().filter(move |call| call.tier == tier);
        let served = of_tier().filter(|call| call.end == End::Served).count() as u64;
        let all = of_tier().count() as u64;
        (ratio(served, all), all)
    }

    /// Calls that were served by this time since the load began.
    pub fn served_by(&self, time: Duration) -> u64 {
        self.calls
            .iter()
            .filter(|call| call.end == End::Served && call.ended <= time)
            .count() as u64
    }

    /// Times of served calls, sorted.
    pub fn served_times(&self) -> Vec<Duration> {
        let mut times: Vec<_> = self
            .calls
            .iter()
            .filter(|call| call.end == End::Served)
            .map(|call| call.took)
            .collect();
        times.sort_unstable();
        times
    }

    /// Predicted and measured waits of served calls.
    pub fn waits(&self) -> Vec<(Duration, Duration)> {
        self.calls.iter().filter_map(|call| call.wait).collect()
    }
}

/// The value at this share of a sorted list; `None` where it is empty.
pub fn quantile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let last = sorted.len().checked_sub(1)?;
    sorted
        .get((last as f64 * share.clamp(0.0, 1.0)).round() as usize)
        .copied()
}

/// `a / b`, zero where `b` is zero.
pub fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_of_nothing_is_nothing_and_of_one_is_that_one() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(
            quantile(&[Duration::from_millis(7)], 0.99),
            Some(Duration::from_millis(7))
        );
    }

    #[test]
    fn shares_are_of_the_tier_asked_for() {
        let call = |tier, end| CallRecord {
            tier,
            end,
            attempts: 2,
            early: 0,
            took: Duration::ZERO,
            ended: Duration::ZERO,
            wait: None,
        };
        let tally = Tally {
            calls: vec![call(0, End::Served), call(2, End::Refused), call(2, End::Served)],
            ..Tally::default()
        };
        assert_eq!(tally.served_of_tier(2), (0.5, 2));
        assert_eq!(tally.served_of_tier(1), (0.0, 0));
        assert!((tally.attempts_per_call() - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn calls_and_sends_add_up_with_calls_that_were_held_back_or_cut_off() {
        let call = |end, attempts| CallRecord {
            tier: 0,
            end,
            attempts,
            early: 0,
            took: Duration::ZERO,
            ended: Duration::ZERO,
            wait: None,
        };
        let tally = Tally {
            calls: vec![call(End::Served, 3), call(End::Served, 1), call(End::Refused, 0)],
            cut_off: 2,
            ..Tally::default()
        };
        assert_eq!(tally.arrived(), tally.sent() + tally.never_sent() + tally.cut_off);
        assert_eq!(tally.attempts(), tally.sent() + tally.retries());
        assert_eq!((tally.arrived(), tally.sent(), tally.retries()), (5, 2, 2));
        assert!((tally.attempts_per_call_sent() - 2.0).abs() < f64::EPSILON);
    }
}
