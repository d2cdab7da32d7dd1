//! The only place of this crate that reads clocks: it measures, so it reads two of them. Wall time is what a caller
//! feels, and what a busy neighbour disturbs; a thread's processor time is what the code costs, neighbour or not.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Monotonic wall time.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the monotonic clock"
)]
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Processor time that the calling thread has used.
pub(crate) fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

/// Processor time that this process has used, all threads.
pub(crate) fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // A clock of processor time starts at zero and does not go back.
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time_of_its_thread_and_of_the_process() {
        // The process first: what its thread uses after that is part of both.
        let process = process_cpu();
        let thread = thread_cpu();
        let mut sum = 0_u64;
        while thread_cpu() - thread < Duration::from_millis(2) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_cpu() - process >= Duration::from_millis(2), "{sum}");
    }
}
