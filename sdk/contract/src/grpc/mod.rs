//! Overload over gRPC (section 7), as pure data: no tonic, no protobuf.
//!
//! gRPC has its own words for a refusal: a status, `google.rpc` details, a pushback that clients obey to the
//! millisecond, a timeout field. They say the same as HTTP's, and must not say it differently. So they are written
//! from the one [`Overload`](crate::Overload) and read back into it here, beside the other encodings; an adapter only turns [`Info`] and the
//! retry delay into protobuf messages, and back.

mod read;
mod timeout;
mod write;

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, HeaderName};

pub use self::read::{Answer, RetryDelay, read, read_http};
pub use self::timeout::{InvalidTimeout, read_request, read_timeout, write_request, write_timeout};
pub use self::write::write;
use crate::GrpcCode;

/// `ErrorInfo.domain` of every refusal that is written here (GRP-03). A reader does not insist on it: the contract
/// fixes that there is one domain, not its name, and `contract_version` in the metadata tells our reasons from others.
pub const DOMAIN: &str = "overload.v1";

/// `grpc-retry-pushback-ms` (GRP-05).
pub const PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// `grpc-timeout` (GRP-09).
pub const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// `grpc-status`.
pub const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// `grpc-status-details-bin`: a `google.rpc.Status` in base64.
pub const STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// What a `google.rpc.ErrorInfo` holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The code in UPPER_SNAKE_CASE.
    pub reason: String,
    /// [`DOMAIN`] where we wrote it.
    pub domain: String,
    /// contract_version, retry, applied, scope, hop, and state for trusted callers.
    pub metadata: BTreeMap<String, String>,
}

impl Info {
    /// Does it speak of this contract, in whatever version?
    pub fn is_ours(&self) -> bool {
        self.metadata.contains_key("contract_version")
    }
}

/// A refusal, ready to be sent Trailers-Only (GRP-02).
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    /// `grpc-status` (GRP-01).
    pub code: GrpcCode,
    /// `grpc-message`: the detail, or the title of the code.
    pub message: String,
    /// The one `google.rpc.ErrorInfo` (GRP-03).
    pub info: Info,
    /// `google.rpc.RetryInfo.retry_delay`, exactly with retry=after (GRP-04).
    pub retry_delay: Option<Duration>,
    /// `overload-signal` and, but for retry=elsewhere, `grpc-retry-pushback-ms` (GRP-05).
    pub metadata: HeaderMap,
}
