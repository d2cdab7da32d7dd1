//! The table as Markdown.

use std::fmt::Write as _;

use super::super::markdown::cell;
use super::Table;

/// The whole table.
pub fn render(table: &Table<'_>) -> String {
    let mut out = String::from(
        "# Side by side\n\n| program | judged as | says | seed | slack |\n|---|---|---|---:|---:|\n",
    );
    for report in &table.reports {
        let _ = writeln!(
            out,
            "| {} | {}{} | {} | {} | {} ms |",
            cell(&report.name()),
            report.mode,
            report
                .profile
                .as_ref()
                .map_or_else(String::new, |profile| format!(", {profile}")),
            report.words(),
            report.seed,
            report.slack_ms
        );
    }
    let columns = |out: &mut String, first: &str| {
        let names: Vec<String> = table.reports.iter().map(|report| cell(&report.name())).collect();
        let _ = writeln!(out, "\n| {first} | {} |", names.join(" | "));
        let _ = writeln!(out, "|---|{}", "---|".repeat(names.len()));
    };
    out.push_str("\n## Requirements\n");
    columns(&mut out, "requirement");
    for row in &table.rules {
        let states: Vec<&str> = row
            .states
            .iter()
            .map(|state| state.map_or("-", |state| state.word()))
            .collect();
        let _ = writeln!(out, "| {} | {} |", cell(&row.rule), states.join(" | "));
    }
    out.push_str("\n## Cases, with measured delays\n");
    columns(&mut out, "case");
    for row in &table.cases {
        let cells: Vec<String> = row
            .cells
            .iter()
            .map(|seen| match seen {
                None => "-".to_owned(),
                Some(seen) => {
                    let delays = seen.delays.map_or(String::new(), |delays| format!(", {delays}"));
                    format!("{}{delays}", seen.verdict.word())
                }
            })
            .collect();
        let _ = writeln!(out, "| {} | {} |", cell(&row.id), cells.join(" | "));
    }
    out
}
