//! Work that keeps a processor busy.
//!
//! Sleep costs a machine nothing, so a service whose work sleeps never shows what happens where the processors are what is short: there
//! the work of one takes longer because of the others. So this does a fixed amount of computing for a task, as much as an idle
//! processor does in its time, on a thread of its own, since on the runtime's it would hold up every answer.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock;

/// Computing between two looks at whether it is still wanted: work that is cut off goes on for no longer than that.
const SLICE: Duration = Duration::from_millis(1);
/// Turns of one measurement, some tenths of a millisecond, and how often it is taken: the fastest is that of an idle processor.
const MEASURED: u64 = 200_000;
const TIMES: usize = 8;

/// How much this machine computes in a [`SLICE`].
#[derive(Debug)]
pub(crate) struct Burner {
    turns: u64,
}

/// Set when nobody wants the work any more.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Burner {
    /// Measures the machine, for a few milliseconds.
    pub(crate) fn measured() -> Self {
        let once = |_| {
            let began = clock::now();
            turn(MEASURED);
            clock::now().saturating_duration_since(began)
        };
        let fastest = (0..TIMES).map(once).min().unwrap_or(SLICE);
        // A clock that stands still measures nothing.
        let fastest = fastest.max(Duration::from_micros(10)).as_nanos() as u64;
        Self {
            turns: (MEASURED * SLICE.as_nanos() as u64 / fastest).max(1),
        }
    }

    /// Computes for as long as an idle processor takes `time` for. Dropped, it stops within a [`SLICE`].
    pub(crate) async fn burn(&self, time: Duration) {
        let (stop, turns) = (Stop(Arc::default()), self.turns);
        let stopped = Arc::clone(&stop.0);
        let slices = time.as_nanos().div_ceil(SLICE.as_nanos());
        let computing = tokio::task::spawn_blocking(move || {
            for _ in 0..slices {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                turn(turns);
            }
        });
        // It cannot panic; where the runtime goes away, so does whoever waits here.
        let _ = computing.await;
    }
}

fn turn(times: u64) {
    let mut sum = 1_u64;
    for n in 0..times {
        sum = black_box(sum ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    black_box(sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_of_a_time_is_computing_of_as_many_slices_and_what_is_dropped_stops() {
        let burner = Burner::measured();
        assert!(burner.turns > 1);
        burner.burn(Duration::from_millis(5)).await;
        // A day of it ends with its future, or the runtime of this test would wait for it.
        let day = burner.burn(Duration::from_secs(86_400));
        assert!(tokio::time::timeout(Duration::from_millis(5), day).await.is_err());
    }
}
