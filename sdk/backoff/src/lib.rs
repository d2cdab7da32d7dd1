//! Hints honoured and limits kept for services that already loop with `backon` or `backoff`.
//!
//! A service that loops with one of these has its loop all over it, and the loop knows nothing of what the server said:
//! it grows its own waits, and where a hint is fed in, the hint goes around every limit that was set. [`Pacer`] keeps
//! the loop and replaces the waits: `holdoff-policy` decides them, with hints honoured, never early, spread over their
//! window, and with deadline, attempts, waiting in all and the retry budget still binding.
//!
//! With `backon` (any version: its `BackoffBuilder` is for every iterator of durations):
//!
//! ```
//! use std::time::Duration;
//! use backon::Retryable;
//! use holdoff_backoff::{CallSpec, Outcome, Pacer, Replay, Safety, outcome_of};
//! use http::{HeaderMap, HeaderValue, StatusCode};
//!
//! # #[derive(Debug)] struct Refused { status: StatusCode, headers: HeaderMap }
//! # fn send(attempt: u32) -> Result<&'static str, Refused> {
//! #     let mut headers = HeaderMap::new();
//! #     headers.insert("overload-signal", HeaderValue::from_static("v=1, code=queue_full, retry=after, applied=no, after=60, max=120"));
//! #     if attempt == 1 { Err(Refused { status: StatusCode::SERVICE_UNAVAILABLE, headers }) } else { Ok("done") }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pacer = Pacer::new();                       // one for each service that is called; keep it
//! let spec = CallSpec::new(Safety::Idempotent, Replay::Bytes);   // may it be sent twice? is its body still there?
//! let call = pacer.call(CallSpec { deadline: Some(Duration::from_secs(5)), ..spec });
//! let answer = (|| async {
//!     let attempt = call.begin().map_err(|_| "out of time")?;     // attempt.time_left limits it
//!     let result = send(attempt.number);
//!     call.told(result, |e| outcome_of(e.status, &e.headers, None)).map_err(|_| "refused")
//! })
//! .retry(call.clone())
//! .await;
//!
//! assert_eq!(answer, Ok("done"));
//! assert_eq!(call.attempts(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! With `backoff` (feature `backoff`; unmaintained, RUSTSEC-2025-0012, so the way out of it is `holdoff` itself or
//! `backon`) a [`PacedCall`] is a `Backoff`, and `PacedCall::bind` takes the errors of existing code.
//!
//! What cannot be done from inside somebody else's loop: the response's body is not drained, and the fields that tell the server about the call are the caller's to
//! write ([`holdoff_contract::RequestFields`]). `holdoff-reqwest` and `holdoff-tower` do these.

mod call;
mod clock;
#[cfg(feature = "backoff")]
mod for_backoff;
mod pacer;
mod read;

#[cfg(feature = "backoff")]
pub use backoff;
pub use call::PacedCall;
pub use holdoff_policy::{CallSpec, Event, GiveUp, Outcome, Policy, Replay, Safety, Send, StopReason};
pub use pacer::{Pacer, PacerBuilder};
pub use read::outcome_of;
