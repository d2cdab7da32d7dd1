//! The only place of this crate that reads a clock or entropy.
//!
//! The runtime's clock, not the machine's: with tokio's time paused, tests over in-memory services move it.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// A fresh id for a decision, for logs (`instance` of a problem body): a count under keyed hashes, whose keys the system gave once. To
/// ask it for each refusal costs a call into the system when there are most of them.
pub(crate) fn decision_id() -> uuid::Uuid {
    static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let [high, low] = KEYS.each_ref().map(|key| u128::from(key.hash_one(count)));
    uuid::Builder::from_random_bytes((high << 64 | low).to_be_bytes()).into_uuid()
}
