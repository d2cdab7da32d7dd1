//! What Rust's HTTP clients do with overload, measured: each is set up as its own documentation shows it, and driven
//! against the same scripted servers on loopback. docs/COMPARE.md holds the output.
//!
//! `cargo run -p holdoff-examples --features backoff --bin compare`, about a minute. Nothing is judged here: the
//! table says what the servers saw.

mod clients;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use clients::{Caller, Ended};
use holdoff::contract::Code;
use holdoff_testkit::{Answer, Record, Script, overloaded, plain, served};
use reqwest::Method;
use tokio::time::Instant;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer};

#[derive(Parser)]
#[command(
    name = "compare",
    about = "Measures what Rust's HTTP clients do with overload"
)]
struct Args {
    /// Only clients whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

/// One situation that every client is put into.
struct Scenario {
    title: &'static str,
    /// What each call gets, the last for ever.
    answers: fn() -> Vec<Answer>,
    method: Method,
    calls: usize,
    /// How long the caller of each call waits.
    patience: Duration,
    /// Clients one after the other, where one would disturb what is measured of another.
    alone: bool,
    /// What to say of it.
    cell: fn(&Seen) -> String,
}

/// What was seen of a client in a scenario.
struct Seen {
    record: Record,
    calls: usize,
    ended: BTreeMap<Ended, usize>,
    /// The median time until a call had ended.
    took: Duration,
}

impl Seen {
    fn answered(&self) -> usize {
        self.ended.get(&Ended::Answered).copied().unwrap_or_default()
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn refused_then_served(refusal: Answer) -> Vec<Answer> {
    vec![refusal, served()]
}

fn scenarios() -> Vec<Scenario> {
    let ordinary = |title, answers| Scenario {
        title,
        answers,
        method: Method::GET,
        calls: 10,
        patience: seconds(8),
        alone: false,
        cell: early,
    };
    vec![
        ordinary("503, Retry-After: 2", || {
            refused_then_served(plain(503).retry_after(2))
        }),
        ordinary("429, Retry-After: 2", || {
            refused_then_served(plain(429).retry_after(2))
        }),
        ordinary("503, HTTP-date in 3 s", || {
            refused_then_served(plain(503).retry_after_date(seconds(3)))
        }),
        ordinary("429, retry-after-ms: 1500", || {
            refused_then_served(plain(429).retry_after_ms(1500))
        }),
        Scenario {
            title: "Retry-After: 30, caller has 3 s",
            patience: seconds(3),
            cell: over_deadline,
            ..ordinary("", || vec![plain(503).retry_after(30)])
        },
        Scenario {
            title: "50 refused together, Retry-After: 1",
            calls: 50,
            alone: true,
            cell: spread,
            ..ordinary("", || refused_then_served(plain(503).retry_after(1)))
        },
        Scenario {
            title: "50 refused together, Overload-Signal window of 1 to 2 s (and Retry-After: 1)",
            calls: 50,
            alone: true,
            cell: spread,
            ..ordinary("", || {
                let refusal = overloaded(Code::QueueFull).after(seconds(1)).max(seconds(2));
                refused_then_served(refusal.into())
            })
        },
        Scenario {
            title: "100 calls, every answer a bare 503, 5 s",
            calls: 100,
            patience: seconds(5),
            cell: sent,
            ..ordinary("", || vec![plain(503)])
        },
        Scenario {
            title: "10 POSTs without a key, bare 503, 5 s",
            method: Method::POST,
            patience: seconds(5),
            cell: sent,
            ..ordinary("", || vec![plain(503)])
        },
    ]
}

fn early(seen: &Seen) -> String {
    let returns = seen.record.returns().len();
    let answered = seen.answered();
    if returns == 0 {
        return format!("no retry; {answered} of {} answered", seen.calls);
    }
    format!(
        "{} of {returns} early; {answered} of {} answered",
        seen.record.early(),
        seen.calls
    )
}

fn over_deadline(seen: &Seen) -> String {
    let ended: Vec<String> = seen
        .ended
        .iter()
        .map(|(ended, count)| match ended {
            Ended::Answered => format!("{count} answered"),
            Ended::Status(status) => format!("{count} a bare {status}"),
            Ended::Refused => format!("{count} a typed refusal with its hint"),
            Ended::Failed => format!("{count} another error"),
            Ended::Patience => format!("{count} nothing"),
        })
        .collect();
    format!(
        "{} requests; told after {:.1} s: {}",
        seen.record.attempts(),
        seen.took.as_secs_f64(),
        ended.join(", ")
    )
}

fn spread(seen: &Seen) -> String {
    let returns = seen.record.returns().len();
    if returns == 0 {
        return "no retry".to_owned();
    }
    let fullest = seen.record.fullest_slot(Duration::from_millis(10));
    let share = fullest * 100 / returns;
    format!(
        "{returns} came back, {} early; fullest 10 ms: {fullest} ({share} %); {} of {} answered",
        seen.record.early(),
        seen.answered(),
        seen.calls
    )
}

fn sent(seen: &Seen) -> String {
    format!("{} requests", seen.record.attempts())
}

/// Puts one client into one scenario.
async fn drive(scenario: &Scenario, caller: Caller) -> anyhow::Result<Seen> {
    let script = Script::new((scenario.answers)()).each_call();
    let record = script.record();
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(script).mount(&server).await;
    let calls: Vec<_> = (0..scenario.calls)
        .map(|call| {
            let (method, caller) = (scenario.method.clone(), caller.clone());
            let (url, patience) = (format!("{}/{call}", server.uri()), scenario.patience);
            tokio::spawn(async move {
                let began = now();
                let ended = caller.call(method, url, patience).await;
                (ended, now() - began)
            })
        })
        .collect();
    let (mut ended, mut took) = (BTreeMap::new(), Vec::new());
    for call in calls {
        let (end, time) = call.await.context("a call panicked")?;
        *ended.entry(end).or_insert(0) += 1;
        took.push(time);
    }
    took.sort_unstable();
    Ok(Seen {
        record,
        calls: scenario.calls,
        ended,
        took: took.get(took.len() / 2).copied().unwrap_or_default(),
    })
}

#[expect(clippy::disallowed_methods, reason = "the measuring program's clock")]
fn now() -> Instant {
    Instant::now()
}

/// The version of a package as it was built.
fn version(package: &str) -> &'static str {
    let lock = include_str!("../../../../Cargo.lock");
    let entry = format!("name = \"{package}\"\nversion = \"");
    let rest = lock.split_once(&entry).map_or("?", |(_, rest)| rest);
    rest.split('"').next().unwrap_or("?")
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program that reports")]
async fn main() -> anyhow::Result<()> {
    let only = Args::parse().only;
    for scenario in scenarios() {
        println!("\n### {}\n\n| client | seen |\n|---|---|", scenario.title);
        let callers = clients::all()?;
        let callers: Vec<_> = callers
            .into_iter()
            .filter(|caller| caller.name.contains(&only))
            .collect();
        let label = |caller: &Caller| format!("{} ({})", caller.name, version(caller.package));
        let labels: Vec<String> = callers.iter().map(label).collect();
        let mut cells = Vec::new();
        if scenario.alone {
            for caller in callers {
                cells.push((scenario.cell)(&drive(&scenario, caller).await?));
            }
        } else {
            let all = callers.into_iter().map(|caller| drive(&scenario, caller));
            for seen in futures_util::future::try_join_all(all).await? {
                cells.push((scenario.cell)(&seen));
            }
        }
        for (label, cell) in labels.iter().zip(cells) {
            println!("| {label} | {cell} |");
        }
    }
    Ok(())
}
