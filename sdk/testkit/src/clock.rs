//! The only place of this crate that reads a clock.

use std::time::{Instant, SystemTime};

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the monotonic clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the wall clock"
)]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
