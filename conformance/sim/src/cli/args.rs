//! What can be said on the command line, and in which ranges.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use clap::{Args, Parser, Subcommand};

use crate::caller::ClientKind;
use crate::door::{Admission, HintKind};
use crate::scenario::{self, Scenario};
use crate::{Setup, gates};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 a gate fails, 2 it could not do its work.";

/// The command line of `holdoff-sim`.
#[derive(Debug, Parser)]
#[command(name = "holdoff-sim", version, about = env!("CARGO_PKG_DESCRIPTION"), after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Simulate one scenario and print its figures
    Run {
        /// Name of the scenario; `list` shows what happens in it
        #[arg(value_parser = scenarios(), hide_possible_values = true)]
        scenario: String,
        /// Of all that is drawn
        #[arg(long, default_value_t = 1, value_parser = seed_range())]
        seed: u64,
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        size: Size,
        #[command(flatten)]
        out: Out,
        /// Write every decision here, one JSON line each, for `replay`
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
    },
    /// List the scenarios
    List,
    /// Simulate scenarios times seeds; a CSV file keeps what is finished
    Grid {
        /// Names of scenarios; all by default
        #[arg(value_parser = scenarios(), hide_possible_values = true)]
        scenarios: Vec<String>,
        #[command(flatten)]
        seeds: Seeds,
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        size: Size,
        #[command(flatten)]
        out: Out,
        #[command(flatten)]
        jobs: Jobs,
        /// Keep the runs that the CSV file holds and simulate the rest
        #[arg(long, requires = "csv", conflicts_with = "json")]
        resume: bool,
    },
    /// Judge the gates; exit 1 if one fails
    Gates {
        /// Names of scenarios; all that have gates by default
        #[arg(value_parser = scenarios_with_gates())]
        scenarios: Vec<String>,
        #[command(flatten)]
        seeds: Seeds,
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        out: Out,
        #[command(flatten)]
        jobs: Jobs,
    },
    /// Rank the product and what people use today on the same arrivals
    Compare {
        /// Names of scenarios; the ten that have gates by default
        #[arg(value_parser = scenarios(), hide_possible_values = true)]
        scenarios: Vec<String>,
        #[command(flatten)]
        seeds: Seeds,
        #[command(flatten)]
        out: Out,
        #[command(flatten)]
        jobs: Jobs,
    },
    /// Make every table and picture of docs/SIMULATION.md
    Tables {
        /// Put them into this document, between its marks, and the pictures into the folder beside it; otherwise print them
        #[arg(long, value_name = "FILE")]
        update: Option<PathBuf>,
        /// These only; `pictures` are made with `--update`
        #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(super::tables::NAMES))]
        only: Vec<String>,
        #[command(flatten)]
        seeds: Seeds,
        #[command(flatten)]
        jobs: Jobs,
    },
    /// Judge a server's recorded decisions: false accepts, ghosts, avoidable loss, regret
    Replay {
        /// JSON lines; docs/SIMULATION.md has the members
        trace: PathBuf,
        /// Workers that the server had; the most that ran at once by default
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
        workers: Option<u32>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// Who decides and who calls.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Policy {
    /// The server's rule
    #[arg(long, value_enum, default_value_t = Admission::Holdoff)]
    pub(super) admission: Admission,
    /// What its refusals say
    #[arg(long, value_enum, default_value_t = HintKind::Own)]
    pub(super) hint: HintKind,
    /// What callers do
    #[arg(long, value_enum, default_value_t = ClientKind::Holdoff)]
    pub(super) clients: ClientKind,
}

impl Policy {
    /// The product on both sides.
    pub(super) const PRODUCT: Self = Self {
        admission: Admission::Holdoff,
        hint: HintKind::Own,
        clients: ClientKind::Holdoff,
    };

    /// As the tables write it.
    pub(super) fn name(self) -> String {
        format!(
            "{} / {} / {}",
            self.admission.name(),
            self.hint.name(),
            self.clients.name()
        )
    }

    /// One setup for each seed.
    pub(super) fn over(self, scenario: &Scenario, seeds: Seeds) -> Vec<Setup> {
        seeds
            .all()
            .map(|seed| self.setup(scenario.clone(), seed))
            .collect()
    }

    pub(super) fn setup(self, scenario: Scenario, seed: u64) -> Setup {
        Setup {
            scenario,
            seed,
            admission: self.admission,
            hint: self.hint,
            clients: self.clients,
            trace: false,
        }
    }
}

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Size {
    /// Workers of each replica instead of the scenario's; the load goes with them
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Option<u32>,
}

impl Size {
    pub(super) fn of(self, scenario: Scenario) -> Scenario {
        Scenario {
            workers: self.workers.unwrap_or(scenario.workers),
            ..scenario
        }
    }
}

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Seeds {
    /// How many seeds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(super) seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1, value_parser = seed_range())]
    pub(super) first_seed: u64,
}

impl Seeds {
    pub(super) fn all(self) -> impl Iterator<Item = u64> + use<> {
        self.first_seed..self.first_seed + self.seeds
    }

    /// How many runs of one kind there are.
    pub(super) fn each(self) -> usize {
        usize::try_from(self.seeds).unwrap_or(usize::MAX)
    }
}

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Jobs {
    /// Runs at the same time; as many as there are processors by default
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs: Option<u32>,
}

impl Jobs {
    pub(super) fn count(self) -> usize {
        let chosen = self.jobs.and_then(|jobs| usize::try_from(jobs).ok());
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        chosen.unwrap_or_else(all)
    }
}

#[derive(Clone, Debug, Default, Args)]
pub(super) struct Out {
    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write the figures as CSV, a line as each run ends
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Draw each run into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) svg: Option<PathBuf>,
}

fn seed_range() -> RangedU64ValueParser {
    clap::value_parser!(u64).range(0..=u64::from(u32::MAX))
}

fn scenarios() -> PossibleValuesParser {
    let named = |scenario: Scenario| clap::builder::PossibleValue::new(scenario.name).help(scenario.about);
    PossibleValuesParser::new(scenario::all().into_iter().map(named))
}

fn scenarios_with_gates() -> PossibleValuesParser {
    let mut names: Vec<&str> = Vec::new();
    for gate in gates::all() {
        if !names.contains(&gate.case.scenario) {
            names.push(gate.case.scenario);
        }
    }
    PossibleValuesParser::new(names)
}
