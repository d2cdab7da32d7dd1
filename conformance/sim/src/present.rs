//! Figures as tables for people and as files for machines.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use anyhow::Context as _;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{Cell, CellAlignment, Color, Table};

use crate::Setup;
use crate::gates::Verdict;
use crate::metrics::{FIGURES, Report, median};
use crate::scenario::Scenario;

/// An empty table in the house's look, which is also Markdown: numbers at the right.
pub(crate) fn table_of<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table
        .load_style(ASCII_MARKDOWN)
        .set_header(header.into_iter().collect::<Vec<_>>());
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
    let mut table = table_of(["figure", "value"]);
    for (name, of) in FIGURES {
        table.add_row([(*name).to_owned(), figure(name, of(report))]);
    }
    table
}

/// Gates against what was measured: the table of the ten scenarios, and the rest as a list.
pub(crate) fn verdicts(verdicts: &[Verdict]) -> Vec<Table> {
    let cell = |verdict: &Verdict| {
        let name = verdict.gate.figure;
        let text = format!(
            "{} {} {}{}",
            figure(name, verdict.median),
            verdict.gate.side.sign(),
            verdict.gate.limit,
            if verdict.passes() { "" } else { " !" }
        );
        let color = if verdict.passes() {
            Color::Green
        } else {
            Color::Red
        };
        Cell::new(text).fg(color)
    };
    let in_table = |verdict: &&Verdict| verdict.gate.of_table;
    let mut columns: Vec<&str> = Vec::new();
    let mut rows: Vec<&str> = Vec::new();
    for verdict in verdicts.iter().filter(in_table) {
        let (column, row) = (verdict.gate.case.scenario, verdict.gate.figure);
        if !columns.contains(&column) {
            columns.push(column);
        }
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let mut matrix = table_of(std::iter::once("median").chain(columns.iter().copied()));
    for row in rows {
        let of = |column: &&str| {
            let found = verdicts
                .iter()
                .find(|v| v.gate.of_table && v.gate.case.scenario == *column && v.gate.figure == row);
            found.map_or_else(|| Cell::new(""), cell)
        };
        matrix.add_row(std::iter::once(Cell::new(row)).chain(columns.iter().map(of)));
    }
    let mut list = table_of(["scenario", "figure", "median and gate", "worst seed"]);
    for verdict in verdicts.iter().filter(|verdict| !verdict.gate.of_table) {
        let case = match verdict.gate.case.clients {
            Some(clients) => format!("{} ({} callers)", verdict.gate.case.scenario, clients.name()),
            None => verdict.gate.case.scenario.to_owned(),
        };
        let name = verdict.gate.figure;
        list.add_row([
            Cell::new(case),
            Cell::new(name),
            cell(verdict),
            Cell::new(figure(name, verdict.worst)),
        ]);
    }
    let mut failed = table_of(["fails", "figure", "median and gate", "worst seed"]);
    for verdict in verdicts.iter().filter(|v| v.gate.of_table && !v.passes()) {
        let name = verdict.gate.figure;
        failed.add_row([
            Cell::new(verdict.gate.case.scenario),
            Cell::new(name),
            cell(verdict),
            Cell::new(figure(name, verdict.worst)),
        ]);
    }
    [matrix, list, failed]
        .into_iter()
        .filter(|table| !table.is_empty())
        .collect()
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
    let mut table = table_of(std::iter::once(scenario).chain(RANKED));
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

/// The figures that a table of spreads shows.
const SPREAD: [&str; 11] = [
    "goodput",
    "avoidable_loss",
    "attempts",
    "false_accepts",
    "recovery_s",
    "spike",
    "critical",
    "success",
    "usual",
    "short",
    "long",
];

/// Rows by name: median of the seeds, and the least and greatest where they differ in what is shown.
pub(crate) fn spreads(rows: &[(&str, &[Report])]) -> Table {
    let mut table = table_of(std::iter::once("scenario").chain(SPREAD));
    for (row, reports) in rows {
        let cell = |name: &&str| {
            let of = FIGURES.iter().find(|(known, _)| known == name);
            let mut values: Vec<f64> = of.map_or_else(Vec::new, |(_, of)| reports.iter().map(of).collect());
            values.sort_by(f64::total_cmp);
            let short = |value: f64| match *name {
                "recovery_s" => format!("{value:.0}"),
                "attempts" | "spike" => format!("{value:.2}"),
                "false_accepts" => format!("{value:.4}"),
                _ => format!("{value:.3}"),
            };
            let ends = values.first().zip(values.last());
            let (least, most) = ends.map_or((0.0, 0.0), |(least, most)| (*least, *most));
            let (least, most, middle) = (short(least), short(most), short(median(values)));
            if least == most {
                middle
            } else {
                format!("{middle} ({least} to {most})")
            }
        };
        table.add_row(std::iter::once((*row).to_owned()).chain(SPREAD.iter().map(cell)));
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
fn key(of: &Setup) -> String {
    let (admission, hint, clients) = (of.admission.name(), of.hint.name(), of.clients.name());
    let Scenario { name, workers, .. } = &of.scenario;
    format!("{name},{workers},{},{admission},{hint},{clients}", of.seed)
}

/// Columns of [`key`].
const KEY: [&str; 6] = ["scenario", "workers", "seed", "admission", "hint", "clients"];

impl Csv {
    /// A new file, or with `resume` one that may hold runs already.
    ///
    /// # Errors
    /// When the file cannot be used, or holds something else.
    pub(crate) fn open(path: &Path, resume: bool) -> anyhow::Result<Self> {
        let unreadable = || format!("{} cannot be read", path.display());
        let unwritable = || format!("{} cannot be written", path.display());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(!resume);
        let mut file = options.open(path).with_context(unwritable)?;
        let header = header() + "\n";
        let mut lines = BufReader::new(&file);
        let mut line = String::new();
        lines.read_line(&mut line).with_context(unreadable)?;
        let is_new = line.is_empty();
        anyhow::ensure!(
            is_new || line == header,
            "{} does not hold the columns of this version; give another file",
            path.display()
        );
        let (mut held, mut whole) = (Vec::new(), line.len() as u64);
        loop {
            line.clear();
            let bytes = lines.read_line(&mut line).with_context(unreadable)?;
            // A line that was cut off in the middle does not count, and is written over.
            if !line.ends_with('\n') || line.split(',').count() != header.split(',').count() {
                break;
            }
            whole += bytes as u64;
            held.push(
                line.splitn(KEY.len() + 1, ',')
                    .take(KEY.len())
                    .collect::<Vec<_>>()
                    .join(","),
            );
        }
        file.set_len(whole).with_context(unwritable)?;
        file.seek(SeekFrom::End(0)).with_context(unwritable)?;
        if is_new {
            file.write_all(header.as_bytes()).with_context(unwritable)?;
        }
        Ok(Self { file, held })
    }

    /// Does it hold this run already?
    pub(crate) fn holds(&self, setup: &Setup) -> bool {
        self.held.contains(&key(setup))
    }

    /// Adds a run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn add(&mut self, setup: &Setup, report: &Report) -> anyhow::Result<()> {
        let figures = FIGURES.iter().map(|(_, of)| of(report).to_string());
        let line: Vec<String> = std::iter::once(key(setup)).chain(figures).collect();
        // At once, so that no line is cut off but by the end of the disk or of the power.
        let line = line.join(",") + "\n";
        self.file
            .write_all(line.as_bytes())
            .context("the CSV file cannot be written")
    }
}

fn header() -> String {
    let names = FIGURES.iter().map(|(name, _)| *name);
    KEY.into_iter().chain(names).collect::<Vec<_>>().join(",")
}
