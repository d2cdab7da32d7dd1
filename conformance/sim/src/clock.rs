//! The one place of this crate that reads a clock: the origin of virtual time, and how long a run took in real time.

use std::time::Instant;

/// The monotonic instant now.
#[expect(clippy::disallowed_methods, reason = "the crate's only clock")]
pub fn now() -> Instant {
    Instant::now()
}
