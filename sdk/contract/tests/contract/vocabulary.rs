//! A service's own words for overload, read and written (CLI-26, CMP-05).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdoff_contract::read::{Compat, ReadOptions, Reading};
use holdoff_contract::vocabulary::{Declaration, Vocabulary};
use holdoff_contract::write::{self, Audience};
use holdoff_contract::{Applied, Code, Granularity, Hint, Overload, Retry, Scope};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

const NOW: u64 = 1_800_000_000;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

fn vocabulary(declared: Value) -> Vocabulary {
    serde_json::from_value(declared).unwrap()
}

fn fields(lines: &[(&str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&str, &str)| {
        (
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_str(value).unwrap(),
        )
    };
    lines.iter().map(field).collect()
}

fn read(vocabulary: &Vocabulary, status: u16, lines: &[(&str, &str)], body: Option<&str>) -> Reading {
    let options = ReadOptions {
        now: now(),
        compat: Compat::On,
    };
    let status = StatusCode::from_u16(status).unwrap();
    let head = vocabulary.head(status, &fields(lines), &options);
    head.finish(body.map(str::as_bytes))
}

fn overload(vocabulary: &Vocabulary, status: u16, lines: &[(&str, &str)], body: Option<&str>) -> Overload {
    read(vocabulary, status, lines, body).into_overload().unwrap()
}

fn busy(delay: Value) -> Vocabulary {
    vocabulary(json!({"refusals": [{"code": "queue_full", "status": [529], "delay": delay}]}))
}

fn after(ms: u64, granularity: Granularity) -> Hint {
    Hint::After {
        delay: Duration::from_millis(ms),
        granularity,
    }
}

#[test]
fn a_delay_is_read_in_its_declared_unit_from_a_header() {
    use Granularity::{Milliseconds, Seconds};
    for (unit, value, hint) in [
        ("s", "2", after(2000, Seconds)),
        ("s", "1.5", after(1500, Seconds)),
        ("ms", "750", after(750, Milliseconds)),
        ("epoch_s", "1800000003", after(3000, Seconds)),
        ("epoch_ms", "1800000000250", after(250, Milliseconds)),
        ("epoch_s", "1700000000", after(0, Seconds)),
        ("date", "Fri, 15 Jan 2027 08:00:30 GMT", after(30_000, Seconds)),
        ("ms", "99999999999999999999999", after(86_400_000, Milliseconds)),
        ("epoch_s", "9999999999999999999", after(86_400_000, Seconds)),
    ] {
        let vocabulary = busy(json!({"header": "x-wait", "unit": unit}));
        let read = overload(&vocabulary, 529, &[("x-wait", value)], None);
        assert_eq!(read.hint, hint, "{unit} {value}");
        assert_eq!((read.code, read.status.as_u16()), (Some(Code::QueueFull), 503));
    }
}

#[test]
fn a_delay_is_read_from_a_body_as_a_number_or_a_text() {
    let vocabulary = busy(json!({"pointer": "/error/wait", "unit": "s"}));
    for (value, ms) in [
        ("2", 2000),
        ("2.5", 2500),
        ("\"3\"", 3000),
        ("\" 3 \"", 3000),
        ("2e1", 20_000),
        ("1e400", 86_400_000),
        (&"9".repeat(400), 86_400_000),
    ] {
        let body = format!(r#"{{"error": {{"wait": {value}}}, "other": [1, 2]}}"#);
        let read = overload(&vocabulary, 529, &[], Some(&body));
        assert_eq!(read.hint, after(ms, Granularity::Seconds), "{value}");
    }
    for bad in ["-2", "null", "true", "[2]", "\"soon\"", "\"\"", "\"-1\""] {
        let body = format!(r#"{{"error": {{"wait": {bad}}}}}"#);
        let Reading::Overload(read, malformed) = read(&vocabulary, 529, &[], Some(&body)) else {
            panic!("no overload")
        };
        assert_eq!((read.hint, malformed.sources), (Hint::Absent, 1), "{bad}");
    }
}

#[test]
fn every_condition_must_hold_and_the_first_entry_that_fits_counts() {
    let vocabulary = vocabulary(json!({"refusals": [
        {"code": "tenant_limit", "status": [400, 403], "header": {"name": "x-error", "value": "Quota"},
         "body": {"pointer": "/errors/0/code", "value": 42}, "scope": "tenant", "applied": "no"},
        {"code": "draining", "status": [403], "body": {"pointer": "/leaving", "value": true}},
        {"code": "x_mine", "status": [403], "header": {"name": "x-error"}, "retry": "no"},
    ]}));
    let quota = [("x-error", "quota")];
    let body = r#"{"errors": [{"code": 42}], "leaving": true}"#;
    let first = overload(&vocabulary, 403, &quota, Some(body));
    assert_eq!(
        (first.code, first.scope, first.applied, first.retry),
        (Some(Code::TenantLimit), Scope::Tenant, Applied::No, Retry::After)
    );
    assert_eq!(first.status.as_u16(), 429);
    let second = overload(&vocabulary, 403, &[], Some(body));
    assert_eq!(
        (second.code, second.retry, second.applied),
        (Some(Code::Draining), Retry::Elsewhere, Applied::Maybe)
    );
    let third = overload(&vocabulary, 403, &[("x-error", "any")], Some("not json"));
    assert_eq!((third.code.unwrap().as_str(), third.retry), ("x_mine", Retry::No));

    for (status, lines, body) in [
        (403, &[][..], None),
        (403, &[], Some(r#"{"leaving": "true"}"#)),
        (400, &quota, Some(r#"{"errors": [{"code": 43}]}"#)),
        (404, &quota, Some(body)),
        (200, &quota, Some(body)),
    ] {
        assert_eq!(
            read(&vocabulary, status, lines, body),
            Reading::NotOverload,
            "{status}"
        );
    }
}

#[test]
fn the_body_is_wanted_only_where_it_could_matter() {
    let vocabulary = vocabulary(json!({"refusals": [
        {"code": "queue_full", "status": [500], "header": {"name": "x-busy"}, "body": {"pointer": "/a"}},
        {"code": "queue_full", "status": [501]},
    ]}));
    let options = ReadOptions {
        now: now(),
        compat: Compat::On,
    };
    let wants = |status, lines: &[(&str, &str)]| {
        let status = StatusCode::from_u16(status).unwrap();
        vocabulary.head(status, &fields(lines), &options).wants_body()
    };
    assert!(wants(500, &[("x-busy", "1")]));
    assert!(!wants(500, &[]));
    assert!(!wants(501, &[]));
    assert!(!wants(500, &[("x-busy", "1"), ("content-length", "65537")]));
    assert!(vocabulary.has_status(StatusCode::INTERNAL_SERVER_ERROR));
    assert!(!vocabulary.has_status(StatusCode::OK));
}

#[test]
fn of_own_words_and_contract_fields_the_stricter_and_longer_count() {
    let vocabulary = vocabulary(json!({"refusals": [
        {"code": "queue_full", "status": [503], "delay": {"header": "x-wait", "unit": "ms"},
         "applied": "no", "retry": "after"},
    ]}));
    let signal = "v=1, code=tier_shed, retry=no, applied=maybe, after=100, max=900";
    let read = overload(
        &vocabulary,
        503,
        &[("overload-signal", signal), ("x-wait", "500")],
        None,
    );
    assert_eq!(
        (read.code, read.retry, read.applied),
        (Some(Code::TierShed), Retry::No, Applied::Maybe)
    );
    let (delay, max) = (Duration::from_millis(500), Duration::from_millis(900));
    assert_eq!(read.hint, Hint::Window { delay, max });
    let read = overload(&vocabulary, 503, &[("retry-after", "4"), ("x-wait", "500")], None);
    assert_eq!(read.hint, after(4000, Granularity::Seconds));
    let unmarked = overload(&Vocabulary::NONE, 503, &[("x-wait", "500")], None);
    assert_eq!((unmarked.code, unmarked.hint), (None, Hint::Absent));
}

#[test]
fn known_delay_fields_count_on_a_status_that_is_declared_and_on_no_other() {
    let vocabulary = busy(json!({"header": "x-wait", "unit": "ms"}));
    let read_529 = overload(&vocabulary, 529, &[("retry-after", "3")], None);
    assert_eq!(read_529.hint, after(3000, Granularity::Seconds));
    assert_eq!(
        read(&vocabulary, 500, &[("retry-after", "3")], None),
        Reading::NotOverload
    );
    assert_eq!(
        read(&vocabulary, 504, &[("retry-after", "3")], None),
        Reading::NotOverload
    );
}

#[test]
fn x_ratelimit_reset_counts_in_its_configured_unit_and_only_where_nothing_else_gives_a_delay() {
    // CMP-05
    for (unit, value, ms) in [
        ("s", "30", 30_000),
        ("ms", "30", 30),
        ("epoch_s", "1800000030", 30_000),
        ("epoch_ms", "1800000000030", 30),
    ] {
        let vocabulary = vocabulary(json!({"x_ratelimit_reset": unit}));
        let reset = ("x-ratelimit-reset", value);
        let hint = |status, lines: &[(&str, &str)]| overload(&vocabulary, status, lines, None).hint;
        assert_eq!(hint(429, &[reset]), after(ms, Granularity::Seconds), "{unit}");
        assert_eq!(hint(429, &[reset, ("age", "1")]), Hint::Absent);
        assert_eq!(hint(503, &[reset]), Hint::Absent);
        let both = [reset, ("retry-after-ms", "7")];
        assert_eq!(hint(429, &both), after(7, Granularity::Milliseconds));
        let unconfigured = overload(&Vocabulary::NONE, 429, &[reset], None);
        assert_eq!(unconfigured.hint, Hint::Absent, "never guessed");
    }
}

#[test]
fn each_fault_names_its_entry_its_field_the_value_and_what_is_allowed() {
    let ok = json!({"code": "queue_full", "status": [503]});
    let with = |field: &str, value: Value| {
        let mut entry = ok.clone();
        entry[field] = value;
        json!({"refusals": [ok, entry]})
    };
    for (declared, message) in [
        (
            with("code", json!("Queue Full")),
            "refusals[1] (Queue Full): code is \"Queue Full\"",
        ),
        (
            with("status", json!([])),
            "refusals[1] (queue_full): status is \"[]\"; it must be 1 to 16 statuses",
        ),
        (
            with("status", json!([503, 200])),
            "status is \"200\"; it must be 400 to 599",
        ),
        (with("status", json!([999])), "status is \"999\""),
        (with("header", json!({"name": "a b"})), "header.name is \"a b\""),
        (
            with("header", json!({"name": "a", "value": "x\r\ny: z"})),
            "header.value is \"x\\r\\ny: z\"",
        ),
        (
            with("body", json!({"pointer": "error"})),
            "body.pointer is \"error\"",
        ),
        (
            with("body", json!({"pointer": "/a", "value": "v".repeat(257)})),
            "body.value is",
        ),
        (
            with("delay", json!({"unit": "s"})),
            "delay is \"neither\"; it must be either a header or a pointer",
        ),
        (
            with("delay", json!({"header": "a", "pointer": "/a", "unit": "s"})),
            "delay is \"both\"",
        ),
        (
            with("delay", json!({"header": "a", "unit": "minutes"})),
            "delay.unit is \"minutes\"",
        ),
        (
            with("retry", json!("maybe")),
            "retry is \"maybe\"; it must be after, elsewhere or no",
        ),
        (with("applied", json!("yes")), "applied is \"yes\""),
        (with("scope", json!("world")), "scope is \"world\""),
        (
            json!({"x_ratelimit_reset": "date"}),
            "the declaration: x_ratelimit_reset is \"date\"",
        ),
        (
            json!({"refusals": vec![ok.clone(); 65]}),
            "the declaration: refusals is \"65\"",
        ),
    ] {
        let declaration: Declaration = serde_json::from_value(declared).unwrap();
        let error = declaration.build().unwrap_err().to_string();
        assert!(error.contains(message), "{error} lacks {message}");
    }
    let unknown = serde_json::from_value::<Declaration>(json!({"refusal": []})).unwrap_err();
    assert!(
        unknown.to_string().contains("unknown field `refusal`"),
        "{unknown}"
    );
    assert!(serde_json::from_value::<Vocabulary>(with("scope", json!("world"))).is_err());
}

#[test]
fn what_is_written_in_own_words_reads_back_beside_the_contract_and_without_it() {
    for unit in ["s", "ms", "epoch_s", "epoch_ms", "date"] {
        for place in ["header", "pointer"] {
            let mut delay = json!({"unit": unit});
            delay[place] = json!(if place == "header" {
                "x-wait"
            } else {
                "/error/wait"
            });
            let vocabulary = vocabulary(json!({"refusals": [
                {"code": "queue_full", "status": [503], "header": {"name": "x-error", "value": "BUSY"},
                 "body": {"pointer": "/error/code", "value": "BUSY"}, "delay": delay, "applied": "no"},
            ]}));
            let mut said = Overload::new(Code::QueueFull);
            said.hint = Hint::Window {
                delay: Duration::from_millis(1740),
                max: Duration::from_millis(2300),
            };
            let plain = write::overload(&said, Audience::Stranger);
            let mut encoded = plain.clone();
            assert!(vocabulary.write(&said, &mut encoded, now()));
            assert!(encoded.body.len() <= 4096);
            for (name, value) in &plain.headers {
                assert_eq!(encoded.headers.get(name), Some(value), "{name}");
            }
            let (before, after): (Value, Value) = (
                serde_json::from_slice(&plain.body).unwrap(),
                serde_json::from_slice(&encoded.body).unwrap(),
            );
            for (name, value) in before.as_object().unwrap() {
                assert_eq!(&after[name], value);
            }

            // A reader of the contract reads what it always read.
            let options = ReadOptions {
                now: now(),
                compat: Compat::On,
            };
            let none = Vocabulary::NONE;
            let whole = none.head(encoded.status, &encoded.headers, &options);
            let whole = whole.finish(Some(&encoded.body)).into_overload().unwrap();
            assert_eq!((whole.hint, whole.code), (said.hint, Some(Code::QueueFull)));

            // A reader of the own words alone comes back no earlier, and less than two seconds later.
            encoded.headers.retain_only(&["x-error", "x-wait"]);
            let own = vocabulary.head(encoded.status, &encoded.headers, &options);
            let own = own.finish(Some(&encoded.body)).into_overload().unwrap();
            assert_eq!((own.code, own.applied), (Some(Code::QueueFull), Applied::No));
            let delay = own.hint.delay_or_zero();
            let range = Duration::from_millis(1740)..Duration::from_millis(3740);
            assert!(range.contains(&delay), "{unit} in {place}: {delay:?}");
        }
    }
}

trait RetainOnly {
    fn retain_only(&mut self, names: &[&str]);
}

impl RetainOnly for HeaderMap {
    fn retain_only(&mut self, names: &[&str]) {
        let gone: Vec<HeaderName> = self
            .keys()
            .filter(|name| !names.contains(&name.as_str()))
            .cloned()
            .collect();
        for name in gone {
            self.remove(name);
        }
    }
}

#[test]
fn writing_replaces_nothing_of_the_contract_and_keeps_the_body_within_its_limit() {
    let said = Overload {
        hint: after(500, Granularity::Milliseconds),
        ..Overload::new(Code::QueueFull)
    };
    let plain = write::overload(&said, Audience::Stranger);
    let vocabulary = vocabulary(json!({"refusals": [
        {"code": "queue_full", "status": [503], "header": {"name": "retry-after", "value": "0"},
         "body": {"pointer": "/code", "value": "BUSY"}, "delay": {"pointer": "/errors/0/wait", "unit": "ms"}},
    ]}));
    let mut encoded = plain.clone();
    assert!(vocabulary.write(&said, &mut encoded, now()));
    assert_eq!(encoded, plain);

    let big = Overload {
        detail: Some("x".repeat(1000)),
        members: (0..3)
            .map(|n| holdoff_contract::BodyMember {
                name: format!("m{n}"),
                json: format!("\"{}\"", "y".repeat(900)),
            })
            .collect(),
        ..said.clone()
    };
    let vocabulary = self::vocabulary(json!({"refusals": [
        {"code": "queue_full", "status": [503], "body": {"pointer": "/own", "value": "z".repeat(250)}},
    ]}));
    let mut encoded = write::overload(&big, Audience::Stranger);
    let before = encoded.body.clone();
    assert!(before.len() > 3850, "{}", before.len());
    assert!(vocabulary.write(&big, &mut encoded, now()));
    assert_eq!(encoded.body, before);

    let other = Overload::new(Code::Draining);
    let mut encoded = write::overload(&other, Audience::Stranger);
    let before = encoded.clone();
    assert!(!vocabulary.write(&other, &mut encoded, now()));
    assert_eq!(encoded, before);
}

#[test]
fn no_answer_of_a_stranger_makes_reading_panic() {
    use proptest::prelude::*;
    let vocabulary = vocabulary(json!({"x_ratelimit_reset": "epoch_ms", "refusals": [
        {"code": "queue_full", "status": [503, 429], "body": {"pointer": "/a/0"},
         "delay": {"pointer": "/a/0/b", "unit": "epoch_s"}},
        {"code": "queue_full", "status": [503, 429], "delay": {"header": "x-wait", "unit": "date"}},
    ]}));
    proptest!(|(status in prop::sample::select(vec![429_u16, 503, 504, 200]), wait in "[ -~]{0,30}",
               reset in "[0-9.e+-]{0,40}", body in "(\\{\"a\":\\[)?[ -~]{0,60}(\\]\\})?")| {
        let lines = [("x-wait", wait.as_str()), ("x-ratelimit-reset", reset.as_str())];
        if let Some(overload) = read(&vocabulary, status, &lines, Some(&body)).into_overload() {
            prop_assert!(overload.hint.delay_or_zero() <= Duration::from_secs(86_400));
        }
    });
}
