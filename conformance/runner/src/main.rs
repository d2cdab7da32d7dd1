//! Command line of the conformance runner; see the library.

use std::process::ExitCode;

use clap::Parser as _;
use holdoff_conformance::cli::{self, Cli};

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    cli::main(Cli::parse()).await
}
