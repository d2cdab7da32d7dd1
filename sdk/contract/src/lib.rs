//! The overload contract: one vocabulary and all its encodings, for both sides of the wire.
//!
//! A refusal that is only a status code leaves the caller guessing: was anything done, may I come back, when?
//! So both sides guess differently. Here both sides share one value, [`Overload`], and this crate alone knows
//! how it is written ([`mod@write`]) and read ([`read`]): the `Overload-Signal` field, the problem+json body,
//! `Retry-After` and the fields other people already use; for gRPC, [`grpc`]. What a caller says about its work travels as
//! [`RequestFields`].
//!
//! No clock, no I/O, no entropy: a wall clock is an argument where an HTTP-date needs one. Foreign input never
//! panics and never allocates beyond the limits in [`limits`].
//!
//! The wire contract itself is `conformance/contract/CONTRACT.md`; section numbers and requirement ids (`HNT-02`)
//! in these pages refer to it and to `requirements.toml` beside it.
//!
//! A server refuses, and says so in every encoding at once:
//!
//! ```
//! use std::time::Duration;
//! use holdoff_contract::write::{self, Audience};
//! use holdoff_contract::{Code, Hint, Overload};
//!
//! let mut overload = Overload::new(Code::QueueFull);
//! overload.hint = Hint::Window { delay: Duration::from_millis(1740), max: Duration::from_millis(2300) };
//! let encoded = write::overload(&overload, Audience::Stranger);
//!
//! assert_eq!(encoded.status, 503);
//! assert_eq!(encoded.headers["retry-after"], "2");
//! assert_eq!(
//!     encoded.headers["overload-signal"],
//!     "v=1, code=queue_full, retry=after, applied=no, after=1740, max=2300"
//! );
//! ```
//!
//! Its caller reads it, from this server or from anybody else's:
//!
//! ```
//! # use std::time::{Duration, SystemTime};
//! # use holdoff_contract::{Applied, Granularity, Hint, Retry};
//! use holdoff_contract::read::{Compat, Head, ReadOptions};
//! use http::{HeaderMap, HeaderValue, StatusCode};
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("retry-after", HeaderValue::from_static("2"));
//! let options = ReadOptions { now: SystemTime::UNIX_EPOCH, compat: Compat::On };
//!
//! let head = Head::read(StatusCode::SERVICE_UNAVAILABLE, &headers, &options);
//! assert!(!head.wants_body()); // else: read the body within the limits, and give it to `finish`
//! let overload = head.finish(None).into_overload().ok_or("no overload")?;
//!
//! assert_eq!(overload.retry, Retry::After);
//! assert_eq!(overload.applied, Applied::Maybe); // nobody promised that nothing was done
//! let delay = Duration::from_secs(2);
//! assert_eq!(overload.hint, Hint::After { delay, granularity: Granularity::Seconds });
//! # Ok::<(), &str>(())
//! ```
//!
//! And a relay passes it up to its own caller, aged and one hop further:
//!
//! ```
//! # use std::time::Duration;
//! # use holdoff_contract::{Code, Granularity, Hint, Overload, Retry};
//! use holdoff_contract::{CalledAs, Relay};
//!
//! # let delay = Duration::from_millis(1500);
//! # let hint = Hint::After { delay, granularity: Granularity::Milliseconds };
//! # let received = Overload { hint, ..Overload::new(Code::QueueFull) };
//! let relay = Relay {
//!     elapsed: Duration::from_millis(400), // since the dependency's answer came
//!     called_as: CalledAs::OwnService,
//!     retried: false,
//!     idempotent: true,
//!     side_effect: false,
//! };
//! let answer = received.for_caller(&relay);
//!
//! assert_eq!(answer.code, Some(Code::DependencyOverloaded));
//! assert_eq!(answer.hop, received.hop + 1);
//! assert_eq!(answer.hint.delay_or_zero(), Duration::from_millis(1100));
//! ```

mod code;
mod fields;
pub mod grpc;
pub mod limits;
mod overload;
mod propagate;
pub mod read;
pub mod vocabulary;
mod words;
pub mod write;

pub use code::{Code, GrpcCode, InvalidCode};
pub use fields::{
    Attempt, IdempotencyKey, InvalidField, RequestFields, TaskClass, Tenant, header as field_name,
};
pub use overload::{BodyMember, Extension, Granularity, Hint, Overload, OverloadStatus, PolicyQuota};
pub use propagate::{CalledAs, Relay};
pub use words::{Applied, Retry, Scope, ServiceState, Tier, UnknownWord};
