//! The reference server, under test.

use clap::Parser;
use holdoff_peers::protocol;
use holdoff_peers::server::{Open, ServerAdapter};

#[derive(Parser)]
#[command(
    about = "Holdoff's reference server as a program under test (adapter protocol on stdin and stdout)"
)]
struct Args {
    /// Break one rule.
    #[cfg(feature = "mutants")]
    #[arg(long, value_enum)]
    mutant: Option<holdoff_peers::mutant::server::ServerMutant>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    #[cfg(feature = "mutants")]
    if let Some(mutant) = args.mutant {
        return protocol::serve(ServerAdapter::new(mutant)).await;
    }
    let Args { .. } = args;
    protocol::serve(ServerAdapter::new(Open)).await
}
