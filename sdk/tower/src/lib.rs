//! The overload-aware caller as a tower Layer: the one loop that sleeps and sends.
//!
//! A service that is too busy says so, and says when to come back. Most HTTP clients hand that answer to code which
//! has no idea what to do with it, or try again at once. [`OverloadLayer`] wraps any HTTP service (hyper,
//! reqwest; tonic through `holdoff-tonic`) so that its caller waits inside the window it was given, never before it, sends the same bytes again
//! where that is safe, and otherwise stops with a typed [`Error`] that says why.
//!
//! ```
//! use std::time::Duration;
//! use bytes::Bytes;
//! use holdoff_contract::Tier;
//! use holdoff_tower::{CallOptions, OverloadLayer};
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), holdoff_tower::Error> {
//! // Any service from http::Request to http::Response.
//! let transport = service_fn(|_request: Request<Full<Bytes>>| async {
//!     Ok::<_, std::io::Error>(Response::new(Full::new(Bytes::from_static(b"done"))))
//! });
//! let client = OverloadLayer::new().layer(transport);
//!
//! let mut request = Request::new(Full::new(Bytes::from_static(b"work")));
//! request.extensions_mut().insert(CallOptions::new().deadline(Duration::from_secs(5)).tier(Tier::Deferrable));
//! let response = client.oneshot(request).await?;
//! assert!(response.status().is_success());
//! # Ok(())
//! # }
//! ```
//!
//! What decides is `holdoff-policy`; what reads and writes the wire is `holdoff-contract`. This crate sleeps, sends,
//! reads within bounds, and counts ([`Counters`], and the `metrics` facade).
//!
//! A response that is not a refusal is handed on as it is, a 202 that defers and a degraded success included: read
//! them with [`holdoff_contract::read::Advice`]. The deadline bounds all attempts up to the head of the response;
//! reading its body is the caller's own.

mod body;
mod builder;
mod caller;
#[doc(hidden)]
pub mod carrier;
mod clock;
mod context;
mod dialect;
mod drive;
mod error;
mod instances;
mod names;
mod options;
mod origin;
mod plan;
mod reject;
mod running;
mod service;
mod telemetry;
mod vocabulary;

pub use body::{Once, ReplayBody, ResponseBody};
pub use builder::OverloadLayerBuilder;
pub use caller::{Identify, by_authorization};
pub use context::Inbound;
pub use dialect::{Dialect, Verdict};
pub use error::{BoxError, Classify, Error, Failure, PassUp, Refused, by_io_kind};
pub use instances::{InstanceList, InvalidInstances};
pub use names::describe_metrics;
pub use options::{AttemptContext, CallOptions, CallReport, Progress};
#[doc(hidden)]
pub use origin::shown_url;
pub use origin::{InvalidOrigin, Origin};
pub use reject::Redirected;
pub use service::{CallFuture, OverloadLayer, OverloadService};
pub use telemetry::{CounterSnapshot, Counters, Observer};
#[cfg(feature = "toml")]
pub use vocabulary::{VocabularyFileError, vocabulary_from_file, vocabulary_from_toml};
