//! The command: measures what is asked for, writes the report.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use holdoff_bench::machine::Started;
use holdoff_bench::report::{self, Report, Results};
use holdoff_bench::storm::{Trouble, Variants};
use holdoff_bench::{calls, child, decide, instructions, route, serve, storm};

/// Holdoff side by side with plain reqwest, reqwest-retry, bare axum and tower's limits, on loopback. Markdown goes to
/// stdout, or with plots and JSON to a file.
#[derive(Parser, Debug)]
#[command(name = "holdoff-bench")]
struct Args {
    /// Measure only these (default: all).
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Everything, but so short that the figures mean nothing: shows that it works.
    #[arg(long)]
    smoke: bool,
    /// Rounds of calls and of throughput; each gives one ratio.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: Option<u32>,
    /// Calls of each client in a round, and those that instructions are counted of.
    #[arg(long, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    calls: Option<u32>,
    /// Calls that a client makes in a row before the next has its turn; 1 lets them take turns call by call.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    block: u16,
    /// Connections that keep a server busy.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Runs of each stack through each storm.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=50))]
    storms: Option<u32>,
    /// Workers of the servers in the storms, each doing 25 tasks/s.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=32))]
    workers: u32,
    /// Same seed, same storms.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the report here, with JSON and plots in a folder beside it.
    #[arg(long, value_name = "FILE", conflicts_with = "update")]
    out: Option<PathBuf>,
    /// Replace the results section of this document (docs/BENCHMARKS.md), JSON and plots beside it.
    #[arg(long, value_name = "FILE")]
    update: Option<PathBuf>,
    /// Be the server of the calls: what this program starts itself as.
    #[arg(long, hide = true)]
    serve_calls: bool,
    /// Make calls and nothing else: what this program starts itself as to have them counted.
    #[arg(long, hide = true, num_args = 4, value_names = ["CLIENT", "SHAPE", "COUNT", "URL"])]
    make_calls: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Call overhead of clients.
    Calls,
    /// The same in instructions, where valgrind is installed.
    Instructions,
    /// Cost of one decision.
    Decide,
    /// What a layer adds to a request, without a socket.
    Route,
    /// Throughput of servers, and of refusing.
    Serve,
    /// The live storms.
    Storm,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    if args.serve_calls {
        return child::serve(say);
    }
    if let Some([client, shape, count, url]) = args.make_calls.as_deref() {
        return calls::make(client, shape, count.parse()?, url);
    }
    if let Some(document) = &args.update {
        report::check_document(document)?;
    }
    let started = Started::now();
    let results = measure(args)?;
    let command = std::iter::once("holdoff-bench".to_owned()).chain(std::env::args().skip(1));
    let header = started.header(command.collect::<Vec<_>>().join(" "));
    let page = args.out.as_ref().or(args.update.as_ref());
    let beside = page.map(|page| {
        let folder = report::folder_of(page);
        folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    });
    let report = Report::new(&header, &results, beside.as_deref())?;
    match (&args.out, &args.update) {
        (Some(page), _) => report.write(page)?,
        (None, Some(document)) => report.update(document)?,
        (None, None) => say(&report.markdown),
    }
    Ok(())
}

fn measure(args: &Args) -> anyhow::Result<Results> {
    let wanted = |part: Part| args.only.is_empty() || args.only.contains(&part);
    let of = |full: u32, smoke: u32| if args.smoke { smoke } else { full };
    let rounds = args.rounds.unwrap_or(of(40, 3)) as usize;
    let mut results = Results {
        smoke: args.smoke,
        ..Results::default()
    };
    if wanted(Part::Calls) {
        let plan = calls::Plan {
            rounds,
            calls: args.calls.unwrap_or(of(1000, 40)) as usize,
            block: usize::from(args.block),
            seed: args.seed,
        };
        for shape in calls::Shape::ALL {
            note(&format!("calls: {shape:?}"));
            results.calls.push(calls::measure(plan, shape)?);
        }
    }
    // Too slow for a smoke where nobody asks for it.
    if wanted(Part::Instructions) && !(args.smoke && args.only.is_empty()) {
        results.instructions = count_instructions(args)?;
    }
    if wanted(Part::Decide) {
        note("decisions");
        results.decide = Some(decide::measure(of(2000, 20) as usize)?);
    }
    if wanted(Part::Route) {
        note("routes");
        results.route = Some(route::measure(of(2000, 20) as usize)?);
    }
    if wanted(Part::Serve) {
        let plan = serve::Plan {
            rounds,
            length: Duration::from_millis(u64::from(of(250, 40))),
            connections: usize::from(args.connections),
        };
        for shape in [serve::Shape::Get, serve::Shape::GetWithFields, serve::Shape::Post] {
            note(&format!("throughput: {shape:?}"));
            results.throughput.push(serve::throughput(plan, shape)?);
        }
        for shape in [
            serve::Shape::Work,
            serve::Shape::GetWithFields,
            serve::Shape::Post,
        ] {
            note(&format!("refusals: {shape:?}"));
            results.refusals.push(serve::refusals(plan, shape)?);
        }
    }
    if wanted(Part::Storm) {
        let plan = storm::Plan {
            runs: args.storms.unwrap_or(of(3, 1)) as usize,
            workers: args.workers,
            hurry: of(1, 8),
            variants: if args.smoke {
                Variants::First
            } else {
                Variants::All
            },
            seed: args.seed,
        };
        for trouble in [Trouble::Overload, Trouble::Stall] {
            let told = |text: &str| note(&format!("{trouble:?}: {text}"));
            results.storms.push(storm::measure(plan, trouble, told)?);
        }
    }
    Ok(results)
}

fn count_instructions(args: &Args) -> anyhow::Result<Vec<instructions::Counts>> {
    if !instructions::is_possible() {
        let why = "valgrind is not installed: no instructions are counted";
        anyhow::ensure!(!args.only.contains(&Part::Instructions), why);
        note(why);
        return Ok(Vec::new());
    }
    let calls = args.calls.unwrap_or(if args.smoke { 20 } else { 1000 });
    let count = |shape| {
        note(&format!("instructions: {shape:?}"));
        instructions::measure(calls, shape)
    };
    calls::Shape::ALL.into_iter().map(count).collect()
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn say(text: &str) {
    println!("{text}");
}

#[expect(
    clippy::print_stderr,
    reason = "progress and errors, beside the program's output"
)]
fn note(text: &str) {
    eprintln!("{text}");
}
