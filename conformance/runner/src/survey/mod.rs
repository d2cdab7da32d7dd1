//! Measures what clients do with a hint, side by side and without a verdict.
//!
//! A verdict says whether a client keeps the contract; most clients were never meant to. What people ask is another
//! question: "the client that I use today, when does it come back?" So a survey plays the same few answers
//! (`conformance/third-party/behaviours.yaml`, data) to any number of programs behind the adapter protocol, and writes
//! down what the runner's own sockets saw: a JSON file with every number, and a table made from it alone.
//!
//! - [`behaviour`]: what is played, and how a measurement is told.
//! - [`measure`]: from a wire log to numbers.
//! - [`table`]: from numbers to Markdown; a pure function of the JSON, so that the page can be made again.

pub mod behaviour;
mod client;
pub mod measure;
pub mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use crate::cli::check;
use crate::run::RunContext;
use crate::{clock, input, run, slack};
use behaviour::{Behaviour, BehaviourSet};
use client::{ClientList, Listed, Surveyed};
use measure::Measured;

/// The schema that the JSON file names.
pub const SCHEMA: &str = "overload-survey/1";
/// The most (client, behaviour) pairs that are played at the same time.
const MAX_JOBS: u16 = 32;
/// The most clients of one survey.
const MAX_CLIENTS: usize = 200;

/// The arguments of `holdoff-conformance survey`.
#[derive(Debug, Args)]
pub struct SurveyArgs {
    /// A program that speaks the adapter protocol, with its arguments; may be repeated
    #[arg(long, value_name = "CMD")]
    adapter: Vec<String>,
    /// A list of programs as well (conformance/third-party/clients.yaml)
    #[arg(long, value_name = "FILE")]
    clients: Option<PathBuf>,
    /// The programs of that list that are kept for the night as well
    #[arg(long, requires = "clients")]
    nightly: bool,
    /// Only programs whose command contains this; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = check::part)]
    only: Vec<String>,
    /// Only behaviours whose id contains this; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = check::part)]
    behaviour: Vec<String>,
    /// Behaviours from this file instead of the built-in ones
    #[arg(long, value_name = "FILE")]
    behaviours: Option<PathBuf>,
    /// How many (program, behaviour) pairs are played at the same time, 1 to 32, each with a process of its own
    #[arg(long, default_value_t = 8, allow_negative_numbers = true, value_parser = check::whole(1..=MAX_JOBS))]
    jobs: u16,
    /// Write every number as JSON to this file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the table as Markdown to this file; standard output otherwise
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Make the table from an earlier report and play nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["adapter", "clients", "only", "behaviour", "behaviours", "report"])]
    from: Option<PathBuf>,
}

/// A whole survey: what was played, to whom, where and when, and what was seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Survey {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// When it was made, as an HTTP date.
    pub date: String,
    /// On what.
    pub machine: String,
    /// The load average of the machine when it began, where the system says one.
    pub load: Option<String>,
    /// How many pairs were played at the same time.
    pub jobs: u16,
    /// The version of this runner.
    pub runner: String,
    /// How long it took.
    pub elapsed_ms: u64,
    /// What was played.
    pub behaviours: Vec<Behaviour>,
    /// What was seen of each program.
    pub clients: Vec<Surveyed>,
}

/// Plays the behaviours, or reads an earlier report, and writes report and table.
///
/// Exit codes: 0 everything was measured, 1 some program or pair could not be, 3 nothing was measured.
///
/// # Errors
/// A file that cannot be read or written, an argument that leaves nothing to do.
pub async fn survey(args: SurveyArgs) -> anyhow::Result<u8> {
    let made = match &args.from {
        Some(path) => read(path)?,
        None => play(&args).await?,
    };
    if let Some(path) = &args.report {
        let mut json = serde_json::to_string(&made)?;
        json.push('\n');
        write(path, &json, "--report")?;
    }
    let page = table::page(&made);
    match &args.markdown {
        Some(path) => write(path, &page, "--markdown")?,
        None => crate::cli::print(&page)?,
    }
    Ok(made.exit_code())
}

impl Survey {
    fn exit_code(&self) -> u8 {
        let all = self.clients.iter().all(Surveyed::is_whole);
        let some = self.clients.iter().any(|client| !client.measured.is_empty());
        match (some, all) {
            (false, _) => 3,
            (true, false) => 1,
            (true, true) => 0,
        }
    }
}

/// Reads an earlier report.
///
/// # Errors
/// The file cannot be read or is no report of this schema.
pub fn read(path: &Path) -> anyhow::Result<Survey> {
    let text = input::text(path, input::MAX_RECORDED).with_context(|| path.display().to_string())?;
    let survey: Survey = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    anyhow::ensure!(
        survey.schema == SCHEMA,
        "{}: schema is {:?}; this runner reads {SCHEMA:?}",
        path.display(),
        survey.schema
    );
    Ok(survey)
}

async fn play(args: &SurveyArgs) -> anyhow::Result<Survey> {
    let started = clock::now();
    let mut set = match &args.behaviours {
        Some(path) => {
            let text = input::text(path, input::MAX_WRITTEN).with_context(|| path.display().to_string())?;
            BehaviourSet::parse(&path.display().to_string(), &text)?
        }
        None => BehaviourSet::load_embedded()?,
    };
    let asked =
        |texts: &[String], whole: &str| texts.is_empty() || texts.iter().any(|text| whole.contains(text));
    set.behaviours
        .retain(|(behaviour, _)| asked(&args.behaviour, &behaviour.id));
    anyhow::ensure!(
        !set.behaviours.is_empty(),
        "--behaviour {:?} leaves none",
        args.behaviour
    );
    let mut listed: Vec<Listed> = args.adapter.iter().cloned().map(Listed::of_command).collect();
    if let Some(path) = &args.clients {
        listed.extend(ClientList::read(path)?.take(args.nightly));
    }
    listed.retain(|client| asked(&args.only, &client.command));
    anyhow::ensure!(
        (1..=MAX_CLIENTS).contains(&listed.len()),
        "{} programs to look at; 1 to {MAX_CLIENTS} are needed (--adapter, --clients, --only)",
        listed.len()
    );
    let slack = slack::calibrate().await.context("loopback cannot be used")?;
    let context = RunContext::new(clock::fresh_seed(), slack);
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split(' ').next().map(str::to_owned));
    let clients = play_all(&listed, &set, &context, args.jobs).await?;
    Ok(Survey {
        schema: SCHEMA.to_owned(),
        date: httpdate::fmt_http_date(clock::wall()),
        machine: machine(),
        load,
        jobs: args.jobs,
        runner: env!("CARGO_PKG_VERSION").to_owned(),
        elapsed_ms: run::millis(clock::now().saturating_duration_since(started)),
        behaviours: set
            .behaviours
            .into_iter()
            .map(|(behaviour, _)| behaviour)
            .collect(),
        clients,
    })
}

/// Every behaviour to every client. The pairs of one client are far apart in the order, so that a noisy moment of the
/// machine does not fall on one client alone.
async fn play_all(
    listed: &[Listed],
    set: &BehaviourSet,
    context: &RunContext,
    jobs: u16,
) -> anyhow::Result<Vec<Surveyed>> {
    let mut clients = Vec::with_capacity(listed.len());
    for client in listed {
        let met = client.meet().await.map_err(|error| anyhow!(error))?;
        note(&match &met.failed {
            None => format!("{} {}\n", met.name, met.version),
            Some(why) => format!("left out: {}: {why}\n", met.command),
        });
        clients.push(met);
    }
    let pairs: Vec<(usize, usize)> = (0..set.behaviours.len())
        .flat_map(|behaviour| (0..listed.len()).map(move |client| (client, behaviour)))
        .filter(|(client, _)| clients.get(*client).is_some_and(|met| met.failed.is_none()))
        .collect();
    let of = pairs.len();
    let plays = pairs.into_iter().filter_map(|(at, number)| {
        let (client, (behaviour, body)) = (listed.get(at)?, set.behaviours.get(number)?);
        Some(async move { (at, behaviour, client.play(behaviour, body, context).await) })
    });
    let mut plays = futures_util::stream::iter(plays).buffer_unordered(usize::from(jobs));
    let mut done = 0;
    while let Some((at, behaviour, measured)) = plays.next().await {
        done += 1;
        let Some(client) = clients.get_mut(at) else {
            continue;
        };
        let cell = match &measured {
            Ok(measured) => table::cell(behaviour, measured, client),
            Err(why) => format!("not measured: {why}"),
        };
        note(&format!(
            "{done:>4}/{of} {:<24} {:<20} {cell}\n",
            client.name, behaviour.id
        ));
        let _ = match measured {
            Ok(measured) => client.measured.insert(behaviour.id.clone(), measured).is_none(),
            Err(why) => client.not_measured.insert(behaviour.id.clone(), why).is_none(),
        };
    }
    Ok(clients)
}

/// What the survey ran on, in a few words.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("", |(_, name)| name.trim());
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    format!("{cores} cores, {arch} {os}, {model}")
        .trim_end_matches(", ")
        .to_owned()
}

fn write(path: &Path, text: &str, option: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("{option} {}", path.display()))
}

/// Progress goes to stderr, so that the table on stdout can be piped.
fn note(text: &str) {
    say(&mut std::io::stderr(), text);
}

/// What cannot be written is lost.
fn say(to: &mut dyn std::io::Write, text: &str) {
    let _ = to.write_all(text.as_bytes());
    let _ = to.flush();
}

/// Measurements of one client by behaviour.
pub(crate) type ByBehaviour = BTreeMap<String, Measured>;
