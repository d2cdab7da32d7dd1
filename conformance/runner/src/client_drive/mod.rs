//! Plays a server and judges a client.

mod spec;

pub use spec::ClientCase;

use crate::adapter::AdapterPool;
use crate::case::Case;
use crate::run::RunContext;
use crate::verdict::{NotRun, Outcome};

/// Runs one case against the client behind the adapter.
///
/// # Errors
/// [`NotRun`] says why there are no findings.
pub async fn run_case(
    _case: &Case,
    _body: &ClientCase,
    _adapters: &AdapterPool,
    _context: &RunContext,
) -> Outcome {
    Err(NotRun::Untestable("not built yet".to_owned()))
}
