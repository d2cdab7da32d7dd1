//! The role-specific body of a client case: calls to make, answers to play, things that must be seen.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::script::Step;
use crate::case::Range;

/// The most calls that one group may make.
pub const MAX_CALLS: usize = 2000;

/// What is played to a client and what must be seen.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCase {
    /// The policy given to `configure`; absent means the implementation's own default.
    #[serde(default)]
    pub policy: Option<Value>,
    /// Ports of the case that the client is told to trust.
    #[serde(default)]
    pub trusted: Vec<Port>,
    /// Ports of the case that are instances of the same service.
    #[serde(default)]
    pub instances: Vec<Port>,
    /// The tenant given to `configure`.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The vocabulary given to `configure`.
    #[serde(default)]
    pub vocabulary: Option<Value>,
    /// Connections to the main port are refused for so long after the start of the case.
    #[serde(default)]
    pub refuse_ms: u64,
    /// How long the wire is watched after the last reply.
    #[serde(default = "default_watch_ms")]
    pub watch_ms: u64,
    /// The calls, group after group.
    #[serde(default)]
    pub calls: Vec<Group>,
    /// Connections that the main port accepts in the whole case.
    #[serde(default)]
    pub connections: Option<Range>,
    /// Connections of the main port that are open at the same time.
    #[serde(default)]
    pub connections_open: Option<Range>,
    /// Connections that the second port accepts in the whole case; 0 where nothing may go there.
    #[serde(default)]
    pub second_connections: Option<Range>,
    /// The most bytes of one answer's body that the client may have taken.
    #[serde(default)]
    pub body_bytes_max: Option<u64>,
    /// What `metrics` must say at the end: dotted path and range.
    #[serde(default)]
    pub metrics: BTreeMap<String, Range>,
    /// Responses to read with `parse` instead of calls.
    #[serde(default)]
    pub parse: Vec<ParseCase>,
}

fn default_watch_ms() -> u64 {
    50
}

/// One of the two ports that the runner listens on for a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Port {
    /// Where calls go unless a group says otherwise.
    #[default]
    Main,
    /// Another authority on the same machine.
    Second,
}

/// Some calls that are alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name in URL paths and in the report.
    #[serde(default = "default_name")]
    pub name: String,
    /// How many calls.
    #[serde(default = "one")]
    pub count: usize,
    /// Whether they start together or one after another.
    #[serde(default)]
    pub start: Start,
    /// Starts so long after the start of the case, beside the groups before it; absent: when those have ended.
    #[serde(default)]
    pub at_ms: Option<u64>,
    /// Which configured client makes them.
    #[serde(default)]
    pub client: Who,
    /// Where they go.
    #[serde(default)]
    pub port: Port,
    /// What is asked for.
    #[serde(default)]
    pub request: Request,
    /// The request that is being answered while the call is made, for a relay.
    #[serde(default)]
    pub incoming: Option<Value>,
    /// Each call is cancelled so long after it was made.
    #[serde(default)]
    pub cancel_at_ms: Option<u64>,
    /// The answers to each call's requests, in order.
    pub script: Vec<Step>,
    /// What must be seen.
    pub expect: Expect,
}

fn default_name() -> String {
    "call".to_owned()
}

fn one() -> usize {
    1
}

/// Whether the calls of a group start together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// All at once.
    #[default]
    Together,
    /// Each when the one before has ended.
    InTurn,
}

/// Which configured client makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// One for the whole case: calls share budgets and hold-offs.
    #[default]
    Shared,
    /// A fresh one for each call.
    Own,
}

/// What is asked for; the members of ADAPTER.md's `request`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The method; GET by default.
    pub method: Option<String>,
    /// Extra request fields.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Option<String>,
    /// True when the body is a one-shot stream.
    #[serde(default)]
    pub stream: bool,
    /// The idempotency key.
    pub idempotency_key: Option<String>,
    /// The call's deadline.
    pub deadline_ms: Option<u64>,
    /// The tier.
    pub tier: Option<String>,
    /// The task class.
    pub task_class: Option<String>,
    /// The tenant, in place of the client's.
    pub tenant: Option<String>,
}

/// What must be seen of each call of a group. `requests` and one of `result` and `results` are needed, because a
/// pass needs both witnesses.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Requests of each call.
    pub requests: Range,
    /// Requests of all calls of the group together.
    #[serde(default)]
    pub total: Option<Range>,
    /// Requests of each call that reach the second port.
    #[serde(default)]
    pub at_second: Option<Range>,
    /// The gaps between a reject's head and the next request.
    #[serde(default)]
    pub gaps: Vec<Gap>,
    /// How one gap is spread over the calls.
    #[serde(default)]
    pub spread: Vec<Spread>,
    /// The mean of a later gap over the calls is larger than that of an earlier one.
    #[serde(default)]
    pub grows: Option<Grows>,
    /// When the first request arrives, counted from the first answer of another group.
    #[serde(default)]
    pub first_request: Option<First>,
    /// What every call's reply says.
    #[serde(default)]
    pub result: Option<ResultExpect>,
    /// What some of the replies say.
    #[serde(default)]
    pub results: Vec<Share>,
    /// What the requests carry.
    #[serde(default)]
    pub fields: FieldExpect,
}

/// Bounds of one gap, or of every gap.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// Which gap, from 1; absent: every one.
    #[serde(default)]
    pub k: Option<usize>,
    /// Never earlier (2 ms tolerance).
    pub min_ms: u64,
    /// Never later, plus the run's slack.
    pub max_ms: u64,
    /// A call that has no such gap passes; for cases that count the calls that have it.
    #[serde(default)]
    pub optional: bool,
}

/// The window over which a gap must be spread.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Which gap, from 1.
    pub k: usize,
    /// The window's start, D.
    pub lo_ms: u64,
    /// The window's end, M.
    pub hi_ms: u64,
}

/// Two gaps whose means are compared.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grows {
    /// The earlier gap.
    pub from: usize,
    /// The later one, whose mean must be larger.
    pub to: usize,
}

/// When a group's first requests may arrive.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct First {
    /// Counted from the head of this group's first answer.
    pub after: String,
    /// Never earlier.
    pub min_ms: u64,
    /// Never later, plus slack.
    pub max_ms: u64,
}

/// What a reply must say; only what is named is looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultExpect {
    /// `response`, `overloaded` or `error`; one of these.
    pub kind: OneOrMore,
    /// The status.
    pub status: Option<u16>,
    /// The code; `none` for null.
    pub code: Option<String>,
    /// The permission.
    pub retry: Option<String>,
    /// Whether it may have been applied.
    pub applied: Option<String>,
    /// The hops.
    pub hop: Option<u64>,
    /// The reason for stopping; one of these.
    pub why: Option<OneOrMore>,
    /// The attempts that the client counts; absent: as many as requests were seen.
    pub attempts: Option<Range>,
    /// What is left of the hint.
    pub retry_in_ms: Option<Left>,
    /// How long the call took, by both witnesses; the upper bound gets slack.
    pub elapsed_ms: Option<Range>,
    /// How long from the head of the last answer to the reply; the upper bound gets slack.
    pub after_answer_ms: Option<Range>,
    /// How long from `cancel` to the reply; the upper bound gets slack.
    pub after_cancel_ms: Option<Range>,
}

/// One word or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    /// Exactly this.
    One(String),
    /// Any of these.
    More(Vec<String>),
}

impl Default for OneOrMore {
    fn default() -> Self {
        OneOrMore::More(Vec::new())
    }
}

impl OneOrMore {
    /// True when the word is among them.
    pub fn holds(&self, word: &str) -> bool {
        match self {
            OneOrMore::One(one) => one == word,
            OneOrMore::More(more) => more.iter().any(|one| one == word),
        }
    }
}

impl std::fmt::Display for OneOrMore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OneOrMore::One(one) => f.write_str(one),
            OneOrMore::More(more) => f.write_str(&more.join(" or ")),
        }
    }
}

/// What is left of a hint: a range, the word `none` (no hint), or `any` range that may also be none.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub enum Left {
    /// A wait within this range.
    Within(Range),
    /// No hint at all.
    Word(LeftWord),
}

/// The word that stands for the absence of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftWord {
    /// `retry_in_ms` is null.
    None,
}

/// A reply that so many calls of the group must give.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// How many calls.
    pub calls: Range,
    /// Only the last so many calls of the group are looked at; absent: all.
    #[serde(default)]
    pub of_last: Option<usize>,
    /// What their reply says.
    pub result: ResultExpect,
}

/// What the requests of a call carry.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldExpect {
    /// Overload-Deadline-Ms is on every request, the first at most this, and falls by at least the wait.
    pub deadline_ms: Option<u64>,
    /// Overload-Attempt counts up from this.
    pub attempt_from: Option<u64>,
    /// Overload-Tier is this on every request.
    pub tier: Option<String>,
    /// Idempotency-Key is this (a String or bare) on every request.
    pub key: Option<String>,
    /// Every request has exactly this body, and its length in Content-Length where that is sent.
    pub body: Option<String>,
    /// Fields that every request carries.
    #[serde(default)]
    pub present: Vec<String>,
    /// Fields that no request carries.
    #[serde(default)]
    pub absent: Vec<String>,
    /// Fields that no request to the second port carries.
    #[serde(default)]
    pub absent_at_second: Vec<String>,
}

/// A response to read with `parse`, and what must come out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParseCase {
    /// The status.
    pub status: u16,
    /// Field lines, `Name: value`.
    #[serde(default)]
    pub headers: Vec<String>,
    /// The body.
    #[serde(default)]
    pub body: Option<String>,
    /// The wall clock, in unix seconds.
    pub now: u64,
    /// Whether the request is idempotent; true by default.
    #[serde(default = "yes")]
    pub idempotent: bool,
    /// What must come out; a list means any of its values.
    pub expect: BTreeMap<String, Value>,
}

fn yes() -> bool {
    true
}

impl ClientCase {
    /// Checks what the types cannot say, while the case file is loaded.
    ///
    /// # Errors
    /// A sentence that names the key, the value and the limit.
    pub fn validate(&self) -> Result<(), String> {
        if self.calls.is_empty() == self.parse.is_empty() {
            return Err("exactly one of `calls` and `parse` must be there".to_owned());
        }
        for parse in &self.parse {
            if parse.expect.is_empty() {
                return Err("parse: `expect` is empty".to_owned());
            }
            if let Some(line) = parse.headers.iter().find(|line| !line.contains(':')) {
                return Err(format!("parse: header {line:?} is not `Name: value`"));
            }
        }
        let mut names: Vec<&str> = Vec::new();
        for group in &self.calls {
            group
                .validate(&names)
                .map_err(|error| format!("calls {:?}: {error}", group.name))?;
            names.push(&group.name);
        }
        Ok(())
    }
}

impl Group {
    fn validate(&self, before: &[&str]) -> Result<(), String> {
        let name = &self.name;
        if name.is_empty()
            || !name.chars().all(|c| c.is_ascii_alphanumeric())
            || before.contains(&name.as_str())
        {
            return Err("name must be letters and digits, and only once in a case".to_owned());
        }
        if !(1..=MAX_CALLS).contains(&self.count) {
            return Err(format!("count is {}; allowed are 1 to {MAX_CALLS}", self.count));
        }
        if self.script.is_empty() {
            return Err("script is empty; say at least what a request would be answered".to_owned());
        }
        for (index, step) in self.script.iter().enumerate() {
            step.validate()
                .map_err(|error| format!("script step {}: {error}", index + 1))?;
        }
        self.expect.validate(self.count, before)
    }
}

impl Expect {
    fn validate(&self, count: usize, before: &[&str]) -> Result<(), String> {
        if self.result.is_none() && self.results.is_empty() {
            return Err("expect: `result` or `results` is needed; a pass needs both witnesses".to_owned());
        }
        if self.requests.hi == 0 && self.result.as_ref().is_none_or(|result| result.why.is_none()) {
            return Err("expect: zero requests need a `why` in `result`".to_owned());
        }
        if let Some(gap) = self
            .gaps
            .iter()
            .find(|gap| gap.k == Some(0) || gap.min_ms > gap.max_ms)
        {
            return Err(format!(
                "expect: gap {gap:?} must have k >= 1 and min_ms <= max_ms"
            ));
        }
        if !self.spread.is_empty() && count < 30 {
            return Err(format!(
                "expect: spread is judged over 30 calls or more, count is {count}"
            ));
        }
        match &self.first_request {
            Some(first) if !before.contains(&first.after.as_str()) => Err(format!(
                "expect: first_request after {:?}, which is no earlier group",
                first.after
            )),
            _ => Ok(()),
        }
    }
}
