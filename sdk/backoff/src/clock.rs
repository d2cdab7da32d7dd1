//! The only place of this crate that reads a clock or draws entropy.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use rand::{Rng, SeedableRng, rngs::StdRng};

/// The wall clock, for an HTTP-date that comes without a usable `Date` (CONTRACT section 4 rule 5).
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the wall clock"
)]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Monotonic time.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the monotonic clock"
)]
pub(crate) fn system() -> Instant {
    Instant::now()
}

/// Where jitter comes from.
pub(crate) enum Entropy {
    /// The thread's own generator: the default, no lock.
    Thread,
    /// A seeded one, in tests.
    Seeded(Box<Mutex<StdRng>>),
}

impl Entropy {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::Seeded(Box::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that draws entropy")]
    pub(crate) fn with<T>(&self, draw: impl FnOnce(&mut dyn Rng) -> T) -> T {
        match self {
            Self::Thread => draw(&mut rand::rng()),
            Self::Seeded(rng) => draw(&mut *rng.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thread => "Thread",
            Self::Seeded(_) => "Seeded",
        })
    }
}
