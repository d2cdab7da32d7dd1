//! The only place of this crate that reads a clock or entropy.
//!
//! The runtime's clock, not the machine's: with tokio's time paused, tests over in-memory services move it.

use std::time::{Instant, SystemTime};

/// Now, on the runtime's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this crate reads its clock"
)]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The wall clock: for words of a service that count from 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this crate reads the wall clock"
)]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Waits until `at`, on the runtime's timer (1 ms grain, never early).
pub(crate) async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(tokio::time::Instant::from_std(at)).await;
}

/// A fresh id for a decision, for logs (`instance` of a problem body).
pub(crate) fn decision_id() -> uuid::Uuid {
    uuid::Uuid::new_v4()
}
