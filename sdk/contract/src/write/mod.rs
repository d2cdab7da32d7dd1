//! Writing a refusal (section 2): one head and one body whose mirrored values are equal by construction.

mod body;
mod rate_limit;
mod signal;
mod values;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};

pub(crate) use self::signal::refusal as refusal_signal;
pub(crate) use self::values::Values;
use crate::{Code, Overload, ServiceState, Tier, field_name};

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
/// 1..=86400000 ms, `max` into `after..=after + 60000`, and a refusal without a hint that must have one gets
/// 1000 ms.
///
/// `Retry-After` goes out wherever coming back can be right: with applied=no whatever the permission, and never with
/// applied=maybe and retry=no (SRV-10). A registered code decides the status (section 1); a value without a code
/// gets one that suits its status.
pub fn overload(overload: &Overload, audience: Audience) -> Encoded {
    let values = Values::new(overload, audience);
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(after) = values.after.filter(|_| values.invites_back()) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(after.div_ceil(1000)));
        headers.insert(field_name::RETRY_AFTER_MS, HeaderValue::from(after));
    }
    set(
        &mut headers,
        field_name::OVERLOAD_SIGNAL,
        signal::refusal(&values, overload, audience),
    );
    if values.code == Code::RateLimited {
        rate_limit::write(&mut headers, &overload.quotas);
    }
    let status = match values.status {
        crate::OverloadStatus::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        crate::OverloadStatus::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        crate::OverloadStatus::GatewayTimeout => StatusCode::GATEWAY_TIMEOUT,
    };
    Encoded {
        status,
        headers,
        body: Bytes::from(body::problem(&values, overload, audience)),
    }
}

/// What a success says beside itself. [`Advice::default`] says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// `outcome=defer`: put off, with 202 (SRV-21).
    pub deferred: bool,
    /// `degraded`: served, but cut down (SRV-20).
    pub degraded: bool,
    /// For trusted callers (SEC-02).
    pub state: Option<ServiceState>,
    /// The tier that was used, where the request named one (SRQ-06).
    pub tier: Option<Tier>,
}

/// Writes the signal of a success. Replaces a signal that stood there; with nothing to say it leaves the fields alone.
pub fn advise(headers: &mut HeaderMap, advice: Advice) {
    if advice == Advice::default() {
        return;
    }
    let tier_alone = Advice {
        tier: advice.tier,
        ..Advice::default()
    };
    if advice == tier_alone {
        // What nearly every success says.
        let signal = match advice.tier {
            Some(Tier::Critical) => "v=1, tier=critical",
            Some(Tier::NonSheddable) => "v=1, tier=non-sheddable",
            Some(Tier::Deferrable) | None => "v=1, tier=deferrable",
        };
        headers.insert(field_name::OVERLOAD_SIGNAL, HeaderValue::from_static(signal));
    } else {
        set(headers, field_name::OVERLOAD_SIGNAL, signal::advice(advice));
    }
}

/// [`advise`] without a tier.
pub fn advice(headers: &mut HeaderMap, deferred: bool, degraded: bool, state: Option<ServiceState>) {
    let advice = Advice {
        deferred,
        degraded,
        state,
        tier: None,
    };
    advise(headers, advice);
}

/// Sets a field to the text of a structured value, which is printable ASCII and so always a header value.
fn set(headers: &mut HeaderMap, name: http::HeaderName, text: String) {
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert(name, value);
    }
}
