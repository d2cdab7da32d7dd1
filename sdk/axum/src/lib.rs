//! The inbound side of an axum service that calls others.
//!
//! A service in the middle of a chain can undo what both its ends do right: it calls on for a caller that is long
//! gone, retries what its caller retries too, turns "come back in two seconds" into a 500. With this crate it does
//! none of that, in two places (CONTRACT section 6):
//!
//! - [`ContextLayer`] reads what the caller said into an [`Inbound`] around the handler. Calls that the handler makes
//!   with a Holdoff client find it by themselves: what is left of the deadline goes along, the tier is not raised, the
//!   attempt number is the larger, and nothing is retried unless this service opted in. A request whose time is
//!   over is answered before the handler runs.
//! - [`Problem`] is what a handler answers when it cannot serve. `?` on a Holdoff error makes one: the dependency's
//!   refusal, aged and one hop further; 504 where it did not answer; a plain 502 where it is not overload.
//!
//! ```
//! use axum::{Router, routing::get};
//! use holdoff_axum::{ContextLayer, Problem};
//! use holdoff_tower::{Error, OverloadService};
//! # use axum::body::Body; use bytes::Bytes; use http::{Request, Response}; use http_body_util::Full; use tower::{Layer, ServiceExt};
//! # async fn call() -> Result<Response<Full<Bytes>>, Error> { Err(Error::request("")) }
//!
//! async fn profile() -> Result<String, Problem> {
//!     let answer = call().await?; // any call through holdoff-reqwest or holdoff-tower
//!     Ok(format!("the dependency said {}", answer.status()))
//! }
//!
//! let app: Router = Router::new().route("/profile", get(profile)).layer(ContextLayer::new());
//! # let _ = app;
//! ```
//!
//! Put the layer inside an authentication layer (it can ask what that left in the extensions, see
//! [`ContextLayer::trust_by`]), and outside everything that makes calls or waits: time in the queue of an admission
//! layer counts against the deadline as well. The scope is the task: a handler that spawns
//! another hands the context over with `tokio::spawn(inbound.scope(..))`, where `Extension(inbound):
//! Extension<Inbound>` or [`Inbound::current`] gives it.
//!
//! Several dependencies at once: [`Problem::combine`]. A refusal of this service's own: [`Problem::from`] an
//! [`Overload`](holdoff_contract::Overload). Something was done before the failure: calls by POST, PUT, PATCH and
//! DELETE are noticed; anything else is said with [`Inbound::mark_side_effect`].

mod layer;
mod problem;

pub use holdoff_contract::CalledAs;
pub use holdoff_contract::write::Audience;
pub use holdoff_tower::Inbound;
pub use layer::{ContextFuture, ContextLayer, ContextService, Trust};
pub use problem::Problem;
