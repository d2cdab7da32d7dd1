//! The text form of a report: a line per case as it ends, and a failing case that explains itself.

use std::fmt::Write as _;

use crate::report::{CaseReport, RequirementLine, RequirementState, RunReport};
use crate::requirement::{Requirement, Requirements};
use crate::verdict::{self, Verdict};

/// How many lines of the wire log a failing case shows.
const MAX_TIMELINE: usize = 60;

/// One line for a case that has ended; for one that did not pass, with the explanation below.
pub fn case(report: &CaseReport, requirements: &Requirements) -> String {
    let mut out = format!(
        "{:<14} {:<44} {:>6} ms  {}",
        report.verdict.word(),
        report.id,
        report.elapsed_ms,
        report.requirements.join(" ")
    );
    out.push('\n');
    match report.verdict {
        Verdict::Pass => {}
        Verdict::Info if report.checks.is_empty() => {
            let _ = writeln!(
                out,
                "               {}",
                report.reason.as_deref().unwrap_or_default()
            );
        }
        Verdict::NotApplicable => {
            let _ = writeln!(
                out,
                "               {}",
                report.reason.as_deref().unwrap_or_default()
            );
        }
        _ => {
            let blamed = report.requirements.iter().filter(|id| report.blames(id));
            let rules = blamed.filter_map(|id| requirements.get(id));
            tell(&mut out, report, rules.map(Requirement::sentence));
        }
    }
    out
}

/// What explains a case that did not pass: what must be true, why it is not, what was sent and seen with times, and how
/// to run it again.
pub fn explain(report: &CaseReport, requirements: &[RequirementLine]) -> String {
    let sentence = |id: &str| {
        let line = requirements.iter().find(|line| line.id == id)?;
        Some(format!("{} {}: {}", line.id, line.level, line.text))
    };
    let blamed = report.requirements.iter().filter(|id| report.blames(id));
    let rules = blamed.filter_map(|id| sentence(id));
    let mut out = String::new();
    tell(&mut out, report, rules);
    out
}

fn tell(out: &mut String, report: &CaseReport, rules: impl Iterator<Item = String>) {
    let _ = writeln!(out, "  must be true   {}", report.title);
    for rule in rules {
        let _ = writeln!(out, "  requirement    {rule}");
    }
    if let Some(reason) = &report.reason {
        let _ = writeln!(out, "  why            {reason}");
    }
    for check in report.checks.iter().filter(|check| !check.ok) {
        let _ = writeln!(
            out,
            "  why            {}: expected {}, saw {}",
            check.name, check.expected, check.seen
        );
    }
    for line in report.timeline.iter().take(MAX_TIMELINE) {
        let _ = writeln!(out, "  seen           {line}");
    }
    if report.timeline.len() > MAX_TIMELINE {
        let more = report.timeline.len() - MAX_TIMELINE;
        let _ = writeln!(
            out,
            "  seen           ... and {more} lines more (in the JSON report)"
        );
    }
    if let Some(record) = &report.record {
        let _ = writeln!(out, "  wire log       {record}");
    }
    let _ = writeln!(out, "  run it again   {}", report.reproduce);
}

/// The end of a run: verdicts counted, requirements tested or not, and the conclusion.
pub fn summary(report: &RunReport) -> String {
    let mut out = String::from("\n");
    for (title, wanted) in [
        ("failed", RequirementState::Fail),
        ("broken run", RequirementState::HarnessError),
        ("warned", RequirementState::Warn),
        ("known not to hold", RequirementState::Known),
        ("held", RequirementState::Pass),
        ("not tested", RequirementState::NotTested),
    ] {
        let ids: Vec<&str> = report
            .requirements
            .iter()
            .filter(|line| line.state == wanted)
            .map(|line| line.id.as_str())
            .collect();
        let on_purpose = wanted == RequirementState::NotTested && report.partial();
        if !ids.is_empty() && !on_purpose {
            let _ = writeln!(out, "requirements {title} ({}): {}", ids.len(), ids.join(" "));
        }
    }
    for warning in &report.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    let counts: Vec<String> = verdict::ALL
        .iter()
        .filter_map(|verdict| {
            Some(format!(
                "{} {}",
                report.summary.get(verdict.key())?,
                verdict.word()
            ))
        })
        .collect();
    let _ = writeln!(
        out,
        "{}: {} in {:.1} s (seed {}, slack {} ms)",
        report.target,
        if counts.is_empty() {
            "no case".to_owned()
        } else {
            counts.join(", ")
        },
        seconds(report.elapsed_ms),
        report.seed,
        report.slack_ms
    );
    let _ = writeln!(out, "{}", report.words());
    out
}

#[expect(clippy::cast_precision_loss, reason = "a length for people to read")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
