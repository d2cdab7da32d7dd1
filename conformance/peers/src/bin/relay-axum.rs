//! An axum service between callers and dependencies, under test.

use clap::Parser;
use holdoff_peers::protocol;
use holdoff_peers::relay::{Honest, RelayAdapter};

#[derive(Parser)]
#[command(
    about = "A relay built with holdoff-axum as a program under test (adapter protocol on stdin and stdout)"
)]
struct Args {
    /// Break one rule.
    #[cfg(feature = "mutants")]
    #[arg(long, value_enum)]
    mutant: Option<holdoff_peers::mutant::relay::RelayMutant>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    #[cfg(feature = "mutants")]
    if let Some(mutant) = args.mutant {
        return protocol::serve(RelayAdapter::new(mutant)).await;
    }
    let Args { .. } = args;
    protocol::serve(RelayAdapter::new(Honest)).await
}
