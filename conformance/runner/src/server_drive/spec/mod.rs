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

mod checks;

pub use checks::*;
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
    /// Asks one thing after another, each until the answer speaks about the request: one that speaks about the caller or the
    /// load is waited out.
    Probe(Vec<Send>),
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
            Self::Probe(sends) => sends.iter().try_for_each(|send| {
                if send.at_ms != 0 || send.every_ms != 0 || send.concurrency.is_some() {
                    let why =
                        "probes leave one after another; at_ms, every_ms and concurrency have no meaning";
                    return Err(format!("{}: {why}", send.label));
                }
                send.validate()
            }),
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
    /// A request that any server with room serves: no field of the contract, a short task.
    pub(super) fn ordinary() -> Self {
        Self {
            label: "ordinary".to_owned(),
            at_ms: 0,
            n: one(),
            every_ms: 0,
            concurrency: None,
            method: post(),
            path: work(),
            to_metrics: false,
            class: None,
            duration_ms: Some(5),
            payload_bytes: four(),
            tier: None,
            tenant: None,
            identity: None,
            deadline_ms: None,
            deadline_from: None,
            cost_ms: None,
            key: None,
            headers: Vec::new(),
            body: None,
            leave_after_ms: None,
            stall_after_bytes: None,
            limit_ms: ten_seconds(),
        }
    }

    /// True when each of the requests has an identity of its own.
    pub(super) fn is_a_crowd(&self) -> bool {
        self.identity
            .as_deref()
            .is_some_and(|identity| identity.contains("{i}"))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ServerCase, String> {
        let case: ServerCase = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        case.validate().map(|()| case)
    }

    fn with(steps: &str, checks: &str) -> Result<ServerCase, String> {
        read(&format!("plain: true\nsteps: [{steps}]\nchecks: [{checks}]\n"))
    }

    const LOAD: &str = "load: [ { label: a } ]";
    const RULES: &str = "rules: { of: a }";

    #[test]
    fn a_case_reads_and_names_its_fixtures_once() {
        assert!(with(LOAD, RULES).unwrap().fixtures().is_empty());
        let text = "steps: [ fixture: { name: drain }, fixture: { name: drain }, forced: { codes: [queue_full], \
                    after_ms: [50], width_ms: 50, send: { label: a } } ]\nchecks: [ forced: { of: a } ]\n";
        assert_eq!(read(text).unwrap().fixtures(), ["drain", "force_reject"]);
    }

    #[test]
    fn what_is_misspelt_or_out_of_range_is_refused_by_name() {
        for (steps, checks, word) in [
            ("load: [ { label: a, delay: 5 } ]", RULES, "delay"),
            ("lode: [ { label: a } ]", RULES, "lode"),
            (LOAD, "rulez: { of: a }", "rulez"),
            (LOAD, "rules: { of: a, only: [SRV-99] }", "SRV-99"),
            ("load: [ { label: a, n: 0 } ]", RULES, "n is 0"),
            ("load: [ { label: a, n: 9999 } ]", RULES, "n is 9999"),
            (
                "load: [ { label: a, concurrency: 0 } ]",
                RULES,
                "concurrency is 0",
            ),
            ("probe: [ { label: a, at_ms: 50 } ]", RULES, "at_ms"),
            ("probe: [ { label: a, n: 0 } ]", RULES, "n is 0"),
            ("load: [ { label: a, path: x } ]", RULES, "must begin with /"),
            ("wait_ms: 99999", RULES, "wait_ms is 99999"),
            ("fixture: { name: drain }", RULES, "no fixture"),
            ("fixture: { on: true }", RULES, "fixture"),
            ("", RULES, "steps or checks is empty"),
            (LOAD, "", "steps or checks is empty"),
        ] {
            let error = with(steps, checks).expect_err(word);
            assert!(error.contains(word), "{word}: {error}");
        }
    }
}
