//! Protocols over HTTP that say a refusal in their own words.
//!
//! gRPC answers 200 and puts the refusal into `grpc-status`, in the head or in trailers; its requests carry their
//! deadline in a field of its own. The loop that waits and sends is the same, so only reading and writing can be
//! exchanged here, and whoever exchanges them cannot change when a retry leaves.

use std::fmt;
use std::time::Duration;

use holdoff_contract::RequestFields;
use holdoff_contract::read::{Malformed, ReadOptions, Reading};
use holdoff_policy::Outcome;
use http::{HeaderMap, StatusCode};

/// How long a head that decides nothing is kept back for the first frame after it. A refusal that does not stand in
/// the head follows it at once; a stream whose first message takes its time must not have its head held up.
pub(crate) const FIRST_FRAME_TIME: Duration = Duration::from_millis(100);

/// How a protocol over HTTP says what plain HTTP says in status and fields.
pub trait Dialect: fmt::Debug + Send + Sync + 'static {
    /// Reads what the caller wrote into the request itself.
    fn request_fields(&self, headers: &HeaderMap) -> RequestFields;

    /// Writes what an attempt says about itself, removing what is not said.
    fn write(&self, fields: &RequestFields, headers: &mut HeaderMap);

    /// Reads the head of an answer.
    fn head(&self, status: StatusCode, headers: &HeaderMap, options: &ReadOptions) -> Verdict;

    /// Reads trailers that came right after a head that decided nothing.
    fn trailers(&self, head: &HeaderMap, trailers: &HeaderMap, options: &ReadOptions) -> Verdict;
}

/// What an answer is.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Verdict {
    /// Done, or answered otherwise: the outcome, and the sources that could not be used.
    Known(Outcome, Malformed),
    /// The head does not say: trailers right behind it would, data means success.
    Undecided,
}

impl Verdict {
    /// A refusal, or else the outcome that the answer has without one.
    pub fn of(reading: Reading, otherwise: Outcome) -> Self {
        match reading {
            Reading::Overload(overload, malformed) => Self::Known(Outcome::Overload(overload), malformed),
            Reading::NotOverload => Self::Known(otherwise, Malformed::default()),
        }
    }

    /// An outcome without a word about coming back.
    pub fn plain(outcome: Outcome) -> Self {
        Self::Known(outcome, Malformed::default())
    }
}
