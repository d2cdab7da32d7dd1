//! Virtual time, and calls in it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "test code, of which each test file uses its own part"
)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdoff_backoff::{CallSpec, Event, Pacer, PacerBuilder, Replay, Safety};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Tokio's clock, which a test pauses.
#[expect(clippy::disallowed_methods, reason = "the clock of these tests")]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// What was observed.
pub(crate) type Seen = Arc<Mutex<Vec<Event>>>;

/// A pacer in tokio's time, and what it tells its observer.
pub(crate) fn pacer(builder: PacerBuilder) -> (Pacer, Seen) {
    let seen = Seen::default();
    let pacer = builder
        .clock(now)
        .observer({
            let seen = Arc::clone(&seen);
            move |event| seen.lock().unwrap().push(event)
        })
        .build();
    (pacer, seen)
}

pub(crate) fn spec(deadline: Option<Duration>) -> CallSpec {
    CallSpec {
        deadline,
        ..CallSpec::new(Safety::Idempotent, Replay::Bytes)
    }
}

/// An error as a service has it that keeps the response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failed {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

pub(crate) fn failed(status: u16, fields: &[(&'static str, &str)]) -> Failed {
    Failed {
        status: StatusCode::from_u16(status).unwrap(),
        headers: fields
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect(),
    }
}

pub(crate) fn window(after: u64, max: u64) -> Failed {
    let signal = format!("v=1, code=queue_full, retry=after, applied=no, after={after}, max={max}");
    failed(503, &[("overload-signal", &signal)])
}
