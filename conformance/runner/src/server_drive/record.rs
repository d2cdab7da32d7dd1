//! What was seen of a server as figures and as lines of JSON, for reports and for `--record`.

use std::time::Duration;

use serde_json::{Value, json};

use super::look;
use super::message::{Ask, Exchange, Seen};
use super::play::Evidence;
use crate::client_drive::record::SCHEMA;
use crate::run::RunContext;
use crate::verdict::{Findings, Measured, millis_of};

/// The figures of each exchange, in the order of their starts.
pub(super) fn measure(evidence: &Evidence, findings: &mut Findings) {
    let mut by_time: Vec<&Exchange> = evidence.exchanges.iter().collect();
    by_time.sort_by_key(|exchange| exchange.sent_at);
    for exchange in by_time {
        findings.measure(Measured {
            call: exchange.label.clone(),
            requests: 1,
            gaps_ms: Vec::new(),
            outcome: look::brief(exchange),
            elapsed_ms: millis_of(exchange.done_after),
        });
    }
}

/// The lines of a record: one for each exchange and each metrics page.
pub(super) fn lines(evidence: &Evidence, context: &RunContext) -> Vec<Value> {
    let mut by_time: Vec<&Exchange> = evidence.exchanges.iter().collect();
    by_time.sort_by_key(|exchange| exchange.sent_at);
    let mut lines = vec![json!({"event": "case", "schema": SCHEMA, "slack_us": context.slack_ms() * 1000})];
    let us = |at: Duration| u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
    lines.extend(by_time.into_iter().map(|exchange| {
        json!({
            "event": "exchange", "label": exchange.label, "sent_us": us(exchange.sent_at),
            "head_after_us": us(exchange.head_after), "done_after_us": us(exchange.done_after),
            "ask": ask(&exchange.ask),
            "answer": exchange.answer.as_ref().map_or_else(|error| json!(error.to_string()), answer),
        })
    }));
    lines.extend(
        evidence
            .stood
            .iter()
            .map(|(from, to)| json!({"event": "still", "from_us": us(*from), "to_us": us(*to)})),
    );
    for (label, ended) in &evidence.ended {
        lines.push(json!({"event": "ended", "label": label, "states": ended}));
    }
    lines
}

/// A request as JSON.
pub(crate) fn ask(ask: &Ask) -> Value {
    let body = String::from_utf8_lossy(&ask.body);
    json!({"method": ask.method, "path": ask.path, "headers": ask.headers, "body": body})
}

/// An answer as JSON; bytes that are no text are replaced.
pub(crate) fn answer(seen: &Seen) -> Value {
    let text = |section: &[(String, Vec<u8>)]| -> Vec<(String, String)> {
        section
            .iter()
            .map(|(name, value)| (name.clone(), String::from_utf8_lossy(value).into_owned()))
            .collect()
    };
    json!({
        "status": seen.status, "headers": text(&seen.headers), "trailers": text(&seen.trailers),
        "body": String::from_utf8_lossy(&seen.body),
    })
}
