//! The problem body, and whether it says what the header says.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

use super::Judge;
use crate::server_drive::reject::BodyRead;
use crate::words::or_none;

/// The JSON Schema of the problem body.
const SCHEMA: &str = include_str!("../../../../contract/overload.schema.json");

/// The compiled schema, or why it does not compile (a fault of the suite, not of the server).
static PROBLEM: LazyLock<Result<Validator, String>> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(SCHEMA).map_err(|error| error.to_string())?;
    jsonschema::validator_for(&schema).map_err(|error| error.to_string())
});

impl Judge<'_> {
    pub(super) fn body(&mut self) {
        let head_only = self.exchange.ask.method == "HEAD";
        let media = self.seen.media_type();
        if media != "application/problem+json" {
            self.say(
                "SRV-05",
                format!("the media type is {media:?}; it must be application/problem+json"),
            );
        }
        if head_only {
            return;
        }
        let members = match self.reading.body.clone() {
            BodyRead::Absent => return self.say("SRV-05", "there is no body"),
            BodyRead::NotAnObject(why) => {
                return self.say("SRV-05", format!("the body is not a JSON object: {why}"));
            }
            BodyRead::Object(members) => members,
        };
        if let Some(status) = members.get("status")
            && status.as_u64() != Some(u64::from(self.seen.status))
        {
            self.say(
                "SRV-07",
                format!("the body says status {status}; {} was sent", self.seen.status),
            );
        }
        match members.get("contract_version") {
            Some(version) if version.as_i64() == Some(1) => {}
            other => self.say(
                "VER-01",
                format!("contract_version is {}; this is version 1", or_none(other)),
            ),
        }
        let code = members.get("code").and_then(Value::as_str).unwrap_or_default();
        let wanted = format!("urn:overload:v1:{code}");
        if self.reading.body.text("type").is_some_and(|kind| kind != wanted) {
            self.say(
                "SRV-05",
                format!(
                    "type is {}; the code makes it {wanted}",
                    or_none(members.get("type"))
                ),
            );
        }
        match PROBLEM.as_ref() {
            Ok(schema) => {
                let value = Value::Object(members);
                let errors: Vec<String> = schema
                    .iter_errors(&value)
                    .take(5)
                    .map(|error| format!("{} at {:?}", error, error.instance_path().to_string()))
                    .collect();
                for error in errors {
                    self.say("SRV-05", format!("the body does not fit the schema: {error}"));
                }
            }
            Err(why) => self.say("SRV-05", format!("the suite's schema does not compile: {why}")),
        }
    }

    pub(super) fn mirrors(&mut self) {
        let (Some(signal), BodyRead::Object(members)) = (self.signal_value(), self.reading.body.clone())
        else {
            return;
        };
        let text = |value: &Option<String>| value.clone().map_or(Value::Null, Value::from);
        let number = |value: Option<i64>| value.map_or(Value::Null, Value::from);
        // Scope and hop have defaults, so that leaving one out is saying the default.
        let scope = signal.scope.clone().or_else(|| Some("request".to_owned()));
        let pairs = [
            ("code", "code", text(&signal.code), Value::Null),
            ("retry", "retry", text(&signal.retry), Value::Null),
            ("applied", "applied", text(&signal.applied), Value::Null),
            ("after", "retry_after_ms", number(signal.after), Value::Null),
            ("max", "retry_after_max_ms", number(signal.max), Value::Null),
            ("scope", "scope", text(&scope), Value::from("request")),
            ("hop", "hop", number(signal.hop.or(Some(0))), Value::from(0)),
            ("state", "state", text(&signal.state), text(&signal.state)),
            ("tier", "tier", text(&signal.tier), text(&signal.tier)),
        ];
        for (key, member, header, absent) in pairs {
            let body = members.get(member).cloned().unwrap_or(absent);
            // A body that says more than the header about state or tier is not contradicted by it.
            let silent = header.is_null() && matches!(key, "state" | "tier");
            if !silent && header != body {
                self.say("SRV-06", format!("header {key}={header}, body {member}={body}"));
            }
        }
    }
}
