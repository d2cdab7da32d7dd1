//! The main job as one command: a server with more asked of it than it can do, callers that obey it beside callers
//! that do not, and a table at the end. Everything is on loopback, bounded, and needs no set-up.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Parser;
use holdoff_admission::Snapshot;
use holdoff_examples::load::{Live, now};
use holdoff_examples::report;
use holdoff_examples::storm::{Callers, Plan, Storm};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
#[command(
    about = "An overloaded server, callers that obey it beside callers that do not, and a table at the end"
)]
struct Args {
    /// Length of the load, seconds.
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Workers of the server, each doing 25 tasks/s.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
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
    if (0.1..=20.0).contains(&value) {
        Ok(value)
    } else {
        Err(format!("{value} is not between 0.1 and 20"))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let length = Duration::from_secs(args.seconds);
    let storm = Storm::prepare(Plan {
        length,
        workers: args.workers,
        load: args.load,
        callers: args.callers,
        seed: args.seed,
    })
    .await?;
    say(&format!(
        "server at {}: {} workers, {:.0} tasks/s; load {:.1} x that for {} s",
        storm.url(),
        args.workers,
        storm.capacity(),
        args.load,
        args.seconds
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
    let (bar, show) = progress(&args, storm.live.clone());
    let outcome = storm.run(stop.clone(), show).await?;
    bar.finish_and_clear();
    interrupt.abort();
    if stop.is_cancelled() {
        say("interrupted: the figures are of what was finished");
    }
    let (callers, service) = (
        report::callers(&outcome.groups),
        report::service(&outcome.service, &outcome.groups),
    );
    say(&format!("{callers}\n{service}"));
    Ok(())
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
            next_line += Duration::from_secs(1);
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
