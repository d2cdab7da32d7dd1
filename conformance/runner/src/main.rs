//! Command line of the conformance runner; see the library.

use std::process::ExitCode;

use clap::Parser as _;
use holdoff_conformance::cli::{self, Cli};

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    tokio::select! {
        code = cli::main(Cli::parse()) => code,
        // Dropping the run ends every program that it started. 130 is what shells say for it.
        _ = tokio::signal::ctrl_c() => ExitCode::from(130),
    }
}
