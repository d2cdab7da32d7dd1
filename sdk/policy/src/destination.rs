//! What calls to one destination share: the retry budget, the number that waits, and (with the SDK issue) the
//! hold-offs. The table of destinations is bounded and evicts the idle.

use std::sync::{Arc, Mutex};

use crate::Policy;

/// Shared state of one destination (scheme, host and port).
#[derive(Debug)]
pub struct Destination {
    _todo: (),
}

/// Bounded table of destinations.
#[derive(Debug)]
pub struct Destinations {
    _todo: (),
}

impl Destinations {
    /// An empty table for calls with this policy.
    pub fn new(policy: &Policy) -> Self {
        let _ = policy;
        unimplemented!("policy helper")
    }

    /// The destination with this authority (`host:port`, lower case), made where it is new. Does not allocate for a
    /// known one.
    pub fn get(&self, scheme: &str, authority: &str) -> Arc<Mutex<Destination>> {
        let _ = (scheme, authority);
        unimplemented!("policy helper")
    }
}
