//! What a survey plays, read from data.
//!
//! A behaviour is a client case without expectations: nothing in it passes or fails. Its calls and scripts are those of a
//! case, so whatever a case can play a survey can measure.

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::case::MAX_LIMIT_MS;
use crate::client_drive::ClientCase;

/// The behaviours that are built into the binary.
const EMBEDDED: &str = include_str!("../../../third-party/behaviours.yaml");
/// The schema that the file names.
const SCHEMA: &str = "overload-behaviours/1";

/// What is told of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// From the head of the first answer to the next request.
    Wait,
    /// How the call ended, and when.
    Ending,
    /// How far apart the second requests of all calls are.
    Spread,
    /// How many requests all calls made.
    Requests,
    /// From a call being made to its first request.
    Held,
}

/// One behaviour, as the report keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Behaviour {
    /// Unique; part of URL paths.
    pub id: String,
    /// Begins a table of its own under this title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The head of its column.
    pub column: String,
    /// What the contract asks, in half a sentence.
    pub asks: String,
    /// What is told of it.
    pub reading: Reading,
    /// A wait that is shorter is early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<u64>,
    /// The calls are given up after that.
    pub limit_ms: u64,
    /// The groups of calls, as they are written.
    pub calls: Vec<Map<String, Value>>,
}

impl Behaviour {
    /// How many calls are made.
    pub fn count(&self) -> u64 {
        let counts = self
            .told()
            .map(|group| group.get("count").and_then(Value::as_u64));
        counts.map(|count| count.unwrap_or(1)).sum()
    }

    /// The groups that are told: those with a label, or all where none has one.
    pub fn told(&self) -> impl Iterator<Item = &Map<String, Value>> {
        let labelled = self.calls.iter().any(|group| group.contains_key("label"));
        self.calls
            .iter()
            .filter(move |group| !labelled || group.contains_key("label"))
    }

    /// The client case that plays it.
    fn body(&self) -> anyhow::Result<ClientCase> {
        let mut calls = Vec::with_capacity(self.calls.len());
        for group in &self.calls {
            let mut group = group.clone();
            group.remove("label");
            // What a case must see; here anything may be seen.
            let anything = json!({"requests": [0, u32::MAX], "result": {"kind": [], "why": []}});
            anyhow::ensure!(!group.contains_key("expect"), "a behaviour expects nothing");
            group.insert("expect".to_owned(), anything);
            calls.push(serde_json::from_value(Value::Object(group))?);
        }
        let body = ClientCase {
            calls,
            ..ClientCase::default()
        };
        body.validate().map_err(anyhow::Error::msg)?;
        Ok(body)
    }
}

/// The behaviours of a survey with the cases that play them.
#[derive(Debug, Clone)]
pub struct BehaviourSet {
    /// In the order of the file.
    pub behaviours: Vec<(Behaviour, ClientCase)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    behaviours: Vec<Behaviour>,
}

impl BehaviourSet {
    /// The behaviours that are built into the binary.
    ///
    /// # Errors
    /// As [`BehaviourSet::parse`]; a test of this crate shows that it does not happen.
    pub fn load_embedded() -> anyhow::Result<Self> {
        Self::parse("behaviours.yaml", EMBEDDED)
    }

    /// Behaviours from a named text.
    ///
    /// # Errors
    /// The text is not of the schema, an id is repeated or not plain, a group or a limit is not valid.
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let file: File = serde_saphyr::from_str(text).with_context(|| name.to_owned())?;
        anyhow::ensure!(
            file.schema == SCHEMA,
            "{name}: schema is {:?}; this runner reads {SCHEMA:?}",
            file.schema
        );
        let mut seen = BTreeSet::new();
        let mut behaviours = Vec::with_capacity(file.behaviours.len());
        for behaviour in file.behaviours {
            let id = behaviour.id.clone();
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let at = || format!("{name}: behaviour {id:?}");
            anyhow::ensure!(
                (1..=40).contains(&id.len()) && id.chars().all(plain) && seen.insert(id.clone()),
                "{}: the id must be 1 to 40 letters, digits and -, and only once in a file",
                at()
            );
            anyhow::ensure!(
                (1000..=MAX_LIMIT_MS).contains(&behaviour.limit_ms),
                "{}: limit_ms is {}; allowed are 1000 to {MAX_LIMIT_MS}",
                at(),
                behaviour.limit_ms
            );
            let body = behaviour.body().with_context(at)?;
            behaviours.push((behaviour, body));
        }
        Ok(Self { behaviours })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_behaviours_load_and_each_plays_something() {
        let set = BehaviourSet::load_embedded().unwrap();
        assert_eq!(set.behaviours.len(), 13);
        assert!(
            set.behaviours
                .iter()
                .all(|(it, body)| it.count() > 0 && !body.calls.is_empty())
        );
    }

    fn error(text: &str) -> String {
        format!("{:#}", BehaviourSet::parse("x.yaml", text).unwrap_err())
    }

    #[test]
    fn a_behaviour_that_expects_something_or_has_an_unknown_key_is_refused_by_name() {
        let with = |group: &str| {
            format!(
                "schema: overload-behaviours/1\nbehaviours:\n  - {{id: a, column: c, asks: a, reading: wait, limit_ms: 2000, calls: [{group}]}}"
            )
        };
        assert!(BehaviourSet::parse("x.yaml", &with("{script: [{status: 200}]}")).is_ok());
        let unknown = error(&with("{script: [{status: 200}], colour: red}"));
        assert!(
            unknown.contains("behaviour \"a\"") && unknown.contains("colour"),
            "{unknown}"
        );
        let expects = error(&with("{script: [{status: 200}], expect: {}}"));
        assert!(expects.contains("expects nothing"), "{expects}");
    }
}
