//! Writing a refusal (section 2): one head and one body whose mirrored values are equal by construction.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::{Overload, ServiceState};

/// Who reads the answer: strangers are not told state, origin or predicted wait (section 9, SEC-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Inside the trust domain.
    Trusted,
    /// Anybody.
    Stranger,
}

/// An encoded refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// 429, 503 or 504.
    pub status: StatusCode,
    /// All header fields of the contract, content-type and cache-control included.
    pub headers: HeaderMap,
    /// The problem body; leave it out for HEAD (SRV-22).
    pub body: Bytes,
}

/// Encodes a refusal. Values outside the contract's limits are brought inside them (SRV-25): `after` into
/// 1..=86400000 ms, `max` into `after..=after + 60000`, and retry=after without a hint gets 1000 ms.
pub fn overload(overload: &Overload, audience: Audience) -> Encoded {
    let _ = (overload, audience);
    unimplemented!("contract helper")
}

/// The signal of a 202 that defers (`outcome=defer`) or of a degraded success (SRV-20, SRV-21).
pub fn advice(headers: &mut HeaderMap, deferred: bool, degraded: bool, state: Option<ServiceState>) {
    let _ = (headers, deferred, degraded, state);
    unimplemented!("contract helper")
}
