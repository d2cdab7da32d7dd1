//! Command line of the simulator; see the library.

use std::process::ExitCode;

use clap::Parser as _;
use holdoff_sim::cli::{self, Cli};

fn main() -> ExitCode {
    cli::main(Cli::parse())
}
