//! What the calls of one layer did, counted twice: for the process's `metrics` recorder, and in plain numbers that
//! a program can read without one. An [`Observer`] is told the same, one thing at a time.
//!
//! Labels come from closed sets only: no path, no tenant, no peer text (SEC-03). Nothing is logged above debug but a
//! retry that was early, which is a defect. docs/OPERATIONS.md says what each figure is for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdoff_contract::{Hint, Overload};
use holdoff_policy::{Event, Events, StopReason};
use metrics::{Key, Level, Metadata};

use crate::names;

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

/// Told what the calls of a layer do, as it happens: for telemetry of another kind than ours. Called on the task of the
/// call and without a lock held; what takes long here takes long in the call.
pub trait Observer: Send + Sync {
    /// An attempt is about to be sent; 1 is the first of its call.
    fn attempt(&self, number: u32) {
        let _ = number;
    }

    /// A server refused an attempt. What it wrote is foreign text: `Display` escapes it.
    fn refused(&self, overload: &Overload) {
        let _ = overload;
    }

    /// The policy decided something.
    fn event(&self, event: &Event) {
        let _ = event;
    }
}

/// Running counts of a layer; clones count together. Cheap: one relaxed atomic addition an event.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    numbers: Arc<Numbers>,
    hook: Hook,
}

#[derive(Clone, Default)]
struct Hook(Option<Arc<dyn Observer>>);

/// Whether a call is counted among those that wait.
#[derive(Debug, Default)]
pub(crate) struct Waits(bool);

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
        let numbers = &*self.numbers;
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

    pub(crate) fn observed(observer: Arc<dyn Observer>) -> Self {
        Self {
            numbers: Arc::default(),
            hook: Hook(Some(observer)),
        }
    }

    pub(crate) fn attempt(&self, number: u32) {
        self.numbers.attempts.fetch_add(1, Ordering::Relaxed);
        // As `metrics::counter!` does it, which would hash the name anew for each call.
        static KEY: Key = Key::from_static_name(names::ATTEMPTS);
        static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));
        metrics::with_recorder(|recorder| recorder.register_counter(&KEY, &METADATA)).increment(1);
        self.hook.tell(|observer| observer.attempt(number));
    }

    pub(crate) fn refused(&self, overload: &Overload, malformed: u16) {
        let (status, code) = (status_label(overload), overload.code_label());
        metrics::counter!(names::REFUSALS, "status" => status, "code" => code).increment(1);
        if overload.hint != Hint::Absent {
            metrics::histogram!(names::HINT_SECONDS).record(overload.hint.delay_or_zero());
        }
        if malformed > 0 {
            let sources = u64::from(malformed);
            self.numbers.hints_malformed.fetch_add(sources, Ordering::Relaxed);
            metrics::counter!(names::HINTS_MALFORMED).increment(sources);
        }
        self.hook.tell(|observer| observer.refused(overload));
    }

    fn tell(&self, event: Event, waits: &mut Waits) {
        match event {
            Event::RetryScheduled { hint, wait } => {
                self.numbers.waits.fetch_add(1, Ordering::Relaxed);
                metrics::histogram!(names::RETRY_DELAY).record(wait);
                waits.begin();
                tracing::debug!(
                    hint_ms = hint.map(millis),
                    wait_ms = millis(wait),
                    "retry scheduled"
                );
            }
            Event::RetrySent { waited, hint, early } => {
                waits.end();
                self.retried(waited, hint, early);
            }
            Event::HeldBack { wait } => {
                metrics::counter!(names::HELD_BACK).increment(1);
                waits.begin();
                tracing::debug!(wait_ms = millis(wait), "held back by a hold-off");
            }
            Event::Released => waits.end(),
            Event::HoldOffs { active } => {
                metrics::histogram!(names::HOLD_OFFS).record(f64::from(active));
            }
            Event::Levels { budget, .. } => {
                metrics::histogram!(names::BUDGET_TOKENS).record(f64::from(budget));
            }
            Event::GaveUp(reason) => {
                waits.end();
                if let Some(at) = REASONS.iter().position(|known| *known == reason) {
                    self.numbers.gave_up[at].fetch_add(1, Ordering::Relaxed);
                }
                metrics::counter!(names::GAVE_UP, "reason" => reason.as_str()).increment(1);
                tracing::debug!(reason = reason.as_str(), "call gave up");
            }
            // A later kind of event that has no counter yet.
            _ => {}
        }
        self.hook.tell(|observer| observer.event(&event));
    }

    fn retried(&self, waited: Duration, hint: Option<Duration>, early: bool) {
        self.numbers.retries.fetch_add(1, Ordering::Relaxed);
        metrics::counter!(names::RETRIES).increment(1);
        if let Some(hint) = hint.filter(|hint| !hint.is_zero()) {
            metrics::histogram!(names::HINT_COMPLIANCE).record(waited.as_secs_f64() / hint.as_secs_f64());
        }
        if early {
            self.numbers.early_retries.fetch_add(1, Ordering::Relaxed);
            metrics::counter!(names::EARLY_RETRIES).increment(1);
            tracing::error!(
                hint_ms = hint.map(millis),
                waited_ms = millis(waited),
                "retry sent before its hint had passed"
            );
        } else if hint.is_some() {
            self.numbers.hints_honoured.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Hook {
    fn tell(&self, tell: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.0 {
            tell(&**observer);
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Observed"
        } else {
            "Unobserved"
        })
    }
}

impl Waits {
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.0, true) {
            metrics::gauge!(names::WAITING).increment(1);
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.0) {
            metrics::gauge!(names::WAITING).decrement(1);
        }
    }
}

fn status_label(overload: &Overload) -> &'static str {
    match overload.status.as_u16() {
        429 => "429",
        504 => "504",
        _ => "503",
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Keeps events until the destination's lock is free again: a slow subscriber must not hold up other calls. Does
/// not allocate while nothing happens.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<Event>);

impl Buffer {
    #[inline]
    pub(crate) fn flush(self, counters: &Counters, waits: &mut Waits) {
        if !self.0.is_empty() {
            self.tell(counters, waits);
        }
    }

    #[cold]
    fn tell(self, counters: &Counters, waits: &mut Waits) {
        for event in self.0 {
            counters.tell(event, waits);
        }
    }
}

impl Events for Buffer {
    fn emit(&mut self, event: Event) {
        self.0.push(event);
    }
}
