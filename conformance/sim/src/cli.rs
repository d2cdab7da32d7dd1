//! The command line.
//!
//! Exit codes: 0 done, 1 a gate fails, 2 it could not do its work (unknown scenario, number out of range, bad trace).

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use clap::{Args, Parser, Subcommand};

use crate::caller::ClientKind;
use crate::door::{Admission, HintKind};
use crate::metrics::Report;
use crate::present::{self, Csv};
use crate::progress::Progress;
use crate::scenario::{self, GATED, Scenario};
use crate::{Setup, clock, gates, plot, replay};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 a gate fails, 2 it could not do its work.";

/// The command line of `holdoff-sim`.
#[derive(Debug, Parser)]
#[command(name = "holdoff-sim", version, about = env!("CARGO_PKG_DESCRIPTION"), after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Simulate one scenario and print its figures
    Run {
        /// Name of the scenario; `list` shows them
        scenario: String,
        /// Of all that is drawn
        #[arg(long, default_value_t = 1, value_parser = seed_range())]
        seed: u64,
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        size: Size,
        #[command(flatten)]
        out: Out,
        /// Write every decision here, one JSON line each, for `replay`
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
    },
    /// List the scenarios
    List,
    /// Simulate scenarios times seeds; a CSV file keeps what is finished
    Grid {
        /// Names of scenarios; all by default
        scenarios: Vec<String>,
        #[command(flatten)]
        seeds: Seeds,
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        size: Size,
        #[command(flatten)]
        out: Out,
        /// Keep the runs that the CSV file holds and simulate the rest
        #[arg(long, requires = "csv")]
        resume: bool,
    },
    /// Judge the gates; exit 1 if one fails
    Gates {
        /// Names of scenarios; all that have gates by default
        scenarios: Vec<String>,
        #[command(flatten)]
        seeds: Seeds,
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        out: Out,
    },
    /// Rank the product and what people use today on the same arrivals
    Compare {
        /// Names of scenarios; the ten that have gates by default
        scenarios: Vec<String>,
        #[command(flatten)]
        seeds: Seeds,
        #[command(flatten)]
        out: Out,
    },
    /// Judge a server's recorded decisions: false accepts, ghosts, avoidable loss, regret
    Replay {
        /// JSON lines; docs/SIMULATION.md has the members
        trace: PathBuf,
        /// Workers that the server had; the most that ran at once by default
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
        workers: Option<u32>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Debug, Args)]
struct Policy {
    /// The server's rule
    #[arg(long, value_enum, default_value_t = Admission::Holdoff)]
    admission: Admission,
    /// What its refusals say
    #[arg(long, value_enum, default_value_t = HintKind::Own)]
    hint: HintKind,
    /// What callers do
    #[arg(long, value_enum, default_value_t = ClientKind::Holdoff)]
    clients: ClientKind,
}

#[derive(Clone, Copy, Debug, Args)]
struct Size {
    /// Workers of each replica instead of the scenario's; the load goes with them
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Option<u32>,
}

#[derive(Clone, Debug, Args)]
struct Seeds {
    /// How many seeds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1, value_parser = seed_range())]
    first_seed: u64,
}

#[derive(Clone, Debug, Args)]
struct Out {
    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the figures as CSV, a line as each run ends
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw each run into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

fn seed_range() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(0..=u64::from(u32::MAX))
}

/// Does what the command line says.
pub fn main(cli: Cli) -> ExitCode {
    match act(cli.command) {
        Ok(code) => code,
        Err(error) => {
            say_error(&error);
            ExitCode::from(2)
        }
    }
}

#[expect(clippy::print_stderr, reason = "the program's error output")]
fn say_error(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}

/// Prints a line. That nobody reads on (`| head`) is no failure; there is nobody left to tell.
fn say(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn act(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run {
            scenario,
            seed,
            policy,
            size,
            out,
            trace,
        } => {
            let mut setup = policy.setup(size.of(find(&scenario)?), seed);
            setup.trace = trace.is_some();
            one(&setup, &out, trace.as_deref())?;
        }
        Command::List => list(),
        Command::Grid {
            scenarios,
            seeds,
            policy,
            size,
            out,
            resume,
        } => {
            let scenarios = chosen(&scenarios, scenario::all())?;
            let setups = seeds.setups(&scenarios, |scenario, seed| policy.setup(size.of(scenario), seed));
            let reports = simulate(&setups, &out, resume)?;
            say(format!("{} runs", reports.len()));
        }
        Command::Gates {
            scenarios,
            seeds,
            policy,
            out,
        } => return judge(&scenarios, &seeds, &policy, &out),
        Command::Compare {
            scenarios,
            seeds,
            out,
        } => compare(&scenarios, &seeds, &out)?,
        Command::Replay { trace, workers, json } => replay_file(&trace, workers, json)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Policy {
    fn setup(&self, scenario: Scenario, seed: u64) -> Setup {
        Setup {
            scenario,
            seed,
            admission: self.admission,
            hint: self.hint,
            clients: self.clients,
            trace: false,
        }
    }
}

impl Size {
    fn of(self, scenario: Scenario) -> Scenario {
        Scenario {
            workers: self.workers.unwrap_or(scenario.workers),
            ..scenario
        }
    }
}

impl Seeds {
    fn all(&self) -> impl Iterator<Item = u64> + use<> {
        self.first_seed..self.first_seed + self.seeds
    }

    fn setups(&self, scenarios: &[Scenario], of: impl Fn(Scenario, u64) -> Setup) -> Vec<Setup> {
        let pairs = scenarios
            .iter()
            .flat_map(|scenario| self.all().map(|seed| (scenario.clone(), seed)));
        pairs.map(|(scenario, seed)| of(scenario, seed)).collect()
    }
}

fn find(name: &str) -> anyhow::Result<Scenario> {
    Scenario::named(name).ok_or_else(|| {
        let names: Vec<&str> = scenario::all().iter().map(|scenario| scenario.name).collect();
        anyhow!("scenario is {name:?}; it must be one of {}", names.join(", "))
    })
}

fn chosen(names: &[String], by_default: Vec<Scenario>) -> anyhow::Result<Vec<Scenario>> {
    if names.is_empty() {
        return Ok(by_default);
    }
    names.iter().map(|name| find(name)).collect()
}

fn list() {
    let mut table = present::table_of(["scenario", "what happens"]);
    for scenario in scenario::all() {
        table.add_row([scenario.name, scenario.about]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    say(table);
}

fn one(setup: &Setup, out: &Out, trace: Option<&Path>) -> anyhow::Result<()> {
    let started = clock::now();
    let run = crate::run(setup, started)?;
    let took = clock::now().saturating_duration_since(started);
    let report = run.report();
    if let Some(path) = trace {
        let lines: Result<Vec<String>, _> = run.trace.iter().map(serde_json::to_string).collect();
        std::fs::write(path, lines?.join("\n") + "\n")
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    if let Some(path) = &out.csv {
        Csv::open(path, false)?.add(&report)?;
    }
    if let Some(dir) = &out.svg {
        let path = picture(dir, setup)?;
        plot::write(&path, &run, &report)?;
        say(format!("plot: {}", path.display()));
    }
    say(format!(
        "{}: {}\n{} calls simulated in {:.2} s",
        setup.scenario.name,
        setup.scenario.about,
        report.calls,
        took.as_secs_f64()
    ));
    say(present::report(&report));
    out.json
        .as_ref()
        .map_or(Ok(()), |path| present::write_json(path, &[report]))
}

fn picture(dir: &Path, setup: &Setup) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    let name = format!(
        "{}-{}-{}-{}-{}.svg",
        setup.scenario.name,
        setup.admission.name(),
        setup.hint.name(),
        setup.clients.name(),
        setup.seed
    );
    Ok(dir.join(name))
}

/// Runs all, with progress, writing each result as it comes.
fn simulate(setups: &[Setup], out: &Out, resume: bool) -> anyhow::Result<Vec<Report>> {
    let mut csv = out.csv.as_ref().map(|path| Csv::open(path, resume)).transpose()?;
    let todo: Vec<&Setup> = setups
        .iter()
        .filter(|setup| !csv.as_ref().is_some_and(|csv| csv.holds(setup)))
        .collect();
    let mut progress = Progress::new(todo.len() as u64);
    let mut reports = Vec::with_capacity(todo.len());
    for setup in todo {
        progress.begin(&format!("{} seed {}", setup.scenario.name, setup.seed));
        let run = crate::run(setup, clock::now())?;
        let report = run.report();
        if let Some(csv) = &mut csv {
            csv.add(&report)?;
        }
        if let Some(dir) = &out.svg {
            plot::write(&picture(dir, setup)?, &run, &report)?;
        }
        progress.done(&report);
        reports.push(report);
    }
    progress.end();
    if let Some(path) = &out.json {
        present::write_json(path, &reports)?;
    }
    Ok(reports)
}

fn judge(names: &[String], seeds: &Seeds, policy: &Policy, out: &Out) -> anyhow::Result<ExitCode> {
    for name in names {
        find(name)?;
    }
    let mut all = gates::all();
    all.retain(|gate| names.is_empty() || names.iter().any(|name| name == gate.case.scenario));
    anyhow::ensure!(!all.is_empty(), "{} has no gate", names.join(", "));
    let cases = gates::cases(&all);
    let judged = policy.setup(find(GATED[0])?, seeds.first_seed);
    let setups: Vec<Setup> = cases
        .iter()
        .flat_map(|case| seeds.all().filter_map(|seed| case.setup(&judged, seed)))
        .collect();
    let reports = simulate(&setups, out, false)?;
    let each = usize::try_from(seeds.seeds).context("too many seeds")?;
    let by_case = cases.iter().zip(reports.chunks(each));
    let verdicts: Vec<gates::Verdict> = by_case
        .flat_map(|(case, reports)| gates::judge(&all, *case, reports))
        .collect();
    for table in present::verdicts(&verdicts) {
        say(format!("{table}\n"));
    }
    let failed = verdicts.iter().filter(|verdict| !verdict.passes()).count();
    say(format!(
        "{} of {} gates hold, over {} seeds",
        verdicts.len() - failed,
        verdicts.len(),
        seeds.seeds
    ));
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// What is ranked: the product, the product with other hints or callers, and other rules with the callers of today.
pub const POLICIES: [(Admission, HintKind, ClientKind); 15] = [
    (Admission::Holdoff, HintKind::Own, ClientKind::Holdoff),
    (Admission::Holdoff, HintKind::Own, ClientKind::None),
    (Admission::Holdoff, HintKind::Own, ClientKind::FullJitter),
    (Admission::Holdoff, HintKind::Own, ClientKind::Below),
    (Admission::Holdoff, HintKind::Own, ClientKind::Generic500),
    (Admission::Holdoff, HintKind::Fixed, ClientKind::Exact),
    (Admission::Holdoff, HintKind::Drain, ClientKind::Exact),
    (Admission::Holdoff, HintKind::Kube, ClientKind::Exact),
    (Admission::Fifo, HintKind::Own, ClientKind::FullJitter),
    (Admission::Fifo, HintKind::Own, ClientKind::Exact),
    (Admission::Codel, HintKind::Own, ClientKind::Aws),
    (Admission::Limit, HintKind::Own, ClientKind::Budget20),
    (Admission::Limit, HintKind::Kube, ClientKind::Exact),
    (Admission::PredictedMean, HintKind::Own, ClientKind::Holdoff),
    (Admission::PredictedClass, HintKind::Own, ClientKind::Holdoff),
];

fn compare(names: &[String], seeds: &Seeds, out: &Out) -> anyhow::Result<()> {
    let gated = GATED.iter().filter_map(|name| Scenario::named(name)).collect();
    let scenarios = chosen(names, gated)?;
    let mut setups = Vec::new();
    for scenario in &scenarios {
        for (admission, hint, clients) in POLICIES {
            let policy = Policy {
                admission,
                hint,
                clients,
            };
            setups.extend(seeds.all().map(|seed| policy.setup(scenario.clone(), seed)));
        }
    }
    let reports = simulate(&setups, out, false)?;
    let each = usize::try_from(seeds.seeds).context("too many seeds")?;
    for (scenario, reports) in scenarios.iter().zip(reports.chunks(each * POLICIES.len())) {
        let named =
            |((admission, hint, clients), reports): (&(Admission, HintKind, ClientKind), &[Report])| {
                let name = format!("{} / {} / {}", admission.name(), hint.name(), clients.name());
                (name, reports.to_vec())
            };
        let policies: Vec<_> = POLICIES.iter().zip(reports.chunks(each)).map(named).collect();
        say(format!("{} (admission / hint / callers)", scenario.about));
        say(present::ranking(scenario.name, &policies));
    }
    Ok(())
}

fn replay_file(path: &Path, workers: Option<u32>, json: bool) -> anyhow::Result<()> {
    let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let lines = replay::read(BufReader::new(file)).with_context(|| path.display().to_string())?;
    let judged = replay::judge(lines, workers);
    if json {
        say(serde_json::to_string_pretty(&judged)?);
        return Ok(());
    }
    let mut table = present::table_of(["figure", "value"]);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("decisions", judged.decisions.to_string());
    row("calls", judged.calls.to_string());
    row("accepted", judged.accepted.to_string());
    for (code, count) in &judged.refused {
        row(&format!("refused {code}"), count.to_string());
    }
    row("workers", judged.workers.to_string());
    row("false accepts", format!("{:.4}", judged.false_accepts));
    row("ghosts", format!("{:.4}", judged.ghosts));
    row("avoidable loss", format!("{:.4}", judged.avoidable_loss));
    row("regret", format!("{:.4}", judged.regret));
    row("wait error, ms", format!("{:.1}", judged.wait_error_ms));
    row("failed calls of unknown need", judged.unknown_need.to_string());
    say(table);
    Ok(())
}
