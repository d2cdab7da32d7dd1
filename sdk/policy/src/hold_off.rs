//! The place of the hold-offs (CONTRACT section 5, CLI-15 and CLI-16).
//!
//! A refusal with scope tenant or service speaks for more calls than the one it answers. The table of those hold-offs,
//! keyed by authority, credential or tenant, and tier, is not built yet: no hold-off is armed, so every call passes.
//! [`pass`] stands where each send asks, the first as well as every retry on waking, since a hold-off may have grown
//! while the call slept.

use std::time::Instant;

use holdoff_contract::Tier;

use crate::Destination;

/// Whether a call may be sent to a destination now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// No hold-off covers this call.
    Clear,
}

/// Asks the destination's hold-offs.
pub(crate) fn pass(_destination: &Destination, _tier: Option<Tier>, _now: Instant) -> Passage {
    Passage::Clear
}
