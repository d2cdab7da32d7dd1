//! The page: targets first, then each measurement as a table of ratios with the absolute figures behind them.

use std::fmt::Write;

use super::Results;
use super::targets::{Target, Verdict};
use crate::calls::{self, Calls};
use crate::decide::Costs;
use crate::instructions::Counts;
use crate::machine::Header;
use crate::serve::{self, Rates};
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
        put!(page, "### Targets\n\n| asked | measured | |\n|---|---|---|");
        for Target {
            asked,
            measured,
            verdict,
        } in targets
        {
            let verdict = match verdict {
                Verdict::Met => "met",
                Verdict::Missed => "**missed**",
            };
            put!(page, "| {asked} | {measured} | {verdict} |");
        }
        put!(page, "");
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

/// Median, with the quartiles behind it.
fn ratio(spread: &Spread) -> String {
    format!("{:.3} ({:.3}-{:.3})", spread.median, spread.q1, spread.q3)
}

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
    put!(
        page,
        "| client | p50 ratio | p99 ratio | processor time ratio | p50 us | p99 us | processor us | allocations |"
    );
    put!(page, "|---|---|---|---|---|---|---|---|");
    for client in &calls.clients {
        put!(
            page,
            "| {} | {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} |",
            client.name,
            ratio(&client.p50_ratio),
            ratio(&client.p99_ratio),
            ratio(&client.cpu_ratio),
            client.p50_us.median,
            client.p99_us.median,
            client.cpu_us.median,
            client.allocations
        );
    }
    put!(page, "");
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

fn of_decide(page: &mut String, costs: &Costs) {
    put!(page, "### One decision, no socket\n");
    put!(
        page,
        "n = {} batches of {} decisions of each, in turn. Ratio to the first row.\n",
        costs.batches,
        costs.batch
    );
    put!(page, "| | ns, median (quartiles) | ratio |\n|---|---|---|");
    for cost in &costs.costs {
        put!(
            page,
            "| {} | {:.0} ({:.0}-{:.0}) | {:.2} |",
            cost.name,
            cost.ns.median,
            cost.ns.q1,
            cost.ns.q3,
            cost.ratio.median
        );
    }
    put!(page, "");
}

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
    put!(
        page,
        "| | rate ratio | ratio by processor time | requests/s | processor us a request | server busy |"
    );
    put!(page, "|---|---|---|---|---|---|");
    for server in &rates.servers {
        put!(
            page,
            "| {} | {} | {} | {:.0} | {:.1} | {:.0} % |",
            server.name,
            ratio(&server.rate_ratio),
            ratio(&server.cpu_ratio),
            server.rate.median,
            server.cpu_us.median,
            server.busy.median * 100.0
        );
    }
    put!(page, "");
}

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
    put!(
        page,
        "| | goodput | attempts a request | served | critical served | refused | p99 of served, s | recovered after, s |"
    );
    put!(page, "|---|---|---|---|---|---|---|---|");
    for stack in &storm.stacks {
        put!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            stack.name,
            match storm.trouble {
                Trouble::Overload => percent(stack, |run| run.goodput),
                // Nobody gets anything done while the workers stand still.
                Trouble::Stall => "-".into(),
            },
            number(stack, |run| Some(run.attempts), 2),
            percent(stack, |run| run.served),
            percent(stack, |run| run.served_by_tier[0]),
            percent(stack, |run| run.refused),
            number(stack, |run| run.p99_seconds, 2),
            number(stack, |run| run.recovered_seconds, 1)
        );
    }
    put!(page, "");
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
