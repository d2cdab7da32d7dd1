//! The hint vectors: a response in, the decision out, judged through the adapter's `parse` command.
//!
//! Reading hints is where clients differ most and where a mistake is invisible on the wire until a server is in
//! trouble. The vectors ask for the decision itself, so a misreading shows without any waiting.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::adapter::{Adapter, AdapterError, COMMAND_LIMIT, UNKNOWN_COMMAND};
use crate::case::Level;
use crate::requirement::Requirements;
use crate::verdict::{Findings, NotRun, Outcome};

/// The vector file that is built into the binary.
pub const EMBEDDED: &str = include_str!("../../contract/hint-vectors.json");

const SCHEMA: &str = "overload-hint-vectors/1";

/// What a client is configured with while it reads a response.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The cap above which a hint stops the call.
    pub cap_ms: Option<u64>,
    /// What is left of the call's time.
    pub deadline_ms: Option<u64>,
    /// Whether the request is idempotent.
    pub idempotent: Option<bool>,
    /// Whether the de-facto fields are read.
    pub compat: Option<bool>,
    /// The largest delay that can be said; the contract's limit, not a setting.
    pub max_hint_ms: Option<u64>,
}

/// One worked example: a response, and what must come out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    /// Unique in its file.
    pub id: String,
    /// The requirements that it speaks for.
    pub req: Vec<String>,
    /// The response's status.
    pub status: u16,
    /// The response's field lines, in order.
    pub headers: Vec<(String, String)>,
    /// The response's body.
    #[serde(default)]
    pub body: Option<String>,
    /// The client's configuration where it differs from the default.
    #[serde(default)]
    pub cfg: Option<Config>,
    /// The wall clock at receipt, in unix seconds.
    #[serde(default = "default_now")]
    pub now: u64,
    /// What must come out; only what is named is looked at.
    pub expect: BTreeMap<String, Value>,
}

fn default_now() -> u64 {
    1_800_000_000
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    #[expect(dead_code, reason = "documentation inside the file")]
    about: String,
    defaults: Config,
    vectors: Vec<Vector>,
}

/// All vectors of a file.
#[derive(Debug, Clone)]
pub struct Vectors {
    /// What `cfg` overrides.
    pub defaults: Config,
    /// In the order of the file.
    pub vectors: Vec<Vector>,
}

/// The members of a `parse` result that a vector may look at.
const MEMBERS: [&str; 7] = [
    "overload",
    "min_delay_ms",
    "max_delay_ms",
    "retry",
    "applied",
    "code",
    "action",
];

impl Vectors {
    /// Reads a vector file.
    ///
    /// # Errors
    /// A sentence that names the vector and what is wrong with it.
    pub fn parse(text: &str, requirements: &Requirements) -> Result<Self, String> {
        let file: File = serde_json::from_str(text).map_err(|error| format!("hint-vectors.json: {error}"))?;
        if file.schema != SCHEMA {
            return Err(format!(
                "hint-vectors.json: schema {:?}; this runner reads {SCHEMA:?}",
                file.schema
            ));
        }
        for vector in &file.vectors {
            let id = &vector.id;
            if let Some(unknown) = vector.req.iter().find(|id| requirements.get(id).is_none()) {
                return Err(format!(
                    "hint-vectors.json: {id}: requirement {unknown:?} is not known"
                ));
            }
            if vector.expect.is_empty() || vector.req.is_empty() {
                return Err(format!(
                    "hint-vectors.json: {id}: it expects nothing or speaks for nothing"
                ));
            }
            if let Some(unknown) = vector.expect.keys().find(|key| !MEMBERS.contains(&key.as_str())) {
                return Err(format!(
                    "hint-vectors.json: {id}: expect.{unknown} is not a member of a result"
                ));
            }
        }
        Ok(Self {
            defaults: file.defaults,
            vectors: file.vectors,
        })
    }

    /// The vectors that are built into the binary.
    ///
    /// # Errors
    /// As [`Vectors::parse`]; a test of this crate shows that it does not happen.
    pub fn load_embedded(requirements: &Requirements) -> Result<Self, String> {
        Self::parse(EMBEDDED, requirements)
    }

    /// The `parse` command for one vector.
    pub fn command(&self, vector: &Vector) -> Value {
        let cfg = vector.cfg.unwrap_or_default();
        let policy = json!({
            "hint_cap_ms": cfg.cap_ms.or(self.defaults.cap_ms),
            "compat": cfg.compat.or(self.defaults.compat),
        });
        let request = json!({
            "idempotent": cfg.idempotent.or(self.defaults.idempotent),
            "deadline_ms": cfg.deadline_ms.or(self.defaults.deadline_ms),
        });
        let response = json!({"status": vector.status, "headers": vector.headers, "body": vector.body});
        json!({"cmd": "parse", "response": response, "now": vector.now, "policy": policy, "request": request})
    }
}

impl Vector {
    /// SHOULD when the requirement named first is one, else MUST.
    pub fn level(&self, requirements: &Requirements) -> Level {
        let first = self.req.first().and_then(|id| requirements.get(id));
        if first.is_some_and(|it| it.level.starts_with("SHOULD")) {
            Level::Should
        } else {
            Level::Must
        }
    }
}

/// Sends one `parse` command and compares the result with what is expected.
///
/// # Errors
/// The program broke, or does not know the command.
pub async fn ask(adapter: &Adapter, command: Value, expect: &BTreeMap<String, Value>) -> Outcome {
    let mut findings = Findings::default();
    findings.saw(format!("response: {}", command["response"]));
    let reply = match adapter.request(command, COMMAND_LIMIT).await {
        Err(AdapterError::Refused { error, .. }) if error == UNKNOWN_COMMAND => {
            return Err(NotRun::NotApplicable(
                "the adapter does not offer `parse`".to_owned(),
            ));
        }
        Err(error @ AdapterError::Refused { .. }) => return Err(NotRun::PeerBroke(error.to_string())),
        other => other?,
    };
    let nothing = Map::new();
    let result = reply.get("result").and_then(Value::as_object).unwrap_or(&nothing);
    findings.saw(format!("result: {}", Value::Object(result.clone())));
    compare(&mut findings, result, expect);
    Ok(findings)
}

/// Compares a `parse` result with what is expected. A missing member counts as null.
pub fn compare(findings: &mut Findings, result: &Map<String, Value>, expect: &BTreeMap<String, Value>) {
    // A reply that says nothing at all must not pass a vector that expects "absent" everywhere.
    let said = result.get("overload").is_some_and(Value::is_boolean);
    findings.check(
        "result",
        said,
        "an object with a boolean `overload`",
        Value::Object(result.clone()).to_string(),
    );
    for (key, want) in expect {
        let got = result.get(key).unwrap_or(&Value::Null);
        let ok = match (want, got) {
            (Value::Array(any_of), got) => any_of.contains(got),
            (want, got) => want == got,
        };
        findings.check(key.clone(), ok, want.to_string(), got.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors() -> (Requirements, Vectors) {
        let requirements = Requirements::load_embedded().unwrap();
        let vectors = Vectors::load_embedded(&requirements).unwrap();
        (requirements, vectors)
    }

    #[test]
    fn all_handed_vectors_load_and_every_one_expects_something() {
        let (_, vectors) = vectors();
        assert_eq!(vectors.vectors.len(), 107);
    }

    #[test]
    fn an_empty_result_passes_no_vector() {
        let (_, all) = vectors();
        for vector in &all.vectors {
            let mut findings = Findings::default();
            compare(&mut findings, &Map::new(), &vector.expect);
            assert_eq!(
                findings.verdict(Level::Must),
                crate::verdict::Verdict::Fail,
                "{}",
                vector.id
            );
        }
    }

    #[test]
    fn a_result_that_differs_in_one_member_fails_and_the_expected_one_passes() {
        let (_, all) = vectors();
        for vector in &all.vectors {
            let mut result: Map<String, Value> = vector.expect.clone().into_iter().collect();
            result.entry("overload").or_insert(Value::Bool(true));
            let mut findings = Findings::default();
            compare(&mut findings, &result, &vector.expect);
            assert_eq!(findings.failed().count(), 0, "{}", vector.id);
            for key in vector.expect.keys() {
                let mut wrong = result.clone();
                wrong.insert(key.clone(), json!("wrong"));
                let mut findings = Findings::default();
                compare(&mut findings, &wrong, &vector.expect);
                assert!(findings.failed().count() > 0, "{} {key}", vector.id);
            }
        }
    }

    #[test]
    fn the_command_carries_the_defaults_where_the_vector_says_nothing() {
        let (_, all) = vectors();
        let command = all.command(&all.vectors[0]);
        assert_eq!(command["policy"]["hint_cap_ms"], 120_000);
        assert_eq!(
            command["request"],
            json!({"idempotent": true, "deadline_ms": 600_000})
        );
        assert_eq!(command["response"]["headers"], json!([["Retry-After", "2"]]));
    }

    #[test]
    fn a_vector_of_a_should_is_a_warning_at_most() {
        let (requirements, all) = vectors();
        let level = |id: &str| {
            all.vectors
                .iter()
                .find(|v| v.id == id)
                .unwrap()
                .level(&requirements)
        };
        assert_eq!(level("ra-fraction-ceil"), Level::Should);
        assert_eq!(level("body-fraction"), Level::Must);
    }
}
