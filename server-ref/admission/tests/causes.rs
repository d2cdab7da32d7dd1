//! The code names the true cause, and what a refusal says about coming back holds.

mod common;

use common::{World, ms, req};
use holdoff_contract::{Code, Retry, Tier};

/// One worker, a queue of two, tasks of two seconds.
const SLOW: &str = r#"{"workers":1,"queue":2,"tiers":{"critical":{"reserved_workers":0}},
    "classes":{"slow":{"mean_ms":2000,"p95_ms":3000,"deadline_ms":60000}}}"#;

/// A busy service of the kind that the example profile declares: one patient class and one in a hurry.
const MIXED: &str = r#"{"workers":2,"queue":16,"hold_ms":500,"ramp_ms":500,"tiers":{"critical":{"reserved_workers":0}},
    "classes":{"lint":{"mean_ms":50,"p95_ms":80,"deadline_ms":1000},
               "build":{"mean_ms":400,"p95_ms":600,"deadline_ms":8000}}}"#;

#[test]
fn a_least_deadline_that_a_refusal_names_is_admitted_when_it_is_sent_at_once() {
    // SRV-19, over everything that a queue can look like.
    let mut named = 0;
    for json in [SLOW, MIXED] {
        let class = if json == SLOW { "slow" } else { "lint" };
        for depth in 0..20 {
            for tier in [Tier::Critical, Tier::NonSheddable, Tier::Deferrable] {
                for deadline in [1, 10, 100, 500, 1_000, 3_000] {
                    let mut w = World::new(json);
                    for n in 0..depth {
                        let other = if json == SLOW || n % 3 == 0 {
                            class
                        } else {
                            "build"
                        };
                        let _ = w.ask("before", req(other, 400).within(60_000));
                        w.advance(if n % 5 == 0 { 130 } else { 0 });
                    }
                    let answer = w.ask("hasty", req(class, 50).tier(tier).within(deadline));
                    if answer.code().is_none() {
                        continue;
                    }
                    let overload = answer.refusal().overload.clone();
                    let is_deadline = overload.code == Some(Code::DeadlineUnattainable);
                    assert_eq!(
                        overload.min_deadline.is_some(),
                        is_deadline,
                        "{json} {depth} {tier} {deadline}: {overload:?}"
                    );
                    if let Some(least) = overload.min_deadline {
                        let again = w.ask(
                            "again",
                            req(class, 50).tier(tier).within(least.as_millis() as u64),
                        );
                        assert_eq!(again.code(), None, "{json} {depth} {tier} {deadline}: {least:?}");
                        named += 1;
                    }
                }
            }
        }
    }
    assert!(named > 100, "{named}");
}

#[test]
fn where_no_deadline_would_be_admitted_the_limit_that_refuses_any_names_the_code() {
    let mut w = World::new(
        r#"{"workers":1,"queue":100,"tiers":{"critical":{"reserved_workers":0},"deferrable":{"max_wait_ms":3000}},
            "classes":{"slow":{"mean_ms":2000,"p95_ms":3000,"deadline_ms":60000}}}"#,
    );
    for n in 0..10 {
        w.ask("warm", req("slow", 2_000)).key();
        w.advance(2_000 + n);
    }
    while w.ask("fill", req("slow", 2_000)).code().is_none() {}
    for deadline in [100, 6_800, 8_160, 20_400, 60_000] {
        let answer = w.ask("x", req("slow", 2_000).within(deadline));
        assert_eq!(answer.code(), Some(Code::QueueAgeExceeded), "{deadline}");
        assert_eq!(answer.refusal().overload.min_deadline, None);
    }
}

#[test]
fn a_caller_that_named_no_deadline_is_never_told_not_to_come_back() {
    let mut w = World::new(MIXED);
    let (mut refused, mut codes) = (0, std::collections::BTreeMap::new());
    for n in 0..600 {
        let class = if n % 3 == 0 { "build" } else { "lint" };
        let takes = if n % 3 == 0 { 400 } else { 50 };
        let answer = w.ask("x", req(class, takes));
        if let Some(code) = answer.code() {
            let overload = &answer.refusal().overload;
            assert_eq!(overload.retry, Retry::After, "{overload:?}");
            refused += 1;
            *codes.entry(code.as_str().to_owned()).or_insert(0) += 1;
        }
        w.advance(20);
    }
    assert!(refused > 200, "{codes:?}");
    assert!(codes.contains_key("queue_age_exceeded"), "{codes:?}");
    // The same with a deadline that the caller named: what it cannot hold is forbidden.
    let answers: Vec<_> = (0..50)
        .map(|_| w.ask("hasty", req("lint", 50).within(300)))
        .collect();
    let forbidden = answers
        .iter()
        .filter(|answer| answer.code().is_some() && answer.refusal().overload.retry == Retry::No);
    assert!(forbidden.count() >= 40);
}

#[test]
fn a_class_that_cannot_meet_its_own_default_deadline_says_which_deadline_would_do() {
    // No time to come back helps on an idle server: only a longer deadline does.
    let mut w = World::new(
        r#"{"workers":2,"classes":{"t":{"mean_ms":3000,"p95_ms":3500,"deadline_ms":1000,"max_deadline_ms":60000}}}"#,
    );
    let answer = w.ask("x", req("t", 3_000));
    let overload = &answer.refusal().overload;
    assert_eq!(
        (overload.code.clone(), overload.retry),
        (Some(Code::DeadlineUnattainable), Retry::No)
    );
    assert!(overload.min_deadline > Some(ms(2_000)), "{overload:?}");
}

#[test]
fn what_only_its_tenants_own_limit_keeps_out_is_refused_as_tenant_limit() {
    // Without its limit of one, a's task would be on the idle worker.
    let json = SLOW.replace(
        "\"workers\":1,\"queue\":2",
        "\"workers\":2,\"queue\":50,\"tenants\":{\"a\":{\"active\":1}}",
    );
    let mut w = World::new(&json);
    for deadline in [None, Some(4_000)] {
        let task = common::Req {
            deadline,
            ..req("slow", 2_000).of("a")
        };
        let mut codes: Vec<_> = (0..40).filter_map(|_| w.ask("a", task).code()).collect();
        assert!(codes.len() >= 20, "{}", codes.len());
        codes.dedup();
        assert_eq!(codes, [Code::TenantLimit], "{deadline:?}");
    }
    // With nobody idle the wait is the server's own.
    w.ask("b", req("slow", 2_000).of("b")).key();
    let hasty = w.ask("b", req("slow", 2_000).of("b").within(1_000));
    assert_eq!(hasty.code(), Some(Code::DeadlineUnattainable));
}

#[test]
fn a_class_without_samples_fills_a_short_queue_and_what_is_too_much_is_queue_full() {
    let mut w = World::new(SLOW);
    let answers: Vec<_> = (0..4)
        .map(|n| w.ask(&n.to_string(), req("slow", 2_000)))
        .collect();
    let codes: Vec<_> = answers.iter().map(common::Answer::code).collect();
    assert_eq!(codes, [None, None, None, Some(Code::QueueFull)]);
    // No place comes free before the first worker does.
    let (after, _) = answers[3].window();
    assert!((2_000..=2_300).contains(&after), "{after}");
    w.advance(after);
    assert!(w.gauges().tiers[Tier::Deferrable.index()].queued < 2);
}

#[test]
fn what_slow_start_refuses_is_not_invited_back_before_some_of_its_class_has_started() {
    let mut w = World::new(&SLOW.replace("\"queue\":2", "\"queue\":100"));
    let codes: Vec<_> = (0..4).map(|_| w.ask("x", req("slow", 2_000)).code()).collect();
    assert_eq!(codes, [None, None, None, Some(Code::QueueAgeExceeded)]);
    let (after, _) = w.ask("x", req("slow", 2_000)).window();
    assert!(after >= 2_000, "{after}");
}
