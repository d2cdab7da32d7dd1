//! A server case as data: what the server declares, what is done to it, what must then be seen.
//!
//! ```yaml
//! server:
//!   profile: { workers: 1, classes: { t: { mean_ms: 100, p95_ms: 120, deadline_ms: 2000 } } }
//!   steps:
//!     - fixture: { name: hold_workers, on: true }
//!     - load: [ { label: a, n: 20, class: t, duration_ms: 100 } ]
//!   checks:
//!     - rules: { of: a }
//!     - count: { of: a, where: { status: [503] }, min: 1 }
//! ```
//!
//! Every key is known or refused, so that a slip of the pen does not quietly test less.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::rules::RULES;

/// Requests that one send may make.
pub const MAX_REQUESTS: u32 = 5_000;
/// The longest that a step may wait.
pub const MAX_WAIT_MS: u64 = 30_000;

/// The role-specific body of a server case.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerCase {
    /// True where ordinary traffic shows it, so that a bare URL can be judged too.
    #[serde(default)]
    pub plain: bool,
    /// What the server is started with where there is an adapter; absent: its own default.
    #[serde(default)]
    pub profile: Option<Value>,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// What must then be seen; all of it.
    pub checks: Vec<Check>,
}

/// One thing that is done.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// A fixture command of the adapter, as it is sent.
    Fixture(Map<String, Value>),
    /// Sends requests and waits for all answers.
    Load(Vec<Send>),
    /// Sends requests and goes on; `join` waits for them.
    Background(Vec<Send>),
    /// Waits for everything that was sent in the background.
    Join,
    /// Waits until so many requests of a label have ended.
    AwaitAnswers(AwaitAnswers),
    /// Waits.
    WaitMs(u64),
    /// Reads the metrics page and keeps it under this name.
    Scrape(String),
    /// Reads the metrics page until a value is there, and keeps the last page.
    AwaitMetric(AwaitMetric),
    /// For each code and hint: `force_reject` for one request, then that request.
    Forced(ForcedSweep),
    /// Sends more and more at once until enough is refused.
    Flood(Flood),
    /// Follows the `Location` of each 202 until its task has ended.
    Poll(Poll),
}

/// Requests of one kind. `{i}` in a text becomes the number of the request, from 0.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// Name for the checks; several sends may share it.
    pub label: String,
    /// When the first one leaves, from the start of the step.
    #[serde(default)]
    pub at_ms: u64,
    /// How many.
    #[serde(default = "one")]
    pub n: u32,
    /// Time between two of them; 0: as soon as `concurrency` allows.
    #[serde(default)]
    pub every_ms: u64,
    /// How many may be open at once; default: as many as the probe allows.
    #[serde(default)]
    pub concurrency: Option<usize>,
    /// Method.
    #[serde(default = "post")]
    pub method: String,
    /// Path.
    #[serde(default = "work")]
    pub path: String,
    /// True: to the metrics page instead.
    #[serde(default)]
    pub to_metrics: bool,
    /// `class` of the task.
    #[serde(default)]
    pub class: Option<String>,
    /// `duration_ms` of the task.
    #[serde(default)]
    pub duration_ms: Option<u64>,
    /// Length of the payload.
    #[serde(default = "four")]
    pub payload_bytes: usize,
    /// Overload-Tier.
    #[serde(default)]
    pub tier: Option<String>,
    /// Overload-Tenant (a String: quoted on the wire).
    #[serde(default)]
    pub tenant: Option<String>,
    /// `Authorization: Bearer` of this identity, see fixture `trust`.
    #[serde(default)]
    pub identity: Option<String>,
    /// Overload-Deadline-Ms.
    #[serde(default)]
    pub deadline_ms: Option<u64>,
    /// Overload-Deadline-Ms from `min_deadline_ms` of the last reject with this label.
    #[serde(default)]
    pub deadline_from: Option<String>,
    /// Overload-Cost-Ms.
    #[serde(default)]
    pub cost_ms: Option<u64>,
    /// Idempotency-Key (bare).
    #[serde(default)]
    pub key: Option<String>,
    /// Header lines as they are, after the others; duplicates allowed.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// Body as it is, instead of a task.
    #[serde(default)]
    pub body: Option<String>,
    /// Hang up after this long.
    #[serde(default)]
    pub leave_after_ms: Option<u64>,
    /// Send only this much of the body, then stall.
    #[serde(default)]
    pub stall_after_bytes: Option<usize>,
    /// The exchange may take this long.
    #[serde(default = "ten_seconds")]
    pub limit_ms: u64,
}

fn one() -> u32 {
    1
}
fn four() -> usize {
    4
}
fn post() -> String {
    "POST".to_owned()
}
fn work() -> String {
    "/v1/work".to_owned()
}
fn ten_seconds() -> u64 {
    10_000
}

/// See [`Step::AwaitAnswers`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitAnswers {
    /// Label of the sends.
    pub of: String,
    /// How many.
    pub n: usize,
    /// How long to wait at most.
    pub within_ms: u64,
}

/// See [`Step::AwaitMetric`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitMetric {
    /// Under which name the last page is kept.
    pub scrape: String,
    /// Metric.
    pub name: String,
    /// Labels that a series must have.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The sum must be at least this.
    #[serde(default)]
    pub min: Option<f64>,
    /// The sum must be at most this.
    #[serde(default)]
    pub max: Option<f64>,
    /// How long to go on.
    pub within_ms: u64,
}

/// See [`Step::Forced`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForcedSweep {
    /// Codes to force.
    pub codes: Vec<String>,
    /// Hints to force, in ms.
    pub after_ms: Vec<u64>,
    /// `max` = `after` + this.
    pub width_ms: u64,
    /// The request that gets the reject.
    pub send: Send,
}

/// See [`Step::Flood`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flood {
    /// How many rejects are enough.
    pub rejects: u32,
    /// Requests sent at most.
    pub at_most: u32,
    /// Time spent at most.
    pub within_ms: u64,
    /// The request; its `n` and `at_ms` are not used.
    pub send: Send,
}

/// See [`Step::Poll`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poll {
    /// Label of the sends.
    pub of: String,
    /// How long to go on.
    pub within_ms: u64,
}

/// Which answers a check looks at. What is left out is not looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Where {
    /// One of these statuses.
    #[serde(default)]
    pub status: Option<Vec<u16>>,
    /// One of these codes.
    #[serde(default)]
    pub code: Option<Vec<String>>,
    /// None of these codes.
    #[serde(default)]
    pub not_code: Option<Vec<String>>,
    /// This permission.
    #[serde(default)]
    pub retry: Option<String>,
    /// This about side effects.
    #[serde(default)]
    pub applied: Option<String>,
    /// This tier in Overload-Signal.
    #[serde(default)]
    pub tier: Option<String>,
    /// A reject (429, 503, or any answer with a code), or none.
    #[serde(default)]
    pub reject: Option<bool>,
    /// `degraded` in Overload-Signal, or not.
    #[serde(default)]
    pub degraded: Option<bool>,
    /// `outcome` in Overload-Signal.
    #[serde(default)]
    pub outcome: Option<String>,
    /// A header field that is there.
    #[serde(default)]
    pub with_header: Option<String>,
    /// A hint of at most this many ms.
    #[serde(default)]
    pub after_up_to: Option<i64>,
}

/// One thing that must be seen. `of` is a label, or `*` for every answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// Every reject keeps the rules of single rejects.
    Rules(RulesCheck),
    /// How many answers are of a kind.
    Count(Count),
    /// Each forced reject is the one that was asked for.
    Forced(Of),
    /// How long answers took, from send to head.
    Time(Time),
    /// Hints differ from caller to caller.
    Windows(Windows),
    /// The largest `after` of `large` is at least `factor` times that of `small`.
    Growth(Growth),
    /// Two answers have the same head (but for Date and per-decision values).
    SameHead(SameHead),
    /// No answer holds one of these words.
    Silent(Silent),
    /// A metric on one page.
    Metric(Metric),
    /// How far a metric moved between two pages.
    Moved(Moved),
    /// The metrics tell the same story as the wire.
    Agree(Agree),
    /// A metric has no other labels than these.
    Labels(Labels),
    /// A page holds none of these words.
    PageSilent(PageSilent),
    /// The number of series grows by no more than this.
    Series(Series),
    /// How many of one label's tasks are done before another's.
    Turn(Turn),
    /// How the tasks behind 202s ended.
    Ended(Ended),
}

/// Answers of a label.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Of {
    /// Label or `*`.
    pub of: String,
}

/// See [`Check::Rules`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulesCheck {
    /// Label or `*`.
    pub of: String,
    /// Only these rules; absent: all.
    #[serde(default)]
    pub only: Option<Vec<String>>,
    /// All but these rules.
    #[serde(default)]
    pub but: Vec<String>,
    /// At least this many rejects must be there to look at.
    #[serde(default = "one")]
    pub at_least: u32,
}

/// See [`Check::Count`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// Label or `*`.
    pub of: String,
    /// Which.
    #[serde(rename = "where", default)]
    pub filter: Where,
    /// At least.
    #[serde(default)]
    pub min: Option<usize>,
    /// At most.
    #[serde(default)]
    pub max: Option<usize>,
    /// Every one.
    #[serde(default)]
    pub all: bool,
}

/// See [`Check::Time`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Time {
    /// Label or `*`.
    pub of: String,
    /// Which.
    #[serde(rename = "where", default)]
    pub filter: Where,
    /// Not before; exact.
    #[serde(default)]
    pub min_ms: u64,
    /// Not after this + slack.
    pub max_ms: u64,
}

/// See [`Check::Windows`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    /// Label or `*`.
    pub of: String,
    /// At least this many different `[after, max]`.
    pub distinct: usize,
    /// In each run of this many rejects.
    pub per: usize,
}

/// See [`Check::Growth`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Growth {
    /// Label of the light load.
    pub small: String,
    /// Label of the heavy load.
    pub large: String,
    /// How many times.
    pub factor: f64,
}

/// See [`Check::SameHead`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameHead {
    /// Label of the HEAD request.
    pub of: String,
    /// Label of the other one.
    #[serde(rename = "as")]
    pub like: String,
}

/// See [`Check::Silent`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silent {
    /// Label or `*`.
    pub of: String,
    /// Which.
    #[serde(rename = "where", default)]
    pub filter: Where,
    /// Words that must not be there, in head or body.
    pub words: Vec<String>,
}

/// See [`Check::Metric`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Name of the page.
    pub scrape: String,
    /// Metric.
    pub name: String,
    /// Labels that a series must have.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The sum over the series is at least.
    #[serde(default)]
    pub min: Option<f64>,
    /// The sum over the series is at most.
    #[serde(default)]
    pub max: Option<f64>,
    /// At least one series must be there; default true.
    #[serde(default = "yes")]
    pub present: bool,
}

fn yes() -> bool {
    true
}

/// See [`Check::Moved`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// Page before.
    pub from: String,
    /// Page after.
    pub to: String,
    /// Metric.
    pub name: String,
    /// Labels that a series must have.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// By at least.
    #[serde(default)]
    pub min: Option<f64>,
    /// By at most.
    #[serde(default)]
    pub max: Option<f64>,
}

/// See [`Check::Agree`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agree {
    /// Page before.
    pub from: String,
    /// Page after.
    pub to: String,
    /// Label or `*`: everything that was sent to admission between the two pages.
    pub of: String,
}

/// See [`Check::Labels`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Labels {
    /// Name of the page.
    pub scrape: String,
    /// Metric.
    pub name: String,
    /// Label names that are allowed.
    pub allowed: Vec<String>,
}

/// See [`Check::PageSilent`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSilent {
    /// Name of the page.
    pub scrape: String,
    /// Words that must not be there.
    pub words: Vec<String>,
}

/// See [`Check::Series`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Page before.
    pub from: String,
    /// Page after.
    pub to: String,
    /// By at most this many.
    pub grows_by: usize,
}

/// See [`Check::Turn`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Label of the light tenant's task.
    pub of: String,
    /// Label of the heavy tenant's tasks.
    pub by: String,
    /// So many of the heavy tenant's may be done between the light one's send and its end.
    pub at_most: usize,
}

/// See [`Check::Ended`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// Label of the sends that were polled.
    pub of: String,
    /// At least this many 202s must be there.
    pub at_least: usize,
    /// None may have ended in one of these states.
    #[serde(default)]
    pub not: Vec<String>,
}

impl Check {
    /// Whether it needs the metrics page.
    pub fn needs_metrics(&self) -> bool {
        matches!(
            self,
            Self::Metric(_)
                | Self::Moved(_)
                | Self::Agree(_)
                | Self::Labels(_)
                | Self::PageSilent(_)
                | Self::Series(_)
        )
    }
}

impl ServerCase {
    /// Checks what the types cannot say, while the case file is loaded.
    ///
    /// # Errors
    /// A sentence that names the key, the value and the limit.
    pub fn validate(&self) -> Result<(), String> {
        if self.steps.is_empty() || self.checks.is_empty() {
            return Err("steps or checks is empty; a case does something and looks at something".to_owned());
        }
        let fixture = |step: &&Step| matches!(step, Step::Fixture(_) | Step::Forced(_));
        if self.plain && self.steps.iter().any(|step| fixture(&step)) {
            return Err("plain is true, but a bare URL has no fixture".to_owned());
        }
        self.steps.iter().try_for_each(Step::validate)?;
        for check in &self.checks {
            if let Check::Rules(rules) = check {
                let named = rules.only.iter().flatten().chain(&rules.but);
                if let Some(unknown) = named.into_iter().find(|id| !RULES.contains(&id.as_str())) {
                    return Err(format!("rules: {unknown:?} is not a rule of single rejects"));
                }
            }
        }
        Ok(())
    }

    /// The fixtures that the case uses; each is a capability of the adapter.
    pub fn fixtures(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Fixture(members) => members.get("name").and_then(Value::as_str),
                Step::Forced(_) => Some("force_reject"),
                _ => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Step {
    fn validate(&self) -> Result<(), String> {
        let wait = |key: &str, ms: u64| {
            if ms > MAX_WAIT_MS {
                return Err(format!("{key} is {ms}; allowed are 0 to {MAX_WAIT_MS}"));
            }
            Ok(())
        };
        match self {
            Self::Fixture(members) if !members.get("name").is_some_and(Value::is_string) => {
                Err("fixture: name is missing".to_owned())
            }
            Self::Fixture(_) | Self::Join | Self::Scrape(_) => Ok(()),
            Self::Load(sends) | Self::Background(sends) => sends.iter().try_for_each(Send::validate),
            Self::WaitMs(ms) => wait("wait_ms", *ms),
            Self::AwaitAnswers(step) => wait("await_answers: within_ms", step.within_ms),
            Self::AwaitMetric(step) => wait("await_metric: within_ms", step.within_ms),
            Self::Poll(step) => wait("poll: within_ms", step.within_ms),
            Self::Forced(sweep) => {
                if sweep.codes.is_empty() || sweep.after_ms.is_empty() {
                    return Err("forced: codes or after_ms is empty".to_owned());
                }
                sweep.send.validate()
            }
            Self::Flood(flood) => {
                if flood.at_most > MAX_REQUESTS || flood.rejects == 0 {
                    return Err(format!(
                        "flood: at_most is {} (0 to {MAX_REQUESTS}), rejects is {} (at least 1)",
                        flood.at_most, flood.rejects
                    ));
                }
                wait("flood: within_ms", flood.within_ms)?;
                flood.send.validate()
            }
        }
    }
}

impl Send {
    fn validate(&self) -> Result<(), String> {
        if !(1..=MAX_REQUESTS).contains(&self.n) {
            return Err(format!(
                "{}: n is {}; allowed are 1 to {MAX_REQUESTS}",
                self.label, self.n
            ));
        }
        if self.concurrency == Some(0) {
            return Err(format!("{}: concurrency is 0; it must be at least 1", self.label));
        }
        if !self.path.starts_with('/') {
            return Err(format!(
                "{}: path is {:?}; it must begin with /",
                self.label, self.path
            ));
        }
        Ok(())
    }
}
