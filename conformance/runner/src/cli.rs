//! The command line: what to judge, which cases, and how to say it.
//!
//! Exit codes: 0 conformant, 1 not conformant, 2 the runner could not do its work (bad arguments, a case file that
//! is broken, an adapter that does not start), 3 nothing was verified.

mod check;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use url::Url;

use crate::adapter::{AdapterCommand, AdapterPool, Implementation};
use crate::case::{self, CaseSet, Role};
use crate::report::{CaseReport, Conclusion, RunReport};
use crate::requirement::Requirement;
use crate::run::{self, Profile, RunContext, Selection, Target};
use crate::server_drive::ServerTarget;
use crate::survey::{self, SurveyArgs};
use crate::vector::Vectors;
use crate::{adapter, clock, render, report, slack};

const ABOUT: &str =
    "Judges any client or server against the overload contract, from outside, in any language";
const EXIT_CODES: &str = "Exit codes: 0 conformant, 1 not conformant, 2 the runner could not do its work, \
3 nothing was verified.";

/// The command line of `holdoff-conformance`.
#[derive(Debug, Parser)]
#[command(name = "holdoff-conformance", version, about = ABOUT, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Judge a client: the runner plays servers, the program behind the adapter calls them
    #[command(after_help = EXIT_CODES)]
    Client {
        /// The program that speaks the adapter protocol, with its arguments
        #[arg(long, value_name = "CMD", value_parser = check::adapter)]
        adapter: String,
        #[command(flatten)]
        common: Common,
    },
    /// Judge a server: behind an adapter (with fixtures), or a running one by its URL alone
    #[command(after_help = EXIT_CODES, group = ArgGroup::new("target").required(true).args(["adapter", "url"]))]
    Server {
        /// The program that speaks the adapter protocol, with its arguments
        #[arg(long, value_name = "CMD", value_parser = check::adapter)]
        adapter: Option<String>,
        /// The base URL of a running server, http://host:port[/path]; profile server-core by default
        #[arg(long, value_parser = check::url)]
        url: Option<Url>,
        /// Where that server's metrics are; without it what only they show is not looked at
        #[arg(long, value_name = "URL", requires = "url", value_parser = check::url)]
        metrics_url: Option<Url>,
        #[command(flatten)]
        common: Common,
    },
    /// Judge a relay: the runner plays its callers and its dependencies
    #[command(after_help = EXIT_CODES)]
    Relay {
        /// The program that speaks the adapter protocol, with its arguments
        #[arg(long, value_name = "CMD", value_parser = check::adapter)]
        adapter: String,
        #[command(flatten)]
        common: Common,
    },
    /// Judge only how a client reads responses: every hint vector through the adapter's `parse`
    #[command(after_help = EXIT_CODES)]
    Vectors {
        /// The program that speaks the adapter protocol, with its arguments
        #[arg(long, value_name = "CMD", value_parser = check::adapter)]
        adapter: String,
        #[command(flatten)]
        common: Common,
    },
    /// Measure what clients do with a hint, side by side and without a verdict
    Survey(Box<SurveyArgs>),
    /// List the cases and the requirements that they speak for
    #[command(after_help = EXIT_CODES)]
    List {
        /// As JSON: case id, role, level, title, requirements
        #[arg(long)]
        json: bool,
        /// Cases from this directory instead of the built-in ones
        #[arg(long, value_name = "DIR")]
        cases: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// Only cases whose id contains this, or that speak for this requirement id; may be repeated. One that matches nothing
    /// ends the run with exit code 3
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Only cases that speak for this profile
    #[arg(long)]
    profile: Option<Profile>,
    /// Write the report as JSON to this file as well
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The seed of the run, 0 to 18446744073709551615; random by default, and always printed
    #[arg(long)]
    seed: Option<u64>,
    /// Stop at the first failure
    #[arg(long)]
    fail_fast: bool,
    /// How many seconds the adapter may take to start and answer `hello`, 1 to 3600; it may be compiled first
    #[arg(long, value_name = "SECONDS", default_value_t = adapter::HELLO_LIMIT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3600))]
    start_limit: u64,
    /// How many cases that measure no time run side by side, 1 to 64
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=run::MAX_JOBS as i64))]
    jobs: u16,
    /// Cases from this directory instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Runs a command line and says how it went.
pub async fn main(cli: Cli) -> ExitCode {
    match dispatch(cli.command).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(
                &mut std::io::stderr(),
                &format!("holdoff-conformance: {error:#}\n"),
            );
            ExitCode::from(Conclusion::HarnessError.exit_code())
        }
    }
}

async fn dispatch(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::List { json, cases } => list(json, &load(cases.as_ref())?),
        Command::Survey(args) => survey::survey(*args).await,
        Command::Client { adapter, common } => {
            judge(Judged::of("client", At::Adapter(adapter), &common)?, common).await
        }
        Command::Vectors { adapter, common } => {
            judge(Judged::of("vectors", At::Adapter(adapter), &common)?, common).await
        }
        Command::Relay { adapter, common } => {
            judge(Judged::of("relay", At::Adapter(adapter), &common)?, common).await
        }
        Command::Server {
            adapter: Some(adapter),
            common,
            ..
        } => judge(Judged::of("server", At::Adapter(adapter), &common)?, common).await,
        Command::Server {
            url: Some(url),
            metrics_url,
            mut common,
            ..
        } => {
            common.profile.get_or_insert(Profile::ServerCore);
            check::listens("--url", &url).await?;
            if let Some(metrics_url) = &metrics_url {
                check::listens("--metrics-url", metrics_url).await?;
            }
            judge(
                Judged::of("server", At::Url { url, metrics_url }, &common)?,
                common,
            )
            .await
        }
        Command::Server { .. } => Err(anyhow!("one of --adapter and --url is needed")),
    }
}

fn load(dir: Option<&PathBuf>) -> anyhow::Result<CaseSet> {
    Ok(match dir {
        Some(dir) => case::load_dir(dir)?,
        None => case::load_embedded()?,
    })
}

/// Where the program under test is.
enum At {
    /// Behind an adapter command.
    Adapter(String),
    /// At the URL of a running server.
    Url { url: Url, metrics_url: Option<Url> },
}

/// The program under test.
struct Judged {
    mode: &'static str,
    target: Target,
    named: String,
    /// Options and values that name it.
    options: Vec<(&'static str, String)>,
}

impl Judged {
    /// The mode says which role is judged, `at` where it is.
    fn of(mode: &'static str, at: At, common: &Common) -> anyhow::Result<Self> {
        let options: Vec<(&'static str, String)> = match &at {
            At::Adapter(line) => vec![("--adapter", line.clone())],
            At::Url { url, metrics_url } => [("--url", Some(url)), ("--metrics-url", metrics_url.as_ref())]
                .into_iter()
                .filter_map(|(option, url)| Some((option, url?.to_string())))
                .collect(),
        };
        let target = match at {
            At::Url { url, metrics_url } => Target::Server(ServerTarget::Url { url, metrics_url }),
            At::Adapter(line) => {
                let limit = Duration::from_secs(common.start_limit);
                let command = AdapterCommand::parse(&line)?;
                let pool = |role| AdapterPool::new(command, role).with_hello_limit(limit);
                match mode {
                    "server" => Target::Server(ServerTarget::Adapter(pool(Role::Server))),
                    "relay" => Target::Relay(pool(Role::Relay)),
                    _ => Target::Client(pool(Role::Client)),
                }
            }
        };
        Ok(Self {
            mode,
            target,
            named: options
                .first()
                .map(|(_, value)| value.clone())
                .unwrap_or_default(),
            options,
        })
    }

    /// The command line up to the filter.
    fn invocation(&self) -> String {
        let mut line = format!("holdoff-conformance {}", self.mode);
        for (option, value) in &self.options {
            let value = shlex::try_quote(value).unwrap_or_default();
            line.push_str(&format!(" {option} {value}"));
        }
        line
    }

    /// Whether the selection takes any case or vector of this mode.
    fn has(&self, set: &CaseSet, vectors: &Vectors, selection: &Selection) -> bool {
        let takes = |id: &str, speaks_for: &[String]| selection.takes(id, speaks_for, &set.requirements);
        let case = |case: &case::Case| case.role().word() == self.mode && takes(&case.id, &case.requirements);
        let vector = |vector: &crate::vector::Vector| takes(&format!("vector/{}", vector.id), &vector.req);
        let with_vectors = matches!(self.mode, "client" | "vectors");
        set.cases.iter().any(case) || (with_vectors && vectors.vectors.iter().any(vector))
    }

    fn belongs(&self, requirement: &Requirement, profile: Option<Profile>) -> bool {
        match (profile, &self.target) {
            (Some(profile), _) => profile.holds(requirement),
            (None, Target::Client(_)) => matches!(requirement.role.as_str(), "client" | "both"),
            (None, Target::Server(_)) => matches!(requirement.role.as_str(), "server" | "both"),
            (None, Target::Relay(_)) => requirement.role == "relay",
        }
    }
}

async fn judge(judged: Judged, common: Common) -> anyhow::Result<u8> {
    if let Some(profile) = common.profile {
        let mode = if judged.mode == "vectors" {
            "client"
        } else {
            judged.mode
        };
        anyhow::ensure!(
            profile.mode() == mode,
            "--profile {profile:?} is judged by `{}`, not by `{}`",
            profile.mode(),
            judged.mode
        );
    }
    let set = load(common.cases.as_ref())?;
    let vectors = Vectors::load_embedded(&set.requirements).map_err(|error| anyhow!(error))?;
    if let Some(path) = &common.report {
        check::writable("--report", path)?;
    }
    if let Some(filter) = misspelt(&judged, &common, &set, &vectors) {
        let mode = judged.mode;
        let why = format!(
            "no case of `{mode}` has this in its id or speaks for it; `holdoff-conformance list` names all"
        );
        say(
            &mut std::io::stderr(),
            &format!("holdoff-conformance: --filter {filter}: {why}\n"),
        );
        return Ok(Conclusion::NothingVerified.exit_code());
    }
    let seed = common.seed.unwrap_or_else(clock::fresh_seed);
    let started = clock::now();
    let slack = slack::calibrate().await.context("loopback cannot be used")?;
    let context = RunContext::new(seed, slack);
    let known = |filter: &&String| {
        let vector = filter.strip_prefix("vector/");
        set.cases.iter().any(|case| &case.id == *filter)
            || vectors
                .vectors
                .iter()
                .any(|known| vector == Some(known.id.as_str()))
    };
    let selection = Selection {
        filters: common.filter.clone(),
        exact: common.filter.iter().filter(known).cloned().collect(),
        profile: common.profile,
        fail_fast: common.fail_fast,
        jobs: usize::from(common.jobs),
        invocation: judged.invocation(),
    };
    let implementation = match &judged.target {
        Target::Client(pool) | Target::Relay(pool) | Target::Server(ServerTarget::Adapter(pool)) => {
            Some(pool.get().await?.hello().implementation.clone())
        }
        Target::Server(ServerTarget::Url { .. }) => None,
    };
    let done = |case: &CaseReport| {
        let text = render::case(case, &set.requirements);
        match common.format {
            Format::Text => say(&mut std::io::stdout(), &text),
            Format::Json => say(&mut std::io::stderr(), &text),
        }
    };
    let mut reports = Vec::new();
    if let (Target::Client(pool), "client" | "vectors") = (&judged.target, judged.mode) {
        reports = run::run_vectors(&vectors, &set.requirements, pool, &selection, done).await;
    }
    let stop = selection.fail_fast && reports.iter().any(run::failed);
    if judged.mode != "vectors" && !stop {
        reports.extend(run::run_cases(&set, &judged.target, &context, &selection, done).await);
    }
    judged.target.stop().await;
    let elapsed_ms = run::millis(clock::now().saturating_duration_since(started));
    let report = assemble(
        &judged,
        &common,
        &set,
        &context,
        reports,
        implementation,
        elapsed_ms,
    );
    publish(&report, &common)?;
    Ok(report.conclusion.exit_code())
}

/// The first filter that no case of the mode matches. A run without what it asks for would say less than it seems to.
fn misspelt<'a>(judged: &Judged, common: &'a Common, set: &CaseSet, vectors: &Vectors) -> Option<&'a String> {
    common.filter.iter().find(|filter| {
        let alone = Selection {
            filters: vec![(*filter).clone()],
            ..Selection::default()
        };
        !judged.has(set, vectors, &alone)
    })
}

fn assemble(
    judged: &Judged,
    common: &Common,
    set: &CaseSet,
    context: &RunContext,
    cases: Vec<CaseReport>,
    implementation: Option<Implementation>,
    elapsed_ms: u64,
) -> RunReport {
    let mut summary = BTreeMap::new();
    for case in &cases {
        *summary.entry(case.verdict.word()).or_insert(0) += 1;
    }
    RunReport {
        schema: report::SCHEMA,
        contract_version: 1,
        runner: env!("CARGO_PKG_VERSION"),
        mode: judged.mode,
        target: judged.named.clone(),
        implementation,
        profile: common
            .profile
            .and_then(|p| p.to_possible_value())
            .map(|p| p.get_name().to_owned()),
        filters: common.filter.clone(),
        seed: context.seed,
        slack_ms: context.slack_ms(),
        elapsed_ms,
        summary,
        conclusion: run::conclude(&cases),
        requirements: run::by_requirement(&set.requirements, &cases, |r| judged.belongs(r, common.profile)),
        cases,
    }
}

fn publish(report: &RunReport, common: &Common) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(report).context("the report cannot be written as JSON")?;
    if let Some(path) = &common.report {
        std::fs::write(path, &json).with_context(|| format!("--report {}", path.display()))?;
    }
    match common.format {
        Format::Text => say(&mut std::io::stdout(), &render::summary(report)),
        Format::Json => say(&mut std::io::stdout(), &format!("{json}\n")),
    }
    Ok(())
}

fn list(json: bool, set: &CaseSet) -> anyhow::Result<u8> {
    let vectors = Vectors::load_embedded(&set.requirements).map_err(|error| anyhow!(error))?;
    let mut rows: Vec<serde_json::Value> = Vec::new();
    for case in &set.cases {
        rows.push(serde_json::json!({
            "id": case.id, "role": case.role(), "level": case.level, "title": case.title,
            "requirements": case.requirements, "needs": case.needs, "source": case.source,
            "excluded": case.excluded, "timing": case.timing,
        }));
    }
    for vector in &vectors.vectors {
        rows.push(serde_json::json!({
            "id": format!("vector/{}", vector.id), "role": "client", "level": vector.level(&set.requirements),
            "title": format!("The response {} is read as the contract says.", vector.id),
            "requirements": vector.req,
        }));
    }
    let mut out = String::new();
    if json {
        out = serde_json::to_string_pretty(
            &serde_json::json!({"schema": "overload-case-list/1", "cases": rows}),
        )?;
        out.push('\n');
    } else {
        for row in &rows {
            let requirements: Vec<&str> = row["requirements"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|r| r.as_str())
                .collect();
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            out.push_str(&format!(
                "{:<7} {:<44} {:<24} {}\n",
                text("role"),
                text("id"),
                requirements.join(" "),
                text("title")
            ));
        }
        out.push_str(&format!("{} cases\n", rows.len()));
    }
    say(&mut std::io::stdout(), &out);
    Ok(0)
}

/// Writes text. A reader that has gone away (`| head`) is no reason to fail.
fn say(to: &mut dyn std::io::Write, text: &str) {
    let _ = to.write_all(text.as_bytes());
    let _ = to.flush();
}
