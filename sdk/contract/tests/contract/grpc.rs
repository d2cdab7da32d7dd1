//! gRPC: what is written, what is read, and that the one is the other.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use holdoff_contract::grpc::{self, Answer, DOMAIN, Info, PUSHBACK_MS, RetryDelay};
use holdoff_contract::read::{Compat, ReadOptions, Reading};
use holdoff_contract::write::Audience;
use holdoff_contract::{
    Applied, Attempt, Code, GrpcCode, Hint, Overload, OverloadStatus, RequestFields, Retry, Scope,
    ServiceState, Tier,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;

const OPTIONS: ReadOptions = ReadOptions {
    now: UNIX_EPOCH,
    compat: Compat::On,
};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn metadata(lines: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    map
}

fn number(code: GrpcCode) -> u32 {
    match code {
        GrpcCode::Unavailable => 14,
        GrpcCode::ResourceExhausted => 8,
        GrpcCode::DeadlineExceeded => 4,
    }
}

fn read(code: u32, lines: &[(&str, &str)], info: Option<&Info>, retry_delay: RetryDelay) -> Reading {
    let metadata = metadata(lines);
    grpc::read(
        &Answer {
            code,
            metadata: &metadata,
            info,
            retry_delay,
        },
        &OPTIONS,
    )
}

fn refused(code: u32, lines: &[(&str, &str)], info: Option<&Info>, retry_delay: RetryDelay) -> Overload {
    read(code, lines, info, retry_delay).into_overload().unwrap()
}

fn info(pairs: &[(&str, &str)]) -> Info {
    let mut metadata: BTreeMap<String, String> = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    metadata
        .entry("contract_version".to_owned())
        .or_insert("1".to_owned());
    Info {
        reason: "QUEUE_FULL".to_owned(),
        domain: DOMAIN.to_owned(),
        metadata,
    }
}

fn windowed(code: Code) -> Overload {
    Overload {
        hint: Hint::Window {
            delay: ms(1740),
            max: ms(2300),
        },
        ..Overload::new(code)
    }
}

#[test]
fn every_code_has_the_status_reason_and_pushback_of_its_permission() {
    let mut rng = Pcg64Mcg::new(1);
    for code in Code::REGISTERED {
        let overload = windowed(code.clone());
        let out = grpc::write(&overload, Audience::Stranger, &mut rng);
        assert_eq!(out.code, code.grpc());
        assert_eq!(out.message, code.title());
        assert_eq!(out.info.reason, code.as_str().to_uppercase());
        assert_eq!(out.info.domain, DOMAIN);
        let expected = [
            ("applied", overload.applied.as_str()),
            ("contract_version", "1"),
            ("hop", "0"),
            ("retry", overload.retry.as_str()),
            ("scope", overload.scope.as_str()),
        ];
        let seen: Vec<_> = out.info.metadata.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(seen, expected, "{code}");
        let pushback = out.metadata.get(PUSHBACK_MS).map(|value| value.to_str().unwrap());
        match overload.retry {
            Retry::After => {
                assert_eq!(out.retry_delay, Some(ms(1740)));
                let drawn: u64 = pushback.unwrap().parse().unwrap();
                assert!((1740..=2300).contains(&drawn), "{drawn}");
            }
            Retry::No => assert_eq!((out.retry_delay, pushback), (None, Some("-1"))),
            Retry::Elsewhere => assert_eq!((out.retry_delay, pushback), (None, None)),
        }
    }
}

#[test]
fn the_state_goes_to_trusted_callers_only() {
    let mut rng = Pcg64Mcg::new(1);
    let overload = Overload {
        state: Some(ServiceState::Shedding),
        ..windowed(Code::TierShed)
    };
    for (audience, state) in [(Audience::Trusted, Some("shedding")), (Audience::Stranger, None)] {
        let out = grpc::write(&overload, audience, &mut rng);
        assert_eq!(out.info.metadata.get("state").map(String::as_str), state);
        let signal = out.metadata["overload-signal"].to_str().unwrap();
        assert_eq!(signal.contains("state"), state.is_some(), "{signal}");
    }
}

#[test]
fn a_hundred_pushbacks_are_not_one() {
    let mut rng = Pcg64Mcg::new(1);
    let overload = windowed(Code::QueueFull);
    let drawn: std::collections::BTreeSet<_> = (0..100)
        .map(|_| grpc::write(&overload, Audience::Stranger, &mut rng).metadata[PUSHBACK_MS].clone())
        .map(|value| value.to_str().unwrap().parse::<u64>().unwrap())
        .collect();
    assert!(drawn.len() > 50, "{drawn:?}");
}

#[test]
fn a_refusal_reads_back_as_it_was_written_with_the_pushback_for_its_delay() {
    let mut rng = Pcg64Mcg::new(1);
    for code in Code::REGISTERED {
        let mut overload = windowed(code.clone());
        overload.scope = Scope::Tenant;
        overload.hop = 2;
        let out = grpc::write(&overload, Audience::Trusted, &mut rng);
        let answer = Answer {
            code: number(out.code),
            metadata: &out.metadata,
            info: Some(&out.info),
            retry_delay: out.retry_delay.map_or(RetryDelay::Absent, RetryDelay::Of),
        };
        let Reading::Overload(back, malformed) = grpc::read(&answer, &OPTIONS) else {
            panic!("{code}");
        };
        assert_eq!(malformed.sources, 0);
        let delay = match overload.retry {
            Retry::After => out.metadata[PUSHBACK_MS].to_str().unwrap().parse().unwrap(),
            _ => 1740,
        };
        let expected = Overload {
            hint: Hint::Window {
                delay: ms(delay),
                max: ms(2300),
            },
            ..overload
        };
        assert_eq!(*back, expected, "{code}");
    }
}

#[test]
fn the_largest_delay_and_the_smallest_permission_of_all_sources_count() {
    let signal = (
        "overload-signal",
        "v=1, code=queue_full, retry=after, applied=no, after=100, max=900",
    );
    let told = refused(
        14,
        &[signal, ("grpc-retry-pushback-ms", "400")],
        None,
        RetryDelay::Of(Duration::from_micros(199_001)),
    );
    let window = |delay| Hint::Window {
        delay: ms(delay),
        max: ms(900),
    };
    assert_eq!(told.hint, window(400));
    let told = refused(
        14,
        &[signal],
        None,
        RetryDelay::Of(Duration::from_micros(199_001)),
    );
    assert_eq!(told.hint, window(200));
    let told = refused(
        14,
        &[signal],
        Some(&info(&[("retry", "no"), ("applied", "maybe")])),
        RetryDelay::Absent,
    );
    assert_eq!((told.retry, told.applied), (Retry::No, Applied::Maybe));
    let told = refused(
        14,
        &[signal, ("grpc-retry-pushback-ms", "-1")],
        None,
        RetryDelay::Absent,
    );
    assert_eq!((told.retry, told.hint), (Retry::No, window(100)));
}

#[test]
fn a_pushback_that_is_negative_cannot_be_parsed_or_comes_twice_means_no() {
    for (value, sources) in [
        ("-1", 0),
        ("-9999999999999999999", 0),
        ("", 1),
        ("soon", 1),
        ("+5", 1),
        ("1e3", 1),
        ("0x10", 1),
        ("5s", 1),
        ("--1", 1),
        ("NaN", 1),
    ] {
        let Reading::Overload(told, malformed) = read(
            14,
            &[("grpc-retry-pushback-ms", value)],
            None,
            RetryDelay::Of(ms(50)),
        ) else {
            panic!("{value:?}");
        };
        assert_eq!(told.retry, Retry::No, "{value:?}");
        assert_eq!(malformed.sources, sources, "{value:?}");
    }
    let twice = [("grpc-retry-pushback-ms", "5"), ("grpc-retry-pushback-ms", "5")];
    assert_eq!(refused(14, &twice, None, RetryDelay::Absent).retry, Retry::No);
    let huge = refused(
        14,
        &[("grpc-retry-pushback-ms", "99999999999999999999")],
        None,
        RetryDelay::Absent,
    );
    assert_eq!(huge.hint.delay_or_zero(), holdoff_contract::limits::MAX_HINT);
}

#[test]
fn resource_exhausted_is_an_invitation_only_where_one_is_given() {
    let retry = |lines: &[_], info: Option<&Info>, delay| refused(8, lines, info, delay).retry;
    assert_eq!(retry(&[], None, RetryDelay::Absent), Retry::No);
    assert_eq!(
        retry(&[("retry-after", "1")], None, RetryDelay::Absent),
        Retry::No
    );
    let bare_info = info(&[("retry", "after")]);
    assert_eq!(retry(&[], Some(&bare_info), RetryDelay::Absent), Retry::No);
    assert_eq!(retry(&[], None, RetryDelay::Malformed), Retry::No);
    assert_eq!(retry(&[], None, RetryDelay::Of(ms(5))), Retry::After);
    assert_eq!(
        retry(&[("grpc-retry-pushback-ms", "5")], None, RetryDelay::Absent),
        Retry::After
    );
    assert_eq!(
        retry(&[("overload-signal", "v=1, after=5")], None, RetryDelay::Absent),
        Retry::After
    );
    assert_eq!(
        retry(&[("overload-signal", "v=2, after=5")], None, RetryDelay::Absent),
        Retry::No
    );
    assert_eq!(
        refused(8, &[], None, RetryDelay::Absent).status,
        OverloadStatus::TooManyRequests
    );
}

#[test]
fn other_statuses_are_no_refusal_whatever_they_carry() {
    let lines = [(
        "overload-signal",
        "v=1, code=queue_full, retry=after, applied=no, after=5",
    )];
    for code in [0, 1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 15, 16, 17, u32::MAX] {
        assert_eq!(
            read(code, &lines, Some(&info(&[])), RetryDelay::Of(ms(5))),
            Reading::NotOverload
        );
    }
    assert_eq!(read(4, &[], None, RetryDelay::Of(ms(5))), Reading::NotOverload);
    let mut foreign = info(&[]);
    foreign.domain = "googleapis.com".to_owned();
    foreign.metadata.remove("contract_version");
    assert_eq!(
        read(4, &[], Some(&foreign), RetryDelay::Absent),
        Reading::NotOverload
    );
    let expired = Info {
        reason: "DEADLINE_EXPIRED".to_owned(),
        ..info(&[])
    };
    let told = refused(4, &[], Some(&expired), RetryDelay::Absent);
    assert_eq!((told.code, told.retry), (Some(Code::DeadlineExpired), Retry::No));
}

#[test]
fn a_bare_unavailable_is_an_overload_without_a_hint() {
    let told = refused(14, &[], None, RetryDelay::Absent);
    assert_eq!(told.status, OverloadStatus::ServiceUnavailable);
    assert_eq!(
        (told.retry, told.applied, told.hint),
        (Retry::After, Applied::Maybe, Hint::Absent)
    );
}

#[test]
fn a_details_reason_that_is_no_code_and_another_version_are_ignored_and_counted() {
    let mut bad = info(&[("retry", "no")]);
    bad.reason = "queue full!".to_owned();
    let newer = info(&[("contract_version", "2"), ("retry", "no")]);
    for info in [bad, newer] {
        let Reading::Overload(told, malformed) = read(14, &[], Some(&info), RetryDelay::Absent) else {
            panic!("{info:?}");
        };
        assert_eq!(
            (told.retry, told.code, malformed.sources),
            (Retry::After, None, 1)
        );
    }
    let unknown = refused(14, &[], Some(&info(&[("retry", "perhaps")])), RetryDelay::Absent);
    assert_eq!(unknown.retry, Retry::No);
}

#[test]
fn an_http_answer_without_a_grpc_status_stands_for_unavailable() {
    let read = |status, lines: &[_]| {
        grpc::read_http(StatusCode::from_u16(status).unwrap(), &metadata(lines), &OPTIONS).into_overload()
    };
    for status in [429, 502, 503, 504] {
        let told = read(status, &[("retry-after", "2")]).unwrap();
        assert_eq!(
            (told.retry, told.hint.delay_or_zero()),
            (Retry::After, ms(2000)),
            "{status}"
        );
        let signal = [(
            "overload-signal",
            "v=1, code=queue_full, retry=no, applied=no, after=70",
        )];
        let told = read(status, &signal).unwrap();
        assert_eq!((told.retry, told.applied), (Retry::No, Applied::No), "{status}");
    }
    assert!(read(429, &[]).is_some() && read(503, &[]).is_some());
    assert_eq!((read(502, &[]), read(504, &[])), (None, None));
    assert_eq!(read(500, &[("retry-after", "2")]), None);
}

#[test]
fn a_request_carries_its_deadline_twice_and_the_lesser_is_read() {
    let fields = RequestFields {
        deadline: Some(ms(1500)),
        tier: Some(Tier::Critical),
        attempt: Some(Attempt::FIRST),
        ..RequestFields::default()
    };
    let mut headers = HeaderMap::new();
    grpc::write_request(&fields, &mut headers);
    assert_eq!(headers["grpc-timeout"], "1500000u");
    assert_eq!(headers["overload-deadline-ms"], "1500");
    assert_eq!(headers["overload-tier"], "critical");
    assert_eq!(grpc::read_request(&headers), fields);
    headers.insert("grpc-timeout", HeaderValue::from_static("1S"));
    assert_eq!(grpc::read_request(&headers).deadline, Some(ms(1000)));
    for bad in ["abc", "123456789m", "1h"] {
        headers.insert("grpc-timeout", HeaderValue::from_static(bad));
        assert_eq!(grpc::read_request(&headers).deadline, Some(ms(1500)), "{bad}");
    }
    grpc::write_request(&RequestFields::default(), &mut headers);
    assert!(headers.is_empty());
}

proptest! {
    #[test]
    fn anything_can_be_read_and_no_source_is_undercut(
        code in 0_u32..20,
        pushback in proptest::option::of("[ -~]{0,12}|[0-9]{1,25}"),
        signal in proptest::option::of("[ -~]{0,60}|v=1, after=[0-9]{1,12}, max=[0-9]{1,12}"),
        reason in "[ -~]{0,20}|QUEUE_FULL",
        delay in proptest::option::of(0_u64..200_000_000),
        said in proptest::collection::btree_map("[a-z_]{1,10}|retry|applied|hop|contract_version", "[ -~]{0,12}|1|after|no", 0..6),
    ) {
        let mut lines = Vec::new();
        if let Some(pushback) = &pushback { lines.push(("grpc-retry-pushback-ms", &**pushback)); }
        if let Some(signal) = &signal { lines.push(("overload-signal", &**signal)); }
        let info = Info { reason, domain: DOMAIN.to_owned(), metadata: said };
        let retry_delay = delay.map_or(RetryDelay::Absent, |delay| RetryDelay::Of(ms(delay)));
        if let Reading::Overload(told, _) = read(code, &lines, Some(&info), retry_delay) {
            prop_assert!([4, 8, 14].contains(&code));
            if let Some(delay) = delay {
                prop_assert!(told.hint.delay_or_zero() >= ms(delay).min(holdoff_contract::limits::MAX_HINT));
            }
            let pushed = pushback.as_deref().map(|text| text.trim().parse::<u64>());
            match pushed {
                Some(Ok(pushed)) => {
                    let least = ms(pushed).min(holdoff_contract::limits::MAX_HINT);
                    prop_assert!(told.hint.delay_or_zero() >= least || told.retry == Retry::No);
                }
                Some(Err(_)) if told.retry != Retry::No => {
                    // A fraction, or more digits than 64 bits hold: a delay as well.
                    prop_assert!(told.hint != Hint::Absent);
                }
                _ => {}
            }
        }
    }
}
