//! Calls to a dependency, behind a bulkhead with a declared depth.
//!
//! A bounded queue at the door is of little use where every handler may start as many calls to a slow dependency as it
//! likes: the queue then stands behind the door, without a bound and unseen. A [`Bulkhead`] is the third of the three
//! bounded queues (ingress, workers, fan-out): so many calls run, so many wait, and one more is refused with a code and a
//! hint, before anything was sent (demand B1).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use holdoff_admission_tower::Bulkhead;
//!
//! // One for each dependency: 8 calls at once, 16 that wait.
//! let inventory = Bulkhead::new("inventory", 8, 16, None);
//! match inventory.enter(None).await {
//!     Ok(call) => drop(call), // send it, and drop this when it has ended
//!     Err(overload) => println!("{}", overload.code_label()), // as `Overload::for_caller` it goes up the chain
//! }
//! # Ok(()) }
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdoff_contract::{Code, Hint, Overload, Retry};
use metrics::{Counter, Gauge, counter, gauge};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock;
use crate::meters::{SharedRecorder, within};

/// Least and greatest hint of a bulkhead (CONTRACT section 2).
const HINT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(30));
/// Length of a call until one was measured.
const PRIOR: Duration = Duration::from_millis(100);
/// Weight of a new sample of the length of a call, as a power of two: an eighth.
const WEIGHT: u32 = 3;

/// Bounds the calls to one dependency. A handle: clones share the bound.
#[derive(Clone)]
pub struct Bulkhead {
    inner: Arc<Inner>,
}

struct Inner {
    name: &'static str,
    running: u32,
    depth: u32,
    places: Arc<Semaphore>,
    waiting: AtomicU32,
    /// Mean length of a call, ns.
    length: AtomicU64,
    refused: Counter,
    depth_now: Gauge,
    running_now: Gauge,
}

/// The right to one call. Dropping it lets the next one go.
#[must_use = "dropping it lets the next call go"]
pub struct Call {
    inner: Arc<Inner>,
    began: Instant,
    _place: OwnedSemaphorePermit,
}

impl std::fmt::Debug for Bulkhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bulkhead")
            .field("name", &self.inner.name)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("bulkhead", &self.inner.name)
            .finish_non_exhaustive()
    }
}

/// One that waits; counted as long as it lives, whatever ends it.
struct Waiting<'a>(&'a Inner);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let before = self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        self.0.depth_now.set(f64::from(before - 1));
    }
}

impl Bulkhead {
    /// `running` calls at once (at least one), and `depth` that wait. The name is the metrics' label, so it is a word of the
    /// program; the metrics go to `recorder`, else to the process's own.
    pub fn new(name: &'static str, running: u32, depth: u32, recorder: Option<&SharedRecorder>) -> Self {
        let running = running.max(1);
        let (refused, depth_now, running_now) = within(recorder, || {
            gauge!("overload_bulkhead_limit", "bulkhead" => name, "of" => "running").set(f64::from(running));
            gauge!("overload_bulkhead_limit", "bulkhead" => name, "of" => "waiting").set(f64::from(depth));
            (
                counter!("overload_bulkhead_refused_total", "bulkhead" => name),
                gauge!("overload_bulkhead_calls", "bulkhead" => name, "of" => "waiting"),
                gauge!("overload_bulkhead_calls", "bulkhead" => name, "of" => "running"),
            )
        });
        Self {
            inner: Arc::new(Inner {
                name,
                running,
                depth,
                places: Arc::new(Semaphore::new(running as usize)),
                waiting: AtomicU32::new(0),
                length: AtomicU64::new(PRIOR.as_nanos() as u64),
                refused,
                depth_now,
                running_now,
            }),
        }
    }

    /// Calls that wait now; never more than the declared depth.
    pub fn waiting(&self) -> u32 {
        self.inner.waiting.load(Ordering::Acquire)
    }

    /// Waits for a place, until the deadline. Dropping the future gives the turn up.
    ///
    /// # Errors
    /// `concurrency_limit` where nothing may wait, `queue_full` where as many wait as may, `deadline_expired` when its time is
    /// over first. Nothing was sent.
    pub async fn enter(&self, deadline: Option<Instant>) -> Result<Call, Overload> {
        let inner = &self.inner;
        if let Ok(place) = Arc::clone(&inner.places).try_acquire_owned() {
            return Ok(self.call(place));
        }
        let one_more = |waiting: u32| (waiting < inner.depth).then_some(waiting + 1);
        let Ok(before) = inner
            .waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
        else {
            let code = if inner.depth == 0 {
                Code::ConcurrencyLimit
            } else {
                Code::QueueFull
            };
            return Err(self.refuse(code));
        };
        inner.depth_now.set(f64::from(before + 1));
        let _waiting = Waiting(inner);
        let place = Arc::clone(&inner.places).acquire_owned();
        let place = match deadline {
            None => place.await,
            Some(deadline) => tokio::select! {
                biased;
                place = place => place,
                () = clock::sleep_until(deadline) => return Err(self.refuse(Code::DeadlineExpired)),
            },
        };
        // Nobody closes the semaphore; if it were, there would be no place.
        place
            .map(|place| self.call(place))
            .map_err(|_| self.refuse(Code::ConcurrencyLimit))
    }

    fn call(&self, place: OwnedSemaphorePermit) -> Call {
        self.inner.running_now.increment(1.0);
        Call {
            inner: Arc::clone(&self.inner),
            began: clock::now(),
            _place: place,
        }
    }

    /// A refusal that paces by how long calls take: what waits, and one more, divided by what runs at once.
    fn refuse(&self, code: Code) -> Overload {
        let inner = &self.inner;
        inner.refused.increment(1);
        let length = Duration::from_nanos(inner.length.load(Ordering::Relaxed));
        let ahead = (inner.waiting.load(Ordering::Relaxed) + 1) / inner.running + 1;
        let delay = length.saturating_mul(ahead).clamp(HINT.0, HINT.1);
        let mut overload = Overload::new(code.clone());
        overload.retry = if code == Code::DeadlineExpired {
            Retry::No
        } else {
            Retry::After
        };
        overload.hint = Hint::Window {
            delay,
            max: delay + (delay / 2).max(HINT.0),
        };
        overload
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let took = clock::now().saturating_duration_since(self.began).as_nanos() as u64;
        let mean = |mean: u64| Some(mean - (mean >> WEIGHT) + (took >> WEIGHT));
        // The closure always gives a value, so this cannot fail.
        let _ = self
            .inner
            .length
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, mean);
        self.inner.running_now.decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_more_run_or_wait_than_declared_and_one_more_is_refused_with_a_window() {
        let bulkhead = Bulkhead::new("dep", 2, 3, None);
        let running = [
            bulkhead.enter(None).await.unwrap(),
            bulkhead.enter(None).await.unwrap(),
        ];
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let bulkhead = bulkhead.clone();
                tokio::spawn(async move { bulkhead.enter(None).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(bulkhead.waiting(), 3);
        for _ in 0..5 {
            let refused = bulkhead.enter(None).await.unwrap_err();
            assert_eq!(refused.code, Some(Code::QueueFull));
            assert_eq!(refused.retry, Retry::After);
            assert!(matches!(refused.hint, Hint::Window { delay, max } if delay >= HINT.0 && max > delay));
            assert_eq!(bulkhead.waiting(), 3);
        }
        drop(running);
        for call in waiting {
            drop(call.await.unwrap().unwrap());
        }
        assert_eq!(bulkhead.waiting(), 0);
        assert_eq!(bulkhead.inner.places.available_permits(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_or_runs_out_of_time_leaves_the_queue() {
        let bulkhead = Bulkhead::new("dep", 1, 1, None);
        let held = bulkhead.enter(None).await.unwrap();
        let deadline = clock::now() + Duration::from_millis(100);
        let expired = bulkhead.enter(Some(deadline)).await.unwrap_err();
        assert_eq!(
            (expired.code, expired.retry),
            (Some(Code::DeadlineExpired), Retry::No)
        );
        assert_eq!(bulkhead.waiting(), 0);
        let gives_up = tokio::time::timeout(Duration::from_millis(5), bulkhead.enter(None)).await;
        assert!(gives_up.is_err(), "it was waiting");
        assert_eq!(bulkhead.waiting(), 0);
        drop(held);
        drop(bulkhead.enter(None).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_queue_the_code_is_concurrency_limit_and_the_hint_follows_the_length_of_calls() {
        let bulkhead = Bulkhead::new("dep", 1, 0, None);
        let hint = |overload: Overload| overload.hint.delay_or_zero();
        let held = bulkhead.enter(None).await.unwrap();
        let refused = bulkhead.enter(None).await.unwrap_err();
        assert_eq!(refused.code, Some(Code::ConcurrencyLimit));
        let short = hint(refused);
        drop(held);
        for _ in 0..40 {
            let call = bulkhead.enter(None).await.unwrap();
            tokio::time::advance(Duration::from_secs(2)).await;
            drop(call);
        }
        let _held = bulkhead.enter(None).await.unwrap();
        let long = hint(bulkhead.enter(None).await.unwrap_err());
        assert!(long > short * 10, "{short:?} {long:?}");
    }
}
