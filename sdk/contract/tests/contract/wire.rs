//! What the tests of this crate share: a reading in one step, and arbitrary values.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdoff_contract::read::{Compat, Head, Malformed, ReadOptions, Reading};
use holdoff_contract::write::Encoded;
use holdoff_contract::{
    Applied, BodyMember, Code, Extension, Granularity, Hint, Overload, PolicyQuota, Retry, Scope,
    ServiceState, Tier,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Mon, 03 Mar 2025 12:00:00 GMT.
pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_741_003_200)
}

pub(crate) fn fields(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    headers
}

pub(crate) fn read(status: u16, headers: &HeaderMap, body: Option<&[u8]>) -> Reading {
    let options = ReadOptions {
        now: now(),
        compat: Compat::On,
    };
    let head = Head::read(StatusCode::from_u16(status).unwrap(), headers, &options);
    let body = body.filter(|_| head.wants_body());
    head.finish(body)
}

pub(crate) fn refused(status: u16, lines: &[(&str, &str)], body: Option<&str>) -> (Overload, Malformed) {
    match read(status, &fields(lines), body.map(str::as_bytes)) {
        Reading::Overload(overload, malformed) => (*overload, malformed),
        Reading::NotOverload => panic!("{status} {lines:?} is not read as an overload"),
    }
}

pub(crate) fn read_back(encoded: &Encoded) -> Reading {
    read(encoded.status.as_u16(), &encoded.headers, Some(&encoded.body))
}

pub(crate) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| value.to_str().unwrap().to_owned())
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn code() -> impl Strategy<Value = Code> {
    prop_oneof![
        9 => select(Code::REGISTERED),
        1 => "x_[a-z0-9_]{1,61}".prop_map(|code| code.parse().unwrap()),
    ]
}

fn hint() -> impl Strategy<Value = Hint> {
    let after = 1..=86_400_000_u64;
    prop_oneof![
        Just(Hint::Absent),
        after.clone().prop_map(|delay| Hint::After {
            delay: ms(delay),
            granularity: Granularity::Milliseconds
        }),
        (after, 0..=60_000_u64).prop_map(|(delay, width)| Hint::Window {
            delay: ms(delay),
            max: ms(delay + width)
        }),
    ]
}

fn extensions() -> impl Strategy<Value = Vec<Extension>> {
    let member = select(vec![
        "?1",
        "?0",
        "12",
        "-1.5;p",
        "tok;a=\"b\"",
        "\"a \\\" b\"",
        "(1 2);x",
        ":aGk=:",
    ]);
    proptest::collection::btree_map("zz[a-z0-9_.*-]{0,6}", member, 0..4).prop_map(|map| {
        let extension = |(key, member): (String, &str)| Extension {
            key,
            member: member.to_owned(),
        };
        map.into_iter().map(extension).collect()
    })
}

fn members() -> impl Strategy<Value = Vec<BodyMember>> {
    let json = select(vec!["1", "null", "\"\\r\\n\"", "{\"a\": [1]}", "1e400"]);
    proptest::collection::btree_map("zz.{0,6}", json, 0..4).prop_map(|map| {
        map.into_iter()
            .map(|(name, json)| BodyMember {
                name,
                json: json.to_owned(),
            })
            .collect()
    })
}

/// Values inside the contract's limits: what a server or relay of ours makes.
pub(crate) fn overload() -> impl Strategy<Value = Overload> {
    let head = (
        code(),
        hint(),
        select(Retry::ALL),
        select(Applied::ALL),
        select(Scope::ALL),
        0..16_u8,
    );
    let words = (
        option::of(select(ServiceState::ALL)),
        option::of(select(Tier::ALL)),
    );
    let texts = (
        option::of("\\PC{0,60}|[\\x00-\\x1f\"\\\\]{0,9}"),
        option::of("[a-z0-9-]{1,40}"),
    );
    let numbers = (
        option::of(any::<u128>()),
        option::of(0..100_000_000_u64),
        option::of(0..100_000_000_u64),
    );
    (head, words, texts, numbers, extensions(), members()).prop_map(
        |(
            (code, hint, retry, applied, scope, hop),
            (state, tier),
            (detail, origin),
            numbers,
            extensions,
            members,
        )| {
            Overload {
                hint,
                retry,
                applied,
                scope,
                hop,
                state,
                tier,
                detail,
                origin,
                instance: numbers.0.map(uuid::Uuid::from_u128),
                min_deadline: numbers.1.map(ms),
                predicted_wait: numbers.2.map(ms),
                extensions,
                members,
                ..Overload::new(code)
            }
        },
    )
}

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        any::<Duration>(),
        Just(Duration::MAX),
        Just(Duration::ZERO),
        (0..200_000_000_u64).prop_map(ms)
    ]
}

fn wild_hint() -> impl Strategy<Value = Hint> {
    let granularity = select(vec![Granularity::Milliseconds, Granularity::Seconds]);
    prop_oneof![
        Just(Hint::Absent),
        (any_duration(), granularity).prop_map(|(delay, granularity)| Hint::After { delay, granularity }),
        (any_duration(), any_duration()).prop_map(|(delay, max)| Hint::Window { delay, max }),
    ]
}

fn wild_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "(?s).{0,40}",
        Just("\r\nSet-Cookie: a=b\r\n".to_owned()),
        Just("é\u{0}\"\\".repeat(3000)),
        Just("?1, retry=after, applied=no".to_owned()),
    ]
}

fn wild_quota() -> impl Strategy<Value = PolicyQuota> {
    (wild_text(), any::<[u64; 4]>(), any::<bool>()).prop_map(|(name, [quota, window, left, reset], empty)| {
        let remaining = if empty { 0 } else { left };
        PolicyQuota {
            name,
            quota,
            window_seconds: window,
            remaining,
            reset_seconds: reset,
        }
    })
}

/// Values far outside every limit, since the fields are public and peers are hostile.
pub(crate) fn wild_overload() -> impl Strategy<Value = Overload> {
    let wild = (
        wild_hint(),
        any::<u8>(),
        option::of(wild_text()),
        option::of(wild_text()),
        any::<bool>(),
    );
    let extensions = vec((wild_text(), wild_text()), 0..40);
    let known = select(vec!["v", "retry", "zz", "tenant", "zz=1, after", "code"]);
    (
        overload(),
        wild,
        extensions,
        known,
        vec(wild_quota(), 0..20),
        [any_duration(), any_duration()],
    )
        .prop_map(
            |(base, (hint, hop, detail, origin, coded), extensions, known, quotas, [deadline, wait])| {
                let known = (known.to_owned(), "\"x\"".to_owned());
                let pairs = || extensions.iter().cloned().chain([known.clone()]);
                Overload {
                    code: base.code.clone().filter(|_| coded),
                    hint,
                    hop,
                    detail,
                    origin,
                    quotas,
                    min_deadline: Some(deadline),
                    predicted_wait: Some(wait),
                    extensions: pairs().map(|(key, member)| Extension { key, member }).collect(),
                    members: pairs().map(|(name, json)| BodyMember { name, json }).collect(),
                    ..base
                }
            },
        )
}
