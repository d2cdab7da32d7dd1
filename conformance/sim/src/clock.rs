//! The one place of this crate that reads a clock: the origin of virtual time, and how long a run took in real time and in
//! processor time.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The monotonic instant now.
#[expect(clippy::disallowed_methods, reason = "the crate's only clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// Processor time that the calling thread has used.
pub(crate) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // A clock of processor time starts at zero and does not go back.
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}
