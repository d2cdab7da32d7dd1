//! Field cases about when to come back, in virtual time: real reports, told as sentences. The id is in the comment; the reports are
//! in the field-case collection of the conformance suite.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

mod common;

use std::time::Duration;

use common::*;
use holdoff_contract::limits::MAX_HINT;
use holdoff_contract::{Granularity, Hint, Overload, Scope};
use holdoff_policy::{Action, Policy, StopReason};

#[test]
fn a_hint_in_seconds_is_waited_for_in_seconds() {
    // FC-PAR-02
    for wait in waits(50, &field_policy().build().unwrap(), 1, until(1, || seconds(2))) {
        assert!((ms(2000)..=ms(3000)).contains(&wait), "{wait:?}");
    }
}

#[test]
fn no_hint_is_not_a_hint_of_zero() {
    // FC-PAR-07
    let policy = field_policy().build().unwrap();
    for (k, least) in [(1_u32, 50), (2, 100), (3, 200)] {
        for wait in waits(200, &policy, k as usize, until(k, bare)) {
            assert!(
                (ms(least)..=ms(2 * least)).contains(&wait),
                "attempt {k}: {wait:?}"
            );
        }
    }
    let run = World::new(policy).run(get(), |_| refused(bare()));
    assert_eq!((run.why(), run.sends.len()), (StopReason::AttemptsExhausted, 4));
    assert_eq!(run.gave_up().retry_in, None);
}

#[test]
fn a_ten_digit_hint_stops_the_call_with_the_hint_and_without_a_panic() {
    // FC-DEL-01
    let huge = Hint::After {
        delay: MAX_HINT,
        granularity: Granularity::Seconds,
    };
    let mut world = World::new(field_policy().build().unwrap());
    let run = world.script(get(), vec![refused(overload(huge))]);
    assert_eq!((run.why(), run.elapsed), (StopReason::HintTooLong, ms(1)));
    assert_eq!(run.gave_up().retry_in, Some(MAX_HINT));
}

#[test]
fn growth_reaches_its_bound_and_stays_there_for_every_attempt_number() {
    // FC-DEL-02
    let policy = Policy::builder()
        .backoff_base(ms(500))
        .backoff_cap(ms(45_000))
        .build()
        .unwrap();
    let hint = Hint::After {
        delay: ms(200),
        granularity: Granularity::Milliseconds,
    };
    let width = |k| policy.window(hint, k).max.unwrap() - ms(200);
    let (mut last_b, mut last_width) = (Duration::ZERO, Duration::ZERO);
    for k in (1..=100_000).chain([u32::MAX]) {
        let (b, width) = (policy.backoff(k), width(k));
        assert!(b >= last_b && width >= last_width, "fell at {k}");
        assert!(k < 8 || b == ms(45_000), "{k}: {b:?}");
        assert!(k < 7 || width == ms(5000), "{k}: {width:?}");
        (last_b, last_width) = (b, width);
    }
    assert_eq!((policy.backoff(7), width(1)), (ms(32_000), ms(100)));
    let slow = Policy::builder()
        .backoff_base(Duration::from_nanos(1))
        .build()
        .unwrap();
    assert_eq!(
        (slow.backoff(36), slow.backoff(0)),
        (ms(20_000), Duration::from_nanos(1))
    );
}

#[test]
fn a_hint_of_zero_neither_waits_nothing_nor_resets_the_growth() {
    // FC-DEL-04
    let policy = field_policy().max_attempts(5).build().unwrap();
    for seed in 0..50 {
        let run = World::seeded(policy.clone(), seed).run(get(), |_| refused(seconds(0)));
        assert_eq!((run.why(), run.sends.len()), (StopReason::AttemptsExhausted, 5));
        for (gap, least) in run.gaps.iter().zip([50, 100, 200, 400]) {
            assert!((ms(least)..=ms(2 * least)).contains(gap), "{gap:?}");
        }
    }
}

#[test]
fn a_hint_over_the_cap_is_not_swapped_for_a_short_backoff() {
    // FC-DEL-05
    let run = World::new(field_policy().build().unwrap()).script(get(), vec![refused(seconds(90))]);
    assert_eq!((run.why(), run.elapsed), (StopReason::HintTooLong, ms(1)));
    assert_eq!(run.gave_up().retry_in, Some(ms(90_000)));
}

#[test]
fn clients_refused_together_come_back_spread_over_the_window() {
    // FC-JIT-01
    let samples = waits(60, &field_policy().build().unwrap(), 1, until(1, || seconds(2)));
    assert_spread(&samples, ms(2000), ms(3000));
}

#[test]
fn a_hint_equal_to_the_cap_still_gets_its_whole_window() {
    // FC-JIT-02
    let policy = field_policy().hint_cap(ms(3000)).build().unwrap();
    assert_spread(
        &waits(50, &policy, 1, until(1, || seconds(3))),
        ms(3000),
        ms(4500),
    );
}

#[test]
fn half_of_the_backoff_is_random_and_really_used() {
    // FC-JIT-03
    let samples = waits(1000, &field_policy().build().unwrap(), 3, until(3, bare));
    assert_spread(&samples, ms(200), ms(400));
    let mut distinct: Vec<u128> = samples.iter().map(Duration::as_millis).collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() >= 100, "{}", distinct.len());
}

#[test]
fn an_empty_random_range_is_no_reason_to_panic_or_to_retry_at_once() {
    // FC-JIT-04
    for (base, cap) in [(0, 0), (1, 1), (0, 20_000)] {
        let policy = Policy::builder()
            .backoff_base(ms(base))
            .backoff_cap(ms(cap))
            .backoff_floor(ms(50));
        assert_spread(
            &waits(100, &policy.build().unwrap(), 1, until(1, bare)),
            ms(50),
            ms(100),
        );
    }
}

#[test]
fn an_overload_without_a_hint_is_not_permanent() {
    // FC-PRO-04
    let policy = field_policy().build().unwrap();
    let marked = || overload(Hint::Absent);
    for wait in
        waits(50, &policy, 1, until(1, marked))
            .into_iter()
            .chain(waits(50, &policy, 1, until(1, bare)))
    {
        assert!((ms(50)..=ms(100)).contains(&wait), "{wait:?}");
    }
}

#[test]
fn a_backlog_of_waiting_calls_comes_back_spread_over_the_window_and_none_is_thrown_away() {
    // FC-REC-05, case 1
    let mut world = World::new(field_policy().max_attempts(3).max_waiting(500).build().unwrap());
    let mut calls = start(&mut world, 500);
    let refused_at = world.now;
    for call in &mut calls {
        world.tell(
            call,
            refused(Overload {
                scope: Scope::Service,
                ..window(10_000, 15_000)
            }),
        );
    }
    let mut slices = vec![0_usize; 151];
    for call in &mut calls {
        let Action::WaitUntil(until) = world.next(call) else {
            panic!("thrown away")
        };
        slices[usize::try_from((until - refused_at).as_millis() / 100).unwrap()] += 1;
    }
    assert!(slices[..100].iter().all(|sent| *sent == 0), "early");
    assert!(slices[100..].iter().all(|sent| *sent <= 50), "{slices:?}");
    assert_eq!(slices.iter().sum::<usize>(), 500);
}
