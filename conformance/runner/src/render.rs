//! The text form of a report: a line per case as it ends, and a failing case that explains itself.

use std::fmt::Write as _;

use crate::report::{CaseReport, Conclusion, RunReport};
use crate::requirement::Requirements;
use crate::verdict::Verdict;

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
        Verdict::NotApplicable | Verdict::Untestable => {
            let _ = writeln!(
                out,
                "               {}",
                report.reason.as_deref().unwrap_or_default()
            );
        }
        _ => explain(&mut out, report, requirements),
    }
    out
}

fn explain(out: &mut String, report: &CaseReport, requirements: &Requirements) {
    let _ = writeln!(out, "  must be true   {}", report.title);
    for requirement in report.requirements.iter().filter_map(|id| requirements.get(id)) {
        let _ = writeln!(out, "  requirement    {}", requirement.sentence());
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
    let _ = writeln!(out, "  run it again   {}", report.reproduce);
}

/// The end of a run: verdicts counted, requirements tested or not, and the conclusion.
pub fn summary(report: &RunReport) -> String {
    let mut out = String::from("\n");
    let state = |wanted: &str| -> Vec<&str> {
        report
            .requirements
            .iter()
            .filter(|r| r.state == wanted)
            .map(|r| r.id.as_str())
            .collect()
    };
    for (title, wanted) in [
        ("failed", "fail"),
        ("broken run", "harness_error"),
        ("warned", "warn"),
        ("held", "pass"),
        ("not tested", "not_tested"),
    ] {
        let ids = state(wanted);
        let on_purpose = wanted == "not_tested" && !report.filters.is_empty();
        if !ids.is_empty() && !on_purpose {
            let _ = writeln!(out, "requirements {title} ({}): {}", ids.len(), ids.join(" "));
        }
    }
    let counts: Vec<String> = report
        .summary
        .iter()
        .map(|(word, n)| format!("{n} {word}"))
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
    let _ = writeln!(
        out,
        "{}",
        match report.conclusion {
            Conclusion::Conformant => "conformant: every MUST that was tested held",
            Conclusion::NotConformant => "NOT conformant",
            Conclusion::HarnessError => "no conclusion: the runner itself failed in a case",
            Conclusion::NothingVerified => "nothing was verified",
        }
    );
    out
}

#[expect(clippy::cast_precision_loss, reason = "a length for people to read")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
