//! `RateLimit` and `RateLimit-Policy` beside `rate_limited` (SRV-23, draft-ietf-httpapi-ratelimit-headers).

use http::HeaderMap;
use sfv::{Integer, ListSerializer, StringRef, key_ref};

use super::set;
use crate::PolicyQuota;
use crate::limits::{MAX_NAME_BYTES, MAX_QUOTAS};
use crate::read::{RATE_LIMIT, RATE_LIMIT_POLICY};

/// Writes both fields; no quotas, no fields. Exhausted quotas come first, so that the limit never cuts one that
/// `Retry-After` rests on before one that it does not.
pub(super) fn write(headers: &mut HeaderMap, quotas: &[PolicyQuota]) {
    let mut quotas: Vec<&PolicyQuota> = quotas.iter().collect();
    quotas.sort_by_key(|quota| quota.remaining != 0);
    quotas.truncate(MAX_QUOTAS);
    let (mut limits, mut policies) = (ListSerializer::new(), ListSerializer::new());
    for quota in quotas {
        let name: String = quota
            .name
            .chars()
            .map(|c| if matches!(c, ' '..='~') { c } else { '_' })
            .take(MAX_NAME_BYTES)
            .collect();
        let Ok(name) = StringRef::from_str(&name) else {
            continue;
        };
        let _ = limits
            .bare_item(name)
            .parameter(key_ref("r"), integer(quota.remaining))
            .parameter(key_ref("t"), integer(quota.reset_seconds));
        let _ = policies
            .bare_item(name)
            .parameter(key_ref("q"), integer(quota.quota))
            .parameter(key_ref("w"), integer(quota.window_seconds));
    }
    for (name, text) in [
        (RATE_LIMIT, limits.finish()),
        (RATE_LIMIT_POLICY, policies.finish()),
    ] {
        if let Some(text) = text {
            set(headers, name, text);
        }
    }
}

/// An RFC 9651 Integer has 15 digits.
fn integer(value: u64) -> Integer {
    i64::try_from(value)
        .ok()
        .and_then(|value| Integer::try_from(value).ok())
        .unwrap_or(Integer::MAX)
}
