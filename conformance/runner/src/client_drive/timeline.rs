//! What happened on the wire, told line by line, for a case that has to explain itself.

use std::time::Instant;

use serde_json::Value;

use super::judge::{CallView, ms};
use super::seen::Reply;
use super::spec::{Group, Port};
use crate::verdict::{Findings, Measured, millis_of};

/// How many calls of a group are shown.
const MAX_SHOWN: usize = 5;

/// What happened, with times from the start of the case.
pub(crate) fn show(findings: &mut Findings, group: &Group, calls: &[CallView<'_>], started: Instant) {
    let at = |instant: Instant| ms(instant.saturating_duration_since(started));
    for call in calls.iter().take(MAX_SHOWN) {
        findings.saw(format!(
            "{:>10}  call {} made",
            at(call.seen.sent),
            call.seen.name()
        ));
        for (index, request) in call.requests.iter().enumerate() {
            let gap = call.gap(index).map_or(String::new(), |gap| {
                format!(", {} after the reject's head", ms(gap))
            });
            let own: Vec<String> = request
                .fields
                .iter()
                .filter(|(name, _)| name.starts_with("overload-") || name == "idempotency-key")
                .map(|(name, value)| format!("{name}: {value}"))
                .collect();
            let port = if request.port == Port::Second {
                " of the second port"
            } else {
                ""
            };
            findings.saw(format!(
                "{:>10}  request {} {} on connection {}{port}{gap} [{}]",
                at(request.arrived),
                index + 1,
                request.method,
                request.connection,
                own.join("; ")
            ));
            let when = request.head_at.map_or("-".to_owned(), at);
            findings.saw(format!("{when:>10}  answered {}", request.answered));
        }
        if let Some(cancelled) = call.seen.cancelled {
            findings.saw(format!("{:>10}  cancel sent", at(cancelled)));
        }
        let said = match &call.seen.reply {
            Reply::Said(result) => Value::Object(result.clone()).to_string(),
            Reply::Broke(what) => what.clone(),
        };
        findings.saw(format!("{:>10}  reply {said}", at(call.seen.returned)));
    }
    if calls.len() > MAX_SHOWN {
        findings.saw(format!(
            "            ... and {} calls of group {} more",
            calls.len() - MAX_SHOWN,
            group.name
        ));
    }
}

/// The figures of each call: requests, gaps and what came out.
pub(crate) fn measure(findings: &mut Findings, calls: &[CallView<'_>]) {
    for call in calls {
        let gaps = (1..call.requests.len()).filter_map(|k| call.gap(k));
        findings.measure(Measured {
            call: call.seen.name().to_owned(),
            requests: call.requests.len(),
            gaps_ms: gaps.map(millis_of).collect(),
            outcome: outcome(&call.seen.reply),
            elapsed_ms: millis_of(call.seen.returned.saturating_duration_since(call.seen.sent)),
        });
    }
}

fn outcome(reply: &Reply) -> String {
    let said = match reply {
        Reply::Broke(_) => return "no proper reply".to_owned(),
        Reply::Said(said) => said,
    };
    let words = ["kind", "status", "why"]
        .iter()
        .filter_map(|key| match said.get(*key) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        });
    words.collect::<Vec<_>>().join(" ")
}
