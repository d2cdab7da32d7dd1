//! Plays a caller and judges a server. Written apart; this is the shape that the rest of the runner relies on.

use serde::Deserialize;
use url::Url;

use crate::adapter::AdapterPool;
use crate::case::Case;
use crate::run::RunContext;
use crate::verdict::{NotRun, Outcome};

/// The role-specific body of a server case.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerCase {}

impl ServerCase {
    /// Checks what the types cannot say, while the case file is loaded.
    ///
    /// # Errors
    /// A sentence that names the key, the value and the limit.
    pub fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// What is judged: a program behind an adapter, or a bare URL.
#[derive(Debug)]
pub enum ServerTarget {
    /// Started anew with `start` for each case.
    Adapter(AdapterPool),
    /// A running server that is only driven with ordinary traffic (profile server-core).
    Url {
        /// Its base URL.
        url: Url,
        /// Where its metrics are, when they are to be looked at.
        metrics_url: Option<Url>,
    },
}

/// Runs one case against the target. The time limit of the case is put around this call by the runner.
///
/// # Errors
/// [`NotRun`] says why there are no findings.
pub async fn run_case(
    _case: &Case,
    _body: &ServerCase,
    _target: &ServerTarget,
    _context: &RunContext,
) -> Outcome {
    Err(NotRun::Untestable("server cases are not built in yet".to_owned()))
}
