//! The one place of this crate that reads a clock or a source of entropy.
//!
//! Everything that judges takes instants as arguments, so that a recorded wire log can be judged again in a test.

use std::time::{Instant, SystemTime};

use rand::SeedableRng;
use rand::rngs::StdRng;

/// The monotonic instant now. Every gap between two requests is a difference of two of these.
#[expect(clippy::disallowed_methods, reason = "the crate's only monotonic clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock now; used for HTTP dates in scripted answers and for the report's time stamp only.
#[expect(clippy::disallowed_methods, reason = "the crate's only wall clock")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// The generator of a run. The same seed gives the same order and the same random values.
pub fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// A seed for a run that was given none; it is printed so that the run can be repeated.
#[expect(clippy::disallowed_methods, reason = "the crate's only entropy")]
pub fn fresh_seed() -> u64 {
    rand::random()
}
