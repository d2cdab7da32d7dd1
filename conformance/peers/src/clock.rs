//! The one place where the peers read the clock.

use std::time::{Instant, SystemTime};

/// Monotonic now.
#[expect(clippy::disallowed_methods, reason = "the peers' one clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// Wall clock now.
#[expect(clippy::disallowed_methods, reason = "the peers' one clock")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}
