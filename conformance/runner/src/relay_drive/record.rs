//! What was seen around a relay as figures and as lines of JSON, for reports and for `--record`.

use std::time::Instant;

use serde_json::{Value, json};

use super::Played;
use crate::client_drive::record::SCHEMA;
use crate::server_drive::record::{answer, ask};
use crate::verdict::{Findings, Measured, millis_of};

/// The figures of each call: how often the dependencies were asked, and what the caller got.
pub(super) fn measure(played: &Played, findings: &mut Findings) {
    for call in played.groups.iter().flatten() {
        let asked = played.logs.iter().flat_map(|log| &log.exchanges);
        findings.measure(Measured {
            call: call.path.rsplit('/').next().unwrap_or(&call.path).to_owned(),
            requests: asked.filter(|exchange| exchange.path == call.path).count(),
            gaps_ms: Vec::new(),
            outcome: match &call.answer {
                Ok(seen) => seen.status.to_string(),
                Err(error) => error.to_string(),
            },
            elapsed_ms: millis_of(call.times.done.saturating_duration_since(call.times.sent)),
        });
    }
}

/// The lines of a record: what each caller sent and got, and what each dependency was asked and said.
pub(super) fn lines(case: &str, played: &Played) -> Vec<Value> {
    let us = |at: Instant| {
        let since = at.saturating_duration_since(played.started);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    };
    let mut lines = Vec::new();
    for call in played.groups.iter().flatten() {
        lines.push(json!({
            "event": "call", "at_us": us(call.times.sent), "done_us": us(call.times.done), "ask": ask(&call.ask),
            "answer": call.answer.as_ref().map_or_else(|error| json!(error.to_string()), answer),
        }));
    }
    for (dependency, log) in played.logs.iter().enumerate() {
        lines.extend(log.exchanges.iter().map(|exchange| {
            json!({
                "event": "request", "at_us": us(exchange.arrived), "dependency": dependency,
                "method": exchange.method, "path": exchange.path, "fields": exchange.fields,
                "head_us": exchange.head_at.map(us), "answered": exchange.answered,
            })
        }));
    }
    lines.sort_by_key(|line| line["at_us"].as_u64());
    lines.insert(0, json!({"event": "case", "schema": SCHEMA, "case": case}));
    lines
}
