//! What holds for every value and every input.

use std::collections::BTreeMap;

use holdoff_contract::read::{Advice, Reading};
use holdoff_contract::write::{self, Audience};
use holdoff_contract::{
    Applied, CalledAs, Code, Granularity, Hint, Overload, OverloadStatus, Relay, RequestFields, Retry, Scope,
    limits,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::value::RawValue;

use crate::wire::{ms, overload, read, read_back, text, wild_overload};

/// What a reader of `written` must see.
fn expected(written: &Overload, audience: Audience) -> Overload {
    let trusted = audience == Audience::Trusted;
    let invites = written.applied == Applied::No || written.retry != Retry::No;
    let second = Hint::After {
        delay: ms(1000),
        granularity: Granularity::Milliseconds,
    };
    let coarse = |time: std::time::Duration| {
        let (mut figure, mut step) = (u64::try_from(time.as_millis()).unwrap(), 1);
        while figure >= 100 {
            figure = figure.div_ceil(10);
            step *= 10;
        }
        ms(figure * step).min(limits::MAX_HINT)
    };
    let unattainable = written.code == Some(Code::DeadlineUnattainable);
    Overload {
        hint: if written.hint == Hint::Absent && invites {
            second
        } else {
            written.hint
        },
        state: written.state.filter(|_| trusted),
        origin: written.origin.clone().filter(|_| trusted && written.hop > 0),
        instance: written.instance.filter(|_| trusted || written.hop == 0),
        min_deadline: written.min_deadline.filter(|_| unattainable).map(coarse),
        predicted_wait: written.predicted_wait.filter(|_| trusted).map(coarse),
        ..written.clone()
    }
}

fn relay() -> impl Strategy<Value = Relay> {
    let called_as = select(vec![CalledAs::CallersTenant, CalledAs::OwnService]);
    (0..200_000_000_u64, called_as, any::<[bool; 3]>()).prop_map(
        |(elapsed, called_as, [retried, idempotent, side_effect])| Relay {
            elapsed: ms(elapsed),
            called_as,
            retried,
            idempotent,
            side_effect,
        },
    )
}

const FIELDS: [&str; 21] = [
    "overload-signal",
    "retry-after",
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "x-amz-retry-after",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-should-retry",
    "x-envoy-ratelimited",
    "date",
    "age",
    "content-type",
    "content-length",
    "overload-deadline-ms",
    "overload-tier",
    "overload-tenant",
    "overload-attempt",
    "overload-task-class",
    "idempotency-key",
];

/// Bytes near what the fields mean, so that the parsers are entered, and bytes from anywhere.
fn field_value() -> impl Strategy<Value = Vec<u8>> {
    let near = "(v=1|code=a|retry=|after=|max=|[0-9]{1,25}|-|\\.|, |;r=0;t=|\"|\\\\|\\(|\\)|@|%\"|:|\
        Fri, |Friday, |15[ -](Jan|Feb)[ -]([0-9]{2}|[0-9]{4}) | 08:00:(30|60)| GMT| |true|false){0,8}";
    prop_oneof![near.prop_map(String::into_bytes), vec(any::<u8>(), 0..60)]
}

fn head() -> impl Strategy<Value = HeaderMap> {
    vec((select(FIELDS.as_slice()), field_value()), 0..10).prop_map(|lines| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        headers
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let value = "(-?[0-9]{1,30}(\\.[0-9]{1,4})?(e[0-9]{1,4})?|\"[a-z_]{0,12}\"|null|true|\\[\\]|\\{\\})";
    let name = "(retry|applied|code|retry_after_ms|retry_after_max_ms|min_deadline_ms|predicted_wait_ms|hop|detail|instance|contract_version|zz)";
    let members = vec((name, value), 0..6).prop_map(|members| {
        let members: String = members
            .iter()
            .map(|(name, value)| format!(",\"{name}\":{value}"))
            .collect();
        format!("{{\"contract_version\":1,\"code\":\"queue_full\"{members}}}").into_bytes()
    });
    prop_oneof![members, vec(any::<u8>(), 0..80)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn reading_never_panics_and_stays_inside_the_limits(
        status in 100_u16..600, mut headers in head(), body in body(), problem in any::<bool>(),
    ) {
        if problem {
            headers.insert("content-type", HeaderValue::from_static("application/problem+json"));
        }
        for status in [status, 429, 503, 504] {
            let Reading::Overload(read, _) = read(status, &headers, Some(&body)) else { continue };
            prop_assert!(OverloadStatus::from_u16(status) == Some(read.status));
            prop_assert!(read.hint.delay_or_zero() <= limits::MAX_HINT);
            if let Hint::Window { delay, max } = read.hint {
                prop_assert!(!delay.is_zero() && delay <= max && max <= delay + limits::MAX_WINDOW);
            }
            prop_assert!(read.hop <= limits::MAX_HOP);
            let times = [read.min_deadline, read.predicted_wait];
            prop_assert!(times.into_iter().flatten().all(|time| time <= limits::MAX_HINT));
            prop_assert!(read.extensions.len() <= limits::MAX_EXTENSIONS);
            prop_assert!(read.to_string().bytes().all(|b| (b' '..=b'~').contains(&b)));
        }
        let _ = Advice::read(&headers);
        let fields = RequestFields::read(&headers);
        prop_assert!(fields.deadline.is_none_or(|deadline| deadline <= limits::MAX_DEADLINE));
    }

    #[test]
    fn what_we_write_we_read_back(written in overload()) {
        for audience in [Audience::Trusted, Audience::Stranger] {
            let Reading::Overload(read, malformed) = read_back(&write::overload(&written, audience)) else {
                panic!("not an overload");
            };
            prop_assert_eq!(&*read, &expected(&written, audience));
            prop_assert_eq!(malformed.sources, 0);
        }
    }

    #[test]
    fn whatever_we_are_given_to_write_is_a_response_of_the_contract(written in wild_overload()) {
        for audience in [Audience::Trusted, Audience::Stranger] {
            let encoded = write::overload(&written, audience);
            let headers = &encoded.headers;
            prop_assert!(headers.get("overload-signal").unwrap().len() <= limits::MAX_SIGNAL_BYTES);
            prop_assert!(encoded.body.len() <= limits::MAX_BODY_WRITTEN);
            prop_assert_eq!(headers.keys_len(), headers.len());
            prop_assert!(headers.values().all(|value| value.to_str().is_ok()));
            let body: BTreeMap<String, &RawValue> = serde_json::from_slice(&encoded.body).unwrap();
            prop_assert_eq!(body["status"].get(), encoded.status.as_str());
            let Reading::Overload(read, malformed) = read_back(&encoded) else { panic!("not an overload") };
            prop_assert_eq!(malformed.sources, 0);
            let code = read.code.clone().unwrap();
            prop_assert!(!code.is_registered() || code.status() == read.status);
            let after = read.hint.delay_or_zero();
            prop_assert!(read.hop < limits::MAX_HOP || read.retry == Retry::No);
            let invites = read.applied == Applied::No || read.retry != Retry::No;
            let retry_after = text(headers, "retry-after").map(|s| s.parse::<u128>().unwrap());
            prop_assert_eq!(retry_after, invites.then(|| after.as_millis().div_ceil(1000)));
            prop_assert!(!invites || (ms(1)..=limits::MAX_HINT).contains(&after));
            if let Hint::Window { delay, max } = read.hint {
                prop_assert!(delay <= max && max <= delay + limits::MAX_WINDOW);
            }
            if audience == Audience::Stranger {
                prop_assert!(read.state.is_none() && read.origin.is_none() && read.predicted_wait.is_none());
                prop_assert!(read.extensions.iter().all(|extension| extension.key != "tenant"));
            }
            // A value that went over the wire once is stable.
            if code != Code::RateLimited {
                prop_assert_eq!(read_back(&write::overload(&read, audience)).into_overload().unwrap(), *read);
            }
        }
    }

    #[test]
    fn a_relay_never_widens_what_it_received(received in overload(), relay in relay()) {
        let sent = received.for_caller(&relay);
        prop_assert!(sent.retry >= received.retry);
        prop_assert!(sent.applied >= received.applied);
        prop_assert_eq!(sent.hop, received.hop + 1);
        prop_assert_eq!(sent.scope, Scope::Request);
        let left = received.hint.delay_or_zero().saturating_sub(relay.elapsed).max(ms(1));
        let least = if received.hint == Hint::Absent { ms(1000) } else { left };
        prop_assert_eq!(sent.hint.delay_or_zero(), least);
        let windows = [received.hint, sent.hint].map(|hint| matches!(hint, Hint::Window { .. }));
        prop_assert_eq!(windows[0], windows[1]);
        if relay.retried || sent.hop == limits::MAX_HOP || (sent.applied == Applied::Maybe && !relay.idempotent) {
            prop_assert_eq!(sent.retry, Retry::No);
        }
        prop_assert!(!relay.side_effect || sent.applied == Applied::Maybe);
        let kept = relay.called_as == CalledAs::CallersTenant || sent.status != OverloadStatus::TooManyRequests;
        prop_assert!(kept, "{}", sent);
        prop_assert_eq!(&sent.extensions, &received.extensions);
        prop_assert_eq!(&sent.members, &received.members);
    }

    #[test]
    fn nothing_wild_makes_a_relay_panic(received in wild_overload(), other in wild_overload(), relay in relay()) {
        let sent = received.for_caller(&relay);
        prop_assert!(sent.hop <= limits::MAX_HOP && sent.retry >= received.retry);
        let both = Overload::combine([sent.clone(), other.clone()]).unwrap();
        prop_assert!(both.hint.delay_or_zero() == sent.hint.delay_or_zero().max(other.hint.delay_or_zero()));
        prop_assert!(both.retry >= sent.retry && both.retry >= other.retry);
        prop_assert!(both.applied >= sent.applied && both.applied >= other.applied);
        prop_assert!(both.extensions.len() <= limits::MAX_EXTENSIONS);
        prop_assert!(both.to_string().bytes().all(|b| (b' '..=b'~').contains(&b)));
    }
}
