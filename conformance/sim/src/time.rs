//! Virtual time: nanoseconds since the start of a run, and the instants the product's crates want.
//!
//! The product takes `Instant` arguments. An `Instant` cannot be made from nothing, so one real reading serves as the
//! origin of a run; nothing else of the real clock enters, and every run is the same whatever its origin was.

use std::time::{Duration, Instant};

/// Nanoseconds since the start of the run, or a length.
pub type Nanos = u64;
/// One millisecond.
pub const MS: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// The instants of one run.
#[derive(Clone, Copy, Debug)]
pub struct Origin(Instant);

impl Origin {
    /// A run that starts at this instant.
    pub const fn new(start: Instant) -> Self {
        Self(start)
    }

    /// The instant of a virtual time.
    pub fn at(self, t: Nanos) -> Instant {
        self.0 + Duration::from_nanos(t)
    }

    /// The virtual time of an instant; zero for what was before the start.
    pub fn nanos(self, t: Instant) -> Nanos {
        whole(t.saturating_duration_since(self.0))
    }
}

/// A length in nanoseconds; saturates after 584 years.
pub fn whole(t: Duration) -> Nanos {
    Nanos::try_from(t.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Seconds as nanoseconds; negative is zero.
pub fn seconds(s: f64) -> Nanos {
    (s * SECOND as f64) as Nanos
}

/// Nanoseconds as seconds.
pub fn as_seconds(t: Nanos) -> f64 {
    t as f64 / SECOND as f64
}
