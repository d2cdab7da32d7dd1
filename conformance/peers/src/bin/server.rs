//! The reference server, under test.

use clap::Parser;
use holdoff_peers::protocol;
use holdoff_peers::server::{Open, ServerAdapter, serve_as_told};

#[derive(Parser)]
#[command(
    about = "Holdoff's reference server as a program under test (adapter protocol on stdin and stdout)"
)]
struct Args {
    /// The process that is under test: serves as a line on stdin says.
    #[arg(long, hide = true)]
    serve: bool,
    /// Break one rule.
    #[cfg(feature = "mutants")]
    #[arg(long, value_enum)]
    mutant: Option<holdoff_peers::mutant::server::ServerMutant>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.serve {
        return serve_as_told().await;
    }
    #[cfg(feature = "mutants")]
    if let Some(mutant) = args.mutant {
        return protocol::serve(ServerAdapter::new(mutant)?).await;
    }
    protocol::serve(ServerAdapter::new(Open)?).await
}
