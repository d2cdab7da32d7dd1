//! The page: targets first, then each measurement as a table of ratios with the absolute figures behind them.

use std::fmt::Write;

use super::Results;
use super::targets::{Target, Verdict};
use crate::calls::{self, Calls, ClientFigures};
use crate::decide::{Cost, Costs};
use crate::instructions::Counts;
use crate::machine::Header;
use crate::route::{RouteCost, Routes};
use crate::serve::{self, Rates, ServerFigures};
use crate::stats::Spread;
use crate::storm::{Figures, StackFigures, Storm, Trouble};

/// Writing into a string does not fail.
macro_rules! put {
    ($page:expr, $($text:tt)*) => {
        let _ = writeln!($page, $($text)*);
    };
}

pub(super) fn page(
    header: &Header,
    results: &Results,
    targets: &[Target],
    beside: &str,
    plots: &[&str],
) -> String {
    let mut page = String::new();
    head(&mut page, header, results.smoke);
    if !targets.is_empty() {
        put!(page, "### Targets\n");
        table(&mut page, &TARGETS, targets);
    }
    let plot = |page: &mut String, name: &str, alt: &str| {
        if plots.contains(&name) {
            put!(page, "![{alt}]({beside}/{name})\n");
        }
    };
    for calls in &results.calls {
        of_calls(&mut page, calls);
    }
    of_instructions(&mut page, &results.instructions);
    plot(&mut page, "calls.svg", "Overhead of a call");
    if let Some(costs) = &results.decide {
        of_decide(&mut page, costs);
    }
    if let Some(routes) = &results.route {
        of_routes(&mut page, routes);
    }
    for rates in &results.throughput {
        of_rates(&mut page, rates, "Server throughput");
    }
    for rates in &results.refusals {
        of_rates(&mut page, rates, "Refusing against serving, same server");
    }
    plot(&mut page, "rates.svg", "Rates as ratios");
    for storm in &results.storms {
        of_storm(&mut page, storm);
        let name = match storm.trouble {
            Trouble::Overload => "overload.svg",
            Trouble::Stall => "stall.svg",
        };
        plot(&mut page, name, "Share of calls served, by time of arrival");
    }
    page
}

const TARGETS: [Column<Target>; 3] = [
    ("asked", |of| of.asked.clone()),
    ("measured", |of| of.measured.clone()),
    ("", |of| match of.verdict {
        Verdict::Met => "met".to_owned(),
        Verdict::Missed => "**missed**".to_owned(),
    }),
];

fn head(page: &mut String, header: &Header, smoke: bool) {
    if smoke {
        put!(
            page,
            "**A smoke run: it shows that everything works. Its figures mean nothing.**\n"
        );
    }
    let Header {
        cpu,
        cores,
        kernel,
        commit,
        command,
        seconds,
        ..
    } = header;
    put!(
        page,
        "| machine | {cpu}, {cores} logical processors, Linux {kernel} |\n|---|---|"
    );
    put!(
        page,
        "| commit | {commit} |\n| command | `{command}` |\n| took | {seconds:.0} s |"
    );
    if let Some(load) = header.load_before {
        put!(page, "| load average before | {load:.2} |");
    }
    if let Some(others) = header.others {
        let word = if others > 0.1 {
            " (**busy: latencies and storms are disturbed; ratios and processor time less so**)"
        } else {
            ""
        };
        put!(
            page,
            "| used by other programs meanwhile | {:.0} % of the machine{word} |",
            others * 100.0
        );
    }
    put!(page, "");
}

/// A column: its heading, and what it says of a row.
type Column<T> = (&'static str, fn(&T) -> String);

fn table<'a, T: 'a>(page: &mut String, columns: &[Column<T>], rows: impl IntoIterator<Item = &'a T>) {
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    put!(
        page,
        "{}\n|{}",
        line(columns.iter().map(|(heading, _)| (*heading).to_owned()).collect()),
        "---|".repeat(columns.len())
    );
    for row in rows {
        put!(page, "{}", line(columns.iter().map(|(_, of)| of(row)).collect()));
    }
    put!(page, "");
}

/// Median, with the quartiles behind it.
fn ratio(spread: &Spread) -> String {
    format!("{:.3} ({:.3}-{:.3})", spread.median, spread.q1, spread.q3)
}

/// The same for nanoseconds.
fn nanoseconds(spread: &Spread) -> String {
    format!("{:.0} ({:.0}-{:.0})", spread.median, spread.q1, spread.q3)
}

const CALLS: [Column<ClientFigures>; 8] = [
    ("client", |of| of.name.to_owned()),
    ("p50 ratio", |of| ratio(&of.p50_ratio)),
    ("p99 ratio", |of| ratio(&of.p99_ratio)),
    ("processor time ratio", |of| ratio(&of.cpu_ratio)),
    ("p50 us", |of| format!("{:.1}", of.p50_us.median)),
    ("p99 us", |of| format!("{:.1}", of.p99_us.median)),
    ("processor us", |of| format!("{:.1}", of.cpu_us.median)),
    ("allocations", |of| format!("{:.1}", of.allocations)),
];

fn of_calls(page: &mut String, calls: &Calls) {
    let what = match calls.shape {
        calls::Shape::Get => "GET, nothing said about it",
        calls::Shape::Post => "POST of 1 KiB JSON with a time limit (Holdoff: deadline, tier and class too)",
    };
    put!(page, "### Call overhead: {what}\n");
    put!(
        page,
        "n = {} rounds of {} calls of each client, {} in a row, in drawn order. Ratios to the first row: median of the rounds (quartiles).\n",
        calls.rounds,
        calls.calls,
        calls.block
    );
    table(page, &CALLS, &calls.clients);
}

fn of_instructions(page: &mut String, counts: &[Counts]) {
    let Some(first) = counts.first() else { return };
    put!(
        page,
        "### Instructions of a call, in the caller's process, without the kernel\n"
    );
    put!(
        page,
        "Mean of {} calls. In brackets what is added to plain reqwest.\n",
        first.calls
    );
    let shapes: Vec<_> = counts
        .iter()
        .map(|counts| counts.shape.word().to_uppercase())
        .collect();
    put!(
        page,
        "| client | {} |\n|---{}|",
        shapes.join(" | "),
        "|---".repeat(counts.len())
    );
    for (index, client) in first.clients.iter().enumerate() {
        let cells: Vec<_> = counts
            .iter()
            .filter_map(|counts| {
                let plain = counts.clients.first()?.instructions;
                let own = counts.clients.get(index)?.instructions;
                Some(format!("{own:.0} ({:+.0})", own - plain))
            })
            .collect();
        put!(page, "| {} | {} |", client.name, cells.join(" | "));
    }
    put!(page, "");
}

const DECISIONS: [Column<Cost>; 3] = [
    ("", |of| of.name.to_owned()),
    ("ns, median (quartiles)", |of| nanoseconds(&of.ns)),
    ("ratio", |of| format!("{:.2}", of.ratio.median)),
];

fn of_decide(page: &mut String, costs: &Costs) {
    put!(page, "### One decision, no socket\n");
    put!(
        page,
        "n = {} batches of {} decisions of each, in turn. Ratio to the first row.\n",
        costs.batches,
        costs.batch
    );
    table(page, &DECISIONS, &costs.costs);
}

const ROUTES: [Column<RouteCost>; 3] = [
    ("", |of| of.name.to_owned()),
    ("ns a request, median (quartiles)", |of| nanoseconds(&of.ns)),
    ("ns over the first row", |of| nanoseconds(&of.added_ns)),
];

fn of_routes(page: &mut String, routes: &Routes) {
    put!(
        page,
        "### One request through the router, no socket: GET with deadline, tier, class and attempt\n"
    );
    put!(
        page,
        "n = {} batches of {} requests to each, in turn.\n",
        routes.batches,
        routes.batch
    );
    table(page, &ROUTES, &routes.costs);
}

const RATES: [Column<ServerFigures>; 6] = [
    ("", |of| of.name.to_owned()),
    ("rate ratio", |of| ratio(&of.rate_ratio)),
    ("ratio by processor time", |of| ratio(&of.cpu_ratio)),
    ("requests/s", |of| format!("{:.0}", of.rate.median)),
    ("processor us a request", |of| format!("{:.1}", of.cpu_us.median)),
    ("server busy", |of| format!("{:.0} %", of.busy.median * 100.0)),
];

fn of_rates(page: &mut String, rates: &Rates, title: &str) {
    let what = match rates.shape {
        serve::Shape::Get => "GET",
        serve::Shape::GetWithFields => "GET with deadline, tier, class and attempt",
        serve::Shape::Post => "POST of 4 KiB JSON",
        serve::Shape::Work => "GET whose handler computes for 100 us",
    };
    put!(page, "### {title}: {what}\n");
    put!(
        page,
        "n = {} rounds of {:.2} s of each, in turn; {} connections, one server thread. Ratios to the first row.\n",
        rates.rounds,
        rates.seconds,
        rates.connections
    );
    table(page, &RATES, &rates.servers);
}

const STORM: [Column<StackFigures>; 9] = [
    ("", |of| of.name.to_owned()),
    ("goodput", |of| percent(of, |run| run.goodput)),
    ("attempts a request", |of| number(of, |run| Some(run.attempts), 2)),
    ("held back unsent", |of| percent(of, |run| run.unsent)),
    ("served", |of| percent(of, |run| run.served)),
    ("critical served", |of| percent(of, |run| run.served_by_tier[0])),
    ("refused", |of| percent(of, |run| run.refused)),
    ("p99 of served, s", |of| number(of, |run| run.p99_seconds, 2)),
    ("recovered after, s", |of| {
        number(of, |run| run.recovered_seconds, 1)
    }),
];

/// Without the goodput: nobody gets anything done while the workers stand still.
const STALL: [Column<StackFigures>; 8] = [
    STORM[0], STORM[2], STORM[3], STORM[4], STORM[5], STORM[6], STORM[7], STORM[8],
];

fn of_storm(page: &mut String, storm: &Storm) {
    let title = match storm.trouble {
        Trouble::Overload => "Live storm: five times the capacity",
        Trouble::Stall => "Live storm: workers stand still at 0.8 of the capacity",
    };
    let runs = storm.stacks.first().map_or(0, |stack| stack.runs.len());
    let calls = storm
        .stacks
        .first()
        .and_then(|stack| stack.runs.first())
        .map_or(0, |run| run.calls);
    let (begin, end) = storm.between;
    put!(page, "### {title}\n");
    put!(
        page,
        "n = {runs} runs of each, in turn, about {calls} calls each; {} workers; trouble from {begin:.1} s to {end:.1} s. Median of the runs (least-greatest).\n",
        storm.workers
    );
    match storm.trouble {
        Trouble::Overload => table(page, &STORM, &storm.stacks),
        Trouble::Stall => table(page, &STALL, &storm.stacks),
    }
}

fn percent(stack: &StackFigures, figure: impl Fn(&Figures) -> f64) -> String {
    let spread = stack.spread(|run| Some(figure(run) * 100.0));
    spread.map_or("-".into(), |s| {
        format!("{:.1} % ({:.1}-{:.1})", s.median, s.min, s.max)
    })
}

fn number(stack: &StackFigures, figure: impl Fn(&Figures) -> Option<f64>, digits: usize) -> String {
    let missing = stack.runs.iter().filter(|run| figure(run).is_none()).count();
    let text = stack.spread(&figure).map_or("never".into(), |s| {
        format!("{:.digits$} ({:.digits$}-{:.digits$})", s.median, s.min, s.max)
    });
    match missing {
        0 => text,
        all if all == stack.runs.len() => text,
        some => format!("{text}; {some} x never"),
    }
}
