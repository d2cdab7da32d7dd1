//! From numbers to Markdown. Every word of a cell is computed from the measurement, none from the client's name.

use std::fmt::Write as _;

use super::Survey;
use super::behaviour::{Behaviour, Reading};
use super::client::Surveyed;
use super::measure::{Call, Measured};

/// How much before its time a request may seem to arrive; covers the rounding of clocks.
const EARLY_TOLERANCE_MS: f64 = 2.0;
/// Calls that come back together are counted in slots of this length.
const SLOT_MS: f64 = 50.0;

/// What was measured of one behaviour, in a few words.
pub fn cell(behaviour: &Behaviour, measured: &Measured, client: &Surveyed) -> String {
    let labelled = behaviour.calls.iter().any(|group| group.contains_key("label"));
    let mut parts = Vec::new();
    for (group, calls) in behaviour.calls.iter().zip(&measured.groups) {
        let label = group.get("label").and_then(|label| label.as_str());
        if labelled && label.is_none() {
            continue;
        }
        let text = match behaviour.reading {
            Reading::Wait => wait(behaviour, calls),
            Reading::Ending => ending(behaviour, calls, client),
            Reading::Spread => spread(behaviour, calls),
            Reading::Requests => requests(calls),
            Reading::Held => held(behaviour, calls),
        };
        parts.push(match label {
            None | Some("") => text,
            Some(label) => format!("{label}: {text}"),
        });
    }
    parts.join("; ")
}

fn wait(behaviour: &Behaviour, calls: &[Call]) -> String {
    let waits = sorted(calls.iter().filter_map(|call| call.waits_ms.first().copied()));
    if waits.is_empty() {
        return no_second(behaviour, calls);
    }
    format!(
        "{}{}{}",
        range(&waits),
        early(behaviour, &waits),
        share(waits.len(), calls.len())
    )
}

fn ending(behaviour: &Behaviour, calls: &[Call], client: &Surveyed) -> String {
    let ends = sorted(
        calls
            .iter()
            .filter_map(|call| call.ended.as_ref().map(|end| end.after_ms)),
    );
    let when = if ends.is_empty() {
        format!(" at the limit of {}", length(limit(behaviour)))
    } else {
        format!(" after {}", range(&ends))
    };
    let setting = if client.limits_calls() {
        ""
    } else {
        " (no such setting)"
    };
    format!("{}{when}{setting}", endings(calls))
}

/// How the calls ended, each way once.
fn endings(calls: &[Call]) -> String {
    let way = |call: &Call| match &call.ended {
        None => "open".to_owned(),
        Some(end) => match (end.kind.as_str(), end.status) {
            ("response", Some(status)) => status.to_string(),
            ("overloaded", Some(status)) => format!("error with the {status} in it"),
            _ => "error".to_owned(),
        },
    };
    let mut ways: Vec<String> = calls.iter().map(way).collect();
    ways.sort_unstable();
    ways.dedup();
    ways.join(" or ")
}

fn spread(behaviour: &Behaviour, calls: &[Call]) -> String {
    let seconds = sorted(calls.iter().filter_map(|call| call.second_at_ms));
    let (Some(first), Some(last)) = (seconds.first(), seconds.last()) else {
        return no_second(behaviour, calls);
    };
    let within = |from: &f64| {
        seconds
            .iter()
            .filter(|at| (*from..from + SLOT_MS).contains(at))
            .count()
    };
    let fullest = seconds.iter().map(within).max().unwrap_or(0);
    let waits = sorted(calls.iter().filter_map(|call| call.waits_ms.first().copied()));
    format!(
        "over {}, up to {fullest} in {}{}{}",
        length(last - first),
        length(SLOT_MS),
        early(behaviour, &waits),
        share(seconds.len(), calls.len())
    )
}

fn requests(calls: &[Call]) -> String {
    let total: usize = calls.iter().map(|call| call.requests).sum();
    let last = calls
        .iter()
        .filter_map(|call| call.last_at_ms)
        .fold(0.0, f64::max);
    let open = calls.iter().filter(|call| call.ended.is_none()).count();
    #[expect(clippy::cast_precision_loss, reason = "a few hundred requests")]
    let each = total as f64 / calls.len().max(1) as f64;
    let more = if open > 0 {
        format!(", {open} calls still open")
    } else {
        String::new()
    };
    format!("{total} ({each:.1} per call) in {}{more}", length(last))
}

fn held(behaviour: &Behaviour, calls: &[Call]) -> String {
    let firsts = sorted(calls.iter().filter_map(|call| call.first_ms));
    if firsts.is_empty() {
        return "no request".to_owned();
    }
    format!(
        "{}{}{}",
        range(&firsts),
        early(behaviour, &firsts),
        share(firsts.len(), calls.len())
    )
}

fn no_second(behaviour: &Behaviour, calls: &[Call]) -> String {
    if calls.iter().any(|call| call.ended.is_some()) {
        format!("not sent again ({})", endings(calls))
    } else {
        format!("not within {}", length(limit(behaviour)))
    }
}

#[expect(clippy::cast_precision_loss, reason = "at most 120000")]
fn limit(behaviour: &Behaviour) -> f64 {
    behaviour.limit_ms as f64
}

#[expect(clippy::cast_precision_loss, reason = "a length for people to read")]
fn early(behaviour: &Behaviour, waits: &[f64]) -> &'static str {
    let is = |due: u64| {
        waits
            .first()
            .is_some_and(|least| least + EARLY_TOLERANCE_MS < due as f64)
    };
    if behaviour.due_ms.is_some_and(is) {
        " *early*"
    } else {
        ""
    }
}

fn share(some: usize, all: usize) -> String {
    if some == all {
        String::new()
    } else {
        format!(" ({some} of {all})")
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The median where all are close together, else the least and the greatest. `values` are sorted and not empty.
fn range(values: &[f64]) -> String {
    let (Some(least), Some(most), Some(median)) =
        (values.first(), values.last(), values.get(values.len() / 2))
    else {
        return "-".to_owned();
    };
    if most - least <= (median / 10.0).max(30.0) {
        length(*median)
    } else {
        format!("{} to {}", length(*least), length(*most))
    }
}

fn length(ms: f64) -> String {
    if ms < 99.5 {
        format!("{ms:.0} ms")
    } else {
        format!("{:.2} s", ms / 1000.0)
    }
}

/// The whole page.
pub fn page(survey: &Survey) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!-- Made by `holdoff-conformance survey` from its JSON report; do not edit. -->\n\
         # What HTTP clients do with a hint\n\n\
         A server that is overloaded says when to come back. This page says when clients of today do come back: what was \
         played to each, and what the sockets of the player saw. It holds no verdict; a client is shown in one documented \
         configuration, and another may behave otherwise.\n\n\
         Measured {} on {}{}; runner {}, {} plays at a time, {:.0} s in all. Each cell is over the number of calls (n) in \
         the head of its column: one length is the median where all calls are within a tenth of each other, else the least \
         and the greatest. *early*: a call came back before the time in the column's line below. Lengths hold to some \
         10 ms: a busy machine makes them longer, never shorter.\n",
        survey.date,
        survey.machine,
        survey
            .load
            .as_ref()
            .map_or(String::new(), |load| format!(", load {load} at the start")),
        survey.runner,
        survey.jobs,
        seconds(survey.elapsed_ms)
    );
    let mut from = 0;
    while let Some(first) = survey.behaviours.get(from) {
        let rest = survey.behaviours.get(from + 1..).unwrap_or_default();
        let until = rest
            .iter()
            .position(|next| next.part.is_some())
            .unwrap_or(rest.len())
            + from
            + 1;
        let part = first.part.as_deref().unwrap_or("Measurements");
        let _ = write!(out, "\n## {part}\n\n");
        table(
            &mut out,
            survey,
            survey.behaviours.get(from..until).unwrap_or_default(),
        );
        from = until;
    }
    about(&mut out, survey);
    repeat(&mut out);
    out
}

fn table(out: &mut String, survey: &Survey, behaviours: &[Behaviour]) {
    out.push_str("| client |");
    for behaviour in behaviours {
        let _ = write!(out, " {} (n={}) |", plain(&behaviour.column), behaviour.count());
    }
    let _ = writeln!(out, "\n|---|{}", "---|".repeat(behaviours.len()));
    for client in survey.clients.iter().filter(|client| client.failed.is_none()) {
        let _ = write!(out, "| {} |", plain(&client.name));
        for behaviour in behaviours {
            let text = match client.measured.get(&behaviour.id) {
                Some(measured) => cell(behaviour, measured, client),
                None => "not measured".to_owned(),
            };
            let _ = write!(out, " {} |", plain(&text));
        }
        out.push('\n');
    }
    out.push_str("\nWhat the contract asks for, column by column:\n\n");
    for behaviour in behaviours {
        let _ = writeln!(out, "- {}: {}.", behaviour.column, behaviour.asks);
    }
}

fn about(out: &mut String, survey: &Survey) {
    out.push_str(
        "\n## The clients and their configuration\n\n| client | version | configuration |\n|---|---|---|\n",
    );
    for client in survey.clients.iter().filter(|client| client.failed.is_none()) {
        let (name, version) = (plain(&client.name), plain(&client.version));
        let _ = writeln!(out, "| {name} | {version} | {} |", plain(&client.configuration));
    }
    let failed: Vec<String> = survey
        .clients
        .iter()
        .filter_map(|client| Some(format!("`{}`: {}", client.command, client.failed.as_ref()?)))
        .chain(survey.clients.iter().flat_map(|client| {
            let each = client.not_measured.iter();
            each.map(|(id, why)| format!("{}, {id}: {why}", client.name))
        }))
        .collect();
    if !failed.is_empty() {
        let _ = write!(
            out,
            "\nNot measured, and why:\n\n- {}\n",
            plain(&failed.join("\n- "))
        );
    }
}

fn repeat(out: &mut String) {
    out.push_str(
        "\n## How to repeat it\n\n```sh\n\
         conformance/third-party/install.sh            # the clients, with pinned versions, into a folder of their own\n\
         conformance/third-party/survey.sh             # this page and its JSON, about two minutes\n\
         conformance/third-party/survey.sh --only got --behaviour date   # one client, some behaviours, to the terminal\n\
         ```\n\n\
         Your client: write an adapter from a kit (conformance/kits, one file), then\n\
         `holdoff-conformance survey --adapter \"python3 my_adapter.py\"`. What is played is data: conformance/third-party/behaviours.yaml.\n\
         Every number behind this page is in docs/clients-results/survey.json; `holdoff-conformance survey --from FILE` makes the page from it again.\n",
    );
}

/// Text that does not break a table.
fn plain(text: &str) -> String {
    text.replace('|', "\\|")
}

#[expect(clippy::cast_precision_loss, reason = "a length for people to read")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

#[cfg(test)]
mod tests;
