//! The gates on one seed of four scenarios, and the negative controls that they must catch.
//!
//! `cargo test -p holdoff-sim --test smoke`; the whole is `holdoff-sim gates` and `holdoff-sim tables`.

#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::collections::BTreeMap;

use holdoff_sim::controls::CONTROLS;
use holdoff_sim::gates::{self, Case, Verdict};
use holdoff_sim::scenario::Scenario;
use holdoff_sim::{Setup, clock};

/// Quick ones that together cover overload by load, by a fault, by one tenant and by a slow class.
const SCENARIOS: [&str; 4] = ["b10", "d", "e", "f"];

fn judged(of: Setup) -> Vec<Verdict> {
    let case = Case {
        scenario: of.scenario.name,
        clients: None,
    };
    let run = holdoff_sim::run(&of, clock::now()).unwrap();
    gates::judge(&gates::all(), case, &[run.report()])
}

/// Simulates all of them, as many at a time as there are.
fn all_judged(setups: Vec<Setup>) -> Vec<Vec<Verdict>> {
    std::thread::scope(|scope| {
        let started: Vec<_> = setups
            .into_iter()
            .map(|setup| scope.spawn(|| judged(setup)))
            .collect();
        started.into_iter().map(|run| run.join().unwrap()).collect()
    })
}

/// What each figure of each scenario came to, with whether its gate holds.
fn table(verdicts: &[Verdict]) -> BTreeMap<(&'static str, &'static str), (f64, bool)> {
    let row = |v: &Verdict| ((v.gate.case.scenario, v.gate.figure), (v.median, v.passes()));
    verdicts.iter().map(row).collect()
}

/// Every control fails a gate that the product holds on the same arrivals; else that gate measures nothing.
#[test]
fn the_product_holds_the_gates_and_every_negative_control_fails_one_that_it_holds() {
    let product = |name| Setup::product(Scenario::named(name).unwrap(), 1);
    let mut setups: Vec<Setup> = SCENARIOS.map(product).into();
    setups.extend(CONTROLS.map(|control| control.setup(product(control.scenario))));
    let mut verdicts = all_judged(setups);
    let controls = verdicts.split_off(SCENARIOS.len());
    let held = table(&verdicts.concat());
    assert_eq!(held.len(), 34);
    for (gate, (figure, holds)) in &held {
        assert!(
            holds | gates::OPEN.contains(gate),
            "{gate:?} held before: {figure}"
        );
    }
    for (control, verdicts) in CONTROLS.iter().zip(&controls) {
        let gate = (control.scenario, control.figure);
        let (figure, passes) = table(verdicts)[&gate];
        assert!(held[&gate].1, "{gate:?} catches nobody: the product fails it too");
        assert!(!passes, "{} passes {gate:?}: {figure}", control.name);
    }
}
