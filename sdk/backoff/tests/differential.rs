//! Our blind envelope against that of `backoff`, the crate that many services come from.
//!
//! `backoff` draws from `[i (1 - r), i (1 + r)]` around an interval i that is multiplied each time up to a maximum; we
//! draw from `[b / 2, b]` under a ceiling b that doubles up to a cap. With i = 0.75 b, r = 1/3 and multiplier 2 the two are
//! the same set, and every draw of one must lie in the envelope of the other. Where the definitions do not agree:
//!
//! - the floor: ours never draws below 50 ms (CLI-10), `backoff` has none. So bases here are 100 ms and more;
//! - the last nanosecond: `backoff` computes in f64 and draws up to one nanosecond over its envelope;
//! - what ends it: `backoff` knows elapsed time only; ours attempts, waiting in all, deadline and budget (not compared);
//! - a hint: in `backoff` it goes around all of this (tests/backoff_loop.rs), in ours it moves the window.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use backoff::backoff::Backoff;
use backoff::{ExponentialBackoff, ExponentialBackoffBuilder};
use holdoff_backoff::{CallSpec, Pacer, Policy, Replay, Safety, outcome_of};
use holdoff_contract::Hint;
use http::{HeaderMap, StatusCode};
use proptest::prelude::*;

/// `backoff` computes in f64: a part in 10^12 of 20 s is far below this.
const ROUNDING: Duration = Duration::from_nanos(2_000);

fn theirs(base: Duration, cap: Duration) -> ExponentialBackoff {
    ExponentialBackoffBuilder::new()
        .with_initial_interval(base * 3 / 4)
        .with_max_interval(cap * 3 / 4)
        .with_multiplier(2.0)
        .with_randomization_factor(1.0 / 3.0)
        .with_max_elapsed_time(None)
        .build()
}

fn ours(base: Duration, cap: Duration) -> Policy {
    Policy::builder()
        .backoff_base(base)
        .backoff_cap(cap)
        .max_attempts(255)
        .max_attempts_scheduled(255)
        .max_wait_total(Duration::from_secs(24 * 3600))
        .budget_capacity(1_000_000)
        .build()
        .unwrap()
}

#[expect(clippy::disallowed_methods, reason = "where virtual time starts")]
fn start() -> Instant {
    Instant::now()
}

/// The waits of one call that is refused without a hint each time, in virtual time.
fn our_draws(policy: Policy, count: usize, seed: u64) -> Vec<Duration> {
    let now = Arc::new(Mutex::new(start()));
    let clock = Arc::clone(&now);
    let pacer = Pacer::builder()
        .policy(policy)
        .rng_seed(seed)
        .clock(move || *clock.lock().unwrap())
        .build();
    let call = pacer.call(CallSpec {
        deadline: None,
        ..CallSpec::new(Safety::Idempotent, Replay::Bytes)
    });
    (0..count)
        .map(|_| {
            let _attempt = call.begin().unwrap();
            call.tell(outcome_of(
                StatusCode::SERVICE_UNAVAILABLE,
                &HeaderMap::new(),
                None,
            ));
            let wait = call.next_wait().unwrap();
            *now.lock().unwrap() += wait;
            wait
        })
        .collect()
}

fn parameters() -> impl Strategy<Value = (Duration, Duration)> {
    (100_u64..5_000, 1_u64..64).prop_map(|(base, factor)| {
        let base = Duration::from_millis(base);
        (
            base,
            (base * u32::try_from(factor).unwrap()).min(Duration::from_secs(3600)),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_draw_of_backoff_lies_in_our_envelope((base, cap) in parameters()) {
        let (policy, mut theirs) = (ours(base, cap), theirs(base, cap));
        for attempt in 1..=12 {
            let window = policy.window(Hint::Absent, attempt);
            let wait = theirs.next_backoff().unwrap();
            // Their interval jumps to its maximum once doubling would reach it, and so does ours.
            prop_assert!(
                wait + ROUNDING >= window.lo && wait <= window.hi + ROUNDING,
                "attempt {}: {:?} outside [{:?}, {:?}]", attempt, wait, window.lo, window.hi
            );
        }
    }

    #[test]
    fn every_draw_of_ours_lies_in_the_envelope_of_backoff((base, cap) in parameters(), seed: u64) {
        let mut theirs = theirs(base, cap);
        for (at, wait) in our_draws(ours(base, cap), 12, seed).into_iter().enumerate() {
            let interval = theirs.current_interval;
            let (lo, hi) = (interval * 2 / 3, interval * 4 / 3);
            prop_assert!(
                wait + ROUNDING >= lo && wait <= hi + ROUNDING,
                "wait {}: {:?} outside [{:?}, {:?}]", at + 1, wait, lo, hi
            );
            // Moves its interval on.
            theirs.next_backoff().unwrap();
        }
    }
}

/// Both fill the envelope, so agreeing is not the agreement of two constants.
#[test]
fn both_draw_from_all_of_the_envelope() {
    let (base, cap) = (Duration::from_secs(1), Duration::from_secs(1));
    let mut backoff = theirs(base, cap);
    let theirs: Vec<Duration> = (0..200).map(|_| backoff.next_backoff().unwrap()).collect();
    let ours: Vec<Duration> = our_draws(ours(base, cap), 200, 7);
    for draws in [theirs, ours] {
        let (least, most) = (draws.iter().min().unwrap(), draws.iter().max().unwrap());
        assert!(*least < Duration::from_millis(525), "{least:?}");
        assert!(*most > Duration::from_millis(975), "{most:?}");
    }
}

/// Where they part: below the floor.
#[test]
fn below_the_floor_ours_waits_and_backoff_does_not() {
    let base = Duration::from_millis(10);
    let mut theirs = theirs(base, base);
    assert!(theirs.next_backoff().unwrap() < Duration::from_millis(11));
    for wait in our_draws(ours(base, base), 20, 7) {
        assert!(wait >= Duration::from_millis(50), "{wait:?}");
    }
}
