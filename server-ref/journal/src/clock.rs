//! The only place of this crate that reads a clock.

use std::time::{Duration, Instant};

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this crate reads its clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits, on the writer's own thread: there is no runtime there.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this crate waits, on a thread of its own"
)]
pub(crate) fn sleep(time: Duration) {
    std::thread::sleep(time);
}
