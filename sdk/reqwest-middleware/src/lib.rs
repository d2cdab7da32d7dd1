//! The overload-aware caller as a middleware of `reqwest-middleware`.
//!
//! A service that has a stack of reqwest middlewares (tracing, signing, caching) does not want to give it up to obey
//! overload. [`OverloadMiddleware`] stands in that stack in the place of `reqwest-retry`, and sends what comes after it
//! as often as the policy allows: in the server's window, never before it.
//!
//! ```no_run
//! use std::time::Duration;
//! use holdoff_contract::Tier;
//! use holdoff_reqwest_middleware::{CallOptions, OverloadMiddleware, overload_error};
//! use reqwest_middleware::ClientBuilder;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // Retries are made at one layer: reqwest's own are off.
//! let http = reqwest::Client::builder().retry(reqwest::retry::never()).build()?;
//! let client = ClientBuilder::new(http)
//!     // .with(tracing)                          outside: sees one call
//!     .with(OverloadMiddleware::new())           // was: RetryTransientMiddleware::new_with_policy(..)
//!     // .with(signing)                          inside: sees each attempt
//!     .build();
//!
//! let options = CallOptions::new().tier(Tier::Deferrable).deadline(Duration::from_secs(5));
//! match client.get("http://worker.internal/v1/work").with_extension(options).send().await {
//!     Ok(response) => println!("{}", response.status()),
//!     Err(error) => match overload_error(&error).filter(|error| error.is_overloaded()) {
//!         Some(refused) => println!("may come back in {:?}", refused.retry_in()),
//!         None => return Err(error.into()),
//!     },
//! }
//! # Ok(())
//! # }
//! ```
//!
//! It is the same loop as in `holdoff-reqwest` (`holdoff-tower`'s): same policy, same reading, same counters. What the
//! stack around it changes:
//!
//! - **The inner client's own retries** cannot be turned off from here. Build it with
//!   `.retry(reqwest::retry::never())`, since retries at two layers multiply (CLI-18). The same holds for another retry
//!   middleware in the stack.
//! - **A body that is a stream** is sent once, and its refusal comes back as `NotReplayable` (CLI-13). `reqwest-retry`
//!   fails such a request before its first send.
//! - **Redirects** are followed by the inner client, which takes our fields along to other origins. So
//!   `Overload-Tenant` is never sent (REQ-07).
//! - **The deadline** is [`CallOptions::deadline`], else the request's `timeout`: the time of the whole call. A timeout
//!   that the client was built with limits each attempt of a call without either.
//! - **Errors** are [`reqwest_middleware::Error::Middleware`] with a [`struct@Error`] inside, which has the transport's own
//!   error as a cause: [`overload_error`] finds it. A 503 or 429 that is not tried again is such an error too, where
//!   `reqwest-retry` hands the response on.

mod middleware;

pub use holdoff_tower::{
    CallOptions, CallReport, CounterSnapshot, Counters, Error, Observer, OverloadLayer, OverloadLayerBuilder,
};
pub use middleware::{OverloadMiddleware, overload_error};
pub use reqwest_middleware;
