//! What the server must reach, measured on this machine over real sockets, beside its goal.
//!
//! ```sh
//! cargo run --release -p holdoff-server --example live_gates                  # all of it, some 8 minutes
//! cargo run --release -p holdoff-server --example live_gates -- goodput hog   # some of it
//! cargo run --release -p holdoff-server --example live_gates -- --seconds 3 --kills 3   # a look, no proof
//! ```
//!
//! | gate | goal |
//! |---|---|
//! | `goodput` | at 2x, 5x, 10x of capacity: work done in time, false accepts, critical success, recovery, queue bounds |
//! | `calm` | at 0.8x: at most 2 % refused |
//! | `hog` | one tenant of a 3x load sends 80 % of it, all as critical: the others' success |
//! | `frozen` | a controller that does not tick admits no deferrable work, and is normal again without traffic |
//! | `flips` | load that swings 20 % round capacity: changes of state in two minutes |
//! | `cost` | refusals against accepted requests, for the same processor time of the server |
//! | `kill9` | killed under load again and again: what was promised and lost |
//!
//! Not here, since they have commands of their own: the rate of the journal (`holdoff-journal`, example `rate`) and memory over a
//! million refusals (the test `a_million`). Exit code 0: every goal reached; 1: one missed; 2: the command cannot be read, or the
//! machine is too busy to make the load.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a proof for the terminal"
)]

mod cost;
mod gates;
#[allow(dead_code, reason = "shares its code with an example")]
#[path = "../kill9/storm.rs"]
mod kill9;
mod load;

use std::process::ExitCode;
use std::time::Duration;

use holdoff_server::{Server, ServerConfig};
use tokio::process::Command;

const GATES: [&str; 7] = ["goodput", "calm", "hog", "frozen", "flips", "cost", "kill9"];
/// The server itself, in a process of its own.
const CHILD: &str = "--child";

/// What was asked for on the command line.
struct Args {
    gates: Vec<&'static str>,
    /// Length of each load. 1..=3600, default 30.
    time: Duration,
    /// Kills. 1..=10000, default 100.
    kills: u64,
}

/// Goals and what was measured.
#[derive(Default)]
pub(crate) struct Verdicts {
    missed: u32,
}

impl Verdicts {
    /// Prints one line: the figure, its goal, and whether it is reached.
    pub(crate) fn judge(&mut self, what: &str, seen: &str, goal: &str, reached: bool) {
        self.missed += u32::from(!reached);
        let verdict = if reached { "reached" } else { "MISSED " };
        println!("{verdict}  {what:<44} {seen:>16}   goal {goal}");
    }

    pub(crate) fn at_least(&mut self, what: &str, seen: f64, least: f64) {
        self.judge(what, &format!("{seen:.4}"), &format!(">= {least}"), seen >= least);
    }

    pub(crate) fn at_most(&mut self, what: &str, seen: f64, most: f64) {
        self.judge(what, &format!("{seen:.4}"), &format!("<= {most}"), seen <= most);
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    if let [child, profile, rest @ ..] = &words[..]
        && child == CHILD
    {
        runtime.block_on(serve(profile, rest.first()));
        return ExitCode::SUCCESS;
    }
    let args = match parse(&words) {
        Ok(args) => args,
        Err(why) => {
            eprintln!("live_gates: {why}");
            return ExitCode::from(2);
        }
    };
    let verdicts = runtime.block_on(run(&args));
    if verdicts.missed == 0 {
        println!("every goal was reached");
        return ExitCode::SUCCESS;
    }
    println!("{} goals were missed", verdicts.missed);
    ExitCode::FAILURE
}

fn parse(words: &[String]) -> Result<Args, String> {
    let (mut gates, mut seconds, mut kills) = (Vec::new(), 30, 100);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = |most: u64| {
            let value = words.next().map_or("nothing", String::as_str);
            let number = value.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or(format!(
                "{word} is {value}; it must be a whole number in 1..={most}"
            ))
        };
        match word.as_str() {
            "--seconds" => seconds = number(3_600)?,
            "--kills" => kills = number(10_000)?,
            gate => match GATES.iter().find(|known| **known == gate) {
                Some(known) => gates.push(*known),
                None => {
                    let known = GATES.join(", ");
                    return Err(format!(
                        "{gate} is no gate; it must be one of {known}, --seconds N, --kills N"
                    ));
                }
            },
        }
    }
    if gates.is_empty() {
        gates = GATES.to_vec();
    }
    let time = Duration::from_secs(seconds);
    Ok(Args { gates, time, kills })
}

async fn run(args: &Args) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for gate in &args.gates {
        println!("-- {gate}");
        match *gate {
            "goodput" => {
                for (factor, share) in [(2.0, 0.95), (5.0, 0.93), (10.0, 0.90)] {
                    gates::goodput(&mut verdicts, factor, share, args.time).await;
                }
            }
            "calm" => gates::calm(&mut verdicts, args.time).await,
            "hog" => gates::hog(&mut verdicts, args.time).await,
            "frozen" => gates::frozen(&mut verdicts).await,
            "flips" => gates::flips(&mut verdicts, args.time * 4).await,
            "cost" => cost::cost(&mut verdicts, args.time).await,
            _ => killed(&mut verdicts, args.kills).await,
        }
    }
    verdicts
}

async fn killed(verdicts: &mut Verdicts, kills: u64) {
    let program = |profile: &str, data: &str| child(&[profile, data]);
    let report = kill9::run(kills, 1, program, |_, _| {}).await;
    println!("         {report}");
    let seen = |lines: &[String]| format!("{} of {}", lines.len(), report.acknowledged);
    verdicts.judge(
        "acknowledged and lost",
        &seen(&report.lost),
        "0",
        report.lost.is_empty(),
    );
    verdicts.judge(
        "reported done and not done",
        &seen(&report.undone),
        "0",
        report.undone.is_empty(),
    );
    let enough = report.acknowledged > 0 && report.interrupted > 0;
    verdicts.judge(
        "open at a kill",
        &report.interrupted.to_string(),
        "> 0, else it proves nothing",
        enough,
    );
}

/// This program as a server: a profile, and a data directory where there is one.
pub(crate) fn child(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(CHILD).args(args);
    command
}

async fn serve(profile: &str, data: Option<&String>) {
    let mut config = ServerConfig::load(profile.as_ref()).unwrap();
    config.addr = "127.0.0.1:0".parse().unwrap();
    config.data = data.map(Into::into);
    let server = Server::bind(config).await.unwrap();
    println!("listening on {}", server.url());
    server.run(std::future::pending()).await;
}
