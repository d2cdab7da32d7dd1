//! When a refused caller may come back: windows differ, stay in range, and nobody is pushed out.

mod common;

use std::collections::HashSet;

use common::{World, req};
use holdoff_admission::Caller;
use holdoff_contract::{Code, Retry};

const SLOW: &str = r#"{"workers":2,"queue":4,"classes":{"t":{"mean_ms":100,"p95_ms":150,"deadline_ms":2000}},
    "tiers":{"critical":{"reserved_workers":0}}}"#;

fn full(json: &str) -> World {
    let mut w = World::new(json);
    for _ in 0..8 {
        w.ask("warm", req("t", 100)).key();
        w.advance(100);
    }
    while w.ask("fill", req("t", 100).within(60_000)).code().is_none() {}
    w
}

#[test]
fn a_hundred_refusals_in_a_burst_get_at_least_twenty_windows() {
    for json in [
        SLOW,
        &SLOW.replace("\"mean_ms\":100,\"p95_ms\":150", "\"mean_ms\":1,\"p95_ms\":2"),
    ] {
        let mut w = full(json);
        let windows: HashSet<_> = (0..100)
            .map(|_| w.ask("x", req("t", 100).within(60_000)).window())
            .collect();
        assert!(windows.len() >= 20, "{} windows", windows.len());
    }
}

#[test]
fn heavier_overload_reaches_further_and_stays_within_floor_and_ceiling() {
    // FC-ADM-06
    let mut w = full(SLOW);
    let light = w.ask("x", req("t", 100)).window().0;
    let names: Vec<String> = (0..100).map(|n| format!("tenant {n}")).collect();
    let mut heavy = Vec::new();
    for name in names.iter().cycle().take(400) {
        let name: &'static str = name.clone().leak();
        let answer = w.ask("x", req("t", 100).of(name).within(60_000));
        if answer.code().is_some() {
            heavy.push(answer.window());
        }
    }
    assert!(heavy.len() >= 300, "{}", heavy.len());
    let longest = heavy.iter().map(|(after, _)| *after).max().unwrap();
    assert!(longest >= 4 * light, "{longest} after {light}");
    for (after, max) in heavy {
        assert!(
            (50..=30_000).contains(&after) && (after..=after + 60_000).contains(&max),
            "{after} {max}"
        );
    }
}

#[test]
fn at_the_ceiling_the_window_widens_and_nothing_more_is_booked() {
    let mut w = full(SLOW);
    let windows: Vec<_> = (0..2_000)
        .map(|_| w.ask("x", req("t", 100).within(600_000)).window())
        .collect();
    let (after, max) = windows[1_999];
    assert!(
        (27_000..=30_000).contains(&after) && max >= after + after / 2,
        "{after} {max}"
    );
    // The line ends at the ceiling, so it is short again soon after.
    w.advance(29_000);
    while w.ask("fill", req("t", 100).within(60_000)).code().is_none() {}
    let next = w.ask("x", req("t", 100).within(600_000)).window().0;
    assert!(next < 3_000, "{next}");
}

#[test]
fn behind_the_ceiling_each_known_call_takes_one_place_and_whose_deadline_cannot_hold_it_is_told_no() {
    let mut w = full(SLOW);
    let keyed = |key: u64| Caller {
        id: key,
        key: Some(key),
        attempt: None,
    };
    for _ in 0..2_000 {
        let _ = w.ask("anybody", req("t", 100).within(600_000));
    }
    let retry = |w: &mut World, key, within| {
        let answer = w.ask_as("x", req("t", 100).within(within), keyed(key));
        assert!(answer.window().0 <= 30_000, "{:?}", answer.window());
        answer.refusal().overload.retry
    };
    // A hundred tasks of 100 ms on two workers: the next would be served five seconds behind the ceiling.
    for key in 0..100 {
        assert_eq!(retry(&mut w, key, 600_000), Retry::After, "{key}");
    }
    for _ in 0..1_000 {
        // Early, so that it takes no other place.
        retry(&mut w, 0, 600_000);
    }
    assert_eq!(retry(&mut w, 1_000, 34_000), Retry::No);
    assert_eq!(retry(&mut w, 1_001, 37_000), Retry::After);
    let unknown = w.ask("without a key", req("t", 100).within(34_000));
    assert_eq!(unknown.refusal().overload.retry, Retry::After);
}

#[test]
fn a_thousand_refusals_of_one_tenant_leave_anothers_first_hint_short() {
    // ADM-27
    let mut w = full(SLOW);
    for _ in 0..1_000 {
        let _ = w.ask("a", req("t", 100).of("a").within(60_000));
    }
    let answer = w.ask("b", req("t", 100).of("b").within(60_000));
    assert_eq!(answer.refusal().overload.retry, Retry::After);
    assert!(answer.window().0 < 1_000, "{:?}", answer.window());
}

#[test]
fn who_cannot_come_back_books_nothing() {
    let mut w = full(SLOW);
    let before = w.ask("x", req("t", 100).within(60_000)).window().0;
    for _ in 0..200 {
        let answer = w.ask("hasty", req("t", 100).within(300));
        assert_eq!(answer.code(), Some(Code::QueueFull));
        assert_eq!(answer.refusal().overload.retry, Retry::No);
    }
    let after = w.ask("x", req("t", 100).within(60_000)).window().0;
    assert!(after < before + 250, "{before} then {after}");
}
