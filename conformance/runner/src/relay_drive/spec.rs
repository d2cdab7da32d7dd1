//! The role-specific body of a relay case: how the relay is set up, who asks it, what its dependencies answer, and
//! what must be seen at both ends.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::case::Range;
use crate::client_drive::script::Step;
use crate::client_drive::spec::follows;

/// The most calls that one group may make.
pub const MAX_CALLS: usize = 500;
/// The most dependencies of one relay.
pub const MAX_DEPENDENCIES: usize = 4;

/// What is played around a relay and what must be seen.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayCase {
    /// What it is told in `configure`.
    #[serde(default)]
    pub setup: Setup,
    /// How many dependencies it has, 1..=[`MAX_DEPENDENCIES`].
    #[serde(default = "one")]
    pub dependencies: usize,
    /// The dependencies are replicas of one service, of which one has to serve.
    #[serde(default)]
    pub replicas: bool,
    /// Dependencies (from 0) whose port refuses connections.
    #[serde(default)]
    pub unreachable: Vec<usize>,
    /// The calls, group after group.
    pub calls: Vec<Group>,
    /// Requests of the whole case, for each dependency.
    #[serde(default)]
    pub requests_in_all: Vec<Range>,
}

/// The relay's members of `configure` (ADAPTER.md), as far as a case sets them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// `tenant` or `service`.
    pub identity: Option<String>,
    /// Opted in to retries.
    #[serde(default)]
    pub retry: bool,
    /// Waited before the calls, and again before the answer.
    #[serde(default)]
    pub delay_ms: u64,
    /// Something is done before the calls.
    #[serde(default)]
    pub side_effect: bool,
    /// Callers are inside the trust domain.
    #[serde(default)]
    pub trusted_callers: bool,
    /// Requests at once before the relay refuses by itself.
    pub limit: Option<u32>,
    /// The policy; absent means the implementation's own default.
    pub policy: Option<Value>,
    /// The relay's own tenant.
    pub tenant: Option<String>,
    /// The dependencies are trusted with Overload-Tenant.
    #[serde(default)]
    pub trust_dependencies: bool,
}

impl Setup {
    /// The command for a relay with these dependencies.
    pub(super) fn command(&self, name: &str, bases: &[&str], replicas: bool) -> Value {
        let none: &[&str] = &[];
        let (dependencies, instances) = if replicas { (none, bases) } else { (bases, none) };
        let mut command = json!({
            "cmd": "configure", "client": name, "dependencies": dependencies, "instances": instances,
            "trusted": if self.trust_dependencies { bases } else { none }, "tenant": self.tenant,
            "identity": self.identity.as_deref().unwrap_or("service"), "retry": self.retry, "delay_ms": self.delay_ms,
            "side_effect": self.side_effect, "trusted_callers": self.trusted_callers,
        });
        if let Some(limit) = self.limit {
            command["limit"] = limit.into();
        }
        if let Some(policy) = &self.policy {
            command["policy"] = policy.clone();
        }
        command
    }
}

/// Some calls of the relay that are alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name in URL paths and in the report.
    #[serde(default = "default_name")]
    pub name: String,
    /// How many calls.
    #[serde(default = "one")]
    pub count: usize,
    /// Starts so long after the start of the case, or after what `after` names, beside the groups before it; absent: when
    /// those have ended.
    pub at_ms: Option<u64>,
    /// The group whose first answer `at_ms` counts from. What is about that answer's effect must name it: counted from the
    /// start of the case, a call would now and then leave before the answer is there, where the machine is slow.
    #[serde(default)]
    pub after: Option<String>,
    /// Pause between the starts of two calls.
    #[serde(default)]
    pub every_ms: u64,
    /// What is asked.
    #[serde(default)]
    pub request: Request,
    /// The answers of the only dependency to each call's requests, in order.
    pub script: Option<Vec<Step>>,
    /// The same for each of several dependencies.
    #[serde(default)]
    pub scripts: Vec<Vec<Step>>,
    /// What must be seen.
    pub expect: Expect,
}

/// What a caller asks.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// GET by default.
    pub method: Option<String>,
    /// Further field lines.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Option<String>,
    /// Overload-Deadline-Ms.
    pub deadline_ms: Option<u64>,
    /// Overload-Tier.
    pub tier: Option<String>,
    /// Overload-Attempt.
    pub attempt: Option<u64>,
    /// Overload-Tenant.
    pub tenant: Option<String>,
    /// Idempotency-Key.
    pub key: Option<String>,
}

/// What must be seen of every call of a group.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// What every caller gets.
    pub answer: Option<AnswerExpect>,
    /// What some of them get.
    #[serde(default)]
    pub answers: Vec<Share>,
    /// What each dependency sees of one call, in their order.
    pub dependencies: Vec<Seen>,
}

/// An answer that so many calls of the group get.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// How many.
    pub calls: Range,
    /// What they get.
    pub answer: AnswerExpect,
}

/// What a caller gets; only what is named is looked at, beside what must hold for every answer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerExpect {
    /// One of these statuses.
    #[serde(default)]
    pub status: Vec<u16>,
    /// One of these codes.
    #[serde(default)]
    pub code: Vec<String>,
    /// The permission.
    pub retry: Option<String>,
    /// Whether it may have been applied.
    pub applied: Option<String>,
    /// The hops; absent in the answer counts as 0.
    pub hop: Option<Range>,
    /// D in ms.
    pub after_ms: Option<Range>,
    /// M in ms.
    pub max_ms: Option<Range>,
    /// No M.
    #[serde(default)]
    pub no_max: bool,
    /// Keys of the signal that version 1 does not know, as RFC 9651 text.
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
    /// Members of the body.
    #[serde(default)]
    pub members: BTreeMap<String, Value>,
    /// Names that are neither a key of the signal nor a member of the body.
    #[serde(default)]
    pub absent: Vec<String>,
    /// Fields with exactly these lines.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Not a word of the contract: no signal, no Retry-After, no code.
    #[serde(default)]
    pub plain: bool,
    /// The body as text.
    pub body: Option<String>,
    /// From the request to the head of the answer; the upper bound gets slack.
    pub elapsed_ms: Option<Range>,
}

/// What a dependency sees of one call.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// How many requests; absent: as many as come, which the case then counts in `requests_in_all`.
    pub requests: Option<Range>,
    /// Overload-Deadline-Ms of every request.
    pub deadline_ms: Option<Range>,
    /// Overload-Tier of every request: one of these, or absent where `none` is among them.
    #[serde(default)]
    pub tier: Vec<String>,
    /// Overload-Attempt of each request.
    #[serde(default)]
    pub attempts: Vec<u64>,
    /// Overload-Tenant of every request.
    pub tenant: Option<String>,
    /// Idempotency-Key of every request, without its quotes.
    pub key: Option<String>,
    /// Fields that no request has.
    #[serde(default)]
    pub absent: Vec<String>,
    /// The body of every request.
    pub body: Option<String>,
}

fn one() -> usize {
    1
}

fn default_name() -> String {
    "call".to_owned()
}

impl RelayCase {
    /// Checks what the types cannot say, while the case file is loaded.
    ///
    /// # Errors
    /// A sentence that names the key, the value and the limit.
    pub fn validate(&self) -> Result<(), String> {
        let n = self.dependencies;
        if !(1..=MAX_DEPENDENCIES).contains(&n) {
            return Err(format!(
                "dependencies is {n}; allowed are 1 to {MAX_DEPENDENCIES}"
            ));
        }
        if let Some(index) = self.unreachable.iter().find(|index| **index >= n) {
            return Err(format!(
                "unreachable {index}: there are dependencies 0 to {}",
                n - 1
            ));
        }
        if !self.requests_in_all.is_empty() && self.requests_in_all.len() != n {
            return Err(format!("requests_in_all: one for each of {n} dependencies"));
        }
        if self.calls.is_empty() {
            return Err("calls is empty".to_owned());
        }
        let mut names: Vec<&str> = Vec::new();
        for group in &self.calls {
            let name = group.name.as_str();
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) || names.contains(&name) {
                return Err(format!(
                    "calls {name:?}: name must be letters and digits, and only once in a case"
                ));
            }
            follows(group.after.as_deref(), group.at_ms, &names)
                .and_then(|()| group.validate(self))
                .map_err(|error| format!("calls {name:?}: {error}"))?;
            names.push(name);
        }
        Ok(())
    }
}

impl Group {
    /// The script of each dependency.
    pub(super) fn scripts(&self) -> Vec<&[Step]> {
        match &self.script {
            Some(script) => vec![script],
            None => self.scripts.iter().map(Vec::as_slice).collect(),
        }
    }

    fn validate(&self, case: &RelayCase) -> Result<(), String> {
        if !(1..=MAX_CALLS).contains(&self.count) {
            return Err(format!("count is {}; allowed are 1 to {MAX_CALLS}", self.count));
        }
        if self.script.is_some() != self.scripts.is_empty() {
            return Err("exactly one of `script` and `scripts` must be there".to_owned());
        }
        let (n, scripts) = (case.dependencies, self.scripts());
        if scripts.len() != n || self.expect.dependencies.len() != n {
            return Err(format!(
                "scripts and expect.dependencies: one for each of {n} dependencies"
            ));
        }
        for (index, script) in scripts.iter().enumerate() {
            if script.is_empty() {
                return Err(format!(
                    "script of dependency {index} is empty; say at least what a request would be answered"
                ));
            }
            for (at, step) in script.iter().enumerate() {
                step.validate()
                    .map_err(|error| format!("script of dependency {index}, step {}: {error}", at + 1))?;
            }
        }
        if self.expect.answer.is_none() && self.expect.answers.is_empty() {
            return Err(
                "expect: `answer` or `answers` is needed; a pass needs what the caller gets".to_owned(),
            );
        }
        let any = |seen: &Seen| seen.requests.is_none();
        if case.requests_in_all.is_empty() && self.expect.dependencies.iter().any(any) {
            return Err("expect.dependencies: `requests` is needed, here or in `requests_in_all`".to_owned());
        }
        Ok(())
    }
}
