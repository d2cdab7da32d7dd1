//! Checks that put answers beside each other, or beside what the service says of itself.

use std::collections::BTreeSet;

use serde_json::Value;

use super::look::{fitting, of, tally};
use super::message::NoAnswer;
use super::play::Evidence;
use super::spec::{Described, Shares, Told};
use crate::verdict::Findings;

/// References followed from a schema to what it stands for.
const MAX_REFERENCES: usize = 8;

/// See [`Told`].
pub(super) fn told(check: &Told, evidence: &Evidence, findings: &mut Findings) {
    let answers = fitting(evidence, &check.of, &check.filter);
    let holds = |text: &str| check.words.iter().all(|word| text.contains(&word.to_lowercase()));
    let n = answers.iter().filter(|(_, seen)| holds(&seen.words())).count();
    findings.check(
        format!("words in {}", check.of),
        n >= check.min && check.max.is_none_or(|max| n <= max) && !answers.is_empty(),
        match check.max {
            Some(max) => format!("{:?} in {} to {max} answers", check.words, check.min),
            None => format!("{:?} in {} answers or more", check.words, check.min),
        },
        format!("in {n} of {}; {}", answers.len(), tally(of(evidence, &check.of))),
    );
}

/// See [`Shares`].
#[expect(clippy::cast_precision_loss, reason = "counts of one case are small")]
pub(super) fn shares(check: &Shares, evidence: &Evidence, findings: &mut Findings) {
    let share = |label: &String| {
        let stayed = of(evidence, label)
            .filter(|exchange| exchange.answer != Err(NoAnswer::Left))
            .count();
        let well = fitting(evidence, label, &check.filter).len();
        (stayed, well as f64 / stayed.max(1) as f64)
    };
    let all: Vec<(usize, f64)> = check.of.iter().map(share).collect();
    let least = all.iter().map(|(_, share)| *share).fold(f64::INFINITY, f64::min);
    let greatest = all.iter().map(|(_, share)| *share).fold(0.0, f64::max);
    let enough = all.iter().all(|(n, _)| *n >= check.at_least) && greatest > 0.0;
    let seen: Vec<String> = check
        .of
        .iter()
        .zip(&all)
        .map(|(label, (n, share))| format!("{label}: {share:.3} of {n}"))
        .collect();
    findings.check(
        format!("shares with {}", check.filter.words()),
        enough && least >= check.least_to_greatest * greatest,
        format!(
            "the least is at least {} of the greatest",
            check.least_to_greatest
        ),
        seen.join(", "),
    );
}

/// See [`Described`].
pub(super) fn described(check: &Described, evidence: &Evidence, findings: &mut Findings) {
    let document = of(evidence, &check.of)
        .find_map(|exchange| exchange.answer.as_ref().ok())
        .and_then(|seen| serde_json::from_slice::<Value>(&seen.body).ok());
    let missing = match &document {
        None => vec!["no JSON document".to_owned()],
        Some(document) => missing(check, document),
    };
    findings.check(
        format!("API description {}", check.of),
        missing.is_empty(),
        format!(
            "{:?} with schema and headers on {:?}",
            check.statuses, check.routes
        ),
        if missing.is_empty() {
            "all there".to_owned()
        } else {
            missing.join("; ")
        },
    );
}

fn missing(check: &Described, document: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    for route in &check.routes {
        let (method, path) = route.split_once(' ').unwrap_or((route.as_str(), ""));
        let operation = &document["paths"][path][method.to_ascii_lowercase()];
        for status in &check.statuses {
            let response = follow(document, &operation["responses"][status.to_string()]);
            if response.is_null() {
                missing.push(format!("{route}: no {status}"));
                continue;
            }
            let fields: BTreeSet<String> = response["headers"]
                .as_object()
                .map(|fields| fields.keys().map(|name| name.to_ascii_lowercase()).collect())
                .unwrap_or_default();
            let absent = check
                .headers
                .iter()
                .filter(|name| !fields.contains(&name.to_ascii_lowercase()));
            missing.extend(absent.map(|name| format!("{route}: {status} without {name}")));
            let schema = follow(
                document,
                &response["content"]["application/problem+json"]["schema"],
            );
            let absent = check
                .members
                .iter()
                .filter(|name| schema["properties"][name.as_str()].is_null());
            missing.extend(absent.map(|name| format!("{route}: {status}'s schema without {name}")));
        }
    }
    missing
}

/// The value itself, or what its `$ref` stands for.
fn follow<'a>(document: &'a Value, mut value: &'a Value) -> &'a Value {
    for _ in 0..MAX_REFERENCES {
        let Some(pointer) = value["$ref"]
            .as_str()
            .and_then(|reference| reference.strip_prefix('#'))
        else {
            break;
        };
        value = document.pointer(pointer).unwrap_or(&Value::Null);
    }
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_description_leaves_out_is_named() {
        let response = json!({"headers": {"Retry-After": {}}, "content": {"application/problem+json": {"schema": {"$ref": "#/s"}}}});
        let document = json!({"s": {"properties": {"code": {}}},
            "paths": {"/x": {"post": {"responses": {"503": response}}}}});
        let mut check = Described {
            of: "api".to_owned(),
            routes: vec!["POST /x".to_owned()],
            statuses: vec![503],
            headers: vec!["retry-after".to_owned()],
            members: vec!["code".to_owned()],
        };
        assert_eq!(missing(&check, &document), Vec::<String>::new());
        check.statuses.push(429);
        check.headers.push("Overload-Signal".to_owned());
        check.members.push("retry".to_owned());
        check.routes.push("GET /x".to_owned());
        assert_eq!(
            missing(&check, &document).len(),
            5,
            "{:?}",
            missing(&check, &document)
        );
    }
}
