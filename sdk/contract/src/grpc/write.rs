//! Writing a refusal for gRPC (GRP-01 to GRP-06).

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use rand_core::Rng;

use super::{DOMAIN, Encoded, Info, PUSHBACK_MS};
use crate::limits::MAX_HINT;
use crate::write::{Audience, Values, refusal_signal};
use crate::{Overload, Retry, Scope, field_name};

/// Least and greatest width of the window that a pushback is drawn from where the hint has no end: what a caller
/// makes for itself after a first plain hint (section 5).
const OWN_WIDTH_MS: (u32, u32) = (50, 5000);

/// Encodes a refusal, brought inside the contract's limits as [`crate::write::overload`] does.
///
/// A gRPC client waits exactly as long as the pushback says, so it is drawn anew for each answer, from
/// [after, max] (GRP-05, GRP-06). Where the hint has no `max` it is drawn from the window that a caller would make
/// for itself.
pub fn write<R: Rng + ?Sized>(overload: &Overload, audience: Audience, rng: &mut R) -> Encoded {
    let values = Values::new(overload, audience);
    let mut metadata = HeaderMap::with_capacity(2);
    let signal = refusal_signal(&values, overload, audience);
    // A serialized Dictionary is printable ASCII, so it always is a header value.
    if let Ok(signal) = HeaderValue::try_from(signal) {
        metadata.insert(field_name::OVERLOAD_SIGNAL, signal);
    }
    match (values.retry, values.after) {
        (Retry::After, Some(after)) => {
            let pushback = draw(after, values.max, rng);
            metadata.insert(PUSHBACK_MS, HeaderValue::from(pushback));
        }
        (Retry::No, _) => {
            metadata.insert(PUSHBACK_MS, HeaderValue::from_static("-1"));
        }
        (Retry::After | Retry::Elsewhere, _) => {}
    }
    let retry_delay = values
        .after
        .filter(|_| values.retry == Retry::After)
        .map(|ms| Duration::from_millis(u64::from(ms)));
    Encoded {
        code: values.code.grpc(),
        message: overload
            .detail
            .clone()
            .map_or_else(|| values.code.title().to_owned(), short),
        info: info(&values),
        retry_delay,
        metadata,
    }
}

fn info(values: &Values) -> Info {
    let mut metadata = vec![
        ("contract_version", "1".to_owned()),
        ("retry", values.retry.as_str().to_owned()),
        ("applied", values.applied.as_str().to_owned()),
        (
            "scope",
            values.scope.unwrap_or(Scope::Request).as_str().to_owned(),
        ),
        ("hop", values.hop.to_string()),
    ];
    if let Some(state) = values.state {
        metadata.push(("state", state.as_str().to_owned()));
    }
    Info {
        reason: values.code.as_str().to_ascii_uppercase(),
        domain: DOMAIN.to_owned(),
        metadata: metadata
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
    }
}

fn short(detail: String) -> String {
    crate::read::cut(detail, crate::limits::MAX_DETAIL_BYTES)
}

/// A value in [after, max], or in the caller's own window where there is no max; at most 24 h.
fn draw<R: Rng + ?Sized>(after: u32, max: Option<u32>, rng: &mut R) -> u32 {
    let (least, most) = OWN_WIDTH_MS;
    let width = max.map_or((after / 2).clamp(least, most), |max| max.saturating_sub(after));
    let limit = u32::try_from(MAX_HINT.as_millis()).unwrap_or(u32::MAX);
    let width = width.min(limit.saturating_sub(after));
    // A 32-bit draw scaled to 0..=width: its bias is below one part in 2^15 for the widest window, a minute.
    let scaled = (u64::from(rng.next_u32()) * (u64::from(width) + 1)) >> 32;
    after.saturating_add(u32::try_from(scaled).unwrap_or(width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg64Mcg;

    #[test]
    fn a_pushback_reaches_both_ends_of_the_window_and_never_leaves_it() {
        let mut rng = Pcg64Mcg::new(3);
        let drawn: Vec<u32> = (0..2000).map(|_| draw(100, Some(120), &mut rng)).collect();
        assert_eq!(drawn.iter().min(), Some(&100));
        assert_eq!(drawn.iter().max(), Some(&120));
    }

    #[test]
    fn a_pushback_without_a_max_is_drawn_from_the_callers_own_window() {
        let mut rng = Pcg64Mcg::new(4);
        for (after, last) in [(1, 51), (1000, 1500), (60_000, 65_000), (86_400_000, 86_400_000)] {
            let drawn: Vec<u32> = (0..200).map(|_| draw(after, None, &mut rng)).collect();
            assert!(drawn.iter().all(|ms| (after..=last).contains(ms)), "{after}");
        }
    }
}
