//! One line a request: what was decided about it, and what came of it.
//!
//! Metrics have no tenants and no order. Who must explain one decision, or play a day's load again, needs the requests
//! themselves; so whoever asks for them is handed a record when a request has ended, whatever ended it.

use std::fmt;
use std::time::{Duration, Instant};

use holdoff_contract::{Code, Tier};

/// A request that has ended.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it asked.
    pub at: Instant,
    /// Whose; the watcher decides what may be told of it.
    pub tenant: Option<String>,
    /// Its class, as the profile knows it or as it was named.
    pub class: Option<String>,
    /// Effective tier.
    pub tier: Tier,
    /// Time it had, after the profile's limits.
    pub deadline: Duration,
    /// What was decided at the door.
    pub decision: Verdict,
    /// Why it was refused, at the door or while it waited.
    pub code: Option<Code>,
    /// The wait that was predicted; zero where it was refused.
    pub predicted_wait: Duration,
    /// When it was started.
    pub started: Option<Instant>,
    /// When it ended; a refusal ends at once.
    pub finished: Instant,
}

/// What was decided at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted.
    Accept,
    /// Put off.
    Defer,
    /// Refused.
    Reject,
}

impl Verdict {
    /// The word in logs and traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Defer => "defer",
            Self::Reject => "reject",
        }
    }
}

/// Is handed every record. Called on the request's own path, outside the lock: it must be quick and must not block.
pub trait Watch: Send + Sync + 'static {
    /// A request has ended.
    fn ended(&self, record: Record);
}

impl fmt::Debug for dyn Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch(..)")
    }
}
