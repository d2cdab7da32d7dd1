//! `holdoff-server`: the reference admission server as a program.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use holdoff_server::config::{DEFAULT_ADDR, schema};
use holdoff_server::{Reloaded, Reloader, Server, ServerConfig, StartError, shown};

mod args;

/// Exit code of a command line or configuration that cannot be used.
const BAD_CONFIG: u8 = 2;
/// Exit code after a second signal: 128 + SIGINT, as a shell would see it.
#[cfg(unix)]
const STOPPED_TWICE: i32 = 130;

/// The reference admission server of the overload contract.
#[derive(Parser, Debug)]
#[command(version, about, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Reads a profile, says everything that is wrong with it, and exits: 0 usable, 2 not. Values are held against each other, and
    /// files that it names are tried, once each value fits its own key.
    Check {
        /// The profile: YAML, or TOML where the name ends in .toml. At most 1 MiB; /dev/stdin takes a pipe.
        file: PathBuf,
    },
    /// Lists every key of a profile with its unit, range and default.
    Keys,
    /// Runs the burst test of the admission article against a server of its own, on a free port of loopback, and prints the
    /// evidence: 0 held, 1 not.
    BurstTest,
}

#[derive(Args, Debug)]
struct Serve {
    /// Profile in YAML, or in TOML where the name ends in .toml: workers, tiers, classes, tenants, identities; at most 1 MiB.
    /// `holdoff-server keys` lists its keys. Without it, a small development service.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Address to listen on, IP:PORT; port in 0..=65535, 0 takes a free one, below 1024 needs privileges.
    #[arg(long, value_name = "ADDR", default_value_t = DEFAULT_ADDR, value_parser = args::address)]
    listen: SocketAddr,
    /// A listener of its own for /metrics and /healthz, IP:PORT as --listen. Default: they are on the main one.
    #[arg(long, value_name = "ADDR", value_parser = args::address)]
    metrics_listen: Option<SocketAddr>,
    /// Keeps non-sheddable tasks in this directory across restarts and crashes; made if absent. Default: such tasks are refused.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Writes every decision here, one JSON object a line, tenants hashed; `holdoff-sim replay` reads it. Ends at the profile's
    /// observe.trace_max_mb (1..=65536 MiB, default 256). Default: the profile's observe.trace, else none.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Switches on POST /fixtures/{name}: for tests only, it lets anybody stop the server.
    #[arg(long)]
    fixtures: bool,
    /// Seed of drawn service times, to repeat a run; 0..=18446744073709551615. Default: from the system.
    #[arg(long, allow_negative_numbers = true, value_parser = args::seed)]
    seed: Option<u64>,
    /// What is logged to stderr: off, error, warn, info, debug or trace, or a list of target=level with commas between.
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = args::filter)]
    log: String,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::Check { file }) => check(&file),
        Some(Command::Keys) => {
            schema::KEYS.iter().for_each(|key| say(&key.to_string()));
            Ok(())
        }
        Some(Command::BurstTest) => return burst_test(),
        None => serve(&cli.serve),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(BAD_CONFIG)
        }
    }
}

/// Says why the program stops.
fn complain(error: &anyhow::Error) {
    let why = shown::lines(&format!("{error:#}"));
    let _ = writeln!(std::io::stderr(), "holdoff-server: {why}");
}

/// Writes what the user asked for. Nobody reads it when it fails, so there is nobody to tell.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{}", shown::lines(line));
}

fn check(file: &Path) -> anyhow::Result<()> {
    let config = ServerConfig::check(file)?;
    say(&format!(
        "{}: usable: {} workers, {} classes, {} identities",
        shown::path(file),
        config.profile.workers,
        config.profile.classes.len(),
        config.identities.len(),
    ));
    Ok(())
}

fn burst_test() -> ExitCode {
    let report = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| Ok(runtime.block_on(holdoff_server::burst::run())?));
    match report {
        Ok(report) => {
            say(report.to_string().trim_end());
            ExitCode::from(u8::from(!report.held()))
        }
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &Serve) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(&args.log)
        .with_context(|| format!("--log {:?} is not a tracing filter", args.log))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let mut config = args
        .profile
        .as_deref()
        .map_or_else(|| Ok(ServerConfig::default()), ServerConfig::load)?;
    config.addr = args.listen;
    config.metrics_addr = args.metrics_listen;
    config.data.clone_from(&args.data);
    config.fixtures = args.fixtures;
    if args.trace.is_some() {
        config.observe.trace.clone_from(&args.trace);
    }
    config.seed = args.seed;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop_signal()?;
        let hangups = Hangups::new()?;
        let server = Server::bind(config).await.map_err(|error| named(error, args))?;
        tokio::spawn(reload_on(hangups, server.reloader(), args.profile.clone()));
        say(&format!("listening on {}", server.url()));
        tracing::info!(url = server.url(), metrics = server.metrics_url(), "listening");
        if args.fixtures {
            tracing::warn!("test fixtures are on: anybody who reaches this server can stop it");
        }
        server.run(stop).await;
        tracing::info!("stopped");
        Ok(())
    })
}

/// An error that names the option where the user gave one, and not the key of a profile that says the same.
fn named(error: StartError, args: &Serve) -> StartError {
    match error {
        StartError::Observe(mut failed) if args.trace.as_ref() == Some(&failed.path) => {
            failed.key = "--trace";
            StartError::Observe(failed)
        }
        other => other,
    }
}

/// Reads the profile again at each SIGHUP. One that cannot be used is reported, and the old one stands.
async fn reload_on(mut hangups: Hangups, reloader: Reloader, file: Option<PathBuf>) {
    loop {
        hangups.next().await;
        let Some(file) = &file else {
            tracing::warn!("SIGHUP: there is no profile to read again; start with --profile FILE");
            continue;
        };
        let loaded = ServerConfig::load(file).map_err(anyhow::Error::from);
        let done = loaded.and_then(|config| {
            let reloaded = reloader.reload(&config);
            reloaded.with_context(|| shown::path(file))
        });
        match done {
            Ok(Reloaded::Whole) => tracing::info!(file = shown::path(file), "profile reloaded"),
            Ok(Reloaded::WithoutLimits) => tracing::warn!(
                file = shown::path(file),
                "profile and identities reloaded; the keys under `server` differ too and hold from the next start"
            ),
            Err(error) => tracing::error!(
                error = format!("{error:#}"),
                "the new profile is refused; the old one stands"
            ),
        }
    }
}

/// SIGHUPs, where there are such. Made before listening: until then the signal would end the process.
struct Hangups(#[cfg(unix)] tokio::signal::unix::Signal);

impl Hangups {
    fn new() -> anyhow::Result<Self> {
        Ok(Self(
            #[cfg(unix)]
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
        ))
    }

    /// Waits for the next one.
    async fn next(&mut self) {
        #[cfg(unix)]
        if self.0.recv().await.is_some() {
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// Completes on SIGTERM or Ctrl-C; a second one ends the process at once, for those who cannot wait for the drain. Set
/// up before listening, so that no signal is missed.
#[cfg(unix)]
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut next = async move || {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(async move {
        next().await;
        tokio::spawn(async move {
            next().await;
            std::process::exit(STOPPED_TWICE);
        });
    })
}

/// Completes on Ctrl-C.
#[cfg(not(unix))]
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    Ok(async {
        // Without a handler there is nothing to wait for: the process ends by the system's own means.
        let _ = tokio::signal::ctrl_c().await;
    })
}
