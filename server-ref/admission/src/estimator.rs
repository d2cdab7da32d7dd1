//! How long does a task take? Per class, since a lint and a migration have no average.
//!
//! The mean is an EWMA (0.02); quantiles come from the last 256 samples, each cut at 8 means so that one odd task
//! does not make everything look late. They are worked out by the tick, off the admission path. Until 8 samples the profile's prior
//! counts, as a lognormal with its mean and p95.

use std::time::Duration;

use crate::profile::{Class as Declared, Profile};
use crate::slots::Nanos;

/// Samples a class needs before its own quantiles count (slow start until then).
pub(crate) const SLOW_START: u64 = 8;
const WINDOW: usize = 256;
const ALPHA: f64 = 0.02;
/// A sample counts for at most this many means.
const CLIP: f64 = 8.0;
/// A class has become fast again when so many samples in a row are below its median, and their mean is below this share of its own:
/// one of the two happens by chance, both hardly ever. Tried: the fastest quarter, and 12 samples.
const FASTER: usize = 16;
/// See [`FASTER`].
const FASTER_SHARE: f64 = 0.5;
/// Time over which the usual mean of a class is smoothed: longer than a spell of slowness that passes.
const USUAL_OVER: f64 = 300e9;
/// A class is slow from this multiple of its usual mean on; a mean of fifty samples swings by less.
const SLOW_FROM: f64 = 1.25;
/// Admissions that a share of admissions begins with.
const GRANTED: f64 = 4.0;

/// Service times of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    pub(crate) mean: Nanos,
    pub(crate) p10: Nanos,
    pub(crate) p25: Nanos,
    pub(crate) p50: Nanos,
    pub(crate) p95: Nanos,
}

/// Is a class admitted as often as the others of its tier?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fares {
    /// Clearly more often than one of them.
    Better,
    /// About as often as all of them.
    Alike,
    /// Less often than one of them, and than none more.
    Worse,
}

/// One class: its declaration, its estimate, and what it holds.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) deadline: Nanos,
    pub(crate) max_deadline: Nanos,
    pub(crate) prior: Times,
    pub(crate) times: Times,
    pub(crate) samples: u64,
    /// Charges of this class that wait.
    pub(crate) queued_work: Nanos,
    /// Recent arrivals a tier (halved every epoch), and whether they make the class active there.
    pub(crate) recent: [u32; 3],
    /// Arrivals a tier and those of them that were admitted, fading slower than `recent` since shares of few are noise.
    pub(crate) asked: [u32; 3],
    pub(crate) taken: [u32; 3],
    /// How it fares beside the other classes of each tier, by the last tick.
    pub(crate) fares: [Fares; 3],
    pub(crate) active: [bool; 3],
    /// Tasks of this class that wait or run.
    pub(crate) held: u32,
    pub(crate) last_probe: Nanos,
    last_sample: Nanos,
    last_service: Nanos,
    /// Tasks in a row that were held: see [`Class::sample_held`].
    held_in_row: u32,
    /// Mean absolute error of predicted wait and of the mean as a prediction of service.
    pub(crate) wait_error: f64,
    pub(crate) service_error: f64,
    mean: f64,
    /// The mean over some minutes.
    usual: f64,
    window: Vec<Nanos>,
    next: usize,
    /// Samples in a row that were below the median.
    fast_in_row: usize,
    /// A sample came since the quantiles were worked out.
    fresh: bool,
}

impl Times {
    /// A lognormal with this mean and p95.
    fn lognormal(mean: Duration, p95: Duration) -> Self {
        const Z95: f64 = 1.6449;
        let mean = mean.as_nanos() as f64;
        // p95 / mean = exp(1.645 s - s^2/2); it has its largest value, 3.87, at s = 1.645.
        let ratio = (p95.as_nanos() as f64 / mean).max(1.0).ln();
        let sigma = Z95 - (Z95 * Z95 - 2.0 * ratio).max(0.0).sqrt();
        let p50 = mean * (-sigma * sigma / 2.0).exp();
        let at = |z: f64| (p50 * (z * sigma).exp()) as Nanos;
        Self {
            mean: mean as Nanos,
            p10: at(-1.2816),
            p25: at(-0.6745),
            p50: p50 as Nanos,
            p95: (p95.as_nanos() as Nanos).max(p50 as Nanos),
        }
    }
}

impl Class {
    pub(crate) fn new(name: &str, declared: &Declared, profile: &Profile) -> Self {
        let prior = Times::lognormal(declared.mean(), declared.p95());
        Self {
            name: name.to_owned(),
            deadline: declared.deadline().as_nanos() as Nanos,
            max_deadline: profile.max_deadline(declared).as_nanos() as Nanos,
            prior,
            times: prior,
            samples: 0,
            queued_work: 0,
            recent: [0; 3],
            asked: [0; 3],
            taken: [0; 3],
            fares: [Fares::Alike; 3],
            active: [false; 3],
            held: 0,
            last_probe: 0,
            last_sample: 0,
            last_service: Nanos::MAX,
            held_in_row: 0,
            wait_error: 0.0,
            service_error: 0.0,
            mean: prior.mean as f64,
            usual: prior.mean as f64,
            window: Vec::with_capacity(WINDOW),
            next: 0,
            fast_in_row: 0,
            fresh: false,
        }
    }

    /// Takes another declaration. What was measured is kept; a new prior counts until enough is measured.
    pub(crate) fn redeclare(&mut self, declared: &Declared, profile: &Profile) {
        let new = Self::new(&self.name, declared, profile);
        self.deadline = new.deadline;
        self.max_deadline = new.max_deadline;
        self.prior = new.prior;
        if self.samples < SLOW_START {
            self.times = new.times;
            self.mean = new.mean;
        }
    }

    /// Share of this tier's recent arrivals of the class that were admitted. Some are taken for granted, so that a class that
    /// has just come is not behind the others.
    pub(crate) fn admitted_share(&self, tier: usize) -> f64 {
        (f64::from(self.taken[tier]) + GRANTED) / (f64::from(self.asked[tier]) + GRANTED)
    }

    /// What a task is charged: the mean, or what it says about itself, in any case within [p50, p95] (ADM-10).
    pub(crate) fn charge(&self, cost: Option<Duration>) -> Nanos {
        let asked = cost.map_or(self.times.mean, |cost| {
            cost.as_nanos().min(u128::from(Nanos::MAX)) as Nanos
        });
        asked
            .clamp(self.times.p50, self.times.p95.max(self.times.p50))
            .max(1)
    }

    /// Takes the time of a task that was held in. It says how long a stall took and not how long the class takes, so the
    /// first pool-full of them in a row is no sample; what comes after that is how the class is now.
    pub(crate) fn sample_held(&mut self, now: Nanos, service: Duration, workers: u32) {
        if self.held_in_row < workers {
            self.held_in_row += 1;
            return;
        }
        let held_in_row = self.held_in_row;
        self.sample(now, service);
        self.held_in_row = held_in_row;
    }

    /// Takes a measured service time in.
    pub(crate) fn sample(&mut self, now: Nanos, service: Duration) {
        self.held_in_row = 0;
        let sample = (service.as_nanos() as f64).min(CLIP * self.mean).max(1_000.0);
        self.samples += 1;
        // The prior weighs as two samples at first, so that a wrong one is left behind soon.
        let alpha = ALPHA.max(1.0 / (self.samples as f64 + 2.0));
        self.service_error += alpha * ((sample - self.mean).abs() - self.service_error);
        self.mean += alpha * (sample - self.mean);
        self.times.mean = self.mean as Nanos;
        self.last_sample = now;
        self.last_service = service.as_nanos().min(u128::from(Nanos::MAX)) as Nanos;
        if self.window.len() < WINDOW {
            self.window.push(sample as Nanos);
        } else {
            self.window[self.next] = sample as Nanos;
        }
        self.next = (self.next + 1) % WINDOW;
        self.fast_in_row = if service.as_nanos() < u128::from(self.times.p50) {
            self.fast_in_row + 1
        } else {
            0
        };
        if self.fast_in_row >= FASTER && self.samples > SLOW_START {
            self.forget_slowness();
        }
        self.fresh = true;
        if self.samples == SLOW_START {
            self.publish();
        }
    }

    /// Where the class has become fast again, what was measured before its last samples is forgotten. A window of 256 alone would
    /// keep the slow p95 until all but twelve of the slow samples have left it, and refuse until then what can be done.
    fn forget_slowness(&mut self) {
        let len = self.window.len();
        let last: Vec<Nanos> = (1..=FASTER.min(len))
            .map(|back| self.window[(self.next + len - back) % len])
            .collect();
        let mean = last.iter().map(|sample| *sample as f64).sum::<f64>() / last.len() as f64;
        if mean > FASTER_SHARE * self.mean {
            return;
        }
        self.mean = mean;
        self.times.mean = self.mean as Nanos;
        self.fast_in_row = 0;
        self.fresh = true;
        self.next = last.len();
        self.window.clear();
        self.window.extend(last);
        self.publish();
    }

    /// Lets the usual mean follow, by the tick.
    pub(crate) fn settle(&mut self, passed: Nanos) {
        let weight = if self.in_slow_start() {
            1.0
        } else {
            1.0 - (-(passed as f64) / USUAL_OVER).exp()
        };
        self.usual += weight * (self.mean - self.usual);
    }

    /// What of a charge the class would take if it were as fast as it usually is.
    pub(crate) fn usual_part(&self, charge: Nanos) -> Nanos {
        if self.mean < self.usual * SLOW_FROM {
            return charge;
        }
        (charge as f64 * self.usual / self.mean) as Nanos
    }

    /// A task of a class that ran into its limit took at least this long.
    pub(crate) fn sample_at_least(&mut self, now: Nanos, service: Duration) {
        self.sample(now, service.max(Duration::from_nanos(self.times.mean)));
    }

    /// Works out the quantiles, where there is something new. By the tick; and once at the end of slow start, when the prior's
    /// stop to count.
    pub(crate) fn publish(&mut self) {
        if !self.fresh || self.samples < SLOW_START {
            return;
        }
        self.fresh = false;
        let mut samples = [0; WINDOW];
        let n = self.window.len();
        samples[..n].copy_from_slice(&self.window);
        // From the greatest down: at and below a quantile are all the smaller ones.
        let mut left = n;
        let mut take = |share: f64| {
            let at = ((n as f64 * share).ceil() as usize).clamp(1, left) - 1;
            let found = *samples[..left].select_nth_unstable(at).1;
            left = at + 1;
            found
        };
        self.times.p95 = take(0.95);
        self.times.p50 = take(0.5);
        self.times.p25 = take(0.25);
        self.times.p10 = take(0.1);
    }

    /// In slow start: what it holds is bounded, whatever its prior says (ADM-28).
    pub(crate) fn in_slow_start(&self) -> bool {
        self.samples < SLOW_START
    }

    /// May one task pass although the estimate says it cannot be done? Where the prior says it can, one at a time: after
    /// max(1 s, 2 m) without a sample, and at once while the last sample was short enough. Without it one stall locks
    /// a class out for good; with one probe in that time only, for the minutes that a window of 256 takes to turn.
    pub(crate) fn may_probe(&self, now: Nanos, remaining: Nanos, margin: Nanos) -> bool {
        let quiet = 1_000_000_000.max(self.times.mean.saturating_mul(2));
        let was_short = self.last_service.saturating_add(margin) < remaining;
        self.held == 0
            && self.prior.p50.saturating_add(margin) < remaining
            && (was_short || now.saturating_sub(self.last_sample.max(self.last_probe)) >= quiet)
    }

    /// Notes how long the start really took.
    pub(crate) fn note_wait(&mut self, predicted: Nanos, measured: Nanos) {
        self.wait_error += ALPHA * (predicted.abs_diff(measured) as f64 - self.wait_error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn class(mean_ms: f64, p95_ms: f64) -> Class {
        let declared = Declared {
            mean_ms,
            p95_ms: Some(p95_ms),
            ..Declared::default()
        };
        Class::new("t", &declared, &Profile::default())
    }

    #[test]
    fn the_prior_is_a_lognormal_with_the_declared_mean_and_p95() {
        let t = class(2000.0, 3000.0).times;
        assert_eq!((t.mean, t.p95), (2_000_000_000, 3_000_000_000));
        assert!((1_920_000_000..1_940_000_000).contains(&t.p50), "{t:?}");
        assert!(t.p10 < t.p25 && t.p25 < t.p50, "{t:?}");
        let odd = class(10.0, 1000.0).times;
        assert!(
            odd.p10 <= odd.p25 && odd.p25 <= odd.p50 && odd.p50 <= odd.p95,
            "{odd:?}"
        );
    }

    #[test]
    fn the_charge_stays_between_p50_and_p95_whatever_is_reported() {
        let c = class(100.0, 150.0);
        assert_eq!(c.charge(Some(Duration::ZERO)), c.times.p50);
        assert_eq!(c.charge(Some(Duration::MAX)), c.times.p95);
        assert_eq!(c.charge(Some(ms(120))), 120_000_000);
        assert_eq!(c.charge(None), c.times.mean);
    }

    #[test]
    fn a_wrong_prior_is_left_behind_within_a_hundred_samples() {
        for (prior, truth) in [(10.0, 100), (1000.0, 100)] {
            let mut c = class(prior, prior * 1.5);
            (0..100).for_each(|n| c.sample(n, ms(truth)));
            let off = c.times.mean.abs_diff(100_000_000);
            assert!(off < 15_000_000, "prior {prior}: {:?}", c.times);
        }
    }

    #[test]
    fn one_odd_sample_counts_for_at_most_eight_means() {
        let mut c = class(50.0, 80.0);
        (0..200).for_each(|n| c.sample(n, ms(50)));
        c.sample(200, ms(60_000));
        c.publish();
        assert!(c.times.mean < 60_000_000, "{:?}", c.times);
        assert_eq!(c.times.p95, 50_000_000);
    }

    #[test]
    fn the_quantiles_are_those_of_the_last_256_samples() {
        let mut c = class(50.0, 80.0);
        (0..300).for_each(|n| c.sample(n, ms(400)));
        (0..256).for_each(|n| c.sample(n, ms(n + 1)));
        c.publish();
        let got = (c.times.p10, c.times.p25, c.times.p50, c.times.p95);
        assert_eq!(got, (26_000_000, 64_000_000, 128_000_000, 244_000_000));
    }

    #[test]
    fn a_stall_is_no_service_time_and_a_class_that_became_slow_is() {
        let mut c = class(100.0, 150.0);
        (0..200).for_each(|n| c.sample(n, ms(100)));
        let before = c.times;
        (0..4).for_each(|n| c.sample_held(n, ms(10_000), 4));
        c.publish();
        assert_eq!(c.times, before);
        (0..50).for_each(|n| c.sample_held(n, ms(10_000), 4));
        c.publish();
        assert!(c.times.mean > 1_000_000_000, "{:?}", c.times);
        // An ordinary one in between, and the next stall is one again.
        c.sample(0, ms(100));
        let mean = c.times.mean;
        c.sample_held(0, ms(10_000), 4);
        assert_eq!(c.times.mean, mean);
    }

    #[test]
    fn a_class_that_has_become_fast_again_is_so_after_sixteen_samples_and_luck_is_not_enough() {
        let mut c = class(100.0, 150.0);
        (0..300).for_each(|n| c.sample(n, ms(500 + n % 200)));
        c.publish();
        (0..15).for_each(|n| c.sample(n, ms(100)));
        assert!(c.times.p95 > 500_000_000, "{:?}", c.times);
        c.sample(15, ms(100));
        assert_eq!((c.times.mean, c.times.p95), (100_000_000, 100_000_000));
        // Below the median, but not by half.
        let mut c = class(100.0, 150.0);
        (0..300).for_each(|n| c.sample(n, ms(60 + n % 80)));
        c.publish();
        (0..16).for_each(|n| c.sample(n, ms(70)));
        c.publish();
        assert!(c.times.p95 > 130_000_000, "{:?}", c.times);
    }

    #[test]
    fn a_spell_of_slowness_is_not_usual_and_what_lasts_becomes_it() {
        const SECOND: Nanos = 1_000_000_000;
        let mut c = class(100.0, 150.0);
        let minute = |c: &mut Class, takes| {
            for n in 0..60 {
                (0..10).for_each(|_| c.sample(n, ms(takes)));
                c.settle(SECOND);
            }
        };
        minute(&mut c, 100);
        assert_eq!(c.usual_part(100_000_000), 100_000_000);
        minute(&mut c, 300);
        let part = c.usual_part(c.times.mean);
        assert!((100_000_000..160_000_000).contains(&part), "{part}");
        (0..20).for_each(|_| minute(&mut c, 300));
        assert_eq!(c.usual_part(300_000_000), 300_000_000);
        minute(&mut c, 100);
        assert_eq!(c.usual_part(100_000_000), 100_000_000);
    }

    #[test]
    fn a_timeout_is_a_sample_of_at_least_the_mean() {
        let mut c = class(100.0, 150.0);
        c.sample_at_least(0, ms(1));
        assert_eq!(c.times.mean, 100_000_000);
        c.sample_at_least(0, ms(200));
        assert!(c.times.mean > 100_000_000);
    }
}
