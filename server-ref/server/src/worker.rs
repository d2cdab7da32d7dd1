//! The work itself, for as long as the caller says or as its class usually takes: waiting, or keeping a processor busy for classes
//! that the profile names.
//!
//! It stands for any handler, those that wait for something else and those that compute. Service times of real services are skewed, so a drawn time is log-normal with the
//! mean and the 95th percentile that the profile declares.
//!
//! Where no declared class was named, the time is drawn of the quickest. That such work is *reckoned* as the slowest until it
//! has been measured (SRQ-07) is caution, and says nothing about how long it takes; a bare `curl` should not seem to hang.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdoff_admission::Profile;
use holdoff_admission::profile::Class;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::watch;

use crate::burn::Burner;
use crate::clock;

/// A drawn time is at most this many means: the estimator clips its samples there too (DESIGN section 4).
const MOST_MEANS: f64 = 8.0;
/// The 95th percentile of the standard normal distribution.
const Z95: f64 = 1.645;

pub(crate) struct Worker {
    rng: Mutex<StdRng>,
    most: Duration,
    /// Classes whose work burns, and what burns; none where no class does.
    burn: Option<(BTreeSet<String>, Burner)>,
    held: watch::Sender<bool>,
    panics: AtomicU32,
}

impl Worker {
    pub(crate) fn new(seed: Option<u64>, most: Duration, burn: &BTreeSet<String>) -> Self {
        Self {
            rng: Mutex::new(clock::rng(seed)),
            most,
            burn: (!burn.is_empty()).then(|| (burn.clone(), Burner::measured())),
            held: watch::Sender::new(false),
            panics: AtomicU32::new(0),
        }
    }

    /// How long work of this class takes: as asked, else drawn; of the quickest class where this one is not declared.
    pub(crate) fn duration(&self, profile: &Profile, class: &str, asked: Option<Duration>) -> Duration {
        let drawn = || {
            let declared = profile.classes.get(class).or_else(|| quickest(profile));
            let class = declared.cloned().unwrap_or_else(|| profile.other_class());
            let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
            draw(&class, rng.random(), rng.random())
        };
        asked.unwrap_or_else(drawn).min(self.most)
    }

    /// Does the work of this class; while the fixture holds the workers it does not end.
    pub(crate) async fn work(&self, class: &str, duration: Duration) {
        if self
            .panics
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
        {
            fail();
        }
        match &self.burn {
            Some((classes, burner)) if classes.contains(class) => burner.burn(duration).await,
            _ => clock::sleep(duration).await,
        }
        self.released().await;
    }

    /// Waits until the workers are not held.
    pub(crate) async fn released(&self) {
        // The sender lives in `self`, so the channel cannot close while we wait.
        let _ = self.held.subscribe().wait_for(|held| !*held).await;
    }

    pub(crate) fn is_held(&self) -> bool {
        *self.held.borrow()
    }

    /// Fixture: holds or releases the workers.
    pub(crate) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Fixture: the next `count` pieces of work panic.
    pub(crate) fn panic_next(&self, count: u32) {
        self.panics.store(count, Ordering::Relaxed);
    }
}

#[expect(
    clippy::panic,
    reason = "the fixture that shows that a panic gives its place back"
)]
fn fail() -> ! {
    panic!("fixture panic_work")
}

fn quickest(profile: &Profile) -> Option<&Class> {
    let classes = profile.classes.values();
    classes.min_by(|a, b| a.mean_ms.total_cmp(&b.mean_ms))
}

/// A log-normal time from two uniform numbers in [0, 1).
fn draw(class: &Class, u1: f64, u2: f64) -> Duration {
    let mean = class.mean().as_secs_f64();
    let ratio = (class.p95().as_secs_f64() / mean).max(1.0).ln();
    // ln(p95/mean) = Z95 s - s^2/2; beyond what a log-normal can give, the widest it can.
    let spread = Z95 - (Z95 * Z95 - 2.0 * ratio).max(0.0).sqrt();
    let normal = (-2.0 * (1.0 - u1).ln()).sqrt() * (std::f64::consts::TAU * u2).cos();
    let seconds = mean * (spread * normal - spread * spread / 2.0).exp();
    Duration::try_from_secs_f64(seconds.min(mean * MOST_MEANS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_without_a_declared_class_takes_as_long_as_the_quickest() {
        let of = |mean_ms| Class {
            mean_ms,
            p95_ms: Some(mean_ms),
            ..Class::default()
        };
        let mut profile = Profile {
            classes: [
                ("lint".to_owned(), of(50.0)),
                ("migration".to_owned(), of(20_000.0)),
            ]
            .into(),
            ..Profile::default()
        };
        let worker = Worker::new(Some(7), Duration::from_secs(600), &BTreeSet::new());
        let took = |class| worker.duration(&profile, class, None).as_millis();
        assert_eq!(
            (took("other"), took("nobody"), took("migration")),
            (50, 50, 20_000)
        );
        profile.classes.clear();
        assert!(worker.duration(&profile, "other", None) > Duration::ZERO);
        let asked = Some(Duration::from_millis(3));
        assert_eq!(
            worker.duration(&profile, "other", asked),
            Duration::from_millis(3)
        );
    }

    #[test]
    fn drawn_times_have_the_mean_and_the_percentile_of_the_profile() {
        let class = Class {
            mean_ms: 100.0,
            p95_ms: Some(250.0),
            ..Class::default()
        };
        let mut rng = clock::rng(Some(7));
        let mut drawn: Vec<f64> = (0..20_000)
            .map(|_| draw(&class, rng.random(), rng.random()).as_secs_f64() * 1e3)
            .collect();
        drawn.sort_by(f64::total_cmp);
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((95.0..105.0).contains(&mean), "mean {mean}");
        let p95 = drawn[drawn.len() * 95 / 100];
        assert!((235.0..265.0).contains(&p95), "p95 {p95}");
    }

    #[test]
    fn a_longest_duration_binds_what_is_asked_for() {
        let worker = Worker::new(Some(1), Duration::from_millis(10), &BTreeSet::new());
        let profile = Profile::default();
        assert_eq!(
            worker.duration(&profile, "x", Some(Duration::from_secs(9))),
            Duration::from_millis(10)
        );
    }
}
