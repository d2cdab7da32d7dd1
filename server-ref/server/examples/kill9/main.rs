//! Kills a server under load, again and again, and counts what it had promised.
//!
//! ```sh
//! cargo run --release -p holdoff-server --example kill9 -- [CYCLES] [SEED]
//! ```
//!
//! Exit code 0: nothing that was acknowledged was lost, and nothing was reported done that cannot have been done.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a proof for the terminal"
)]

mod storm;

use std::process::ExitCode;

use tokio::process::Command;

/// The server itself, in the process that is killed.
const CHILD: &str = "--child";

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [child, profile, data] = &args[..]
        && child == CHILD
    {
        serve(profile, data).await;
        return ExitCode::SUCCESS;
    }
    let number = |at: usize, default: u64| args.get(at).map_or(default, |n| n.parse().expect("a number"));
    let (cycles, seed) = (number(0, 100), number(1, 1));
    let program = |profile: &str, data: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([CHILD, profile, data]);
        command
    };
    let report = storm::run(cycles, seed, program, |cycle, acknowledged| {
        if cycle % 10 == 0 {
            println!("  {cycle} of {cycles} cycles, {acknowledged} acknowledged");
        }
    })
    .await;
    println!("{report}");
    if report.holds() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn serve(profile: &str, data: &str) {
    let text = std::fs::read_to_string(profile).unwrap();
    let mut config = holdoff_server::ServerConfig::from_yaml(&text).unwrap();
    config.addr = "127.0.0.1:0".parse().unwrap();
    config.data = Some(data.into());
    let server = holdoff_server::Server::bind(config).await.unwrap();
    println!("listening on {}", server.url());
    server.run(std::future::pending()).await;
}
