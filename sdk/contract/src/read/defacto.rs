//! What others already send (section 8).

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser, key_ref};

use super::merge::Tally;
use super::number::{self, Unit};
use super::{lines, signal};

static MS_FIELDS: [HeaderName; 3] = [
    crate::field_name::RETRY_AFTER_MS,
    HeaderName::from_static("x-ms-retry-after-ms"),
    HeaderName::from_static("x-amz-retry-after"),
];
static RESET_FIELDS: [HeaderName; 2] = [
    HeaderName::from_static("ratelimit-reset"),
    HeaderName::from_static("x-ratelimit-reset-after"),
];
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
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
    reset.max(rate_limit(headers, tally))
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

/// The largest `t` of an item with `r=0`. The field is a List of items; one that is a Dictionary of items parses too.
fn rate_limit(headers: &HeaderMap, tally: &mut Tally) -> Option<u64> {
    let mut largest = None;
    let mut found = lines(headers, &RATE_LIMIT);
    for line in &mut found {
        let entries = Parser::new(line.as_bytes()).parse::<List>().or_else(|_| {
            Parser::new(line.as_bytes())
                .parse::<Dictionary>()
                .map(|d| d.into_iter().map(|(_, entry)| entry).collect())
        });
        let Some(entries) = tally.keep(entries.ok()) else {
            continue;
        };
        for entry in &entries {
            if let ListEntry::Item(item) = entry {
                largest = largest.max(exhausted(item, tally));
            }
        }
    }
    if found.cut {
        tally.malformed();
    }
    largest
}

/// `t` in milliseconds where nothing is left.
fn exhausted(item: &Item, tally: &mut Tally) -> Option<u64> {
    let left = item.params.get(key_ref("r"))?;
    if left.as_integer() != Some(0.into()) {
        return None;
    }
    let reset = item.params.get(key_ref("t"))?;
    let ms = match reset {
        BareItem::Decimal(seconds) => u64::try_from(i64::from(seconds.as_integer_scaled_1000())).ok(),
        whole => signal::non_negative(whole).map(|seconds| seconds.saturating_mul(1000)),
    };
    tally.keep(ms)
}
