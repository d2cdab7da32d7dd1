//! Deadlines that other stacks already send.
//!
//! A caller behind gRPC, Connect or Envoy states its patience in their fields. Where a service sits behind such a hop it
//! should not plan with more time than the caller has, so the smallest of all counts (SRQ-04). They are off by default:
//! a field that no trusted hop sets or strips is whatever a stranger writes, and may mean something else.

use std::time::Duration;

use holdoff_contract::limits::MAX_DEADLINE;
use http::HeaderMap;

/// Whether `grpc-timeout`, `connect-timeout-ms` and `x-envoy-expected-rq-timeout-ms` count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignDeadlines {
    /// They are not looked at: the default.
    #[default]
    Ignored,
    /// The smallest of them and `Overload-Deadline-Ms` counts.
    Counted,
}

impl ForeignDeadlines {
    /// The deadline to use beside the contract's own.
    pub(crate) fn smallest(self, own: Option<Duration>, headers: &HeaderMap) -> Option<Duration> {
        if self == Self::Ignored {
            return own;
        }
        let foreign = [
            single(headers, "grpc-timeout").and_then(grpc),
            single(headers, "connect-timeout-ms").and_then(positive_ms),
            single(headers, "x-envoy-expected-rq-timeout-ms").and_then(positive_ms),
        ];
        foreign
            .into_iter()
            .chain([own])
            .flatten()
            .min()
            .map(|deadline| deadline.min(MAX_DEADLINE))
    }
}

/// A field that came once, as text; anything else is as if absent.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then(|| value.trim())
}

/// At most this many digits, as in gRPC's `TimeoutValue` and Connect's field.
fn digits(text: &str, most: usize) -> Option<u64> {
    let fits = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

/// `TimeoutValue TimeoutUnit`: up to eight digits and one of H M S m u n. Zero has run out.
fn grpc(text: &str) -> Option<Duration> {
    let (value, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let value = digits(value, 8)?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

/// Up to ten digits of milliseconds. Zero means "no limit" to Envoy and is as if absent.
fn positive_ms(text: &str) -> Option<Duration> {
    digits(text, 10).filter(|ms| *ms > 0).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(own: Option<u64>, fields: &[(&'static str, &str)]) -> Option<u128> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        let own = own.map(Duration::from_millis);
        ForeignDeadlines::Counted
            .smallest(own, &headers)
            .map(|deadline| deadline.as_millis())
    }

    #[test]
    fn the_smallest_of_all_counts() {
        let all = [
            ("grpc-timeout", "2S"),
            ("connect-timeout-ms", "900"),
            ("x-envoy-expected-rq-timeout-ms", "700"),
        ];
        assert_eq!(read(Some(800), &all), Some(700));
        assert_eq!(read(Some(600), &all), Some(600));
        assert_eq!(read(None, &all[..2]), Some(900));
        assert_eq!(read(None, &[]), None);
        assert_eq!(
            read(None, &[("grpc-timeout", "99999999H")]),
            Some(MAX_DEADLINE.as_millis())
        );
    }

    #[test]
    fn what_is_malformed_or_means_no_limit_is_as_if_absent() {
        for (name, value) in [
            ("grpc-timeout", ""),
            ("grpc-timeout", "S"),
            ("grpc-timeout", "1s"),
            ("grpc-timeout", "-1S"),
            ("grpc-timeout", "123456789S"),
            ("grpc-timeout", "1\u{e9}"),
            ("connect-timeout-ms", "1.5"),
            ("connect-timeout-ms", "12345678901"),
            ("x-envoy-expected-rq-timeout-ms", "0"),
            ("x-envoy-expected-rq-timeout-ms", "+5"),
        ] {
            assert_eq!(read(Some(800), &[(name, value)]), Some(800), "{name}: {value}");
        }
        assert_eq!(
            read(Some(800), &[("grpc-timeout", "1m"), ("grpc-timeout", "1m")]),
            Some(800),
            "two lines"
        );
        assert_eq!(
            read(Some(800), &[("grpc-timeout", "0m")]),
            Some(0),
            "no time left"
        );
    }

    #[test]
    fn they_are_ignored_unless_they_are_switched_on() {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-timeout", "1m".parse().unwrap());
        assert_eq!(ForeignDeadlines::default().smallest(None, &headers), None);
    }
}
