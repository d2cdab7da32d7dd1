//! What others already send (section 8).

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::merge::Tally;
use super::number::{self, Unit};
use super::{lines, rate_limit};

static MS_FIELDS: [HeaderName; 3] = [
    crate::field_name::RETRY_AFTER_MS,
    HeaderName::from_static("x-ms-retry-after-ms"),
    HeaderName::from_static("x-amz-retry-after"),
];
static RESET_FIELDS: [HeaderName; 2] = [
    HeaderName::from_static("ratelimit-reset"),
    HeaderName::from_static("x-ratelimit-reset-after"),
];
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const ENVOY_RATE_LIMITED: HeaderName = HeaderName::from_static("x-envoy-ratelimited");

/// The largest millisecond field (CMP-02).
pub(super) fn milliseconds(headers: &HeaderMap, tally: &mut Tally) -> Option<u64> {
    MS_FIELDS
        .iter()
        .filter_map(|name| largest(headers, name, Unit::Milliseconds, tally))
        .max()
}

/// The largest quota reset, in milliseconds (CMP-01, CMP-03, CMP-04). A cached response says nothing about now.
pub(super) fn quota_reset(status: StatusCode, headers: &HeaderMap, tally: &mut Tally) -> Option<u64> {
    if headers.contains_key(header::AGE) {
        return None;
    }
    let resets = if status == StatusCode::TOO_MANY_REQUESTS {
        RESET_FIELDS.as_slice()
    } else {
        &[]
    };
    let reset = resets
        .iter()
        .filter_map(|name| largest(headers, name, Unit::Seconds, tally))
        .max();
    reset.max(rate_limit::reset(headers, tally))
}

/// `x-ratelimit-reset` in a unit that was configured for its destination (CMP-05), in milliseconds. A cached response
/// says nothing about now.
pub(super) fn configured_reset(
    headers: &HeaderMap,
    ms: impl Fn(&str) -> Option<u64>,
    tally: &mut Tally,
) -> Option<u64> {
    if headers.contains_key(header::AGE) {
        return None;
    }
    let lines = lines(headers, &X_RATELIMIT_RESET);
    lines
        .filter_map(|line| tally.keep(line.to_str().ok().and_then(|text| ms(text.trim()))))
        .max()
}

/// True where somebody forbids a retry. Permissions of others only tighten, so a `true` is no news (CMP-06, CMP-07).
/// `x-envoy-overloaded` says nothing that the status does not say.
pub(super) fn forbids_retry(headers: &HeaderMap) -> bool {
    let says = |name: &HeaderName, word: &str| {
        headers
            .get_all(name)
            .iter()
            .any(|value| trimmed(value).eq_ignore_ascii_case(word.as_bytes()))
    };
    says(&SHOULD_RETRY, "false")
        || (headers.contains_key(ENVOY_RATE_LIMITED) && !says(&ENVOY_RATE_LIMITED, "false"))
}

fn trimmed(value: &HeaderValue) -> &[u8] {
    value.as_bytes().trim_ascii()
}

fn largest(headers: &HeaderMap, name: &HeaderName, unit: Unit, tally: &mut Tally) -> Option<u64> {
    let mut largest = None;
    let mut found = lines(headers, name);
    for line in &mut found {
        let members = line.to_str().unwrap_or("").split(',');
        for member in members {
            largest = largest.max(tally.keep(number::decimal(member.trim_matches([' ', '\t']), unit)));
        }
    }
    if found.cut {
        tally.malformed();
    }
    largest
}
