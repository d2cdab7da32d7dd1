//! A tonic server that refuses with Holdoff, under test.

use clap::Parser;
use holdoff_peers::grpc::server::{GrpcServerAdapter, Honest};
use holdoff_peers::protocol;

#[derive(Parser)]
#[command(about = "A tonic server as a program under test (adapter protocol on stdin and stdout)")]
struct Args {
    /// Break one rule.
    #[cfg(feature = "mutants")]
    #[arg(long, value_enum)]
    mutant: Option<holdoff_peers::mutant::grpc::GrpcServerMutant>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    #[cfg(feature = "mutants")]
    if let Some(mutant) = args.mutant {
        return protocol::serve(GrpcServerAdapter::new(mutant)).await;
    }
    let Args { .. } = args;
    protocol::serve(GrpcServerAdapter::new(Honest)).await
}
