//! The gates on one seed of four scenarios, and the negative controls that they must catch.

#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use holdoff_sim::caller::ClientKind;
use holdoff_sim::door::{Admission, HintKind};
use holdoff_sim::gates::{self, Case, Verdict};
use holdoff_sim::scenario::Scenario;
use holdoff_sim::{Setup, clock};

/// Quick ones that together cover overload by load, by a fault, by one tenant and by a slow class.
const SCENARIOS: [&str; 4] = ["b10", "d", "e", "f"];

fn judge(admission: Admission, hint: HintKind, clients: ClientKind) -> Vec<Verdict> {
    let all = gates::all();
    let judged = Setup {
        admission,
        hint,
        clients,
        ..Setup::product(Scenario::named("a2").unwrap(), 1)
    };
    let mut verdicts = Vec::new();
    for scenario in SCENARIOS {
        let case = Case {
            scenario,
            clients: None,
        };
        let run = holdoff_sim::run(&case.setup(&judged, 1).unwrap(), clock::now()).unwrap();
        verdicts.extend(gates::judge(&all, case, &[run.report()]));
    }
    verdicts
}

fn failed(verdicts: &[Verdict]) -> Vec<(&'static str, &'static str)> {
    let failed = verdicts.iter().filter(|verdict| !verdict.passes());
    failed.map(|v| (v.gate.case.scenario, v.gate.figure)).collect()
}

/// Every control fails gates that the product holds on the same arrivals; else those gates measure nothing.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation; CI runs it with")]
fn the_product_holds_the_gates_and_every_negative_control_fails_some_that_it_holds() {
    let product = judge(Admission::Holdoff, HintKind::Own, ClientKind::Holdoff);
    assert_eq!(product.len(), 34);
    let open = failed(&product);
    for gate in &open {
        assert!(gates::OPEN.contains(gate), "{gate:?} held before");
    }
    use ClientKind::{Below, Exact, Generic500, Holdoff};
    let controls = [
        (
            "global mean",
            Admission::PredictedMean,
            HintKind::Own,
            Holdoff,
            "false_accepts",
        ),
        (
            "no probes",
            Admission::PredictedClass,
            HintKind::Own,
            Holdoff,
            "critical",
        ),
        (
            "fixed 1 s hint",
            Admission::Holdoff,
            HintKind::Fixed,
            Exact,
            "spike",
        ),
        (
            "drain-time hint",
            Admission::Holdoff,
            HintKind::Drain,
            Exact,
            "attempts",
        ),
        (
            "jitter below the hint",
            Admission::Holdoff,
            HintKind::Own,
            Below,
            "attempts",
        ),
        (
            "generic 500",
            Admission::Holdoff,
            HintKind::Own,
            Generic500,
            "attempts",
        ),
    ];
    for (name, admission, hint, clients, figure) in controls {
        let caught: Vec<_> = failed(&judge(admission, hint, clients))
            .into_iter()
            .filter(|gate| !open.contains(gate))
            .collect();
        println!("{name}: {caught:?}");
        assert!(
            caught.iter().any(|(_, of)| *of == figure),
            "{name} passes {figure}: {caught:?}"
        );
    }
}
