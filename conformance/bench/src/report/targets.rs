//! What was promised, and whether this run shows it. A target is judged by the median; how far the rounds spread stands
//! in the tables.

use serde::Serialize;

use super::Results;
use crate::calls::{Calls, ClientFigures, NAMES, Shape};
use crate::decide;
use crate::serve::{self, Rates};
use crate::stats::{Spread, paired_ratios};
use crate::storm::{self, Figures, StackFigures, Storm, Trouble};

/// Whether a target was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was.
    Met,
    /// It was not.
    Missed,
}

/// A target and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// What is asked.
    pub asked: String,
    /// What was measured, with its spread.
    pub measured: String,
    /// Whether that is enough.
    pub verdict: Verdict,
}

fn target(asked: impl Into<String>, measured: String, met: bool) -> Target {
    Target {
        asked: asked.into(),
        measured,
        verdict: if met { Verdict::Met } else { Verdict::Missed },
    }
}

/// Judges what was measured; what was not measured has no target.
pub(super) fn judge(results: &Results) -> Vec<Target> {
    let mut targets = Vec::new();
    for calls in &results.calls {
        targets.extend(of_calls(calls));
    }
    let ours = |costs: &decide::Costs| costs.costs.iter().find(|cost| cost.name == decide::OURS).cloned();
    if let Some(cost) = results.decide.as_ref().and_then(ours) {
        let asked = "a decision (admit, start, finish) takes at most 250 ns at p50, uncontended";
        let measured = format!(
            "{:.0} ns ({:.0} to {:.0})",
            cost.ns.median, cost.ns.q1, cost.ns.q3
        );
        targets.push(target(asked, measured, cost.ns.median <= 250.0));
    }
    for rates in &results.throughput {
        targets.extend(of_rate(rates, serve::OURS, "throughput with the layer", 0.95));
    }
    for rates in &results.refusals {
        targets.extend(of_rate(
            rates,
            serve::REFUSED,
            "rate of refusing against serving",
            3.0,
        ));
    }
    for storm in &results.storms {
        targets.extend(of_storm(storm));
    }
    targets
}

fn of_calls(calls: &Calls) -> Vec<Target> {
    let find = |name: &str| calls.clients.iter().find(|client| client.name == name);
    let (Some(theirs), Some(ours)) = (find(NAMES[2]), find(NAMES[3])) else {
        return Vec::new();
    };
    let what = match calls.shape {
        Shape::Get => "GET",
        Shape::Post => "POST",
    };
    let share = |spread: &Spread| format!("{:+.1} %", (spread.median - 1.0) * 100.0);
    let ratio = |of: &ClientFigures| of.p50_ratio.median;
    vec![
        target(
            format!("{what}: p50 at most 2 % over plain reqwest"),
            format!(
                "{} (quartiles {})",
                share(&ours.p50_ratio),
                quartiles(&ours.p50_ratio)
            ),
            ratio(ours) <= 1.02,
        ),
        target(
            format!("{what}: p99 at most 5 % over plain reqwest"),
            format!(
                "{} (quartiles {})",
                share(&ours.p99_ratio),
                quartiles(&ours.p99_ratio)
            ),
            ours.p99_ratio.median <= 1.05,
        ),
        target(
            format!("{what}: overhead at p50 at most that of reqwest-retry"),
            format!("{} against {}", share(&ours.p50_ratio), share(&theirs.p50_ratio)),
            ratio(ours) <= ratio(theirs),
        ),
    ]
}

fn quartiles(spread: &Spread) -> String {
    format!("{:.3} to {:.3}", spread.q1, spread.q3)
}

fn of_rate(rates: &Rates, name: &str, what: &str, least: f64) -> Option<Target> {
    let server = rates.servers.iter().find(|server| server.name == name)?;
    let shape = match rates.shape {
        serve::Shape::Get => "GET",
        serve::Shape::GetWithFields => "GET with our fields",
        serve::Shape::Post => "POST of 4 KiB JSON",
        serve::Shape::Work => "GET with 100 us of computing",
    };
    let measured = format!(
        "{:.3} ({}) by processor time; as seen by the load {:.3}, server {:.0} % busy",
        server.cpu_ratio.median,
        quartiles(&server.cpu_ratio),
        server.rate_ratio.median,
        server.busy.median * 100.0
    );
    // A rate says how fast the server is only while nothing else holds it up; its processor time says it always.
    Some(target(
        format!("{shape}: {what} at least {least}"),
        measured,
        server.cpu_ratio.median >= least,
    ))
}

fn of_storm(storm: &Storm) -> Vec<Target> {
    let Some(ours) = storm.stacks.iter().find(|stack| stack.name == storm::OURS) else {
        return Vec::new();
    };
    let others = storm.stacks.iter().filter(|stack| stack.name != storm::OURS);
    match storm.trouble {
        Trouble::Overload => {
            let mut targets: Vec<_> = others.flat_map(|theirs| against(ours, theirs)).collect();
            let critical = ours.spread(|run| Some(run.served_by_tier[0]));
            targets.extend(critical.map(|critical| {
                target(
                    "5x: at least 99 % of critical calls are served",
                    format!(
                        "{:.1} % (least {:.1} %)",
                        critical.median * 100.0,
                        critical.min * 100.0
                    ),
                    critical.median >= 0.99,
                )
            }));
            targets
        }
        Trouble::Stall => vec![recovery(ours)],
    }
}

fn against(ours: &StackFigures, theirs: &StackFigures) -> Vec<Target> {
    let name = theirs.name;
    let attempts = |run: &Figures| run.attempts;
    let goodput = |run: &Figures| run.goodput * 100.0;
    let ratio = Spread::of(&paired_ratios(&ours.each(attempts), &theirs.each(attempts)));
    let gain: Vec<f64> = ours
        .each(goodput)
        .iter()
        .zip(theirs.each(goodput))
        .map(|(ours, theirs)| ours - theirs)
        .collect();
    let mut targets = Vec::new();
    targets.extend(ratio.map(|ratio| {
        target(
            format!("5x: attempts a request at most 1/3 of {name}"),
            format!(
                "{:.2} of theirs ({:.2} to {:.2})",
                ratio.median, ratio.min, ratio.max
            ),
            ratio.median <= 1.0 / 3.0,
        )
    }));
    targets.extend(Spread::of(&gain).map(|gain| {
        target(
            format!("5x: goodput at least 5 points over {name}"),
            format!(
                "{:+.1} points ({:+.1} to {:+.1})",
                gain.median, gain.min, gain.max
            ),
            gain.median >= 5.0,
        )
    }));
    targets
}

fn recovery(ours: &StackFigures) -> Target {
    let asked = "after 2 s of stall at 0.8x: recovered within 3 s";
    let missing = ours.runs.iter().any(|run| run.recovered_seconds.is_none());
    match ours.spread(|run| run.recovered_seconds) {
        Some(spread) if !missing => {
            let measured = format!("{:.1} s ({:.1} to {:.1})", spread.median, spread.min, spread.max);
            target(asked, measured, spread.median <= 3.0)
        }
        _ => target(asked, "not in every run".into(), false),
    }
}
