//! What the calls of one layer did, counted twice: for the process's `metrics` recorder, and in plain numbers that
//! a program can read without one.
//!
//! Labels come from closed sets only: no path, no tenant, no peer text (SEC-03).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdoff_policy::{Event, Events, StopReason};

/// Every reason a call stops for: the closed set that `gave_up` is counted by.
const REASONS: [StopReason; 13] = [
    StopReason::RetryForbidden,
    StopReason::NotSafe,
    StopReason::NotReplayable,
    StopReason::AttemptsExhausted,
    StopReason::UpstreamRetries,
    StopReason::HintTooLong,
    StopReason::DeadlineBeforeHint,
    StopReason::BudgetExhausted,
    StopReason::HeldOff,
    StopReason::TooManyWaiting,
    StopReason::DeadlineExceeded,
    StopReason::Cancelled,
    StopReason::Transport,
];

/// Running counts of a layer; clones count together. Cheap: one relaxed atomic addition an event.
#[derive(Clone, Debug, Default)]
pub struct Counters(Arc<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    attempts: AtomicU64,
    waits: AtomicU64,
    retries: AtomicU64,
    early_retries: AtomicU64,
    hints_honoured: AtomicU64,
    hints_malformed: AtomicU64,
    gave_up: [AtomicU64; REASONS.len()],
}

/// The counts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CounterSnapshot {
    /// Requests sent, first sends and retries.
    pub attempts_total: u64,
    /// Waits that were decided, also those that were cancelled later.
    pub waits_total: u64,
    /// Retries sent.
    pub retries_total: u64,
    /// Retries sent before their hint's D had passed. A defect: stays zero.
    pub early_retries_total: u64,
    /// Retries sent after a hint, not before its D.
    pub hints_honoured_total: u64,
    /// Sources of hints that were there and could not be used.
    pub hints_malformed_total: u64,
    /// Calls that stopped, by reason; reasons that never came up are left out.
    pub gave_up: Vec<(StopReason, u64)>,
}

impl Counters {
    /// What was counted up to now.
    pub fn snapshot(&self) -> CounterSnapshot {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let numbers = &*self.0;
        CounterSnapshot {
            attempts_total: read(&numbers.attempts),
            waits_total: read(&numbers.waits),
            retries_total: read(&numbers.retries),
            early_retries_total: read(&numbers.early_retries),
            hints_honoured_total: read(&numbers.hints_honoured),
            hints_malformed_total: read(&numbers.hints_malformed),
            gave_up: REASONS
                .into_iter()
                .zip(&numbers.gave_up)
                .map(|(reason, number)| (reason, read(number)))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }

    pub(crate) fn attempt(&self) {
        self.0.attempts.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("holdoff_attempts_total").increment(1);
    }

    pub(crate) fn malformed(&self, sources: u16) {
        if sources > 0 {
            self.0
                .hints_malformed
                .fetch_add(u64::from(sources), Ordering::Relaxed);
            metrics::counter!("holdoff_hints_malformed_total").increment(u64::from(sources));
        }
    }

    fn tell(&self, event: Event) {
        match event {
            Event::RetryScheduled { hint, wait } => {
                self.0.waits.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(
                    hint_ms = hint.map(millis),
                    wait_ms = millis(wait),
                    "retry scheduled"
                );
            }
            Event::RetrySent { waited, hint, early } => {
                self.0.retries.fetch_add(1, Ordering::Relaxed);
                metrics::counter!("holdoff_retries_total").increment(1);
                if early {
                    self.0.early_retries.fetch_add(1, Ordering::Relaxed);
                    metrics::counter!("holdoff_early_retries_total").increment(1);
                    tracing::error!(
                        hint_ms = hint.map(millis),
                        waited_ms = millis(waited),
                        "retry sent before its hint had passed"
                    );
                } else if hint.is_some() {
                    self.0.hints_honoured.fetch_add(1, Ordering::Relaxed);
                }
            }
            Event::GaveUp(reason) => {
                if let Some(at) = REASONS.iter().position(|known| *known == reason) {
                    self.0.gave_up[at].fetch_add(1, Ordering::Relaxed);
                }
                metrics::counter!("holdoff_gave_up_total", "reason" => reason.as_str()).increment(1);
                tracing::debug!(reason = reason.as_str(), "call gave up");
            }
            // A later kind of event that has no counter yet.
            _ => {}
        }
    }
}

fn millis(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Keeps events until the destination's lock is free again: a slow subscriber must not hold up other calls. Does
/// not allocate while nothing happens.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<Event>);

impl Buffer {
    pub(crate) fn flush(self, counters: &Counters) {
        for event in self.0 {
            counters.tell(event);
        }
    }
}

impl Events for Buffer {
    fn emit(&mut self, event: Event) {
        self.0.push(event);
    }
}
