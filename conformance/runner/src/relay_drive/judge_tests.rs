//! The judge over made-up witnesses: what it must not let pass, without a relay.

use std::time::{Duration, Instant};

use super::judge::{judge, played};
use super::spec::RelayCase;
use super::{CallSeen, Played};
use crate::client_drive::script::Step;
use crate::client_drive::spec::Port;
use crate::client_drive::wire::{Exchange, WireLog};
use crate::clock;
use crate::server_drive::message::{Ask, NoAnswer, Seen};
use crate::server_drive::probe::Times;
use crate::still::Stills;

const CASE: &str = r#"
setup: {delay_ms: 100}
calls:
  - request: {deadline_ms: 1000, tier: non-sheddable, attempt: 2}
    script: [{reject: {code: queue_full, after: 2000, max: 2600}}]
    expect: {answer: {status: [503]}, dependencies: [{requests: 1}]}
"#;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What a relay's answer says.
fn answer(signal: &str, after: u64) -> Seen {
    let body = format!(
        r#"{{"type":"urn:overload:v1:dependency_overloaded","title":"t","status":503,"contract_version":1,
        "code":"dependency_overloaded","retry":"after","applied":"no","retry_after_ms":{after},"hop":1}}"#
    );
    let lines = [
        ("content-type", "application/problem+json".to_owned()),
        ("cache-control", "no-store".to_owned()),
        ("retry-after", after.div_ceil(1000).to_string()),
        ("retry-after-ms", after.to_string()),
        ("overload-signal", signal.to_owned()),
    ];
    Seen {
        status: 503,
        headers: lines
            .map(|(name, value)| (name.to_owned(), value.into_bytes()))
            .to_vec(),
        trailers: Vec::new(),
        body: body.into_bytes(),
    }
}

fn good(after: u64) -> Seen {
    let signal = format!("v=1, code=dependency_overloaded, retry=after, applied=no, after={after}, hop=1");
    answer(&signal, after)
}

/// A request 100 ms after the call, refused 10 ms later.
fn request(started: Instant, fields: &[(&str, &str)]) -> Exchange {
    Exchange {
        port: Port::Main,
        connection: 0,
        arrived: started + ms(100),
        method: "GET".to_owned(),
        path: "/c/x/case/call-0".to_owned(),
        fields: fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        body: Vec::new(),
        head_at: Some(started + ms(110)),
        answered: String::new(),
        body_written: 0,
    }
}

const CARRIED: &[(&str, &str)] = &[
    ("overload-deadline-ms", "890"),
    ("overload-tier", "non-sheddable"),
    ("overload-attempt", "2"),
];

/// The checks that fail where the answer's head came 210 ms after the call.
fn failed(answer: Result<Seen, NoAnswer>, fields: &[(&str, &str)]) -> Vec<String> {
    let case: RelayCase = serde_saphyr::from_str(CASE).unwrap();
    case.validate().unwrap();
    let started = clock::now();
    let times = Times {
        sent: started,
        head: Some(started + ms(210)),
        done: started + ms(211),
    };
    let ask = Ask {
        method: "GET".to_owned(),
        ..Ask::default()
    };
    let call = CallSeen {
        path: "/c/x/case/call-0".to_owned(),
        ask,
        times,
        answer,
    };
    let log = WireLog {
        exchanges: vec![request(started, fields)],
        ..WireLog::default()
    };
    let played = Played {
        groups: vec![vec![call]],
        logs: vec![log],
        started,
        slack: ms(250),
        stills: Stills::default(),
    };
    let findings = judge(&case, &played);
    findings.failed().map(|check| check.name.clone()).collect()
}

#[test]
fn a_relay_that_does_everything_right_passes() {
    assert_eq!(failed(Ok(good(1900)), CARRIED), Vec::<String>::new());
}

#[test]
fn a_hint_that_lost_more_than_the_time_it_was_held_is_early() {
    assert_eq!(failed(Ok(good(1898)), CARRIED), Vec::<String>::new());
    assert_eq!(failed(Ok(good(1890)), CARRIED), ["call-0: after"]);
}

#[test]
fn an_answer_that_is_no_overload_or_none_at_all_fails() {
    let fine = Seen {
        status: 200,
        ..Seen::default()
    };
    assert_eq!(failed(Ok(fine), CARRIED), ["call-0: answer", "call-0: status"]);
    assert_eq!(failed(Err(NoAnswer::Left), CARRIED), ["call-0: answer"]);
}

#[test]
fn what_was_widened_or_not_counted_is_named() {
    let signal = "v=1, code=dependency_overloaded, retry=after, applied=no, after=1900, hop=2, scope=service";
    let failed = failed(Ok(answer(signal, 1900)), CARRIED);
    assert!(failed.contains(&"call-0: hop".to_owned()), "{failed:?}");
    assert!(failed.contains(&"call-0: scope".to_owned()), "{failed:?}");
}

#[test]
fn each_field_that_goes_along_wrongly_is_named() {
    for (name, value) in [
        ("overload-deadline-ms", "901"),
        ("overload-deadline-ms", "0"),
        ("overload-tier", "critical"),
        ("overload-attempt", "1"),
    ] {
        let fields: Vec<_> = CARRIED
            .iter()
            .map(|(field, good)| (*field, if *field == name { value } else { *good }))
            .collect();
        let failed = failed(Ok(good(1900)), &fields);
        assert_eq!(failed.len(), 1, "{name}={value}: {failed:?}");
        assert!(failed[0].to_lowercase().ends_with(name), "{failed:?}");
    }
}

#[test]
fn a_request_is_answered_by_the_step_that_its_number_reaches() {
    let steps: Vec<Step> = serde_saphyr::from_str("[{status: 503, repeat: 2}, {status: 429}]").unwrap();
    let status = |n| played(&steps, n).and_then(|step| step.status);
    assert_eq!([1, 2, 3, 4].map(status), [Some(503), Some(503), Some(429), None]);
}

#[test]
fn a_case_that_says_too_little_is_refused() {
    for (broken, names) in [
        ("calls: []", "calls is empty"),
        (
            "dependencies: 9\ncalls: [{script: [{status: 200}], expect: {answer: {}, dependencies: [{}]}}]",
            "1 to 4",
        ),
        (
            "calls: [{script: [{status: 200}], expect: {answer: {}, dependencies: [{}]}}]",
            "`requests` is needed",
        ),
        (
            "calls: [{script: [{status: 200}], expect: {dependencies: [{requests: 1}]}}]",
            "`answer` or `answers`",
        ),
        (
            "calls: [{script: [], expect: {answer: {}, dependencies: [{requests: 1}]}}]",
            "is empty",
        ),
        (
            "calls: [{expect: {answer: {}, dependencies: [{requests: 1}]}}]",
            "`script` and `scripts`",
        ),
    ] {
        let case: RelayCase = serde_saphyr::from_str(broken).unwrap();
        let error = case.validate().unwrap_err();
        assert!(error.contains(names), "{broken}: {error}");
    }
}
