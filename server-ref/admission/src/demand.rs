//! How much of the capacity do newcomers ask for, and so how much is left for those who were told to come back?
//!
//! A line that always moves at one pace sends its callers back into an overload that still lasts, only to refuse them
//! again; and a slow one leaves workers idle when it is over. So the line of deferrable work moves by what newcomers leave:
//! at full pace while they leave three tenths of the capacity, and never slower than three tenths of that pace, since
//! whoever is told a place now comes back to a load that nobody knows yet.

use crate::slots::Nanos;

/// Time over which demand is smoothed.
const OVER: f64 = 2e9;
/// A measure counts for at most this many capacities: a stampede of one second is no trend.
const MOST: f64 = 2.0;
/// Spare share of the capacity from which on the line moves at its full pace.
const FULL_FROM: f64 = 0.3;
/// Least share of its pace at which the line moves.
const LEAST: f64 = 0.3;

/// Work that newcomers ask for.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Charges since the last measure, refused or not.
    asked: Nanos,
    /// Smoothed, in capacities.
    rate: f64,
}

impl Demand {
    /// A newcomer asks; one that comes back does not count.
    pub(crate) fn count(&mut self, charge: Nanos) {
        self.asked = self.asked.saturating_add(charge);
    }

    /// Measures what was asked for since the last call, `passed` ago, of so many workers.
    pub(crate) fn measure(&mut self, passed: Nanos, workers: u32) {
        if passed == 0 {
            return;
        }
        let asked = std::mem::take(&mut self.asked) as f64;
        let rate = (asked / (passed as f64 * f64::from(workers.max(1)))).min(MOST);
        self.rate += (1.0 - (-(passed as f64) / OVER).exp()) * (rate - self.rate);
    }

    /// Share of its pace at which the line of those who come back moves.
    pub(crate) fn spare(&self) -> f64 {
        ((1.0 - self.rate) / FULL_FROM).clamp(LEAST, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Nanos = 100_000_000;

    /// After so many ticks at this load on four workers.
    fn after(demand: &mut Demand, ticks: u32, load: f64) -> f64 {
        for _ in 0..ticks {
            demand.count((4.0 * load * TICK as f64) as Nanos);
            demand.measure(TICK, 4);
        }
        demand.spare()
    }

    #[test]
    fn the_line_slows_down_while_newcomers_ask_for_everything_and_moves_again_when_they_do_not() {
        let mut demand = Demand::default();
        assert_eq!(demand.spare(), 1.0);
        assert_eq!(after(&mut demand, 100, 0.7).min(0.99), 0.99);
        assert_eq!(after(&mut demand, 30, 2.0), LEAST);
        assert!(after(&mut demand, 100, 0.85) > 0.45);
        assert!(after(&mut demand, 100, 0.7) > 0.95);
    }

    #[test]
    fn three_seconds_after_a_stampede_of_one_the_line_moves_at_its_full_pace() {
        let mut demand = Demand::default();
        after(&mut demand, 100, 0.5);
        assert_eq!(after(&mut demand, 10, 100.0), LEAST);
        assert!(after(&mut demand, 30, 0.5) > 0.95);
    }

    #[test]
    fn the_largest_charges_do_not_overflow_and_no_time_is_no_measure() {
        let mut demand = Demand::default();
        demand.count(Nanos::MAX);
        demand.count(Nanos::MAX);
        demand.measure(0, 1);
        assert_eq!(demand.spare(), 1.0);
        demand.measure(1, 0);
        assert!(demand.spare() > 0.99);
    }
}
