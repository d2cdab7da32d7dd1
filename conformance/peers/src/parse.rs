//! `parse`: one response in, the decision out, nothing sent.

use std::time::{Duration, SystemTime};

use holdoff_contract::read::{Compat, Head, ReadOptions, Reading};
use holdoff_contract::{Hint, Overload, Retry};
use holdoff_policy::{CallSpec, Policy, Progress, Replay, Safety, StopReason};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::command::ParseCommand;

/// The reply to `parse`.
///
/// # Errors
/// When the command asks for something that HTTP cannot carry, or a policy out of range.
pub fn parse(command: &ParseCommand) -> anyhow::Result<Value> {
    let status = StatusCode::from_u16(command.response.status)?;
    let mut headers = HeaderMap::new();
    for (name, value) in &command.response.headers {
        headers.append(
            HeaderName::from_bytes(name.as_bytes())?,
            HeaderValue::from_bytes(value.as_bytes())?,
        );
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(command.now);
    let compat = if command.policy.compat.unwrap_or(true) {
        Compat::On
    } else {
        Compat::Off
    };
    let head = Head::read(status, &headers, &ReadOptions { now, compat });
    let body = if head.wants_body() {
        command.response.body.as_deref()
    } else {
        None
    };
    let Reading::Overload(overload, _) = head.finish(body.map(str::as_bytes)) else {
        return Ok(json!({"result": {"overload": false}}));
    };
    let policy = command.policy.build()?;
    let request = &command.request;
    let safety = if request.idempotent.unwrap_or(true) {
        Safety::Idempotent
    } else {
        Safety::Unsafe
    };
    let spec = CallSpec {
        deadline: request.deadline_ms.map(Duration::from_millis),
        ..CallSpec::new(safety, Replay::Bytes)
    };
    let delay = match overload.hint {
        Hint::Absent => None,
        Hint::After { delay, .. } | Hint::Window { delay, .. } => Some(delay),
    };
    let retrial = policy.judge(&spec, &overload, Progress::first(time_left(&policy, &spec)));
    Ok(json!({"result": {
        "overload": true,
        "min_delay_ms": delay.map(ms),
        "max_delay_ms": delay.filter(|delay| !delay.is_zero()).map(|_| ms(end_of_window(&policy, &overload))),
        "retry": overload.retry.as_str(),
        "applied": overload.applied.as_str(),
        "code": overload.code.as_ref().map(holdoff_contract::Code::as_str),
        "action": match retrial {
            Err(_) => "stop",
            Ok(_) if delay.is_some_and(|delay| !delay.is_zero()) && overload.retry == Retry::After => "wait_hint",
            Ok(_) => "backoff",
        },
        "why": retrial.err().map(StopReason::as_str),
    }}))
}

fn time_left(policy: &Policy, spec: &CallSpec) -> Duration {
    spec.deadline.map_or(policy.max_wait_total(), |deadline| {
        deadline.min(policy.max_wait_total())
    })
}

/// M as the contract counts it: the server's own where it gave one, before the 50 ms of width that a wait has at least.
fn end_of_window(policy: &Policy, overload: &Overload) -> Duration {
    match overload.hint {
        Hint::Window { max, .. } => max,
        hint => policy.window(hint, 1).hi,
    }
}

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
