//! The overload-aware caller with reqwest's manners.
//!
//! A program that calls others with reqwest has requests built all over it. This [`Client`] takes the same methods
//! and gives the same `reqwest::Response`, so that two lines change: the one that makes the client, and the type of
//! the error. What is new can be said per request.
//!
//! ```no_run
//! use std::time::Duration;
//! use holdoff_contract::Tier;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = holdoff_reqwest::Client::new();
//! let answer = client
//!     .post("http://worker.internal/v1/work")
//!     .json(&["lint", "main.rs"])
//!     .tier(Tier::Deferrable)
//!     .task_class("lint")
//!     .deadline(Duration::from_secs(5))
//!     .idempotency_key("job-4711")
//!     .send()
//!     .await;
//! match answer {
//!     Ok(response) => println!("{}", response.text().await?),
//!     Err(error) if error.is_overloaded() => println!("come back in {:?}: {error}", error.retry_in()),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The waiting and sending is `holdoff-tower`; this crate converts. reqwest's own retries are off, and
//! `Overload-Tenant` does not follow a redirect to another origin.

pub mod adapter;
mod body;
mod builder;
mod client;
mod invalid;
mod parcel;
mod request;
mod transport;

pub use builder::{ClientBuilder, WrappedClientTrusted};
pub use client::Client;
pub use holdoff_tower::{
    AttemptContext, CallOptions, CallReport, CounterSnapshot, Counters, Error, Identify, InvalidInstances,
    InvalidOrigin, Observer, PassUp, Progress, Refused, describe_metrics,
};
#[cfg(feature = "toml")]
pub use holdoff_tower::{VocabularyFileError, vocabulary_from_file, vocabulary_from_toml};
pub use request::RequestBuilder;
pub use reqwest;
pub use reqwest::Response;
