//! Passing a refusal up (section 6): a relay answers its own caller with what it was told, aged and never widened.

use std::time::Duration;

use crate::Overload;

/// With whose identity the dependency was called: it decides what a 429 means one hop up (INT-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalledAs {
    /// As the caller's own tenant: its limit, so 429 stays 429.
    CallersTenant,
    /// With this service's own identity: not the caller's fault, so 503 dependency_overloaded.
    OwnService,
}

/// What this hop knows about the failed call.
#[derive(Clone, Copy, Debug)]
pub struct Relay {
    /// Time since the dependency's answer was received.
    pub elapsed: Duration,
    /// Whose identity was used.
    pub called_as: CalledAs,
    /// This hop itself retried the call (INT-04).
    pub retried: bool,
    /// The incoming request's method is idempotent, or it carries a key.
    pub idempotent: bool,
    /// An earlier step of this request had a side effect (INT-08).
    pub side_effect: bool,
}

impl Overload {
    /// The answer to this service's own caller.
    pub fn for_caller(&self, relay: &Relay) -> Self {
        let _ = relay;
        unimplemented!("contract helper")
    }
}
