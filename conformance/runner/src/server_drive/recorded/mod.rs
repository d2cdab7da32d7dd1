//! Recorded answers, good and bad. A check that cannot fail proves nothing, so each rule has an answer that breaks it.

use std::time::Duration;

use super::message::{Ask, Exchange, Seen};

mod checks;
mod rules;

const GOOD_SIGNAL: &str =
    "v=1, code=queue_full, retry=after, applied=no, after=1740, max=2300, tier=deferrable";

fn good_body() -> serde_json::Value {
    serde_json::json!({
        "type": "urn:overload:v1:queue_full", "title": "Queue is full", "status": 503,
        "instance": "urn:uuid:6f1b0c9e-5a7e-4b1e-9f3a-2f4f4c1d2e3f", "contract_version": 1, "code": "queue_full",
        "retry": "after", "applied": "no", "retry_after_ms": 1740, "retry_after_max_ms": 2300, "tier": "deferrable"
    })
}

fn good() -> Exchange {
    let line = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
    Exchange {
        label: "r".to_owned(),
        ask: Ask {
            method: "POST".to_owned(),
            path: "/v1/work".to_owned(),
            ..Ask::default()
        },
        sent_at: Duration::ZERO,
        head_after: Duration::from_millis(3),
        done_after: Duration::from_millis(4),
        answer: Ok(Seen {
            status: 503,
            headers: vec![
                line("Content-Type", "application/problem+json"),
                line("Cache-Control", "no-store"),
                line("Retry-After", "2"),
                line("retry-after-ms", "1740"),
                line("Overload-Signal", GOOD_SIGNAL),
            ],
            trailers: Vec::new(),
            body: good_body().to_string().into_bytes(),
        }),
        forced: None,
    }
}

/// What a recording is changed with.
enum Change {
    Status(u16),
    Drop(&'static str),
    Set(&'static str, String),
    Add(&'static str, &'static str),
    Trailer(&'static str, &'static str),
    Member(&'static str, serde_json::Value),
    NoMember(&'static str),
    Body(&'static str),
}

fn changed(changes: Vec<Change>) -> Exchange {
    let mut exchange = good();
    let mut body = good_body();
    let mut raw = None;
    let seen = exchange.answer.as_mut().unwrap();
    let bytes = |text: &str| text.as_bytes().to_vec();
    for change in changes {
        match change {
            Change::Status(status) => seen.status = status,
            Change::Drop(name) => seen
                .headers
                .retain(|(field, _)| !field.eq_ignore_ascii_case(name)),
            Change::Set(name, value) => {
                let at = seen
                    .headers
                    .iter_mut()
                    .find(|(field, _)| field.eq_ignore_ascii_case(name));
                at.unwrap().1 = bytes(&value);
            }
            Change::Add(name, value) => seen.headers.push((name.to_owned(), bytes(value))),
            Change::Trailer(name, value) => seen.trailers.push((name.to_owned(), bytes(value))),
            Change::Member(name, value) => body[name] = value,
            Change::NoMember(name) => drop(body.as_object_mut().unwrap().remove(name)),
            Change::Body(text) => raw = Some(bytes(text)),
        }
    }
    seen.body = raw.unwrap_or_else(|| body.to_string().into_bytes());
    exchange
}

fn signal(text: &str) -> Change {
    Change::Set("overload-signal", text.to_owned())
}
