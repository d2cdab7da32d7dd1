//! Servers that refuse by the overload contract, and proof of what a caller did about it: for a caller's own tests.
//!
//! Whether a service obeys overload is easy to claim and tedious to show: somebody has to build a server that refuses
//! as real ones do, and to measure when the service came back. This crate is both. Its answers are written by the same
//! code that our server writes with, or are what other people's servers send; they are [`wiremock`] responders, so they
//! stand beside the mocks that a test has already. Its [`Record`] knows when each request came and what the one before
//! was told.
//!
//! ```
//! use std::time::Duration;
//! use holdoff_contract::Code;
//! use holdoff_testkit::{Script, overloaded, served};
//! use wiremock::matchers::{method, path};
//! use wiremock::{Mock, MockServer};
//!
//! # // The function under test: your own.
//! # async fn place_order(url: &str) -> Result<reqwest::StatusCode, Box<dyn std::error::Error>> {
//! #     let client = holdoff_reqwest::Client::new();
//! #     let request = client.post(url).body("two pens").idempotency_key("order-1").deadline(Duration::from_secs(5));
//! #     Ok(request.send().await?.status())
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // #[tokio::test] async fn an_order_survives_a_refusal_and_comes_in_its_window() {
//! let server = MockServer::start().await;
//! let (after, max) = (Duration::from_millis(200), Duration::from_millis(300));
//! let script = Script::new([overloaded(Code::QueueFull).after(after).max(max)]).then(served());
//! let record = script.record();
//! Mock::given(method("POST")).and(path("/orders")).respond_with(script).mount(&server).await;
//!
//! let status = place_order(&format!("{}/orders", server.uri())).await?;
//!
//! assert_eq!(status, 200);
//! record.assert_attempts(2);
//! record.assert_never_early();
//! record.assert_within_window(Duration::from_secs(1)); // a busy build machine adds to every wait
//! record.assert_deadline_shrinks();
//! record.assert_same_key();
//! record.assert_same_body();
//! # Ok(())
//! # }
//! ```
//!
//! Others refuse differently, and a caller has to cope with them too:
//!
//! ```
//! use std::time::Duration;
//! use holdoff_testkit::{draining, overloaded, plain};
//! use holdoff_contract::Code;
//!
//! let _ = plain(503).retry_after(2);                                   // seconds, as most of the world
//! let _ = plain(429).retry_after_date(Duration::from_secs(2));         // an HTTP-date
//! let _ = plain(429).retry_after_ms(1500);                             // milliseconds
//! let _ = plain(429).x_ms_retry_after_ms(1500);                        // Azure
//! let _ = plain(503).header("retry-after", "soon");                    // malformed
//! let _ = plain(429).should_not_retry();                               // x-should-retry: false
//! let _ = draining();                                                  // retry=elsewhere
//! let _ = overloaded(Code::DeadlineUnattainable);                      // retry=no
//! ```
//!
//! Tests over real sockets run in real time: keep hints below a second, and do not pause tokio's clock, since paused
//! time does not wait for a socket.

mod answer;
mod check;
mod clock;
mod record;
mod script;

pub use answer::{Answer, Refusal, deferred, draining, overloaded, plain, served};
pub use check::{Check, Violation};
pub use record::{CallKey, MAX_BODY, MAX_REQUESTS, Record, Sent};
pub use script::{Script, SharedScript};
pub use wiremock;
