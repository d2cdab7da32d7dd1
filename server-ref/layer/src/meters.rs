//! What admission tells the metrics system: names an alert can rely on, labels from closed sets only.
//!
//! A tenant or a free-form class in a label makes one time series per caller, which costs memory without a bound and
//! tells everybody who can scrape who the callers are. So the labels are decision, class of the profile, tier, state
//! and stage; each series is made once and kept as a handle (SEC-03, ADM-09, ADM-23).

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::reckoning::{Broken, Reckoning, Transition};
use crate::series::{ACCEPT, DECISIONS, DEFER, TIERS, decided, decision_of, refused, service, transition};
use holdoff_admission::{ClassId, Controller, Event, Events, Profile, Rejection, Snapshot};
use holdoff_contract::{Code, Hint, ServiceState, Tier};
use metrics::{Counter, Gauge, Histogram, Recorder, counter, gauge, histogram};

/// A recorder that several pools and threads may share.
pub type SharedRecorder = Arc<dyn Recorder + Send + Sync>;

/// Most series of `agent_admission_total` that are there from the start: those of 20 classes. More classes than that have their
/// series from the first decision of each kind on, so that a scrape does not carry thousands of zeros.
const SERIES_AT_START: usize = 20 * TIERS * DECISIONS;
/// Seconds that `overload_shed_rate` looks back: the fewest in which a share of few requests means something.
const SHED_SECONDS: usize = 10;

/// Where in its life work missed its deadline (label `stage`).
#[derive(Clone, Copy)]
enum Stage {
    Door,
    Queue,
    Running,
}

const STAGES: [&str; 3] = ["door", "queue", "running"];

pub(crate) struct Meters {
    recorder: Option<SharedRecorder>,
    classes: Vec<String>,
    /// Places in `classes`; at most 65, mostly a handful: quicker to look through than to hash.
    class_index: Vec<(ClassId, usize)>,
    decided: Vec<OnceLock<Counter>>,
    service: Vec<OnceLock<Histogram>>,
    refused: Vec<OnceLock<Counter>>,
    transitions: Vec<OnceLock<Counter>>,
    missed: [Counter; 3],
    start_delay: Histogram,
    prediction_error: Histogram,
    hint: Histogram,
    gauges: Gauges,
    /// Decisions and rejects since the last publication.
    recent: [AtomicU32; 2],
    shed: Mutex<Shed>,
    pub(crate) reckoning: Reckoning,
}

struct Gauges {
    work: Gauge,
    oldest: Gauge,
    shed_rate: Gauge,
    staleness: Gauge,
    workers: Gauge,
    busy: Gauge,
    tickets: Gauge,
    backlog: Gauge,
    states: Vec<Gauge>,
    depth: Vec<Gauge>,
    limit: Vec<Gauge>,
    running: Vec<Gauge>,
}

/// Decisions and rejects of the last seconds, behind `overload_shed_rate`.
struct Shed {
    began: Instant,
    /// The second that is being filled, counted from `began`.
    second: u64,
    seconds: [[u64; 2]; SHED_SECONDS],
}

impl Shed {
    fn new(began: Instant) -> Self {
        Self {
            began,
            second: 0,
            seconds: [[0; 2]; SHED_SECONDS],
        }
    }

    /// Adds to this second, and returns the share of refused over all that are remembered.
    fn add(&mut self, now: Instant, counts: [u32; 2]) -> f64 {
        let second = now.saturating_duration_since(self.began).as_secs();
        let index = |second: u64| (second % SHED_SECONDS as u64) as usize;
        for passed in (self.second + 1..=second).take(SHED_SECONDS) {
            self.seconds[index(passed)] = [0; 2];
        }
        self.second = second;
        for (sum, count) in self.seconds[index(second)].iter_mut().zip(counts) {
            *sum += u64::from(count);
        }
        let total = |which: usize| self.seconds.iter().map(|counts| counts[which]).sum::<u64>();
        if total(0) == 0 {
            0.0
        } else {
            total(1) as f64 / total(0) as f64
        }
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters")
            .field("classes", &self.classes)
            .finish_non_exhaustive()
    }
}

fn slots<T>(n: usize) -> Vec<OnceLock<T>> {
    (0..n).map(|_| OnceLock::new()).collect()
}

impl Gauges {
    fn new() -> Self {
        let per_tier = |name: &'static str| {
            Tier::ALL
                .iter()
                .map(|tier| gauge!(name, "tier" => tier.as_str()))
                .collect()
        };
        Self {
            work: gauge!("agent_queue_estimated_work_seconds"),
            oldest: gauge!("agent_queue_oldest_age_seconds"),
            shed_rate: gauge!("overload_shed_rate"),
            staleness: gauge!("overload_staleness_seconds"),
            workers: gauge!("overload_workers"),
            busy: gauge!("overload_workers_busy"),
            tickets: gauge!("overload_tickets"),
            backlog: gauge!("overload_backlog_depth"),
            states: ServiceState::ALL
                .iter()
                .map(|state| gauge!("overload_state", "state" => state.as_str()))
                .collect(),
            depth: per_tier("overload_queue_depth"),
            limit: per_tier("overload_queue_limit"),
            running: per_tier("overload_running"),
        }
    }
}

impl Meters {
    pub(crate) fn new(
        controller: &Controller,
        now: Instant,
        recorder: Option<SharedRecorder>,
        profile: &Profile,
    ) -> Self {
        let snapshot = controller.snapshot(now);
        let mut classes: Vec<String> = snapshot.classes.iter().map(|class| class.name.clone()).collect();
        let mut class_index: Vec<(ClassId, usize)> = classes
            .iter()
            .enumerate()
            .map(|(index, name)| (controller.class(Some(name)), index))
            .collect();
        let other = controller.class(None);
        if class_index.iter().all(|(id, _)| *id != other) {
            class_index.push((other, classes.len()));
            classes.push("other".to_owned());
        }
        let (missed, start_delay, prediction_error, hint, gauges, reckoning) =
            within(recorder.as_ref(), || {
                describe();
                let missed = STAGES.map(|stage| counter!("agent_deadline_miss_total", "stage" => stage));
                missed.iter().for_each(|counter| counter.increment(0));
                (
                    missed,
                    histogram!("agent_task_start_delay_seconds"),
                    histogram!("overload_prediction_error_seconds"),
                    histogram!("overload_hint_seconds"),
                    Gauges::new(),
                    Reckoning::new(&classes, profile),
                )
            });
        let meters = Self {
            recorder,
            decided: slots(classes.len() * TIERS * DECISIONS),
            service: slots(classes.len()),
            refused: slots(TIERS * DECISIONS),
            transitions: slots(ServiceState::ALL.len() * ServiceState::ALL.len()),
            classes,
            class_index,
            missed,
            start_delay,
            prediction_error,
            hint,
            gauges,
            recent: [AtomicU32::new(0), AtomicU32::new(0)],
            shed: Mutex::new(Shed::new(now)),
            reckoning,
        };
        within(meters.recorder.as_ref(), || meters.begin_at_zero());
        meters.publish(now, &snapshot);
        meters
    }

    /// Makes the series of closed sets of labels. One that appears with its first event has no zero before it, so a rate over it
    /// misses that event, and two runs differ in what they show.
    fn begin_at_zero(&self) {
        let count =
            |slot: &OnceLock<Counter>, make: &dyn Fn() -> Counter| slot.get_or_init(make).increment(0);
        for from in ServiceState::ALL {
            for to in ServiceState::ALL.iter().filter(|to| *to != from) {
                count(self.transition_slot(*from, *to), &|| transition(*from, *to));
            }
        }
        for tier in Tier::ALL {
            for decision in 0..DECISIONS {
                if decision != ACCEPT && decision != DEFER {
                    count(self.refused_slot(*tier, decision), &|| refused(*tier, decision));
                }
            }
        }
        for (class, slot) in self.classes.iter().zip(&self.service) {
            slot.get_or_init(|| service(class));
        }
        if self.decided.len() > SERIES_AT_START {
            return;
        }
        for (index, class) in self.classes.iter().enumerate() {
            for tier in Tier::ALL {
                for decision in 0..DECISIONS {
                    let slot = self.decided_slot(index, *tier, decision);
                    count(slot, &|| decided(class, *tier, decision));
                }
            }
        }
    }

    /// For another profile: its classes, the same recorder, and so the same series.
    pub(crate) fn renewed(&self, controller: &Controller, now: Instant, profile: &Profile) -> Self {
        Self::new(controller, now, self.recorder.clone(), profile)
    }

    /// The hint of a refusal that goes out.
    pub(crate) fn refused(&self, rejection: &Rejection) {
        if !matches!(rejection.overload.hint, Hint::Absent) {
            self.hint
                .record(rejection.overload.hint.delay_or_zero().as_secs_f64());
        }
    }

    /// Sets the gauges; called every tick.
    pub(crate) fn publish(&self, now: Instant, snapshot: &Snapshot) {
        let gauges = &self.gauges;
        gauges.work.set(snapshot.estimated_work.as_secs_f64());
        gauges.oldest.set(snapshot.oldest_age.as_secs_f64());
        gauges.staleness.set(snapshot.staleness.as_secs_f64());
        gauges.workers.set(f64::from(snapshot.workers));
        gauges.busy.set(f64::from(snapshot.busy));
        gauges.tickets.set(f64::from(snapshot.tickets));
        gauges.backlog.set(f64::from(snapshot.backlog));
        for (state, gauge) in ServiceState::ALL.iter().zip(&gauges.states) {
            gauge.set(if *state == snapshot.state { 1.0 } else { 0.0 });
        }
        for tier in &snapshot.tiers {
            let index = tier.tier.index();
            gauges.depth[index].set(f64::from(tier.queued));
            gauges.limit[index].set(f64::from(tier.queue_limit));
            gauges.running[index].set(f64::from(tier.running));
        }
        gauges.shed_rate.set(self.shed_rate(now));
        self.reckoning.publish(snapshot);
    }

    /// Share of recent requests that were refused, 0 to 1.
    fn shed_rate(&self, now: Instant) -> f64 {
        let counts = [0, 1].map(|which: usize| self.recent[which].swap(0, Ordering::Relaxed));
        self.shed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(now, counts)
    }

    fn class(&self, id: ClassId) -> usize {
        // Ids come from this controller, so they are all known; the last class stands in for a stranger.
        let known = self.class_index.iter().find(|(known, _)| *known == id);
        known.map_or(self.classes.len() - 1, |(_, index)| *index)
    }

    fn decided_slot(&self, class: usize, tier: Tier, decision: usize) -> &OnceLock<Counter> {
        &self.decided[(class * TIERS + tier.index()) * DECISIONS + decision]
    }

    fn refused_slot(&self, tier: Tier, decision: usize) -> &OnceLock<Counter> {
        &self.refused[tier.index() * DECISIONS + decision]
    }

    fn transition_slot(&self, from: ServiceState, to: ServiceState) -> &OnceLock<Counter> {
        &self.transitions[from as usize * ServiceState::ALL.len() + to as usize]
    }

    fn decided(&self, class: ClassId, tier: Tier, decision: usize) {
        let class = self.class(class);
        self.decided_slot(class, tier, decision)
            .get_or_init(|| {
                let make = || decided(&self.classes[class], tier, decision);
                within(self.recorder.as_ref(), make)
            })
            .increment(1);
        self.recent[0].fetch_add(1, Ordering::Relaxed);
        if decision != ACCEPT && decision != DEFER {
            self.recent[1].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn taken_out(&self, tier: Tier, code: &Code) {
        let decision = decision_of(code);
        self.refused_slot(tier, decision)
            .get_or_init(|| within(self.recorder.as_ref(), || refused(tier, decision)))
            .increment(1);
    }

    fn served(&self, class: ClassId, time: Duration) {
        let class = self.class(class);
        self.service[class]
            .get_or_init(|| within(self.recorder.as_ref(), || service(&self.classes[class])))
            .record(time.as_secs_f64());
    }

    fn transition(&self, from: ServiceState, to: ServiceState) {
        self.transition_slot(from, to)
            .get_or_init(|| within(self.recorder.as_ref(), || transition(from, to)))
            .increment(1);
    }

    fn miss(&self, stage: Stage) {
        self.missed[stage as usize].increment(1);
    }
}

impl Events for &Meters {
    fn emit(&mut self, event: Event) {
        match event {
            Event::Decided {
                code,
                deferred,
                tier,
                class,
                ..
            } => {
                let decision = match &code {
                    None if deferred => DEFER,
                    None => ACCEPT,
                    Some(code) => decision_of(code),
                };
                self.decided(class, tier, decision);
                if code == Some(Code::DeadlineExpired) {
                    self.miss(Stage::Door);
                }
            }
            Event::Started {
                start_delay,
                predicted_wait,
                ..
            } => {
                self.start_delay.record(start_delay.as_secs_f64());
                self.reckoning.waited(start_delay);
                self.prediction_error
                    .record(start_delay.abs_diff(predicted_wait).as_secs_f64());
            }
            Event::Finished {
                class, service, late, ..
            } => {
                self.served(class, service);
                if late {
                    self.miss(Stage::Running);
                    self.reckoning.false_accept(Broken::Running);
                }
            }
            Event::Refused { tier, code, .. } => {
                self.taken_out(tier, &code);
                if matches!(code, Code::DeadlineExpired | Code::DeadlineUnattainable) {
                    self.miss(Stage::Queue);
                    self.reckoning.false_accept(Broken::Queue);
                }
            }
            Event::Transition { from, to } => {
                self.transition(from, to);
                let at = crate::clock::now();
                self.reckoning.changed(Transition { at, from, to });
            }
            Event::HintEnded { outcome, .. } => self.reckoning.hint(outcome),
            Event::Ghost { tier, outcome, .. } => self.reckoning.ghost(tier, outcome),
            // Events of a later version of the controller that this adapter does not count yet.
            _ => {}
        }
    }
}

/// Runs `make` with the pool's own recorder where it has one.
pub(crate) fn within<T>(recorder: Option<&SharedRecorder>, make: impl FnOnce() -> T) -> T {
    match recorder {
        Some(recorder) => metrics::with_local_recorder(&**recorder, make),
        None => make(),
    }
}

fn describe() {
    use metrics::{describe_counter as total, describe_gauge as level, describe_histogram as spread};
    total!("agent_admission_total", "Decisions at the door");
    level!(
        "agent_queue_estimated_work_seconds",
        "Estimated work admitted and not yet finished"
    );
    level!("agent_queue_oldest_age_seconds", "Age of the oldest queued task");
    spread!("agent_task_start_delay_seconds", "Time from admission to start");
    spread!("agent_service_seconds", "Time from start to end");
    total!(
        "agent_deadline_miss_total",
        "Work that missed its deadline, by where it was"
    );
    level!("overload_state", "1 for the state that admission is in");
    total!("overload_transitions_total", "Changes of state");
    level!("overload_queue_depth", "Queued tasks");
    level!("overload_queue_limit", "Most tasks that may queue");
    level!("overload_running", "Tasks on a worker");
    level!("overload_workers", "Workers of the profile");
    level!("overload_workers_busy", "Workers in use");
    level!("overload_tickets", "Places that hold a charge");
    level!(
        "overload_shed_rate",
        "Share of the last 10 s' requests that was refused"
    );
    level!("overload_staleness_seconds", "Age of the controller's data");
    total!(
        "overload_queue_refused_total",
        "Queued work that was taken out before it started"
    );
    spread!(
        "overload_prediction_error_seconds",
        "Difference of predicted and measured wait"
    );
    spread!("overload_hint_seconds", "Hints given");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn the_shed_rate_is_that_of_the_last_ten_seconds() {
        let began = clock::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        let mut shed = Shed::new(began);
        assert_eq!(shed.add(at(0), [0, 0]), 0.0);
        assert_eq!(shed.add(at(100), [10, 5]), 0.5);
        assert_eq!(shed.add(at(5_000), [30, 5]), 0.25);
        assert_eq!(
            shed.add(at(10_100), [0, 0]),
            5.0 / 30.0,
            "the first second is forgotten"
        );
        assert_eq!(shed.add(at(3_600_000), [0, 0]), 0.0, "silence is no shedding");
    }
}
