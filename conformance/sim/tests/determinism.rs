//! The same seed gives the same run, whatever the real clock says.

#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::time::Duration;

use holdoff_sim::caller::ClientKind;
use holdoff_sim::scenario::Scenario;
use holdoff_sim::time::SECOND;
use holdoff_sim::{Run, Setup, clock, run};

fn small(name: &str, seed: u64) -> Setup {
    let mut scenario = Scenario::named(name).unwrap();
    scenario.workers = scenario.workers.min(4);
    scenario.quiet = 3 * SECOND;
    scenario.disturbed = 3 * SECOND;
    scenario.after = 6 * SECOND;
    Setup {
        trace: true,
        ..Setup::product(scenario, seed)
    }
}

fn simulate(setup: &Setup, later: Duration) -> Run {
    run(setup, clock::now() + later).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_trace_in_every_scenario_at_any_time_of_day() {
    for scenario in holdoff_sim::scenario::all() {
        let mut setup = small(scenario.name, 7);
        if let holdoff_sim::scenario::Disturbance::Herd(callers) = &mut setup.scenario.disturbance {
            *callers = 2_000;
        }
        let (a, b) = (
            simulate(&setup, Duration::ZERO),
            simulate(&setup, Duration::from_secs(86_400)),
        );
        // A line for each attempt that reached the door; a network may hold up the last ones for too long.
        let sends: usize = a.calls.iter().map(|call| call.attempts as usize).sum();
        let lines = a.trace.len();
        assert!(
            lines <= sends && lines * 20 > sends * 19,
            "{}: {lines} of {sends}",
            scenario.name
        );
        assert!(lines > 100, "{}: {lines}", scenario.name);
        assert!(a == b, "{} differs from itself", scenario.name);
    }
}

#[test]
fn another_seed_gives_another_run() {
    let (a, b) = (
        simulate(&small("a2", 1), Duration::ZERO),
        simulate(&small("a2", 2), Duration::ZERO),
    );
    assert!(a.trace != b.trace);
}

#[test]
fn policies_are_compared_on_the_same_arrivals() {
    let product = simulate(&small("a5", 3), Duration::ZERO);
    let other = Setup {
        clients: ClientKind::Hammer,
        ..small("a5", 3)
    };
    let other = simulate(&other, Duration::ZERO);
    let arrivals = |run: &Run| run.calls.iter().map(|call| call.arrival).collect::<Vec<_>>();
    assert_eq!(arrivals(&product), arrivals(&other));
    assert!(other.report().attempts > 2.0 * product.report().attempts);
}

#[test]
fn nothing_beats_the_clairvoyant_bound_and_no_retry_leaves_before_its_hint() {
    for name in [
        "a2",
        "a10",
        "b",
        "c",
        "e",
        "f5",
        "network",
        "replicas",
        "chain",
        "overstate",
    ] {
        let run = simulate(&small(name, 5), Duration::ZERO);
        let (good, bound) = (run.good_work(), run.bound());
        assert!(good > 0.3 * bound && good <= bound, "{name}: {good} of {bound}");
        assert_eq!(run.early_retries, 0, "{name}");
        let late = run
            .calls
            .iter()
            .filter(|call| call.served.is_some_and(|at| at > call.arrival.deadline));
        assert_eq!(late.count(), 0, "{name}");
    }
}
