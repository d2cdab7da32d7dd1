//! The only place of this crate that reads a clock or draws entropy.

use std::time::SystemTime;

use rand::Rng;

/// The wall clock, for an HTTP-date that comes without a usable `Date` (CONTRACT section 4 rule 5).
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the wall clock"
)]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Hands the thread's generator to a closure that draws a pushback from it.
#[expect(clippy::disallowed_methods, reason = "the one place that draws entropy")]
pub(crate) fn with_rng<T>(draw: impl FnOnce(&mut dyn Rng) -> T) -> T {
    draw(&mut rand::rng())
}
