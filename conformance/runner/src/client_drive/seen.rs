//! The second witness: what the client under test said about each call.

use std::time::Instant;

use serde_json::{Map, Value};

/// One call, as the runner saw it from the adapter's side.
#[derive(Debug, Clone)]
pub(crate) struct CallSeen {
    /// The URL path that its requests are known by.
    pub(crate) path: String,
    /// When the `call` command was sent.
    pub(crate) sent: Instant,
    /// When the reply (or the failure of it) was there.
    pub(crate) returned: Instant,
    /// When `cancel` was sent.
    pub(crate) cancelled: Option<Instant>,
    /// What was said.
    pub(crate) reply: Reply,
}

/// What was said about a call.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// A `result` object.
    Said(Map<String, Value>),
    /// No proper reply: the adapter hung, died, broke the protocol or refused.
    Broke(String),
}

impl CallSeen {
    pub(crate) fn new(
        path: String,
        sent: Instant,
        returned: Instant,
        cancelled: Option<Instant>,
        reply: Reply,
    ) -> Self {
        Self {
            path,
            sent,
            returned,
            cancelled,
            reply,
        }
    }

    /// The last part of the path, for the report.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}
