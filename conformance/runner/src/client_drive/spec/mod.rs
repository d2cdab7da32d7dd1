//! The role-specific body of a client case: calls to make, answers to play, things that must be seen.

mod expect;

pub use expect::*;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::script::Step;
use crate::case::Range;

/// The most calls that one group may make.
pub const MAX_CALLS: usize = 2000;

/// What is played to a client and what must be seen.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCase {
    /// The policy given to `configure`; absent means the implementation's own default.
    #[serde(default)]
    pub policy: Option<Value>,
    /// The client may refuse this policy instead; then its refusal must contain this word.
    #[serde(default)]
    pub refusal_names: Option<String>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Port {
    /// Where calls go unless a group says otherwise.
    #[default]
    Main,
    /// Another authority on the same machine.
    Second,
}

impl Port {
    /// Its name in reports.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Second => "second",
        }
    }
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
    /// Starts so long after the start of the case, or after what `after` names, beside the groups before it; absent: when
    /// those have ended.
    #[serde(default)]
    pub at_ms: Option<u64>,
    /// The group whose first answer `at_ms` counts from. What is about that answer's effect must name it: counted from the
    /// start of the case, a call would now and then leave before the answer is there, where the machine is slow.
    #[serde(default)]
    pub after: Option<String>,
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

/// Whether `after` and `at_ms` say something together, given the names of the groups before.
pub(crate) fn follows(after: Option<&str>, at_ms: Option<u64>, before: &[&str]) -> Result<(), String> {
    match after {
        Some(name) if !before.contains(&name) => {
            Err(format!("after is {name:?}; it must name a group before this one"))
        }
        Some(name) if at_ms.is_none() => Err(format!("after is {name:?}; at_ms must say how long after")),
        _ => Ok(()),
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
        follows(self.after.as_deref(), self.at_ms, before)?;
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
