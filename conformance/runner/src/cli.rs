//! The command line: what to judge, which cases, and how to say it.
//!
//! Exit codes: 0 conformant, 1 not conformant, 2 the runner could not do its work (bad arguments, a case file that
//! is broken, an adapter that does not start), 3 nothing was verified.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{Args, Parser, Subcommand, ValueEnum};
use url::Url;

use crate::adapter::{AdapterCommand, AdapterPool, Implementation};
use crate::case::{self, CaseSet, Role};
use crate::report::{CaseReport, Conclusion, RunReport};
use crate::requirement::Requirement;
use crate::run::{self, Profile, RunContext, Selection, Target};
use crate::server_drive::ServerTarget;
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
    Client {
        /// The program that speaks the adapter protocol, with its arguments
        #[arg(long, value_name = "CMD")]
        adapter: String,
        #[command(flatten)]
        common: Common,
    },
    /// Judge a server: behind an adapter (with fixtures), or a running one by its URL alone
    Server {
        /// The program that speaks the adapter protocol, with its arguments
        #[arg(
            long,
            value_name = "CMD",
            conflicts_with = "url",
            required_unless_present = "url"
        )]
        adapter: Option<String>,
        /// The base URL of a running server; profile server-core only
        #[arg(long)]
        url: Option<Url>,
        /// Where that server's metrics are
        #[arg(long, requires = "url")]
        metrics_url: Option<Url>,
        #[command(flatten)]
        common: Common,
    },
    /// Judge a relay: the runner plays its callers and its dependencies
    Relay {
        /// The program that speaks the adapter protocol, with its arguments
        #[arg(long, value_name = "CMD")]
        adapter: String,
        #[command(flatten)]
        common: Common,
    },
    /// Judge only how a client reads responses: every hint vector through the adapter's `parse`
    Vectors {
        /// The program that speaks the adapter protocol, with its arguments
        #[arg(long, value_name = "CMD")]
        adapter: String,
        #[command(flatten)]
        common: Common,
    },
    /// List the cases and the requirements that they speak for
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
    /// Only cases whose id contains this, or that speak for this requirement id; may be repeated
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
    /// The seed of the run; random by default, and always printed
    #[arg(long)]
    seed: Option<u64>,
    /// Stop at the first failure
    #[arg(long)]
    fail_fast: bool,
    /// How many seconds the adapter may take to start and answer `hello`; it may be compiled first
    #[arg(long, value_name = "SECONDS", default_value_t = adapter::HELLO_LIMIT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3600))]
    start_limit: u64,
    /// How many cases that measure no time run side by side
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
        Command::Client { adapter, common } => {
            let target = Target::Client(pool(&adapter, Role::Client, &common)?);
            judge(
                Judged {
                    mode: "client",
                    target,
                    named: adapter,
                    how: "--adapter",
                },
                common,
            )
            .await
        }
        Command::Vectors { adapter, common } => {
            let target = Target::Client(pool(&adapter, Role::Client, &common)?);
            judge(
                Judged {
                    mode: "vectors",
                    target,
                    named: adapter,
                    how: "--adapter",
                },
                common,
            )
            .await
        }
        Command::Relay { adapter, common } => {
            let target = Target::Relay(pool(&adapter, Role::Relay, &common)?);
            judge(
                Judged {
                    mode: "relay",
                    target,
                    named: adapter,
                    how: "--adapter",
                },
                common,
            )
            .await
        }
        Command::Server {
            adapter: Some(adapter),
            common,
            ..
        } => {
            let pool = pool(&adapter, Role::Server, &common)?;
            let target = Target::Server(ServerTarget::Adapter(pool));
            judge(
                Judged {
                    mode: "server",
                    target,
                    named: adapter,
                    how: "--adapter",
                },
                common,
            )
            .await
        }
        Command::Server {
            url: Some(url),
            metrics_url,
            mut common,
            ..
        } => {
            common.profile.get_or_insert(Profile::ServerCore);
            let named = url.to_string();
            let target = Target::Server(ServerTarget::Url { url, metrics_url });
            judge(
                Judged {
                    mode: "server",
                    target,
                    named,
                    how: "--url",
                },
                common,
            )
            .await
        }
        Command::Server { .. } => Err(anyhow!("one of --adapter and --url is needed")),
    }
}

fn pool(line: &str, role: Role, common: &Common) -> anyhow::Result<AdapterPool> {
    let limit = Duration::from_secs(common.start_limit);
    Ok(AdapterPool::new(AdapterCommand::parse(line)?, role).with_hello_limit(limit))
}

fn load(dir: Option<&PathBuf>) -> anyhow::Result<CaseSet> {
    Ok(match dir {
        Some(dir) => case::load_dir(dir)?,
        None => case::load_embedded()?,
    })
}

struct Judged {
    mode: &'static str,
    target: Target,
    named: String,
    how: &'static str,
}

impl Judged {
    /// The command line up to the filter.
    fn invocation(&self) -> String {
        let named = shlex::try_quote(&self.named).unwrap_or_default();
        format!("holdoff-conformance {} {} {named}", self.mode, self.how)
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
