//! From a send of a case to the bytes of a request, and one request on its way.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::callers::Callers;
use super::message::{Ask, Exchange, Forced, NoAnswer, Pace};
use super::probe::{Address, exchange};
use super::spec::Send;
use crate::lock::lock;

/// One request on its way.
pub(super) struct One {
    pub(super) address: Address,
    pub(super) label: String,
    pub(super) ask: Ask,
    pub(super) begun: Instant,
    pub(super) forced: Option<Forced>,
    pub(super) seen: Arc<Mutex<Vec<Exchange>>>,
}

impl One {
    pub(super) async fn run(self) {
        let seen = Arc::clone(&self.seen);
        let exchange = self.exchange().await;
        lock(&seen).push(exchange);
    }

    /// Sends it and waits for its end.
    pub(super) async fn exchange(self) -> Exchange {
        let (times, answer) = exchange(&self.address, &self.ask).await;
        let head = times.head.unwrap_or(times.sent);
        Exchange {
            label: self.label,
            ask: self.ask,
            sent_at: times.sent.saturating_duration_since(self.begun),
            head_after: head.saturating_duration_since(times.sent),
            done_after: times.done.saturating_duration_since(times.sent),
            answer,
            forced: self.forced,
        }
    }
}

/// The request number `i` of a send.
pub(super) fn ask(send: &Send, i: u32, deadline: Option<u64>, callers: Callers) -> Ask {
    let number = i.to_string();
    let fill = |text: &str| text.replace("{i}", &number);
    let mut headers = Vec::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            headers.push((name.to_owned(), value));
        }
    };
    put(
        "Authorization",
        send.identity
            .as_deref()
            .map(|identity| format!("Bearer {}", fill(identity))),
    );
    put(
        "Overload-Deadline-Ms",
        deadline.or(send.deadline_ms).map(|ms| ms.to_string()),
    );
    put("Overload-Tier", send.tier.clone());
    put(
        "Overload-Tenant",
        send.tenant
            .as_deref()
            .map(|tenant| format!("\"{}\"", fill(tenant))),
    );
    put("Overload-Cost-Ms", send.cost_ms.map(|ms| ms.to_string()));
    put("Idempotency-Key", send.key.as_deref().map(fill));
    for (name, value) in &send.headers {
        put(name, Some(fill(value)));
    }
    let bodiless = matches!(send.method.as_str(), "GET" | "HEAD") && send.body.is_none();
    let body = match &send.body {
        Some(body) => fill(body).into_bytes(),
        None if bodiless => Vec::new(),
        None => {
            let mut task = json!({
                "class": fill(send.class.as_deref().unwrap_or("t")),
                "payload": "x".repeat(send.payload_bytes),
            });
            if let Some(ms) = send.duration_ms {
                task["duration_ms"] = Value::from(ms);
            }
            task.to_string().into_bytes()
        }
    };
    if !body.is_empty() {
        headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    }
    Ask {
        method: send.method.clone(),
        path: if send.to_metrics {
            String::new()
        } else {
            fill(&send.path)
        },
        headers,
        body,
        pace: send.stall_after_bytes.map_or(Pace::AtOnce, Pace::StallAfter),
        leave_after: send.leave_after_ms.map(Duration::from_millis),
        limit: Duration::from_millis(send.limit_ms),
        from: callers.address(send.is_a_crowd().then_some(i)),
    }
}

/// Whether an exchange ended without an answer although the caller waited for one.
pub(super) fn unanswered(exchange: &Exchange) -> Option<&NoAnswer> {
    match &exchange.answer {
        Err(NoAnswer::Left) | Ok(_) => None,
        Err(error) => Some(error),
    }
}
