//! A service's own error vocabulary: one declared mapping, read and written (section 8, CLI-26).
//!
//! Most services had words for overload before there was a contract: a status of their own, a header, a member deep in
//! a JSON body, a delay in whatever unit. Code that understands them grows in every caller, each time a little
//! different. Here the words are declared once, checked once, and then say the same in both directions: a caller reads
//! them into an [`crate::Overload`], a server writes them beside the contract's own fields for callers that know
//! nothing else.
//!
//! ```
//! # use std::time::{Duration, SystemTime};
//! # use holdoff_contract::read::{Compat, ReadOptions};
//! # use holdoff_contract::{Applied, Code, Granularity, Hint};
//! use holdoff_contract::vocabulary::{BodyMatch, Declaration, Delay, Literal, Refusal};
//! use http::{HeaderMap, StatusCode};
//!
//! let vocabulary = Declaration {
//!     refusals: vec![Refusal {
//!         code: "queue_full".into(),
//!         status: vec![529, 503],
//!         body: Some(BodyMatch { pointer: "/error/type".into(), value: Some(Literal::Text("busy".into())) }),
//!         delay: Some(Delay { pointer: Some("/error/wait".into()), unit: "ms".into(), ..Delay::default() }),
//!         applied: Some("no".into()),
//!         ..Refusal::default()
//!     }],
//!     ..Declaration::default()
//! }
//! .build()?;
//!
//! let options = ReadOptions { now: SystemTime::UNIX_EPOCH, compat: Compat::On };
//! let status = StatusCode::from_u16(529)?;
//! let head = vocabulary.head(status, &HeaderMap::new(), &options);
//! assert!(head.wants_body());
//! let body = br#"{"error": {"type": "busy", "wait": 750}}"#;
//! let overload = head.finish(Some(body)).into_overload().ok_or("no overload")?;
//! assert_eq!((overload.code, overload.applied), (Some(Code::QueueFull), Applied::No));
//! let (delay, granularity) = (Duration::from_millis(750), Granularity::Milliseconds);
//! assert_eq!(overload.hint, Hint::After { delay, granularity });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same in TOML (the adapters read it with their feature `toml`; here it is anything that serde reads):
//!
//! ```toml
//! x_ratelimit_reset = "epoch_s"        # its unit at this destination; without it the field is not read
//!
//! [[refusals]]                         # the first that fits counts
//! code = "queue_full"
//! status = [529, 503]                  # 400 to 599
//! header = { name = "x-error" }        # with any value; every condition that stands here must hold
//! body = { pointer = "/error/type", value = "busy" }
//! delay = { pointer = "/error/wait", unit = "ms" }     # or header = ..; s, ms, epoch_s, epoch_ms, date
//! retry = "after"                      # default: what the code says by itself
//! applied = "no"                       # default: not said, which is maybe
//! scope = "service"                    # default: request
//! ```

mod build;
mod declare;
mod pointer;
mod read;
mod write;

use http::{HeaderName, HeaderValue, StatusCode};

pub use build::VocabularyError;
pub use declare::{BodyMatch, Declaration, Delay, HeaderMatch, Literal, Refusal};
use pointer::Pointer;
pub use read::MappedHead;

use crate::{Applied, Code, Retry, Scope};

/// Refusals of one vocabulary: a service has a handful.
pub const MAX_REFUSALS: usize = 64;

/// A declared mapping, checked. Made by [`Declaration::build`], or read by serde in the form of a [`Declaration`].
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(try_from = "Declaration")]
pub struct Vocabulary {
    /// The unit of `x-ratelimit-reset`.
    reset: Option<Unit>,
    entries: Vec<Entry>,
}

/// The unit a service counts a delay in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Seconds,
    Milliseconds,
    EpochSeconds,
    EpochMilliseconds,
    Date,
}

/// Where a delay stands.
#[derive(Clone, Debug, PartialEq)]
enum Source {
    Header(HeaderName),
    Body(Pointer),
}

/// One refusal in the service's own words.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    code: Code,
    statuses: Vec<StatusCode>,
    header: Option<(HeaderName, Option<HeaderValue>)>,
    body: Option<(Pointer, Option<Literal>)>,
    delay: Option<(Source, Unit)>,
    retry: Retry,
    applied: Option<Applied>,
    scope: Option<Scope>,
}

impl Vocabulary {
    /// No words of its own: reading is that of [`crate::read::Head`].
    pub const NONE: Self = Self {
        reset: None,
        entries: Vec::new(),
    };

    /// Could an answer with this status be one of the declared refusals?
    pub fn has_status(&self, status: StatusCode) -> bool {
        self.entries.iter().any(|entry| entry.statuses.contains(&status))
    }
}
