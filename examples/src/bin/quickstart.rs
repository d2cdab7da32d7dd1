//! The main job as one command: a server with more asked of it than it can do, callers that obey it beside callers
//! that do not, and a table at the end. Everything is on loopback, bounded, and needs no set-up.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use holdoff_examples::load::{CLASS, Caller, Deaf, Live, Load, now};
use holdoff_examples::report::{Group, Service};
use holdoff_examples::{load, report, watch};
use holdoff_server::{Server, ServerConfig};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio_util::sync::CancellationToken;

/// Workers of the server, and mean time of a task: together its capacity, 200 tasks/s.
const WORKERS: u32 = 8;
const MEAN: Duration = Duration::from_millis(40);
/// Longest time that the server may take to be normal again after the load.
const RECOVERY: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Callers {
    /// Half of the load from each kind.
    Both,
    /// All of it from callers that obey.
    Holdoff,
    /// All of it from callers that ignore hints.
    Deaf,
}

#[derive(Parser)]
#[command(about = "An overloaded server, callers that obey it beside callers that do not, and a table at the end")]
struct Args {
    /// Length of the load, seconds.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Load as a multiple of the server's capacity (0.1 to 20).
    #[arg(long, default_value_t = 3.0, value_parser = times)]
    load: f64,
    /// Who calls.
    #[arg(long, value_enum, default_value = "both")]
    callers: Callers,
    /// Same seed, same arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Plain lines instead of a progress bar.
    #[arg(long)]
    plain: bool,
}

fn times(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.1..=20.0).contains(&value) { Ok(value) } else { Err(format!("{value} is not between 0.1 and 20")) }
}

fn config(seed: u64) -> anyhow::Result<ServerConfig> {
    let mean = MEAN.as_millis();
    let mut config = ServerConfig::from_yaml(&format!(
        "
workers: {WORKERS}
hold_ms: 1000
ramp_ms: 1000
classes:
  {CLASS}: {{ mean_ms: {mean}, p95_ms: {}, deadline_ms: 3000 }}
anonymous: {{ tiers: [critical, non-sheddable, deferrable] }}
",
        mean * 3 / 2
    ))?;
    config.addr = ([127, 0, 0, 1], 0).into();
    config.seed = Some(seed);
    Ok(config)
}

fn callers(args: &Args) -> anyhow::Result<Vec<(&'static str, Caller)>> {
    let ours = ("Holdoff", Caller::Holdoff(holdoff::Client::new()));
    // Four sends, 100 ms apart: a common default, and hints are not looked at.
    let client = reqwest::Client::builder().retry(reqwest::retry::never()).build()?;
    let deaf = Deaf { client, attempts: 4, pause: Duration::from_millis(100) };
    let deaf = ("ignoring hints", Caller::Deaf(deaf));
    Ok(match args.callers {
        Callers::Both => vec![ours, deaf],
        Callers::Holdoff => vec![ours],
        Callers::Deaf => vec![deaf],
    })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let server = Server::bind(config(args.seed)?).await.context("the server does not start")?;
    let (url, admission) = (server.url(), server.admission().clone());
    let server_stop = CancellationToken::new();
    let serving = tokio::spawn(server.run(server_stop.clone().cancelled_owned()));

    let capacity = f64::from(WORKERS) / MEAN.as_secs_f64();
    let length = Duration::from_secs(args.seconds);
    let callers = callers(&args)?;
    say(&format!(
        "server at {url}: {WORKERS} workers, {capacity:.0} tasks/s; load {:.1} x that for {} s",
        args.load, args.seconds
    ));

    let stop = CancellationToken::new();
    let interrupt = tokio::spawn({
        let stop = stop.clone();
        async move {
            // Without a signal handler Ctrl-C ends the program at once, which is also a clean stop.
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.cancel();
            }
        }
    });
    let watching = CancellationToken::new();
    let live: Vec<Arc<Live>> = callers.iter().map(|_| Arc::default()).collect();
    let watcher = tokio::spawn(show_progress(&args, admission.clone(), watching.clone(), live.clone()));

    let rate = capacity * args.load / callers.len() as f64;
    let loads = callers.iter().zip(&live).enumerate().map(|(index, ((_, caller), live))| {
        let load = Load {
            base: url.clone(),
            caller: caller.clone(),
            rate,
            length,
            tiers: [0.1, 0.3, 0.6],
            patience: [patience(1, 3), patience(3, 10), patience(3, 10)],
            seed: args.seed.wrapping_mul(31).wrapping_add(index as u64),
        };
        tokio::spawn(load::run(load, Arc::clone(live), stop.clone()))
    });
    let loads: Vec<_> = loads.collect();
    let mut groups = Vec::new();
    for ((name, caller), load) in callers.iter().zip(loads) {
        groups.push(group(name, caller, load.await?));
    }
    let ended = now();
    let recovered = tokio::select! {
        recovered = watch::until_normal(&admission, ended, RECOVERY) => recovered,
        () = stop.cancelled() => None,
    };
    watching.cancel();
    let watch = watcher.await?;
    let snapshot = admission.snapshot();
    let service = Service {
        capacity,
        length,
        watch,
        state: snapshot.state.to_string(),
        recovered,
        tickets: snapshot.tickets,
    };
    if stop.is_cancelled() {
        say("interrupted: the figures are of what was finished");
    }
    say(&format!("{}\n{}", report::callers(&groups), report::service(&service, &groups)));
    interrupt.abort();
    server_stop.cancel();
    serving.await?;
    Ok(())
}

fn patience(least: u64, most: u64) -> (Duration, Duration) {
    (Duration::from_secs(least), Duration::from_secs(most))
}

fn group(name: &'static str, caller: &Caller, tally: holdoff_examples::tally::Tally) -> Group {
    let (early, retries) = match caller {
        Caller::Holdoff(client) => {
            let counts = client.counters().snapshot();
            (counts.early_retries_total, counts.retries_total)
        }
        Caller::Deaf(_) => {
            let early = tally.calls.iter().map(|call| u64::from(call.early)).sum();
            (early, tally.attempts() - tally.calls.len() as u64)
        }
    };
    Group { name, tally, early, retries }
}

/// Shows what happens while it happens: a bar on a terminal, a line a second elsewhere.
fn show_progress(
    args: &Args,
    admission: holdoff_admission_tower::Admission,
    stop: CancellationToken,
    live: Vec<Arc<Live>>,
) -> impl Future<Output = watch::Watch> + Send + 'static {
    let plain = args.plain || !std::io::stderr().is_terminal();
    let bar = ProgressBar::with_draw_target(Some(args.seconds * 1000), ProgressDrawTarget::stderr_with_hz(10));
    if plain {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {elapsed} {msg}") {
        bar.set_style(style);
    }
    let started = now();
    let mut next_line = Duration::from_secs(1);
    async move {
        let seen = watch::watch(admission, stop, |snapshot| {
            let sum = |field: fn(&Live) -> u64| live.iter().map(|live| field(live)).sum::<u64>();
            let queued: u32 = snapshot.tiers.iter().map(|tier| tier.queued).sum();
            let text = format!(
                "{:<10} busy {}/{}, queued {queued}; calls {}, served {}, refused {}",
                snapshot.state,
                snapshot.busy,
                snapshot.workers,
                sum(|live| live.arrived.load(Ordering::Relaxed)),
                sum(|live| live.served.load(Ordering::Relaxed)),
                sum(|live| live.refused.load(Ordering::Relaxed)),
            );
            let elapsed = now() - started;
            bar.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
            if plain && elapsed >= next_line {
                note(&format!("{:>3} s  {text}", elapsed.as_secs()));
                next_line += Duration::from_secs(1);
            }
            bar.set_message(text);
        });
        let seen = seen.await;
        bar.finish_and_clear();
        seen
    }
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "progress, beside the program's output")]
fn note(text: &str) {
    eprintln!("{text}");
}
