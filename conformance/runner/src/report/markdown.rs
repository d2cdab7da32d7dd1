//! Markdown: for a job summary or a pull request.

use std::fmt::Write as _;

use super::{RequirementState, RunReport};
use crate::verdict::{self, Verdict};

/// The whole run: the conclusion, the requirements that did not hold, and each case that did not pass.
pub fn render(report: &RunReport) -> String {
    let mut out = String::new();
    let name = report.name();
    let _ = writeln!(out, "# {}: {}\n", cell(&name), report.words());
    let _ = writeln!(
        out,
        "Overload contract v{}, {} {}, runner {}, seed {}, slack {} ms, {}.{} s.\n",
        report.contract_version,
        report.mode,
        report
            .profile
            .as_ref()
            .map_or_else(String::new, |profile| format!("(profile {profile})")),
        report.runner,
        report.seed,
        report.slack_ms,
        report.elapsed_ms / 1000,
        report.elapsed_ms % 1000 / 100
    );
    let _ = writeln!(out, "| verdict | cases |\n|---|---:|");
    for verdict in verdict::ALL {
        if let Some(count) = report.summary.get(verdict.key()) {
            let _ = writeln!(out, "| {} | {count} |", verdict.word());
        }
    }
    for warning in &report.warnings {
        let _ = writeln!(out, "\nWarning: {}", cell(warning));
    }
    let _ = writeln!(
        out,
        "\n## Requirements\n\n| requirement | says | cases |\n|---|---|---|"
    );
    for line in &report.requirements {
        if line.state == RequirementState::NotTested && report.partial() {
            continue;
        }
        let _ = writeln!(
            out,
            "| {} {}: {} | {} | {} |",
            line.id,
            line.level,
            cell(&line.text),
            line.state.word(),
            line.cases.len()
        );
    }
    for case in report.cases.iter().filter(|case| case.verdict != Verdict::Pass) {
        let _ = writeln!(
            out,
            "\n### {} `{}`\n\n{}\n",
            case.verdict.word(),
            case.id,
            cell(&case.title)
        );
        if let Some(reason) = &case.reason {
            let _ = writeln!(out, "{}\n", cell(reason));
        }
        for check in case.checks.iter().filter(|check| !check.ok) {
            let _ = writeln!(
                out,
                "- {}: expected {}, saw {}",
                cell(&check.name),
                cell(&check.expected),
                cell(&check.seen)
            );
        }
        if case.verdict != Verdict::NotApplicable {
            let _ = writeln!(out, "\n```\n{}\n```", case.reproduce);
        }
    }
    out
}

/// Text as a cell of a table: what a program under test wrote cannot break out of it or become markup.
pub(crate) fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => out.push(' '),
            '|' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
