//! Figures as tables for people and as files for machines.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use anyhow::Context as _;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Cell, CellAlignment, Color, Table};

use crate::Setup;
use crate::gates::Verdict;
use crate::metrics::{FIGURES, Report, median};

/// An empty table in the house's look.
pub(crate) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A figure with as many digits as it deserves.
pub(crate) fn figure(name: &str, value: f64) -> String {
    match name {
        "calls" | "recovery_s" | "early_retries" => format!("{value:.0}"),
        "attempts" | "spike" => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The figures of one run, a line each.
pub(crate) fn report(report: &Report) -> Table {
    let mut table = table(["figure", "value"]);
    for (name, of) in FIGURES {
        table.add_row([(*name).to_owned(), figure(name, of(report))]);
    }
    table
}

/// Gates against what was measured.
pub(crate) fn verdicts(verdicts: &[Verdict]) -> Table {
    let mut table = table(["scenario", "figure", "gate", "median", "worst seed", ""]);
    for verdict in verdicts {
        let name = verdict.gate.figure;
        let case = match verdict.gate.case.clients {
            Some(clients) => format!("{} ({} callers)", verdict.gate.case.scenario, clients.name()),
            None => verdict.gate.case.scenario.to_owned(),
        };
        let held = if verdict.passes() {
            Cell::new("ok").fg(Color::Green)
        } else {
            Cell::new("FAILS").fg(Color::Red)
        };
        table.add_row([
            Cell::new(case),
            Cell::new(name),
            Cell::new(format!("{} {}", verdict.gate.side.sign(), verdict.gate.limit)),
            Cell::new(figure(name, verdict.median)),
            Cell::new(figure(name, verdict.worst)),
            held,
        ]);
    }
    table
}

/// The figures that a ranking shows.
const RANKED: [&str; 9] = [
    "goodput",
    "attempts",
    "critical",
    "success",
    "false_accepts",
    "wasted",
    "avoidable_loss",
    "recovery_s",
    "spike",
];

/// Policies in one scenario, the best goodput first: median of the seeds.
pub(crate) fn ranking(scenario: &str, policies: &[(String, Vec<Report>)]) -> Table {
    let of = |reports: &[Report], name: &str| {
        let figure = FIGURES.iter().find(|(known, _)| *known == name);
        figure.map_or(0.0, |(_, of)| median(reports.iter().map(of).collect()))
    };
    let mut header = vec![scenario];
    header.extend(RANKED);
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut order: Vec<_> = policies.iter().collect();
    order.sort_by(|(_, a), (_, b)| of(b, "goodput").total_cmp(&of(a, "goodput")));
    for (name, reports) in order {
        let cells = RANKED
            .iter()
            .map(|figure_name| figure(figure_name, of(reports, figure_name)));
        table.add_row(std::iter::once(name.clone()).chain(cells));
    }
    table
}

/// Reports as JSON.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write_json(path: &Path, reports: &[Report]) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(reports).context("the figures cannot be written as JSON")?;
    std::fs::write(path, text + "\n").with_context(|| format!("{} cannot be written", path.display()))
}

/// A CSV file that grows by a line a run, so that an interrupted grid keeps what it finished.
#[derive(Debug)]
pub(crate) struct Csv {
    file: File,
    /// Runs that it held when it was opened.
    held: Vec<String>,
}

/// What makes a run one of its own.
fn key(scenario: &str, seed: u64, admission: &str, hint: &str, clients: &str) -> String {
    format!("{scenario},{seed},{admission},{hint},{clients}")
}

impl Csv {
    /// A new file, or with `resume` one that may hold runs already.
    ///
    /// # Errors
    /// When the file cannot be used, or holds something else.
    pub(crate) fn open(path: &Path, resume: bool) -> anyhow::Result<Self> {
        let header = header();
        let mut held = Vec::new();
        if resume && path.exists() {
            let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
            let mut lines = BufReader::new(file).lines();
            let first = lines
                .next()
                .transpose()
                .context("the first line cannot be read")?;
            anyhow::ensure!(
                first.as_deref() == Some(&header),
                "{} does not hold the columns of this version; give another file",
                path.display()
            );
            for line in lines {
                let line = line.with_context(|| format!("{} cannot be read", path.display()))?;
                // A line that was cut off in the middle does not count.
                if line.split(',').count() == header.split(',').count() {
                    held.push(line.splitn(6, ',').take(5).collect::<Vec<_>>().join(","));
                }
            }
        }
        let fresh = held.is_empty();
        let mut options = OpenOptions::new();
        if fresh {
            options.write(true).create(true).truncate(true);
        } else {
            options.append(true);
        }
        let file = options.open(path);
        let mut file = file.with_context(|| format!("{} cannot be written", path.display()))?;
        if fresh {
            writeln!(file, "{header}").with_context(|| format!("{} cannot be written", path.display()))?;
        }
        Ok(Self { file, held })
    }

    /// Does it hold this run already?
    pub(crate) fn holds(&self, setup: &Setup) -> bool {
        let key = key(
            setup.scenario.name,
            setup.seed,
            setup.admission.name(),
            setup.hint.name(),
            setup.clients.name(),
        );
        self.held.contains(&key)
    }

    /// Adds a run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn add(&mut self, report: &Report) -> anyhow::Result<()> {
        let figures = FIGURES.iter().map(|(_, of)| of(report).to_string());
        let key = key(
            report.scenario,
            report.seed,
            report.admission,
            report.hint,
            report.clients,
        );
        let line: Vec<String> = std::iter::once(key).chain(figures).collect();
        writeln!(self.file, "{}", line.join(",")).context("the CSV file cannot be written")
    }
}

fn header() -> String {
    let names = FIGURES.iter().map(|(name, _)| *name);
    let key = ["scenario", "seed", "admission", "hint", "clients"];
    key.into_iter().chain(names).collect::<Vec<_>>().join(",")
}
