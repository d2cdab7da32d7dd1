//! The command line.
//!
//! Exit codes: 0 done, 1 a gate fails, 2 it could not do its work (unknown scenario, number out of range, bad trace).

mod args;
mod batch;
mod tables;

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};

pub use args::Cli;
use args::{Command, Jobs, Out, Policy, Seeds};
use batch::{picture, simulate};

use crate::caller::ClientKind;
use crate::door::{Admission, HintKind};
use crate::metrics::Report;
use crate::present::{self, Csv};
use crate::scenario::{self, GATED, Scenario};
use crate::{Setup, clock, gates, plot, replay};

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
            jobs,
            resume,
        } => {
            let scenarios = chosen(&scenarios, scenario::all())?;
            let sized = scenarios.into_iter().map(|scenario| size.of(scenario));
            let setups: Vec<Setup> = sized.flat_map(|scenario| policy.over(&scenario, seeds)).collect();
            let reports = simulate(&setups, &out, resume, jobs)?;
            say(format!("{} runs", reports.len()));
        }
        Command::Gates {
            scenarios,
            seeds,
            policy,
            out,
            jobs,
        } => return judge(&scenarios, seeds, policy, &out, jobs),
        Command::Compare {
            scenarios,
            seeds,
            out,
            jobs,
        } => {
            let gated = GATED.iter().filter_map(|name| Scenario::named(name)).collect();
            for (scenario, table) in compare(&chosen(&scenarios, gated)?, seeds, &out, jobs)? {
                say(format!(
                    "{} (admission / hint / callers)\n{table}",
                    scenario.about
                ));
            }
        }
        Command::Tables {
            update,
            only,
            seeds,
            jobs,
        } => tables::make(update.as_deref(), &only, seeds, jobs)?,
        Command::Replay { trace, workers, json } => replay_file(&trace, workers, json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn find(name: &str) -> anyhow::Result<Scenario> {
    // The parser of the command line knows the names, and says which is near.
    Scenario::named(name).ok_or_else(|| anyhow!("scenario is {name:?}; `list` shows those that there are"))
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
        Csv::open(path, false)?.add(setup, &report)?;
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

fn judge(names: &[String], seeds: Seeds, policy: Policy, out: &Out, jobs: Jobs) -> anyhow::Result<ExitCode> {
    let verdicts = verdicts(names, seeds, policy, out, jobs)?;
    for table in present::verdicts(&verdicts) {
        say(format!("{table}\n"));
    }
    say(held(&verdicts, seeds));
    let failed = verdicts.iter().any(|verdict| !verdict.passes());
    Ok(ExitCode::from(u8::from(failed)))
}

/// How many hold.
fn held(verdicts: &[gates::Verdict], seeds: Seeds) -> String {
    let held = verdicts.iter().filter(|verdict| verdict.passes()).count();
    let (all, last) = (verdicts.len(), seeds.first_seed + seeds.seeds - 1);
    format!(
        "{held} of {all} gates hold, over the seeds {} to {last}",
        seeds.first_seed
    )
}

fn verdicts(
    names: &[String],
    seeds: Seeds,
    policy: Policy,
    out: &Out,
    jobs: Jobs,
) -> anyhow::Result<Vec<gates::Verdict>> {
    let mut all = gates::all();
    all.retain(|gate| names.is_empty() || names.iter().any(|name| name == gate.case.scenario));
    let cases = gates::cases(&all);
    let judged = policy.setup(find(GATED[0])?, seeds.first_seed);
    let setups: Vec<Setup> = cases
        .iter()
        .flat_map(|case| seeds.all().filter_map(|seed| case.setup(&judged, seed)))
        .collect();
    let reports = simulate(&setups, out, false, jobs)?;
    let by_case = cases.iter().zip(reports.chunks(seeds.each()));
    Ok(by_case
        .flat_map(|(case, reports)| gates::judge(&all, *case, reports))
        .collect())
}

/// What is ranked: the product, the product with other hints or callers, and other rules with the callers of today.
pub const POLICIES: [(Admission, HintKind, ClientKind); 17] = [
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
    (Admission::Limit, HintKind::Own, ClientKind::ReqwestRetry),
    (Admission::Limit, HintKind::Own, ClientKind::Eager),
    (Admission::Limit, HintKind::Kube, ClientKind::Exact),
    (Admission::PredictedMean, HintKind::Own, ClientKind::Holdoff),
    (Admission::PredictedClass, HintKind::Own, ClientKind::Holdoff),
];

/// A ranking for each scenario.
fn compare(
    scenarios: &[Scenario],
    seeds: Seeds,
    out: &Out,
    jobs: Jobs,
) -> anyhow::Result<Vec<(Scenario, comfy_table::Table)>> {
    let policies = POLICIES.map(|(admission, hint, clients)| Policy {
        admission,
        hint,
        clients,
    });
    let setups: Vec<Setup> = scenarios
        .iter()
        .flat_map(|scenario| policies.iter().flat_map(|policy| policy.over(scenario, seeds)))
        .collect();
    let reports = simulate(&setups, out, false, jobs)?;
    let ranked = |(scenario, reports): (&Scenario, &[Report])| {
        let named = policies.iter().zip(reports.chunks(seeds.each()));
        let named: Vec<_> = named
            .map(|(policy, reports)| (policy.name(), reports.to_vec()))
            .collect();
        (scenario.clone(), present::ranking(scenario.name, &named))
    };
    let of_each = reports.chunks(seeds.each() * POLICIES.len());
    Ok(scenarios.iter().zip(of_each).map(ranked).collect())
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
