//! The table as one HTML file: no script, no font, no image, nothing to fetch, so that it can be put anywhere.

use std::fmt::Write as _;

use super::{Cell, Table};
use crate::report::{Conclusion, RequirementState};
use crate::verdict::Verdict;

const STYLE: &str = "
body{font:15px/1.45 system-ui,sans-serif;margin:2rem;color:#1b1b1b;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse}
th,td{border:1px solid #ccc;padding:.3rem .5rem;text-align:left;vertical-align:top}
thead th{position:sticky;top:0;background:#f3f3f3}
tbody th{font-weight:normal;max-width:34rem}
td small,th small{display:block;color:#555}
.good{background:#e3f4e3}.bad{background:#fbe0df}.soft{background:#fdf3d3}.none{color:#777}
@media(prefers-color-scheme:dark){body{color:#e8e8e8;background:#151515}thead th{background:#262626}
th,td{border-color:#444}td small,th small{color:#aaa}.good{background:#12351a}.bad{background:#4a1715}.soft{background:#453908}}
";

/// The whole page.
pub fn render(table: &Table<'_>) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>Overload contract, side by side</title>\n<style>{STYLE}</style></head>\n\
         <body>\n<h1>Overload contract, side by side</h1>\n<p>What was measured, each row from the same case against \
         every program. A delay is the time from the head of a reject to the next request: median, shortest to longest, \
         and how many.</p>\n"
    );
    programs(&mut out, table);
    out.push_str("<h2>Requirements</h2>\n");
    head(&mut out, table, "requirement");
    for row in &table.rules {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&row.rule));
        for state in &row.states {
            let (class, word) = state.map_or(("none", "-"), |state| (colour(state), state.word()));
            let _ = write!(out, "<td class=\"{class}\">{word}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>\n<h2>Cases, with measured delays</h2>\n");
    head(&mut out, table, "case");
    for row in &table.cases {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}<small>{} ({})</small></th>",
            escape(&row.id),
            escape(&row.title),
            escape(&row.requirements.join(" "))
        );
        for seen in &row.cells {
            cell(&mut out, seen.as_ref());
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>\n</body></html>\n");
    out
}

fn programs(out: &mut String, table: &Table<'_>) {
    out.push_str(
        "<table><thead><tr><th>program</th><th>judged as</th><th>says</th><th>how</th></tr></thead><tbody>\n",
    );
    for report in &table.reports {
        let class = match report.conclusion {
            Conclusion::Conformant => "good",
            Conclusion::NotConformant => "bad",
            Conclusion::KnownFailures
            | Conclusion::HarnessError
            | Conclusion::NothingVerified
            | Conclusion::Interrupted => "soft",
        };
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{} {}</td><td class=\"{class}\">{}</td><td><small>{}, runner {}, seed {}, \
             slack {} ms</small></td></tr>",
            escape(&report.name()),
            escape(&report.mode),
            escape(report.profile.as_deref().unwrap_or_default()),
            report.words(),
            escape(&report.target),
            escape(&report.runner),
            report.seed,
            report.slack_ms
        );
    }
    out.push_str("</tbody></table>\n");
}

fn head(out: &mut String, table: &Table<'_>, first: &str) {
    let _ = write!(out, "<table><thead><tr><th>{first}</th>");
    for report in &table.reports {
        let _ = write!(out, "<th>{}</th>", escape(&report.name()));
    }
    out.push_str("</tr></thead><tbody>\n");
}

fn cell(out: &mut String, seen: Option<&Cell>) {
    let Some(seen) = seen else {
        out.push_str("<td class=\"none\">-</td>");
        return;
    };
    let class = match seen.verdict {
        Verdict::Pass => "good",
        Verdict::NotApplicable | Verdict::Info => "none",
        Verdict::Warn | Verdict::KnownFail | Verdict::KnownFlaky => "soft",
        _ => "bad",
    };
    let _ = write!(out, "<td class=\"{class}\">{}", seen.verdict.word());
    if let Some(delays) = seen.delays {
        let _ = write!(out, "<small>{delays}</small>");
    }
    if !seen.why.is_empty() {
        let _ = write!(out, "<small>{}</small>", escape(&seen.why));
    }
    out.push_str("</td>");
}

fn colour(state: RequirementState) -> &'static str {
    match state {
        RequirementState::Pass => "good",
        RequirementState::Warn | RequirementState::Known => "soft",
        RequirementState::Fail | RequirementState::HarnessError => "bad",
        RequirementState::NotTested => "none",
    }
}

/// Text that a program under test may have written: it must not become markup.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
