//! The only place of this crate that reads a clock or entropy.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;

/// Now, on the runtime's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this crate reads its clock"
)]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Wall clock, since 1970: for log lines only.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this crate reads the wall clock"
)]
pub(crate) fn unix() -> Duration {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Waits on the runtime's timer.
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The generator of drawn service times: seeded where a run must repeat, else from the system.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this crate reads entropy"
)]
pub(crate) fn rng(seed: Option<u64>) -> StdRng {
    match seed {
        Some(seed) => StdRng::seed_from_u64(seed),
        None => StdRng::from_rng(&mut rand::rng()),
    }
}

/// A fresh task id: unguessable, and growing with time, so that the journal's newest records lie together.
pub(crate) fn task_id() -> uuid::Uuid {
    uuid::Uuid::now_v7()
}

/// The wall clock, in milliseconds since 1970: the only time that means anything after a restart.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this crate reads its clock"
)]
pub(crate) fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A number from 0 to 1, to keep callers apart.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this crate reads entropy"
)]
pub(crate) fn share() -> f64 {
    rand::RngExt::random(&mut rand::rng())
}
