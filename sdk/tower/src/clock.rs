//! The only place of this crate that reads a clock, sleeps or draws entropy.
//!
//! Time comes from tokio's clock, so that a test may pause it; it is handed on as `std::time::Instant`, which is
//! what the policy takes. Tokio's timer rounds up to the next millisecond: it is late by up to one, never early.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rand::{Rng, SeedableRng, TryRng, rngs::StdRng};

/// Monotonic time.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the monotonic clock"
)]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The wall clock, for an HTTP-date that comes without a usable `Date` (CONTRACT section 4 rule 5).
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the wall clock"
)]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Sleeps until then; returns at once for an instant that has passed.
pub(crate) async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(at.into()).await;
}

/// The time limit ran out first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RanOut;

/// Waits for the future, but no longer than until then; `None` is no limit.
pub(crate) async fn within<F: Future>(limit: Option<Instant>, future: F) -> Result<F::Output, RanOut> {
    match limit {
        None => Ok(future.await),
        Some(at) => tokio::time::timeout_at(at.into(), future)
            .await
            .map_err(|_| RanOut),
    }
}

/// The instant that lies this far ahead; `None` where it cannot be expressed, which is as good as no limit.
pub(crate) fn after(now: Instant, length: Duration) -> Option<Instant> {
    now.checked_add(length)
}

/// Where jitter comes from.
pub(crate) enum Entropy {
    /// The thread's own generator: the default, no lock.
    Thread,
    /// One that was handed in: a seeded one in tests.
    Given(Box<Mutex<dyn Rng + Send>>),
}

impl Entropy {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::given(StdRng::seed_from_u64(seed))
    }

    pub(crate) fn given(rng: impl Rng + Send + 'static) -> Self {
        Self::Given(Box::new(Mutex::new(rng)))
    }

    /// A generator that is fetched, and where one was handed in locked, only for what is drawn: most calls draw nothing.
    pub(crate) fn draw(&self) -> Draw<'_> {
        Draw(self)
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that draws entropy")]
    fn with<T>(&self, draw: impl FnOnce(&mut dyn Rng) -> T) -> T {
        match self {
            Self::Thread => draw(&mut rand::rng()),
            Self::Given(rng) => draw(&mut *rng.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// Draws from an [`Entropy`].
pub(crate) struct Draw<'a>(&'a Entropy);

impl TryRng for Draw<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.0.with(|rng| rng.next_u32()))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.with(|rng| rng.next_u64()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.with(|rng| rng.fill_bytes(bytes));
        Ok(())
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thread => "Thread",
            Self::Given(_) => "Given",
        })
    }
}
