//! Who comes back before it was asked to costs nothing, and nobody is locked out by it (ADM-13).

mod common;

use common::{Answer, World, ms, req};
use holdoff_admission::{Caller, Decision, Ending, Event, HintOutcome, Step};
use holdoff_contract::{Code, Retry, Tier};

const NO_QUEUE: &str = r#"{"workers":1,"queue":0,"classes":{"t":{"mean_ms":20,"p95_ms":30,"deadline_ms":6000}},
    "tiers":{"critical":{"reserved_workers":0}}}"#;

fn caller(id: u64) -> Caller {
    Caller {
        id,
        key: None,
        attempt: None,
    }
}

fn keyed(key: u64) -> Caller {
    Caller {
        key: Some(key),
        ..caller(1)
    }
}

/// A world whose only worker is held.
fn full() -> World {
    let mut w = World::new(NO_QUEUE);
    w.held = true;
    w.ask("filler", req("t", 20)).key();
    w
}

#[track_caller]
fn hint(answer: &Answer) -> (u64, u64) {
    answer.window()
}

#[test]
fn a_keyed_retry_at_once_is_throttled_with_what_is_left_of_its_hint() {
    let mut w = full();
    let first = w.ask_as("first", req("t", 20).within(60_000), keyed(7));
    assert_eq!(first.code(), Some(Code::ConcurrencyLimit));
    let (after, max) = hint(&first);
    for n in 1..=10 {
        w.advance(10);
        let early = w.ask_as("early", req("t", 20).within(60_000), keyed(7));
        assert_eq!(early.code(), Some(Code::RetryThrottled));
        assert_eq!(early.refusal().overload.retry, Retry::After);
        assert_eq!(hint(&early).0, (after - 10 * n).max(50));
        assert_eq!(hint(&early).1, (max - 10 * n).max(hint(&early).0 + 50));
    }
    w.advance(after - 100 - 20);
    let on_time = w.ask_as("20 ms before", req("t", 20).within(60_000), keyed(7));
    assert_eq!(
        on_time.code(),
        Some(Code::ConcurrencyLimit),
        "tested, not throttled"
    );
}

#[test]
fn who_is_told_not_to_come_back_and_asks_again_at_once_is_early_too_and_is_not_missed() {
    let mut w = full();
    let first = w.ask_as("first", req("t", 20).within(100), keyed(7));
    assert_eq!(first.code(), Some(Code::ConcurrencyLimit));
    assert_eq!(first.refusal().overload.retry, Retry::No);
    let (after, max) = hint(&first);
    w.held = false;
    w.advance(after - 50);
    let early = w.ask_as("finds the gap", req("t", 20).within(60_000), keyed(7));
    assert_eq!(early.code(), Some(Code::RetryThrottled));
    w.advance(50);
    w.ask_as("after its hint", req("t", 20).within(60_000), keyed(7))
        .key();
    let mut other = full();
    let told = other.ask_as("first", req("t", 20).within(100), keyed(8));
    assert_eq!(told.refusal().overload.retry, Retry::No);
    other.advance(max + 20_000);
    let gone = |event: &Event| {
        matches!(
            event,
            Event::HintEnded {
                outcome: HintOutcome::NoReturn,
                ..
            }
        )
    };
    assert!(!other.events.iter().any(gone), "nobody waits for it");
}

#[test]
fn an_operation_that_was_admitted_is_not_early_any_more() {
    let mut w = full();
    assert!(w.ask_as("first", req("t", 20), keyed(7)).code().is_some());
    let after = hint(&w.ask_as("again", req("t", 20), keyed(7))).0;
    w.held = false;
    w.advance(after.max(50));
    w.ask_as("in time", req("t", 20), keyed(7)).key();
    w.advance(50);
    w.ask_as("the same key, another request", req("t", 20), keyed(7))
        .key();
}

#[test]
fn fresh_requests_are_not_early_because_another_of_their_caller_was_refused() {
    let mut w = full();
    assert!(w.ask_as("first", req("t", 20), keyed(7)).code().is_some());
    for n in 0..20 {
        let fresh = w.ask_as("fresh", req("t", 20), keyed(100 + n));
        assert_eq!(fresh.code(), Some(Code::ConcurrencyLimit), "tested: {n}");
    }
    w.held = false;
    w.advance(20);
    w.ask_as("fresh, and there is room", req("t", 20), caller(1))
        .key();
}

#[test]
fn a_caller_that_hammers_is_throttled_and_others_are_not() {
    let mut w = full();
    let count = |w: &mut World, who: u64, n: usize| {
        (0..n)
            .filter(|_| {
                w.ask_as("x", req("t", 20).within(60_000), caller(who)).code() == Some(Code::RetryThrottled)
            })
            .count()
    };
    // The fair share is 50 tasks a second, and two seconds of it are saved.
    let throttled = count(&mut w, 1, 1_000);
    assert!((890..=901).contains(&throttled), "{throttled} of 1000");
    assert_eq!(count(&mut w, 2, 20), 0, "another caller");
    let critical = w.ask_as("x", req("t", 20).tier(Tier::Critical), caller(1));
    assert_ne!(
        critical.code(),
        Some(Code::RetryThrottled),
        "another tier of the same"
    );
    // Throttle answers took nothing: the bucket refills though it goes on.
    let mut tested = 0;
    for _ in 0..100 {
        w.advance(10);
        tested += 10 - count(&mut w, 1, 10);
    }
    assert!((40..=60).contains(&tested), "{tested} tested in a second");
}

#[test]
fn throttle_answers_stand_one_behind_the_other_in_the_callers_own_line() {
    let mut w = full();
    let mut ask = |who, n| -> Vec<u64> {
        let answers = (0..n).map(|_| w.ask_as("x", req("t", 20).within(60_000), caller(who)));
        answers
            .filter(|answer| answer.code() == Some(Code::RetryThrottled))
            .map(|answer| hint(&answer).0)
            .collect()
    };
    let places = ask(1, 300);
    assert!(places.len() > 150);
    assert!(places.last() > places.first(), "{places:?}");
    assert!(places.iter().all(|after| (50..=30_000).contains(after)));
    let distinct: std::collections::HashSet<_> = places.iter().collect();
    assert!(distinct.len() > 100, "{} of {}", distinct.len(), places.len());
}

#[test]
fn a_caller_of_a_hundred_a_second_is_admitted_again_within_two_seconds_of_a_stalls_end() {
    for stall in [2_000, 10_000] {
        let mut w = World::new(&NO_QUEUE.replace("\"workers\":1,\"queue\":0", "\"workers\":4,\"queue\":40"));
        let send = |w: &mut World, n: u64| {
            (0..n)
                .filter(|_| {
                    w.advance(10);
                    w.ask_as("x", req("t", 20).within(500), caller(1))
                        .code()
                        .is_none()
                })
                .count()
        };
        assert_eq!(send(&mut w, 300), 300, "before");
        w.held = true;
        let during = send(&mut w, stall / 10);
        assert!(during < 60, "{during}");
        w.held = false;
        let took = (0..200).position(|_| send(&mut w, 1) == 1);
        assert!(took.is_some(), "not within 2 s of a stall of {stall} ms");
        send(&mut w, 400);
        assert!(send(&mut w, 100) >= 99, "normal again");
    }
}

#[test]
fn a_long_task_does_not_shrink_the_bucket_of_quick_ones() {
    let mut w = World::new(
        r#"{"workers":2,"queue":0,"classes":{"long":{"mean_ms":1000,"p95_ms":1500,"deadline_ms":60000},
            "short":{"mean_ms":50,"p95_ms":80,"deadline_ms":20000}}}"#,
    );
    w.held = true;
    for _ in 0..2 {
        w.ask_as("long", req("long", 1_000), caller(1)).key();
    }
    w.advance(200);
    // Two workers, 50 ms: 40 tasks a second, two seconds of them.
    for n in 0..60 {
        let answer = w.ask_as("short", req("short", 50), caller(1));
        assert_eq!(answer.code(), Some(Code::ConcurrencyLimit), "{n}");
    }
}

#[test]
fn a_slow_pool_lets_a_probe_of_each_caller_pass() {
    // A fair share of one task in 20 s: without probes four refusals would mean a minute without a test.
    let mut w = World::new(
        r#"{"workers":1,"queue":0,"classes":{"t":{"mean_ms":20000,"p95_ms":30000,"deadline_ms":60000}}}"#,
    );
    w.held = true;
    let filler = w.ask("filler", req("t", 20_000)).key();
    for _ in 0..50 {
        assert!(w.ask_as("x", req("t", 1), caller(1)).code().is_some());
    }
    w.end(filler, Ending::Cancelled);
    w.advance(250);
    w.ask_as("probe", req("t", 1), caller(1)).key();
}

#[test]
fn what_callers_make_of_their_hints_is_counted() {
    let mut w = full();
    let ask = |w: &mut World, key| hint(&w.ask_as("x", req("t", 20).within(60_000), keyed(key)));
    let (after, _) = ask(&mut w, 1);
    ask(&mut w, 2);
    ask(&mut w, 3);
    ask(&mut w, 4);
    ask(&mut w, 2); // at once
    w.advance(after + 10);
    ask(&mut w, 1); // in its window
    w.advance(5_000);
    ask(&mut w, 3); // long after
    w.advance(60_000);
    let seen = |outcome| {
        let is = |event: &&Event| matches!(event, Event::HintEnded { outcome: o, .. } if *o == outcome);
        w.events.iter().filter(is).count()
    };
    assert_eq!(seen(HintOutcome::Early), 1);
    assert_eq!(seen(HintOutcome::Honoured), 1);
    assert_eq!(seen(HintOutcome::Late), 1);
    assert!(seen(HintOutcome::NoReturn) >= 2);
    let worst = w.c.worst_callers(5);
    assert_eq!(worst.len(), 1);
    assert_eq!(worst[0].outcomes[HintOutcome::Early as usize], 1);
    assert_eq!(worst[0].throttled, 1);
}

#[test]
fn returns_without_a_key_are_known_by_their_attempt_or_else_by_coming_at_all() {
    for (attempt, early) in [(Some(2), 1), (Some(1), 0), (None, 1)] {
        let mut w = full();
        let first = Caller {
            attempt: attempt.map(|_| 1),
            ..caller(1)
        };
        w.ask_as("x", req("t", 20).within(60_000), first);
        let again = Caller { attempt, ..first };
        w.ask_as("x", req("t", 20).within(60_000), again);
        let worst = w.c.worst_callers(1);
        assert_eq!(
            worst[0].outcomes[HintOutcome::Early as usize],
            early,
            "{attempt:?}"
        );
    }
}

#[test]
fn draining_and_stale_are_said_before_the_edge_and_made_up_callers_take_no_more_memory() {
    let mut w = full();
    w.ask_as("x", req("t", 20).within(60_000), keyed(7));
    w.ticking = false;
    w.now += ms(600);
    assert_eq!(
        w.ask_as("x", req("t", 20), keyed(7)).code(),
        Some(Code::ControllerStale)
    );
    w.c.drain();
    assert_eq!(w.ask_as("x", req("t", 20), keyed(7)).code(), Some(Code::Draining));

    let mut c = full().c;
    let now = w.now;
    let mut flood = |from: u64, to: u64| {
        for n in from..to {
            let work = holdoff_admission::Work {
                tenant: c.tenant(None),
                class: c.class(None),
                tier: Tier::Deferrable,
                deadline: now + ms(1_000),
                deadline_of: holdoff_admission::DeadlineOf::Caller,
                cost: None,
                bytes: 0,
                may_defer: false,
            };
            let id = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let caller = Caller {
                id,
                key: Some(id ^ 1),
                attempt: None,
            };
            if let Decision::Accept { ticket, .. } = c.admit_from(now, work, &caller, &mut ()) {
                c.finish(now, ticket, Ending::Cancelled, &mut ());
            }
            while let Some(step) = c.next_step(now, &mut ()) {
                assert!(matches!(step, Step::Start(_)));
            }
        }
        c.worst_callers(usize::MAX).len()
    };
    flood(0, 20_000);
    let mut known = 0;
    let info = allocation_counter::measure(|| known = flood(20_000, 22_000));
    assert!(known <= 4_096, "{known}");
    assert!(info.bytes_max < 3 << 20, "{info:?}");
}
