//! The bodies of gRPC cases.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

pub use super::script::{GrpcFault, GrpcStep, Info};
use crate::case::Range;
use crate::client_drive::spec::{Expect, MAX_CALLS, Request};

/// What is played to a gRPC client and what must be seen. What is expected of calls is written as for HTTP clients;
/// `body` is the text of the message.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrpcClientCase {
    /// The policy given to `configure`.
    #[serde(default)]
    pub policy: Option<Value>,
    /// How long the wire is watched after the last reply.
    #[serde(default = "default_watch_ms")]
    pub watch_ms: u64,
    /// What `metrics` must say at the end.
    #[serde(default)]
    pub metrics: BTreeMap<String, Range>,
    /// The calls; all groups start together.
    pub calls: Vec<GrpcGroup>,
}

fn default_watch_ms() -> u64 {
    50
}

/// Some calls that are alike and start together.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrpcGroup {
    /// Its name in paths and in the report.
    #[serde(default = "default_name")]
    pub name: String,
    /// How many calls.
    #[serde(default = "one")]
    pub count: usize,
    /// What is asked for; the method is always POST.
    #[serde(default)]
    pub request: Request,
    /// The request that is being answered while the call is made.
    #[serde(default)]
    pub incoming: Option<Value>,
    /// The answers to each call's requests, in order.
    pub script: Vec<GrpcStep>,
    /// `grpc-timeout` is on every request, well-formed, and says the same as Overload-Deadline-Ms.
    #[serde(default)]
    pub timeout: bool,
    /// What must be seen.
    pub expect: Expect,
}

fn default_name() -> String {
    "call".to_owned()
}

fn one() -> usize {
    1
}

impl GrpcClientCase {
    /// Checks what the types cannot say.
    ///
    /// # Errors
    /// A sentence that names the key, the value and the limit.
    pub fn validate(&self) -> Result<(), String> {
        if self.calls.is_empty() {
            return Err("grpc_client: `calls` is empty".to_owned());
        }
        let mut names: Vec<&str> = Vec::new();
        for group in &self.calls {
            let wrong = |error: String| format!("calls {:?}: {error}", group.name);
            let plain = group.name.chars().all(|c| c.is_ascii_alphanumeric());
            if group.name.is_empty() || !plain || names.contains(&group.name.as_str()) {
                return Err(wrong(
                    "name must be letters and digits, and only once in a case".to_owned(),
                ));
            }
            if !(1..=MAX_CALLS).contains(&group.count) {
                return Err(wrong(format!(
                    "count is {}; allowed are 1 to {MAX_CALLS}",
                    group.count
                )));
            }
            if group.script.is_empty() {
                return Err(wrong("script is empty".to_owned()));
            }
            group
                .script
                .iter()
                .try_for_each(GrpcStep::validate)
                .map_err(wrong)?;
            group.expect.validate(group.count, &names).map_err(wrong)?;
            names.push(&group.name);
        }
        Ok(())
    }
}

/// Refusals that a gRPC server is told to give, and which rules they are held to.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrpcServerCase {
    /// The codes; each is forced with each delay.
    pub codes: Vec<String>,
    /// The delays.
    pub after_ms: Vec<u64>,
    /// `max` is so much later.
    pub width_ms: u64,
    /// How many calls are refused with each.
    #[serde(default = "one")]
    pub count: usize,
    /// The caller shows this identity, which the server is told to trust; absent: a stranger.
    #[serde(default)]
    pub identity: Option<String>,
    /// The server is in this state.
    #[serde(default)]
    pub state: Option<String>,
    /// Which of GRP-01 to GRP-06.
    pub rules: Vec<Rule>,
}

/// A rule of the gRPC server rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Rule {
    /// The status is that of the code.
    #[serde(rename = "GRP-01")]
    Status,
    /// Trailers-Only.
    #[serde(rename = "GRP-02")]
    TrailersOnly,
    /// One ErrorInfo, with everything in it.
    #[serde(rename = "GRP-03")]
    ErrorInfo,
    /// RetryInfo exactly with retry=after.
    #[serde(rename = "GRP-04")]
    RetryInfo,
    /// The pushback.
    #[serde(rename = "GRP-05")]
    Pushback,
    /// The pushback is drawn anew each time.
    #[serde(rename = "GRP-06")]
    Random,
}

impl GrpcServerCase {
    /// Checks what the types cannot say.
    ///
    /// # Errors
    /// A sentence that names the key, the value and the limit.
    pub fn validate(&self) -> Result<(), String> {
        if self.codes.is_empty() || self.after_ms.is_empty() || self.rules.is_empty() {
            return Err("grpc_server: `codes`, `after_ms` and `rules` must not be empty".to_owned());
        }
        let calls = self.codes.len() * self.after_ms.len() * self.count;
        if !(1..=MAX_CALLS).contains(&calls) {
            return Err(format!(
                "grpc_server: {calls} calls; allowed are 1 to {MAX_CALLS}"
            ));
        }
        if self.rules.contains(&Rule::Random) && self.count < 100 {
            return Err(format!(
                "grpc_server: GRP-06 is judged over 100 rejects, count is {}",
                self.count
            ));
        }
        Ok(())
    }
}
