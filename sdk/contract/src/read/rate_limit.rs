//! `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers): Lists of items, one a quota.

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, Item, KeyRef, List, ListEntry, Parser, key_ref};

use super::merge::Tally;
use super::{lines, signal};
use crate::PolicyQuota;
use crate::limits::MAX_QUOTAS;

/// What is left and until when.
pub(crate) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// How much there is in a window.
pub(crate) const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The largest `t` of an item with `r=0`, in milliseconds (CMP-04).
pub(super) fn reset(headers: &HeaderMap, tally: &mut Tally) -> Option<u64> {
    let items = items(headers, &RATE_LIMIT, tally);
    items.iter().filter_map(|item| exhausted(item, tally)).max()
}

/// The quotas that both fields describe whole, kept for a relay that passes the refusal on (INT-16).
pub(super) fn quotas(headers: &HeaderMap) -> Vec<PolicyQuota> {
    if !headers.contains_key(RATE_LIMIT) || !headers.contains_key(RATE_LIMIT_POLICY) {
        return Vec::new();
    }
    let mut tally = Tally::default();
    let policies = items(headers, &RATE_LIMIT_POLICY, &mut tally);
    let limits = items(headers, &RATE_LIMIT, &mut tally);
    let whole = limits.iter().filter_map(|limit| {
        let policy = policies
            .iter()
            .find(|policy| policy.bare_item == limit.bare_item)?;
        Some(PolicyQuota {
            name: limit.bare_item.as_string()?.as_str().to_owned(),
            quota: integer(policy, key_ref("q"))?,
            window_seconds: integer(policy, key_ref("w"))?,
            remaining: integer(limit, key_ref("r"))?,
            reset_seconds: integer(limit, key_ref("t"))?,
        })
    });
    whole.take(MAX_QUOTAS).collect()
}

fn integer(item: &Item, key: &KeyRef) -> Option<u64> {
    u64::try_from(i64::from(item.params.get(key)?.as_integer()?)).ok()
}

/// The items of a field. An older draft had a Dictionary; one whose members carry the same parameters is read too.
fn items(headers: &HeaderMap, name: &HeaderName, tally: &mut Tally) -> Vec<Item> {
    let mut items = Vec::new();
    let mut found = lines(headers, name);
    for line in &mut found {
        let line = line.as_bytes();
        let entries = Parser::new(line).parse::<List>().or_else(|_| {
            let dictionary = Parser::new(line).parse::<Dictionary>()?;
            Ok::<List, sfv::Error>(dictionary.into_values().collect())
        });
        let entries = tally.keep(entries.ok()).unwrap_or_default();
        items.extend(entries.into_iter().filter_map(|entry| match entry {
            ListEntry::Item(item) => Some(item),
            ListEntry::InnerList(_) => None,
        }));
    }
    if found.cut {
        tally.malformed();
    }
    items
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
