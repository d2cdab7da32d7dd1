//! Picks the cases, runs them one after another or side by side, and puts a time limit around each.

use std::time::Duration;

/// What every case of a run shares.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// A short random word that is part of every URL path of this run.
    pub run_id: String,
    /// The seed of the run.
    pub seed: u64,
    /// What a late bound is given on top: p99 of loopback scheduling x 4, at least 250 ms.
    pub slack: Duration,
}

impl RunContext {
    /// [`RunContext::slack`] in ms.
    pub fn slack_ms(&self) -> u64 {
        u64::try_from(self.slack.as_millis()).unwrap_or(u64::MAX)
    }
}
