//! The table of odd inputs in section 4, and the corners of section 8.

use holdoff_contract::read::{Advice, Compat, Head, ReadOptions, Reading};
use holdoff_contract::{
    Applied, Code, Extension, Granularity, Hint, Retry, Scope, ServiceState, Tier, limits,
};
use http::StatusCode;

use crate::wire::{fields, ms, now, read, refused};

const PROBLEM: (&str, &str) = ("content-type", "application/problem+json");

fn signal(text: &str) -> holdoff_contract::Overload {
    refused(503, &[("overload-signal", text)], None).0
}

fn body(members: &str) -> holdoff_contract::Overload {
    let body = format!(r#"{{"contract_version":1,"code":"queue_full",{members}}}"#);
    refused(503, &[PROBLEM], Some(&body)).0
}

fn exact(delay: u64) -> Hint {
    Hint::After {
        delay: ms(delay),
        granularity: Granularity::Milliseconds,
    }
}

fn seconds(delay: u64) -> Hint {
    Hint::After {
        delay: ms(delay),
        granularity: Granularity::Seconds,
    }
}

#[test]
fn every_key_of_the_signal_is_read() {
    let read = signal(
        "v=1, code=tier_shed, retry=elsewhere, applied=no, after=1740, max=2300, scope=service, state=shedding, \
         tier=critical, hop=2, zz=(1 a);q, grease-7",
    );
    assert_eq!(read.code, Some(Code::TierShed));
    assert_eq!(
        (read.retry, read.applied, read.scope),
        (Retry::Elsewhere, Applied::No, Scope::Service)
    );
    assert_eq!(
        read.hint,
        Hint::Window {
            delay: ms(1740),
            max: ms(2300)
        }
    );
    assert_eq!(
        (read.state, read.tier, read.hop),
        (Some(ServiceState::Shedding), Some(Tier::Critical), 2)
    );
    let extension = |key: &str, member: &str| Extension {
        key: key.into(),
        member: member.into(),
    };
    assert_eq!(
        read.extensions,
        [extension("zz", "(1 a);q"), extension("grease-7", "?1")]
    );
}

#[test]
fn several_signal_lines_are_one_dictionary_and_one_bad_line_spoils_all() {
    let good = [
        ("overload-signal", "v=1, code=queue_full"),
        ("overload-signal", "retry=no, after=70"),
    ];
    let read = refused(503, &good, None).0;
    assert_eq!(
        (read.code, read.retry, read.hint),
        (Some(Code::QueueFull), Retry::No, exact(70))
    );
    let bad = [good[0], good[1], ("overload-signal", "applied=")];
    let (read, malformed) = refused(503, &bad, None);
    assert_eq!(
        (read.code, read.retry, read.hint),
        (None, Retry::After, Hint::Absent)
    );
    assert_eq!(malformed.sources, 1);
}

#[test]
fn a_wrong_member_costs_itself_only_except_retry_which_becomes_no() {
    let text =
        "v=1, code=\"queue_full\", retry=7, applied=nope, after=-5, max=tok, scope=galaxy, hop=99, tier=gold";
    let (read, malformed) = refused(503, &[("overload-signal", text)], None);
    assert_eq!(
        (read.code, read.retry, read.applied),
        (None, Retry::No, Applied::Maybe)
    );
    assert_eq!(
        (read.hint, read.scope, read.hop, read.tier),
        (Hint::Absent, Scope::Request, 16, None)
    );
    assert_eq!(malformed.sources, 7);
}

#[test]
fn a_body_counts_only_with_version_1_and_a_code() {
    let (read, malformed) = refused(503, &[PROBLEM], Some(r#"{"contract_version":1,"retry":"no"}"#));
    assert_eq!((read.retry, malformed.sources), (Retry::After, 1));
    for version in ["0.5", "2", "\"1\"", "null"] {
        let text = format!(r#"{{"contract_version":{version},"code":"queue_full","retry":"no"}}"#);
        assert_eq!(
            refused(503, &[PROBLEM], Some(&text)).0.retry,
            Retry::After,
            "{version}"
        );
    }
    let text = r#"{"contract_version":1.0,"code":"queue_full","retry":"no"}"#;
    assert_eq!(refused(503, &[PROBLEM], Some(text)).0.retry, Retry::No);
}

#[test]
fn numbers_in_a_body_round_up_and_saturate_at_any_length() {
    assert_eq!(body(r#""retry_after_ms":1500.001"#).hint, exact(1501));
    assert_eq!(body(r#""retry_after_ms":1.5e3"#).hint, exact(1500));
    for huge in ["9".repeat(400), "1e400".into(), "1e18".into()] {
        assert_eq!(
            body(&format!(r#""retry_after_ms":{huge}"#)).hint,
            exact(86_400_000),
            "{huge}"
        );
    }
    assert_eq!(
        body(r#""retry_after_ms":10,"retry_after_max_ms":1e400"#).hint,
        Hint::Window {
            delay: ms(10),
            max: ms(60_010)
        }
    );
    assert_eq!(body(r#""retry":null"#).retry, Retry::No);
}

#[test]
fn deep_nesting_and_broken_text_cost_the_body_and_nothing_else() {
    let deep = format!(
        "{{\"contract_version\":1,\"code\":\"queue_full\",\"z\":{}",
        "[".repeat(60_000)
    );
    for bad in [
        deep.as_str(),
        "[]",
        "null",
        "\u{feff}{}",
        "{\"code\":\"queue_full\",\"contract_version\":1",
    ] {
        let (read, malformed) = refused(503, &[PROBLEM, ("retry-after", "2")], Some(bad));
        assert_eq!(
            (read.code, read.hint, malformed.sources),
            (None, seconds(2000), 1)
        );
    }
    let fields = fields(&[PROBLEM]);
    let Reading::Overload(read, malformed) = read(503, &fields, Some(b"{\"code\":\"\xff\"}")) else {
        panic!()
    };
    assert_eq!((read.code, malformed.sources), (None, 1));
}

#[test]
fn unknown_members_are_kept_as_they_came() {
    let read = body(r#""zz":{"a":[1,  2]},"retry_after_ms":5"#);
    assert_eq!(read.members.len(), 1);
    assert_eq!(
        (read.members[0].name.as_str(), read.members[0].json.as_str()),
        ("zz", r#"{"a":[1,  2]}"#)
    );
}

#[test]
fn a_body_is_wanted_only_where_it_could_count() {
    let wants = |status: u16, lines: &[(&str, &str)]| {
        let options = ReadOptions {
            now: now(),
            compat: Compat::On,
        };
        Head::read(StatusCode::from_u16(status).unwrap(), &fields(lines), &options).wants_body()
    };
    for status in [429, 503, 504] {
        assert!(wants(status, &[PROBLEM]));
    }
    assert!(wants(
        503,
        &[
            ("content-type", "Application/PROBLEM+json ; charset=utf-8"),
            ("content-length", "65536")
        ]
    ));
    assert!(!wants(500, &[PROBLEM]));
    assert!(!wants(200, &[PROBLEM]));
    assert!(!wants(503, &[]));
    assert!(!wants(503, &[("content-type", "application/json")]));
    assert!(!wants(503, &[PROBLEM, ("content-length", "65537")]));
    assert!(!wants(
        503,
        &[PROBLEM, ("content-length", "99999999999999999999999")]
    ));
}

#[test]
fn only_a_valid_signal_or_body_makes_a_504_an_overload() {
    let is_overload = |lines: &[(&str, &str)], body: Option<&str>| {
        read(504, &fields(lines), body.map(str::as_bytes)) != Reading::NotOverload
    };
    assert!(!is_overload(
        &[("retry-after", "1"), ("x-envoy-ratelimited", "true")],
        None
    ));
    assert!(!is_overload(
        &[("overload-signal", "v=2, code=dependency_timeout")],
        None
    ));
    assert!(!is_overload(&[PROBLEM], Some("{}")));
    assert!(is_overload(
        &[PROBLEM],
        Some(r#"{"contract_version":1,"code":"dependency_timeout"}"#)
    ));
    let read = refused(504, &[("overload-signal", "v=1, code=dependency_timeout")], None).0;
    assert_eq!((read.retry, read.applied), (Retry::No, Applied::Maybe));
}

#[test]
fn lists_and_lines_of_retry_after_give_the_largest_valid_one() {
    let hint = |lines: &[(&str, &str)]| refused(503, lines, None).0.hint;
    let list = "1, Mon, 03 Mar 2025 12:00:30 GMT, nonsense, 4";
    assert_eq!(
        hint(&[("retry-after", list), ("retry-after", "7")]),
        seconds(30_000)
    );
    let (_, malformed) = refused(503, &[("retry-after", list)], None);
    assert_eq!(malformed.sources, 1);
}

#[test]
fn a_seconds_source_that_wins_still_keeps_a_window_that_reaches_it() {
    let lines = [
        (
            "overload-signal",
            "v=1, code=queue_full, retry=after, after=1500, max=9000",
        ),
        ("retry-after", "5"),
    ];
    assert_eq!(
        refused(503, &lines, None).0.hint,
        Hint::Window {
            delay: ms(5000),
            max: ms(9000)
        }
    );
    let lines = [lines[0], ("retry-after", "10")];
    assert_eq!(refused(503, &lines, None).0.hint, seconds(10_000));
}

#[test]
fn a_seconds_source_replaces_the_precise_one_from_a_whole_second_more_on() {
    let hint = |after: u64| {
        let text = format!("v=1, code=queue_full, retry=after, after={after}");
        refused(503, &[("overload-signal", &text), ("retry-after", "2")], None)
            .0
            .hint
    };
    assert_eq!(hint(1001), exact(1001));
    assert_eq!(hint(1000), seconds(2000));
    assert_eq!(hint(2000), exact(2000));
}

#[test]
fn zero_is_no_minimum_and_has_no_window() {
    assert_eq!(
        signal("v=1, code=queue_full, retry=after, after=0, max=900").hint,
        exact(0)
    );
    assert_eq!(
        signal("v=1, code=queue_full, retry=after, max=900").hint,
        Hint::Absent
    );
}

#[test]
fn rate_limit_is_read_as_a_list_or_a_dictionary_of_items() {
    let hint = |value: &str| refused(429, &[("ratelimit", value)], None).0.hint;
    assert_eq!(
        hint("\"a\";r=0;t=2, \"b\";r=0;t=9, \"c\";r=3;t=99"),
        seconds(9000)
    );
    assert_eq!(hint("default=100;r=0;t=3"), seconds(3000));
    assert_eq!(hint("\"a\";r=0;t=1.5"), seconds(1500));
    assert_eq!(hint("\"a\";r=0;t=999999999999999"), seconds(86_400_000));
    for none in [
        "\"a\";r=0",
        "\"a\";t=5",
        "\"a\";r=0;t=-5",
        "\"a\";r=0;t=tok",
        "limit=100, remaining=0, reset=50",
        "\"",
    ] {
        assert_eq!(hint(none), Hint::Absent, "{none}");
    }
}

#[test]
fn permissions_of_others_only_tighten_and_count_without_compatibility() {
    let options = ReadOptions {
        now: now(),
        compat: Compat::Off,
    };
    let retry = |lines: &[(&str, &str)]| {
        let head = Head::read(StatusCode::SERVICE_UNAVAILABLE, &fields(lines), &options);
        head.finish(None).into_overload().unwrap().retry
    };
    assert_eq!(retry(&[("x-should-retry", "False")]), Retry::No);
    assert_eq!(retry(&[("x-envoy-ratelimited", "true")]), Retry::No);
    assert_eq!(retry(&[("x-envoy-overloaded", "true")]), Retry::After);
    let forbidden = ("overload-signal", "v=1, code=queue_full, retry=no");
    assert_eq!(retry(&[forbidden, ("x-should-retry", "true")]), Retry::No);
}

#[test]
fn a_hostile_head_is_read_in_bounds() {
    let lines: Vec<_> = (0..500)
        .map(|_| ("retry-after", "1"))
        .chain([("retry-after", "9")])
        .collect();
    let (read, malformed) = refused(503, &lines, None);
    assert_eq!((read.hint, malformed.sources), (seconds(1000), 1));
    let long = format!(
        "v=1, code=queue_full, retry=no, z=\"{}\"",
        "a".repeat(limits::MAX_FIELD_BYTES)
    );
    let (read, malformed) = refused(503, &[("overload-signal", &long)], None);
    assert_eq!((read.code, malformed.sources), (None, 1));
    let many = (0..100).fold("v=1, code=queue_full".to_owned(), |text, n| {
        format!("{text}, z{n}=1")
    });
    assert_eq!(signal(&many).extensions.len(), limits::MAX_EXTENSIONS);
}

#[test]
fn a_line_for_the_log_holds_nothing_a_peer_could_break_it_with() {
    let read = body(r#""detail":"a\r\nERROR \u001b[31m\u202e é","retry_after_ms":1500,"applied":"no""#);
    assert_eq!(
        read.to_string(),
        "503 queue_full retry=after applied=no after=1500ms detail=\"a\\r\\nERROR \\u{1b}[31m\\u{202e} \\u{e9}\""
    );
}

#[test]
fn advice_on_a_success_is_advice_and_nothing_else() {
    let advice = |text: &str| Advice::read(&fields(&[("overload-signal", text)]));
    assert!(advice("v=1, outcome=defer").deferred);
    assert!(advice("v=1, degraded, state=congested").degraded);
    assert_eq!(
        advice("v=1, degraded, state=congested").state,
        Some(ServiceState::Congested)
    );
    for nothing in [
        "v=2, degraded",
        "v=1, degraded=?0",
        "v=1, outcome=\"defer\"",
        "v=1, degraded=1",
        "v=1,",
    ] {
        assert_eq!(advice(nothing), Advice::default(), "{nothing}");
    }
    assert_eq!(
        read(200, &fields(&[("overload-signal", "v=1, retry=no")]), None),
        Reading::NotOverload
    );
}
