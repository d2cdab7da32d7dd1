//! The command line: what to judge, which cases, and how to say it.
//!
//! Exit codes: 0 conformant, 1 not conformant, 2 the runner could not do its work (bad arguments, a case file that
//! is broken, an adapter that does not start), 3 nothing was verified; 130, 143 and 129 stopped by SIGINT, SIGTERM or SIGHUP.

pub(crate) mod check;
mod conduct;
mod interrupt;
mod itself;
mod list;
mod progress;
mod publish;
mod rejudge;
mod table;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use url::Url;

use crate::adapter::{self, AdapterCommand, AdapterPool};
use crate::case::{self, CaseSet, Role};
use crate::report::Conclusion;
use crate::requirement::Requirement;
use crate::run::{self, Target};
use crate::select::{Profile, Shard};
use crate::server_drive::ServerTarget;
use crate::survey::{self, SurveyArgs};
use conduct::{Told, conduct};
use interrupt::Interrupt;
use publish::{Outputs, publish};

const ABOUT: &str =
    "Judges any client or server against the overload contract, from outside, in any language";
const EXIT_CODES: &str = "Exit codes: 0 conformant, 1 not conformant, 2 the runner could not do its work, \
3 nothing was verified; 130, 143, 129 interrupted by SIGINT (Ctrl-C), SIGTERM, SIGHUP: what was judged by then is printed and \
written, marked as interrupted, and every program that was started is killed.";

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
        #[arg(long, value_name = "URL", conflicts_with = "adapter", value_parser = check::url)]
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
    /// Put a client before a server and judge what goes between them
    #[command(after_help = EXIT_CODES, group = ArgGroup::new("before").required(true).args(["server", "url"]))]
    Both {
        /// The client: a program that speaks the adapter protocol, with its arguments
        #[arg(long, value_name = "CMD", value_parser = check::adapter)]
        client: String,
        /// The server: a program that speaks the adapter protocol, with its arguments
        #[arg(long, value_name = "CMD", value_parser = check::adapter)]
        server: Option<String>,
        /// The server: the base URL of a running one, for ordinary traffic only
        #[arg(long, value_parser = check::url)]
        url: Option<Url>,
        #[command(flatten)]
        common: Common,
    },
    /// Show that the suite sees: our own peers conform, and every deliberately broken one is caught
    #[command(name = "self")]
    Itself(itself::Options),
    /// Judge only how a client reads responses: every hint vector through the adapter's `parse`
    #[command(after_help = EXIT_CODES)]
    Vectors {
        /// The program that speaks the adapter protocol, with its arguments
        #[arg(long, value_name = "CMD", value_parser = check::adapter)]
        adapter: String,
        #[command(flatten)]
        common: Common,
    },
    /// Judge recorded wire logs of client cases again, without the program
    Rejudge {
        /// Files that `--record` wrote
        #[arg(required = true, value_name = "FILE")]
        records: Vec<PathBuf>,
        /// Cases from this directory instead of the built-in ones
        #[arg(long, value_name = "DIR")]
        cases: Option<PathBuf>,
    },
    /// Lay several reports beside each other: who honours what, with measured delays
    Table {
        /// Reports that `--report` wrote
        #[arg(required = true, value_name = "REPORT")]
        reports: Vec<PathBuf>,
        /// Write one self-contained HTML file
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// Write Markdown; standard output where neither is given
        #[arg(long, value_name = "FILE")]
        markdown: Option<PathBuf>,
    },
    /// Print the traceability page: which case shows which requirement, and what the case has caught
    Trace,
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
    /// Only the case or vector of this id; else those whose id contains this, or that speak for this requirement id; may be
    /// repeated. One that matches nothing ends the run with exit code 3
    #[arg(long, value_name = "TEXT", value_parser = check::part)]
    filter: Vec<String>,
    /// Only cases that speak for this profile
    #[arg(long)]
    profile: Option<Profile>,
    /// Only the i-th of n parts of the selected cases, for several machines: i/n
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// What is known not to hold, with reason and expiry date (TOML)
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the wire log of every case as JSON lines into this directory
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The seed of the run, 0 to 18446744073709551615; random by default, and always printed
    #[arg(long, allow_negative_numbers = true, value_parser = check::whole(0..=u64::MAX))]
    seed: Option<u64>,
    /// Stop at the first failure
    #[arg(long)]
    fail_fast: bool,
    /// How many seconds the program may take to start, 1 to 3600. [default: 300] for an adapter until it answers `hello`, since it
    /// may be compiled first; [default: 5] for a server at a URL until it listens
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = check::whole(1..=3600_u64))]
    start_limit: Option<u64>,
    /// How many cases that measure no time run side by side, 1 to 64
    #[arg(long, default_value_t = 4, allow_negative_numbers = true, value_parser = check::whole(1..=run::MAX_JOBS))]
    jobs: usize,
    /// Cases from this directory instead of the built-in ones, and no hint vector
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
    let interrupt = Interrupt::listen();
    match dispatch(cli.command, &interrupt).await {
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

async fn dispatch(command: Command, interrupt: &Interrupt) -> anyhow::Result<u8> {
    match command {
        Command::List { json, cases } => list::main(json, &load(cases.as_ref())?),
        Command::Itself(options) => itself::main(&options, interrupt).await,
        Command::Both {
            client,
            server,
            url,
            common,
        } => {
            let server = match (server, url) {
                (Some(server), _) => At::Adapter(server),
                (None, Some(url)) => {
                    check::listens("--url", &url, common.start_limit(check::LISTEN_LIMIT)).await?;
                    At::Url {
                        url,
                        metrics_url: None,
                    }
                }
                (None, None) => return Err(anyhow!("one of --server and --url is needed")),
            };
            judge(Judged::pair(client, server, &common)?, common, interrupt).await
        }
        Command::Trace => trace::main(),
        Command::Rejudge { records, cases } => rejudge::main(&records, &load(cases.as_ref())?),
        Command::Table {
            reports,
            html,
            markdown,
        } => table::main(&reports, html.as_deref(), markdown.as_deref()),
        Command::Survey(args) => match interrupt.unless(survey::survey(*args)).await {
            Ok(code) => code,
            Err(signal) => {
                let text = format!("holdoff-conformance: interrupted by {signal}: nothing was written\n");
                say(&mut std::io::stderr(), &text);
                Ok(signal.exit_code())
            }
        },
        Command::Client { adapter, common } => one("client", At::Adapter(adapter), common, interrupt).await,
        Command::Vectors { adapter, common } => one("vectors", At::Adapter(adapter), common, interrupt).await,
        Command::Relay { adapter, common } => one("relay", At::Adapter(adapter), common, interrupt).await,
        Command::Server {
            adapter: Some(adapter),
            common,
            ..
        } => one("server", At::Adapter(adapter), common, interrupt).await,
        Command::Server {
            url: Some(url),
            metrics_url,
            mut common,
            ..
        } => {
            common.profile.get_or_insert(Profile::ServerCore);
            let limit = common.start_limit(check::LISTEN_LIMIT);
            check::listens("--url", &url, limit).await?;
            if let Some(metrics_url) = &metrics_url {
                check::listens("--metrics-url", metrics_url, limit).await?;
            }
            one("server", At::Url { url, metrics_url }, common, interrupt).await
        }
        Command::Server { .. } => Err(anyhow!("one of --adapter and --url is needed")),
    }
}

fn load(dir: Option<&PathBuf>) -> anyhow::Result<CaseSet> {
    Ok(match dir {
        Some(dir) => case::load_dir(dir).with_context(|| format!("--cases {}", dir.display()))?,
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

impl Common {
    /// What `--start-limit` says, or what holds without it.
    fn start_limit(&self, default: Duration) -> Duration {
        self.start_limit.map_or(default, Duration::from_secs)
    }

    /// What a run has that was told nothing.
    fn plain() -> Self {
        Self {
            filter: Vec::new(),
            profile: None,
            shard: None,
            baseline: None,
            record: None,
            outputs: Outputs::default(),
            format: Format::Text,
            seed: None,
            fail_fast: false,
            start_limit: None,
            jobs: 4,
            cases: None,
        }
    }
}

fn pool(line: &str, role: Role, common: &Common) -> anyhow::Result<AdapterPool> {
    let limit = common.start_limit(adapter::HELLO_LIMIT);
    Ok(AdapterPool::new(AdapterCommand::parse(line)?, role).with_hello_limit(limit))
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
        let target = match (mode, at) {
            (_, At::Url { url, metrics_url }) => Target::Server(ServerTarget::Url { url, metrics_url }),
            ("server", At::Adapter(line)) => {
                Target::Server(ServerTarget::Adapter(pool(&line, Role::Server, common)?))
            }
            ("relay", At::Adapter(line)) => Target::Relay(pool(&line, Role::Relay, common)?),
            (_, At::Adapter(line)) => Target::Client(pool(&line, Role::Client, common)?),
        };
        let named = options.first().map(|(_, value)| value.clone());
        Ok(Self {
            mode,
            target,
            named: named.unwrap_or_default(),
            options,
        })
    }

    /// A client before a server.
    fn pair(client: String, server: At, common: &Common) -> anyhow::Result<Self> {
        let (option, named, server) = match server {
            At::Adapter(line) => {
                let pool = pool(&line, Role::Server, common)?;
                ("--server", line, ServerTarget::Adapter(pool))
            }
            At::Url { url, metrics_url } => {
                ("--url", url.to_string(), ServerTarget::Url { url, metrics_url })
            }
        };
        let target = Target::Both {
            client: pool(&client, Role::Client, common)?,
            server,
        };
        Ok(Self {
            mode: "both",
            target,
            named: format!("{client} before {named}"),
            options: vec![("--client", client), (option, named)],
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

    fn belongs(&self, requirement: &Requirement, profile: Option<Profile>) -> bool {
        match (profile, &self.target) {
            (Some(profile), _) => profile.holds(requirement),
            (None, Target::Client(_)) => matches!(requirement.role.as_str(), "client" | "both"),
            (None, Target::Server(_)) => matches!(requirement.role.as_str(), "server" | "both"),
            (None, Target::Relay(_)) => requirement.role == "relay",
            // Between two programs only what a case speaks for is looked at.
            (None, Target::Both { .. }) => false,
        }
    }
}

/// Judges one program.
async fn one(mode: &'static str, at: At, common: Common, interrupt: &Interrupt) -> anyhow::Result<u8> {
    judge(Judged::of(mode, at, &common)?, common, interrupt).await
}

async fn judge(judged: Judged, common: Common, interrupt: &Interrupt) -> anyhow::Result<u8> {
    common.outputs.writable()?;
    if let Some(filter) = conduct::misspelt(&judged, &common)? {
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
    let report = conduct(&judged, &common, Told::Each, interrupt).await?;
    publish(&report, &common.outputs, common.format)?;
    Ok(report.exit_code())
}

/// Writes what was asked for to standard output.
///
/// # Errors
/// It cannot be written (a full disk). A reader that has gone away (`| head`) is no reason to fail.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(anyhow!(error).context("standard output cannot be written"))
        }
        _ => Ok(()),
    }
}

/// Writes what is said beside: progress, and why something went wrong. What cannot be written is lost.
fn say(to: &mut dyn std::io::Write, text: &str) {
    let _ = to.write_all(text.as_bytes());
    let _ = to.flush();
}
