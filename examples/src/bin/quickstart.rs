//! The main job as one command: a server with more asked of it than it can do, callers that obey it beside callers
//! that do not, and a table at the end. Everything is on loopback, bounded, and needs no set-up.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use holdoff_admission::Snapshot;
use holdoff_examples::args::whole;
use holdoff_examples::load::{Live, now};
use holdoff_examples::report;
use holdoff_examples::storm::{Callers, Plan, Storm};
use holdoff_examples::tally::LATE;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
#[cfg(unix)]
use tokio::signal::unix::SignalKind;
use tokio_util::sync::CancellationToken;

/// Calls at most: each leaves a record for the tables.
const MAX_CALLS: f64 = 1_000_000.0;
/// The exit code of a run that shows nothing: the suite's for "nothing was verified".
const NOTHING_SHOWN: u8 = 3;

#[derive(Parser)]
#[command(
    name = "quickstart",
    about = "An overloaded server, callers that obey it beside callers that do not, and a table at the end",
    after_help = "Exit codes: 0 ran to its end, 1 could not run, 2 a value is wrong, 3 ran to its end and shows nothing, for this \
                  machine could not make the calls in time; 130 stopped by Ctrl-C, 143 by SIGTERM; a stop is clean and still shows what ran."
)]
struct Args {
    /// Length of the load in seconds, 1 to 600.
    #[arg(long, default_value_t = 14, allow_negative_numbers = true, value_parser = whole(1..=600_u64))]
    seconds: u64,
    /// Workers of the server, 1 to 64; each does 25 tasks/s.
    #[arg(long, default_value_t = 8, allow_negative_numbers = true, value_parser = whole(1..=64_u32))]
    workers: u32,
    /// Load as a multiple of the server's capacity, 0.1 to 20.
    #[arg(long, default_value_t = 3.0, allow_negative_numbers = true, value_parser = times)]
    load: f64,
    /// Who calls.
    #[arg(long, value_enum, default_value = "both")]
    callers: Callers,
    /// Same seed, same arrivals; any whole number from 0 to 2^64 - 1.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = whole(0..=u64::MAX))]
    seed: u64,
    /// Plain lines instead of a progress bar.
    #[arg(long)]
    plain: bool,
}

fn times(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.1..=20.0).contains(&value) => Ok(value),
        _ => Err("it must be a number from 0.1 to 20".to_owned()),
    }
}

impl Args {
    /// Each value is within its own range here; together they may still be too much.
    fn checked() -> Self {
        let args = Self::parse();
        let calls = args.plan().calls();
        if calls > MAX_CALLS {
            let text = format!(
                "--seconds {} x --workers {} x 25/s x --load {} make {calls:.0} calls, and {MAX_CALLS:.0} is the most",
                args.seconds, args.workers, args.load
            );
            Self::command().error(ErrorKind::ValueValidation, text).exit();
        }
        args
    }

    fn plan(&self) -> Plan {
        Plan {
            length: Duration::from_secs(self.seconds),
            workers: self.workers,
            load: self.load,
            callers: self.callers,
            seed: self.seed,
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::checked();
    let stop = CancellationToken::new();
    let stopped = Arc::new(OnceLock::new());
    tokio::spawn(stop_on_signal(stop.clone(), Arc::clone(&stopped)));
    let storm = Storm::prepare(args.plan()).await?;
    say(&format!(
        "server at {}: {} workers, {:.0} tasks/s; load {:.1} x that for {} s",
        storm.url(),
        args.workers,
        storm.capacity(),
        args.load,
        args.seconds
    ));

    if cfg!(debug_assertions) {
        say("a debug build: everything is slower than it is meant to be; for figures add --release");
    }

    let (bar, show) = progress(&args, storm.live.clone());
    let outcome = storm.run(stop, show).await?;
    bar.finish_and_clear();
    if stopped.get().is_some() {
        say("stopped early: the figures are of what ran");
    }
    let void = report::void(&outcome.groups);
    if let Some(why) = &void {
        say(&format!("\n{why}"));
    }
    let (callers, service) = (
        report::callers(&outcome.groups),
        report::service(&outcome.service, &outcome.groups),
    );
    say(&format!("{callers}\n{service}\n{}", report::LEGEND));
    let behind = report::behind(&outcome.groups);
    if void.is_none() && behind > LATE {
        say(&format!(
            "\nThis machine was busy: a few calls were made up to {:.1} s too late. Figures of a quiet one say more.",
            behind.as_secs_f64()
        ));
    }
    Ok(match (stopped.get(), void) {
        (Some(signal), _) => ExitCode::from(*signal),
        (None, Some(_)) => ExitCode::from(NOTHING_SHOWN),
        (None, None) => ExitCode::SUCCESS,
    })
}

/// The first signal stops cleanly; the second ends the program where it is. The exit code is the shell's for it.
async fn stop_on_signal(stop: CancellationToken, stopped: Arc<OnceLock<u8>>) {
    let code = signalled().await;
    let _ = stopped.set(code);
    stop.cancel();
    let code = signalled().await;
    std::process::exit(code.into());
}

#[cfg(unix)]
async fn signalled() -> u8 {
    let terminated = async {
        match tokio::signal::unix::signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            // Without a handler the signal ends the program at once.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        code = interrupted() => code,
        _ = terminated => 143,
    }
}

#[cfg(not(unix))]
async fn signalled() -> u8 {
    interrupted().await
}

async fn interrupted() -> u8 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => 130,
        // Without a handler Ctrl-C ends the program at once.
        Err(_) => std::future::pending().await,
    }
}

/// Shows what happens while it happens: a bar on a terminal, a line a second elsewhere.
fn progress(args: &Args, live: Vec<Arc<Live>>) -> (ProgressBar, impl FnMut(&Snapshot) + Send + 'static) {
    let plain = args.plain || !std::io::stderr().is_terminal();
    let bar =
        ProgressBar::with_draw_target(Some(args.seconds * 1000), ProgressDrawTarget::stderr_with_hz(10));
    if plain {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {elapsed} {msg}") {
        bar.set_style(style);
    }
    let started = now();
    let mut next_line = Duration::from_secs(1);
    let shown = bar.clone();
    let show = move |snapshot: &Snapshot| {
        let sum = |field: fn(&Live) -> u64| live.iter().map(|live| field(live)).sum::<u64>();
        let queued: u32 = snapshot.tiers.iter().map(|tier| tier.queued).sum();
        let text = format!(
            "{:<10} busy {}/{}, queued {queued}; calls {}, served {}, refused {}",
            snapshot.state.as_str(),
            snapshot.busy,
            snapshot.workers,
            sum(|live| live.arrived.load(Ordering::Relaxed)),
            sum(|live| live.served.load(Ordering::Relaxed)),
            sum(|live| live.refused.load(Ordering::Relaxed)),
        );
        let elapsed = now() - started;
        shown.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        if plain && elapsed >= next_line {
            note(&format!("{:>3} s  {text}", elapsed.as_secs()));
            next_line = Duration::from_secs(elapsed.as_secs() + 1);
        }
        shown.set_message(text);
    };
    (bar, show)
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "progress, beside the program's output")]
fn note(text: &str) {
    eprintln!("{text}");
}
