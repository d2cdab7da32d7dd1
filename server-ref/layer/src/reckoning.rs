//! Figures about the decisions themselves: were they right, were they quick, did callers heed them.
//!
//! Decisions that nobody checks drift. Beside what was decided ([`crate::meters`]) stands here what came of it: hints by what
//! callers made of them, refused work that would have been in time, accepted work that was not, how far the
//! estimates are off, and how long a decision takes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdoff_admission::{GhostOutcome, HintOutcome, Profile, Snapshot};
use holdoff_contract::{ServiceState, Tier};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// Times in queue that the 99th percentile is taken of: the last thousand.
const DELAYS: usize = 1_024;
/// Changes of state that are remembered.
const TRANSITIONS: usize = 64;

/// A change of state, for those who look in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// When.
    pub at: Instant,
    /// Old state.
    pub from: ServiceState,
    /// New state.
    pub to: ServiceState,
}

/// Accepted, and then not done in time (label `stage`).
#[derive(Clone, Copy)]
pub(crate) enum Broken {
    Queue,
    Running,
}

pub(crate) struct Reckoning {
    hints: Vec<Counter>,
    ghosts: Vec<Counter>,
    false_accepts: [Counter; 2],
    decision: Histogram,
    p99: Gauge,
    wait_bounds: Vec<Gauge>,
    /// Mean absolute errors of wait and of service time, a class.
    errors: Vec<[Gauge; 2]>,
    delays: Mutex<VecDeque<Duration>>,
    transitions: Mutex<VecDeque<Transition>>,
}

impl Reckoning {
    pub(crate) fn new(classes: &[String], profile: &Profile) -> Self {
        describe();
        // What the alerts compare with comes from the profile, so that the two cannot differ.
        gauge!("overload_shed_rate_alert_threshold").set(profile.shed_rate_alert);
        for name in classes {
            let declared = profile.classes.get(name).cloned();
            let deadline = declared.unwrap_or_else(|| profile.other_class()).deadline();
            gauge!("overload_class_deadline_seconds", "task_class" => name.clone())
                .set(deadline.as_secs_f64());
        }
        let zero = |counter: Counter| {
            counter.increment(0);
            counter
        };
        let ghosts = Tier::ALL.iter().flat_map(|tier| {
            GhostOutcome::ALL.map(|outcome| {
                zero(
                    counter!("overload_ghosts_total", "tier" => tier.as_str(), "outcome" => outcome.as_str()),
                )
            })
        });
        let error = |class: &String, of: &'static str| gauge!("overload_estimate_error_seconds", "task_class" => class.clone(), "of" => of);
        Self {
            hints: HintOutcome::ALL
                .map(|outcome| zero(counter!("overload_hint_outcomes_total", "outcome" => outcome.as_str())))
                .into(),
            ghosts: ghosts.collect(),
            false_accepts: ["queue", "running"]
                .map(|stage| zero(counter!("overload_false_accepts_total", "stage" => stage))),
            decision: histogram!("overload_decision_seconds"),
            p99: gauge!("overload_time_in_queue_p99_seconds"),
            wait_bounds: Tier::ALL
                .iter()
                .map(|tier| gauge!("overload_wait_bound_seconds", "tier" => tier.as_str()))
                .collect(),
            errors: classes
                .iter()
                .map(|class| ["wait", "service"].map(|of| error(class, of)))
                .collect(),
            delays: Mutex::default(),
            transitions: Mutex::default(),
        }
    }

    pub(crate) fn hint(&self, outcome: HintOutcome) {
        self.hints[outcome as usize].increment(1);
    }

    pub(crate) fn ghost(&self, tier: Tier, outcome: GhostOutcome) {
        self.ghosts[tier.index() * GhostOutcome::ALL.len() + outcome as usize].increment(1);
    }

    pub(crate) fn false_accept(&self, stage: Broken) {
        self.false_accepts[stage as usize].increment(1);
    }

    pub(crate) fn decided_in(&self, time: Duration) {
        self.decision.record(time.as_secs_f64());
    }

    pub(crate) fn waited(&self, delay: Duration) {
        push(&self.delays, delay, DELAYS);
    }

    pub(crate) fn changed(&self, transition: Transition) {
        push(&self.transitions, transition, TRANSITIONS);
    }

    /// The last changes of state, oldest first.
    pub(crate) fn transitions(&self) -> Vec<Transition> {
        let all = self.transitions.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().copied().collect()
    }

    pub(crate) fn publish(&self, snapshot: &Snapshot) {
        for (gauge, bound) in self.wait_bounds.iter().zip(snapshot.wait_bounds) {
            gauge.set(bound.as_secs_f64());
        }
        for (gauges, class) in self.errors.iter().zip(&snapshot.classes) {
            gauges[0].set(class.wait_error.as_secs_f64());
            gauges[1].set(class.service_error.as_secs_f64());
        }
        self.p99.set(self.p99().as_secs_f64());
    }

    /// The 99th percentile of the last times in queue.
    fn p99(&self) -> Duration {
        let mut delays: Vec<Duration> = {
            let delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
            delays.iter().copied().collect()
        };
        let Some(last) = delays.len().checked_sub(1) else {
            return Duration::ZERO;
        };
        let (_, p99, _) = delays.select_nth_unstable(last * 99 / 100);
        *p99
    }
}

/// Adds to a list of the last `most`.
fn push<T>(list: &Mutex<VecDeque<T>>, value: T, most: usize) {
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(value);
}

fn describe() {
    use metrics::{describe_counter as total, describe_gauge as level, describe_histogram as spread};
    total!(
        "overload_hint_outcomes_total",
        "Hints, by what callers made of them"
    );
    total!(
        "overload_ghosts_total",
        "Refused work, by what would have become of it; in_time is an upper bound"
    );
    total!(
        "overload_false_accepts_total",
        "Accepted work that was not done in time, by where it was"
    );
    level!(
        "overload_wait_bound_seconds",
        "The wait bound W, as far as the state opens it"
    );
    level!(
        "overload_shed_rate_alert_threshold",
        "Share of refused requests over which the alert fires"
    );
    level!(
        "overload_class_deadline_seconds",
        "Deadline of a request that names none"
    );
    spread!("overload_decision_seconds", "Time a decision at the door takes");
    level!(
        "overload_time_in_queue_p99_seconds",
        "99th percentile of the last thousand times in queue"
    );
    level!(
        "overload_estimate_error_seconds",
        "Mean absolute error of predicted wait and of estimated service time"
    );
}
