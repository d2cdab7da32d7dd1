//! Overload along a chain of three processes: what a refusal of the leaf looks like at each service, and how many
//! requests the leaf gets for each call of the front. Everything is on loopback, bounded, and needs no set-up.

use std::time::Duration;

use clap::{Parser, Subcommand};
use comfy_table::{Table, presets};
use holdoff::{Client, Tier};
use holdoff_examples::args::whole;
use holdoff_examples::chain::{ATTEMPTS, Chain, Manner, WORK, WORKERS, leaf, policy, relay};
use holdoff_examples::load::now;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tokio::task::JoinSet;

#[derive(Parser)]
#[command(
    name = "propagate",
    about = "Overload along a chain of three services: hops, aged hints, and requests at the leaf for one call"
)]
struct Args {
    /// Length of the load in seconds, 1 to 60; a chain of each manner gets it.
    #[arg(long, default_value_t = 4, allow_negative_numbers = true, value_parser = whole(1..=60_u64))]
    seconds: u64,
    /// Load as a multiple of the leaf's capacity, 1 to 10.
    #[arg(long, default_value_t = 3, allow_negative_numbers = true, value_parser = whole(1..=10_u32))]
    load: u32,
    /// Which chains.
    #[arg(long, value_enum, default_values = ["default", "opted-in", "naive"])]
    manner: Vec<Manner>,
    /// The figures as JSON, nothing else.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    process: Option<Process>,
}

/// The processes of the chain; this program starts itself with these.
#[derive(Subcommand)]
enum Process {
    #[command(hide = true)]
    Leaf,
    #[command(hide = true)]
    Relay { next: String, manner: Manner },
}

/// What a storm came to.
#[derive(Serialize)]
struct Figures {
    manner: &'static str,
    /// Calls of the front.
    calls: u64,
    /// Of these, served in time.
    served: u64,
    /// Requests that the callers sent, retries included.
    attempts: u64,
    /// Requests that the leaf got.
    leaf_requests: u64,
    /// The quotient.
    leaf_requests_per_call: f64,
    /// Served by the leaf, for whomever.
    leaf_served: u64,
    /// Retries that the callers sent before their hint had passed.
    early_retries: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.process {
        Some(Process::Leaf) => return leaf().await,
        Some(Process::Relay { next, manner }) => return relay(next, manner).await,
        None => {}
    }
    let mut all = Vec::new();
    for manner in &args.manner {
        let figures = storm(&args, *manner);
        let stopped = tokio::signal::ctrl_c();
        tokio::select! {
            figures = figures => all.push(figures?),
            // Dropping the chain ends its processes.
            _ = stopped => return Ok(()),
        }
    }
    if args.json {
        say(&serde_json::to_string(&all)?);
    } else {
        say(&table(&all).to_string());
    }
    Ok(())
}

/// Three times what the leaf can do, through the front.
async fn storm(args: &Args, manner: Manner) -> anyhow::Result<Figures> {
    let chain = Chain::start(manner).await?;
    let rate = f64::from(args.load * WORKERS) / WORK.as_secs_f64();
    if !args.json {
        say(&format!(
            "\n{}: {rate:.0} calls/s for {} s, {ATTEMPTS} attempts at each layer; the leaf can do {:.0}/s",
            manner.word(),
            args.seconds,
            f64::from(WORKERS) / WORK.as_secs_f64()
        ));
    }
    if !args.json && manner == Manner::Default {
        say("what a full leaf makes each service say:");
        for line in chain.refusals().await? {
            say(&format!("  {line}"));
        }
    }
    let before = chain.count().await?;
    let callers = Client::builder().policy(policy()?).build()?;
    let url = format!("{}/job", chain.front);
    let (mut rng, started) = (StdRng::seed_from_u64(1), now());
    let (length, mut arrival) = (Duration::from_secs(args.seconds), Duration::ZERO);
    let (mut calls, mut made) = (JoinSet::new(), 0_u64);
    loop {
        arrival += Duration::from_secs_f64(-(1.0 - rng.random::<f64>()).ln() / rate);
        if arrival >= length {
            break;
        }
        tokio::time::sleep_until((started + arrival).into()).await;
        made += 1;
        let call = callers
            .get(&url)
            .tier(Tier::Deferrable)
            .deadline(Duration::from_millis(rng.random_range(800..2000)));
        calls.spawn(async move { call.send().await.is_ok_and(|answer| answer.status().is_success()) });
    }
    let mut served = 0;
    while let Some(call) = calls.join_next().await {
        served += u64::from(call?);
    }
    let leaf = chain.count().await?;
    let requests = leaf.requests.saturating_sub(before.requests);
    let counts = callers.counters().snapshot();
    Ok(Figures {
        manner: manner.word(),
        calls: made,
        served,
        attempts: counts.attempts_total,
        leaf_requests: requests,
        leaf_requests_per_call: requests as f64 / made.max(1) as f64,
        leaf_served: leaf.served.saturating_sub(before.served),
        early_retries: counts.early_retries_total,
    })
}

fn table(all: &[Figures]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "chain",
        "calls",
        "served",
        "sent",
        "leaf requests",
        "for each call",
        "early retries of the callers",
    ]);
    for figures in all {
        table.add_row([
            figures.manner.to_owned(),
            figures.calls.to_string(),
            figures.served.to_string(),
            figures.attempts.to_string(),
            figures.leaf_requests.to_string(),
            format!("{:.2}", figures.leaf_requests_per_call),
            figures.early_retries.to_string(),
        ]);
    }
    table
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn say(text: &str) {
    println!("{text}");
}
