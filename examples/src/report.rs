//! The tables at the end of the quickstart.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};

use crate::tally::{End, LATE, Tally, quantile, ratio};
use crate::watch::{Watch, tier_name};

/// One group of callers, for the table.
#[derive(Clone, Debug)]
pub struct Group {
    /// What kind of callers.
    pub name: &'static str,
    /// Their calls.
    pub tally: Tally,
    /// Retries that left before their hint had passed.
    pub early: u64,
}

/// What the server did, for the table.
#[derive(Clone, Debug)]
pub struct Service {
    /// Tasks a second that the workers can do.
    pub capacity: f64,
    /// Length of the load.
    pub length: Duration,
    /// What was seen from inside.
    pub watch: Watch,
    /// State at the end.
    pub state: String,
    /// From the last arrival until the state was normal and nothing was left.
    pub recovered: Option<Duration>,
    /// Tickets that still hold a charge at the end. Stays zero.
    pub tickets: u32,
}

/// Why a run shows nothing, where it does: the callers could not make their calls in time, so that neither side met what was
/// meant.
pub fn void(groups: &[Group]) -> Option<String> {
    if groups.iter().all(|group| group.tally.as_meant()) {
        return None;
    }
    let sum = |field: fn(&Tally) -> u64| groups.iter().map(|group| field(&group.tally)).sum::<u64>();
    let (late, calls) = (sum(|tally| tally.late), sum(Tally::arrived));
    Some(format!(
        "THIS RUN SHOWS NOTHING about either side: {} of {calls} calls could not be made in time (more than {} ms too late, up to \
         {:.1} s),\nfor this machine was too busy to make the load. The figures below are not a result. Try again when it is \
         free, or with less: --workers, --load.",
        percent(late, calls),
        LATE.as_millis(),
        behind(groups).as_secs_f64()
    ))
}

/// The latest that any call was made, after it should have been.
pub fn behind(groups: &[Group]) -> Duration {
    let all = groups.iter().map(|group| group.tally.behind);
    all.max().unwrap_or_default()
}

/// One column a group.
pub fn callers(groups: &[Group]) -> Table {
    let mut table = new_table();
    let head = match void(groups) {
        None => "callers",
        Some(_) => "callers (NOT A RESULT)",
    };
    let mut header = vec![head.to_owned()];
    header.extend(groups.iter().map(|group| group.name.to_owned()));
    table.set_header(header);
    let mut row = |name: &str, cell: &dyn Fn(&Group) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(groups.iter().map(cell));
        table.add_row(cells);
    };
    row("calls", &|group| group.tally.arrived().to_string());
    row("= served in time", &|group| {
        percent(group.tally.count(End::Served), group.tally.arrived())
    });
    for tier in 0..3 {
        row(&format!("    {}", tier_name(tier)), &|group| {
            let (share, calls) = group.tally.served_of_tier(tier);
            format!("{:.1} % of {calls}", share * 100.0)
        });
    }
    row("+ refused", &|group| {
        percent(group.tally.count(End::Refused), group.tally.arrived())
    });
    row("+ failed", &|group| {
        percent(group.tally.count(End::Failed), group.tally.arrived())
    });
    row("+ cut off", &|group| {
        percent(group.tally.cut_off, group.tally.arrived())
    });
    row("attempts", &|group| group.tally.attempts().to_string());
    row("= first attempts", &|group| group.tally.sent().to_string());
    row("+ retries", &|group| group.tally.retries().to_string());
    row("    early retries", &|group| group.early.to_string());
    row("calls never sent", &|group| group.tally.never_sent().to_string());
    row("attempts per call", &|group| {
        format!("{:.2}", group.tally.attempts_per_call())
    });
    row("attempts per call sent", &|group| {
        format!("{:.2}", group.tally.attempts_per_call_sent())
    });
    row("time of served calls, p50 / p99", &|group| {
        let times = group.tally.served_times();
        format!(
            "{} / {}",
            show(quantile(&times, 0.5)),
            show(quantile(&times, 0.99))
        )
    });
    align(&mut table);
    table
}

/// A line for each row of the tables that does not say by itself what it counts.
pub const LEGEND: &str = "\
served in time          answered with 200 within the caller's own deadline; below it by tier (the importance a call names)
refused                 ended with a typed overload: the server's code, and when to come back; nothing was done
failed                  ended with anything else: no answer in time, or refused until the attempts were used up
cut off                 not over when the load was stopped
attempts                requests sent: one first attempt for each call that was sent, and retries
early retries           retries that left before the wait which the server had asked for was over
calls never sent        ended with no request on the wire: held back by a hint that an earlier call was given, or no
                        time left before the first attempt; calls = first attempts + never sent + cut off
attempts per call       over all finished calls, so that a call never sent counts 0; per call sent: over the others
prediction error        of each task that was served, its wait in queue as predicted at the door against as measured
places still held       charges of the admission controller that nobody gave back: 0, or something leaks";

/// The server's side.
pub fn service(service: &Service, groups: &[Group]) -> Table {
    let mut table = new_table();
    let head = match void(groups) {
        None => "server",
        Some(_) => "server (NOT A RESULT)",
    };
    table.set_header([head, ""]);
    let served: u64 = groups
        .iter()
        .map(|group| group.tally.served_by(service.length))
        .sum();
    let rate = served as f64 / service.length.as_secs_f64();
    table.add_row(["capacity", &format!("{:.0} tasks/s", service.capacity)]);
    table.add_row([
        "goodput under load",
        &format!(
            "{rate:.0} tasks/s served in time = {:.0} % of capacity",
            100.0 * rate / service.capacity
        ),
    ]);
    let mut waits: Vec<(Duration, Duration)> = groups.iter().flat_map(|group| group.tally.waits()).collect();
    waits.sort_unstable();
    let mut predicted: Vec<Duration> = waits.iter().map(|wait| wait.0).collect();
    let mut measured: Vec<Duration> = waits.iter().map(|wait| wait.1).collect();
    let mut off: Vec<Duration> = waits.iter().map(|wait| wait.0.abs_diff(wait.1)).collect();
    for list in [&mut predicted, &mut measured, &mut off] {
        list.sort_unstable();
    }
    for (name, list) in [
        ("wait in queue, predicted", &predicted),
        ("wait in queue, measured", &measured),
        ("prediction error", &off),
    ] {
        let cell = format!(
            "p50 {}, p95 {}",
            show(quantile(list, 0.5)),
            show(quantile(list, 0.95))
        );
        table.add_row([name, &cell]);
    }
    let depths: Vec<String> = service
        .watch
        .depth
        .iter()
        .enumerate()
        .map(|(tier, (deepest, limit))| format!("{} {deepest}/{limit}", tier_name(tier)))
        .collect();
    table.add_row(["deepest queue / limit", &depths.join(", ")]);
    table.add_row([
        "queue over its limit",
        &format!(
            "{} of {} readings",
            service.watch.over_limit, service.watch.readings
        ),
    ]);
    table.add_row(["places still held", &service.tickets.to_string()]);
    let after = service.recovered.map_or("not yet".to_owned(), |after| {
        format!("{:.1} s after the last arrival", after.as_secs_f64())
    });
    table.add_row(["state at the end", &format!("{} ({after})", service.state)]);
    align(&mut table);
    table
}

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table
}

fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{part} ({:.1} %)", ratio(part, whole) * 100.0)
}

fn show(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| {
        format!("{:.0} ms", time.as_secs_f64() * 1000.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::CallRecord;

    fn group(calls: usize, late: u64) -> Group {
        let call = CallRecord {
            tier: 0,
            end: End::Served,
            attempts: 1,
            early: 0,
            took: Duration::ZERO,
            ended: Duration::ZERO,
            wait: None,
        };
        let tally = Tally {
            calls: vec![call; calls],
            late,
            behind: Duration::from_millis(3100),
            ..Tally::default()
        };
        Group {
            name: "Holdoff",
            tally,
            early: 0,
        }
    }

    #[test]
    fn a_run_whose_calls_could_not_be_made_in_time_is_no_result_and_its_table_says_so() {
        let starved = [group(100, 2), group(100, 60)];
        let why = void(&starved).unwrap();
        for word in [
            "SHOWS NOTHING",
            "62 (31.0 %) of 200 calls",
            "up to 3.1 s",
            "--workers",
        ] {
            assert!(why.contains(word), "{word:?} in {why}");
        }
        assert!(callers(&starved).to_string().contains("NOT A RESULT"));
    }

    #[test]
    fn a_few_late_calls_take_nothing_from_a_run() {
        let fine = [group(100, 5), group(100, 0)];
        assert_eq!(void(&fine), None);
        assert!(!callers(&fine).to_string().contains("NOT A RESULT"));
    }
}
