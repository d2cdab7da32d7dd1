//! What a call came to, as the adapter protocol says it.

use std::time::Duration;

use holdoff::tower::Error;
use serde_json::{Value, json};

/// A call that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// HTTP status.
    pub status: u16,
    /// Sends made.
    pub attempts: u32,
}

/// The `result` member.
pub fn result(call: Result<Answered, &Error>, elapsed: Duration) -> Value {
    let elapsed_ms = ms(elapsed);
    let error = match call {
        Ok(Answered { status, attempts }) => {
            return json!({"kind": "response", "status": status, "attempts": attempts, "elapsed_ms": elapsed_ms});
        }
        Err(error) => error,
    };
    let why = error.why().map_or("request", holdoff::StopReason::as_str);
    let Some(overload) = error.overload() else {
        return json!({"kind": "error", "why": why, "message": error.to_string(), "attempts": error.attempts(),
            "elapsed_ms": elapsed_ms});
    };
    json!({
        "kind": "overloaded",
        "status": overload.status.as_u16(),
        "code": overload.code.as_ref().map(holdoff::Code::as_str),
        "retry": overload.retry.as_str(),
        "retry_in_ms": error.retry_in().map(ms),
        "applied": overload.applied.as_str(),
        "hop": overload.hop,
        "attempts": error.attempts(),
        "waited_ms": ms(error.waited()),
        "why": why,
        "elapsed_ms": elapsed_ms,
    })
}

/// A call that was dropped by `cancel`.
pub fn cancelled(attempts: u32, elapsed: Duration) -> Value {
    json!({"kind": "error", "why": "cancelled", "message": "cancelled", "attempts": attempts, "elapsed_ms": ms(elapsed)})
}

/// A call that could not be made at all.
pub fn unusable(message: impl std::fmt::Display) -> Value {
    json!({"kind": "error", "why": "request", "message": message.to_string(), "attempts": 0, "elapsed_ms": 0})
}

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
