//! What is played between a client and a server, and what must be seen between them.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::case::Range;
use crate::client_drive::spec::{Request, ResultExpect};

/// The most calls that one group may make.
pub const MAX_CALLS: usize = 200;
/// The longest pause before the fixtures of `then`, in ms.
const MAX_PAUSE_MS: u64 = 10_000;

/// A case of role both.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairCase {
    /// True when a bare URL can take it: ordinary traffic, no profile, no fixture.
    #[serde(default)]
    pub plain: bool,
    /// The profile that the server is started with.
    #[serde(default)]
    pub profile: Option<Value>,
    /// Fixtures before the first call.
    #[serde(default)]
    pub fixtures: Vec<Map<String, Value>>,
    /// Fixtures while the calls are under way, and how long after their start.
    #[serde(default)]
    pub then: Option<Then>,
    /// The policy given to the client's `configure`.
    #[serde(default)]
    pub policy: Option<Value>,
    /// The calls, all groups at once.
    pub calls: Vec<PairGroup>,
    /// At least so many rejects must cross the wire, or nothing was shown.
    #[serde(default)]
    pub rejects: u64,
}

/// Fixtures for later.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Then {
    /// After the start of the calls.
    pub at_ms: u64,
    /// In order.
    pub fixtures: Vec<Map<String, Value>>,
}

/// Some calls that are alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairGroup {
    /// Its name.
    #[serde(default = "default_name")]
    pub name: String,
    /// How many calls.
    #[serde(default = "one")]
    pub count: usize,
    /// The path at the server.
    #[serde(default = "default_path")]
    pub path: String,
    /// What is asked for.
    pub request: Request,
    /// Requests of each call.
    #[serde(default)]
    pub requests: Option<Range>,
    /// What every call's reply says.
    #[serde(default)]
    pub result: Option<ResultExpect>,
}

fn default_name() -> String {
    "call".to_owned()
}

fn one() -> usize {
    1
}

fn default_path() -> String {
    "/v1/work".to_owned()
}

impl PairCase {
    /// The fixtures that the server must offer.
    pub fn needs(&self) -> Vec<&str> {
        let later = self.then.iter().flat_map(|then| &then.fixtures);
        let name = |fixture: &Map<String, Value>| fixture.get("name").is_some_and(Value::is_string);
        self.fixtures
            .iter()
            .chain(later)
            .filter(|fixture| name(fixture))
            .filter_map(|fixture| fixture.get("name")?.as_str())
            .collect()
    }

    /// Checks what the types cannot say, while the case file is loaded.
    ///
    /// # Errors
    /// A sentence that names the key, the value and the limit.
    pub fn validate(&self) -> Result<(), String> {
        let later: &[_] = self.then.as_ref().map_or(&[], |then| &then.fixtures);
        if self.plain && (self.profile.is_some() || !self.fixtures.is_empty() || self.then.is_some()) {
            return Err("plain is true, but a bare URL takes no profile and no fixture".to_owned());
        }
        if self.needs().len() != self.fixtures.len() + later.len() {
            return Err("fixtures: each has a `name`".to_owned());
        }
        if let Some(then) = self.then.as_ref().filter(|then| then.at_ms > MAX_PAUSE_MS) {
            return Err(format!("then.at_ms is {}; at most {MAX_PAUSE_MS}", then.at_ms));
        }
        if self.calls.is_empty() {
            return Err("calls is empty".to_owned());
        }
        for (index, group) in self.calls.iter().enumerate() {
            let name = &group.name;
            let twice = self.calls[..index].iter().any(|before| before.name == *name);
            if name.is_empty() || twice || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
                return Err(format!(
                    "calls {name:?}: name must be letters and digits, and only once in a case"
                ));
            }
            if !(1..=MAX_CALLS).contains(&group.count) {
                return Err(format!(
                    "calls {name:?}: count is {}; allowed are 1 to {MAX_CALLS}",
                    group.count
                ));
            }
            if let Some(result) = &group.result {
                result.validate()?;
            }
            if !group.path.starts_with('/') {
                return Err(format!(
                    "calls {name:?}: path {:?} does not start with /",
                    group.path
                ));
            }
        }
        Ok(())
    }
}
