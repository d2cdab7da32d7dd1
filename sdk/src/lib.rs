//! A caller that obeys overload: waits inside the window it was given, never before it, and passes overload up.
//!
//! A service that is too busy answers 503 or 429, and most callers make it worse: they come back at once, all
//! together, and long after anybody waits for the answer. Holdoff's client reads what the service said (when to come
//! back, whether anything was done), waits inside that window, sends again only where that is safe, and stops with a
//! typed error where it is not or where time is up.
//!
//! # From reqwest: two lines
//!
//! ```no_run
//! # #[cfg(feature = "reqwest")]
//! # mod example {
//! async fn fetch(url: &str) -> Result<String, Box<dyn std::error::Error>> {
//!     let client = holdoff::Client::new();                  // was: reqwest::Client::new()
//!     let response = client.get(url).send().await?;         // `?` on a holdoff::Error
//!     Ok(response.error_for_status()?.text().await?)        // a reqwest::Response, as before
//! }
//! # }
//! ```
//!
//! What is new is said per request:
//!
//! ```no_run
//! # #[cfg(feature = "reqwest")]
//! # mod example {
//! # use std::time::Duration;
//! # use holdoff::Tier;
//! # async fn example(client: holdoff::Client, url: &str) -> Result<(), holdoff::Error> {
//! let answer = client.get(url).tier(Tier::Deferrable).deadline(Duration::from_secs(5)).send().await;
//! match answer {
//!     Ok(response) => println!("{}", response.status()),
//!     Err(error) if error.is_overloaded() => println!("may come back in {:?}", error.retry_in()),
//!     Err(error) => return Err(error),
//! }
//! # Ok(())
//! # }
//! # }
//! ```
//!
//! A service that has words of its own for overload, several instances, or a unit of its own for `x-ratelimit-reset` is
//! described once, when the client is built (see [`contract::vocabulary`]; feature `toml` reads it from a file):
//!
//! ```
//! # #[cfg(feature = "reqwest")]
//! # mod example {
//! # use holdoff::contract::vocabulary::Declaration;
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let theirs = Declaration { x_ratelimit_reset: Some("epoch_s".into()), ..Declaration::default() }.build()?;
//! let client = holdoff::Client::builder()
//!     .instances(["https://a.worker.example", "https://b.worker.example"])
//!     .vocabulary_of("https://api.example", theirs)
//!     .build()?;
//! # let _ = client;
//! # Ok(())
//! # }
//! # }
//! ```
//!
//! # Where things are
//!
//! | here | is |
//! |---|---|
//! | [`Client`] and the rest of the root | the client with reqwest's manners (feature `reqwest`, on by default) |
//! | `reqwest_middleware` | the middleware for stacks of `reqwest-middleware` (feature `reqwest-middleware`) |
//! | `tonic` | the layers for tonic clients and servers, and the `Status` of an overload (feature `tonic`) |
//! | `tower` | the layer for hyper, tonic and other tower stacks (feature `tower`) |
//! | `axum` | the inbound side of an axum service that calls others (feature `axum`) |
//! | [`policy`] | when to try again and when to stop |
//! | [`contract`] | the vocabulary, and how it is written and read |

#[cfg(feature = "axum")]
pub use holdoff_axum as axum;
pub use holdoff_contract as contract;
pub use holdoff_contract::read::{Advice, Compat};
pub use holdoff_contract::{
    Applied, Attempt, Code, Hint, IdempotencyKey, Overload, Retry, Scope, TaskClass, Tenant, Tier,
};
pub use holdoff_policy as policy;
pub use holdoff_policy::{CallerKey, GiveUp, Incoming, Policy, PolicyBuilder, PolicyError, StopReason};
#[cfg(feature = "reqwest")]
pub use holdoff_reqwest::{
    CallOptions, CallReport, Client, ClientBuilder, CounterSnapshot, Counters, Error, Observer, PassUp,
    Progress, Refused, RequestBuilder, Response, describe_metrics, reqwest,
};
#[cfg(all(feature = "reqwest", feature = "toml"))]
pub use holdoff_reqwest::{VocabularyFileError, vocabulary_from_file, vocabulary_from_toml};
#[cfg(feature = "reqwest-middleware")]
pub use holdoff_reqwest_middleware as reqwest_middleware;
#[cfg(feature = "tonic")]
pub use holdoff_tonic as tonic;
#[cfg(feature = "tower")]
pub use holdoff_tower as tower;
#[cfg(all(feature = "tower", not(feature = "reqwest")))]
pub use holdoff_tower::{
    CallOptions, CallReport, CounterSnapshot, Counters, Error, Observer, PassUp, Progress, Refused,
    describe_metrics,
};
