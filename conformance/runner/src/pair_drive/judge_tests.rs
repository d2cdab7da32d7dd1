//! The judge of pairs on made-up wires: each rule is shown to hold and to fail.

use std::time::Duration;

use serde_json::{Value, json};

use super::judge::judge;
use super::spec::PairCase;
use crate::client_drive::judge::Played;
use crate::client_drive::seen::{CallSeen, Reply};
use crate::client_drive::spec::Port;
use crate::client_drive::wire::{Exchange, WireLog};
use crate::clock;
use crate::server_drive::message::Seen;
use crate::still::Stills;
use crate::verdict::{Findings, NotRun};

/// One call: requests at these times in ms, each answered at once; what the client said at the end.
fn played(requests: &[(u64, &str)], said: Value) -> Result<Findings, NotRun> {
    let case: PairCase = serde_json::from_value(json!({"calls": [{"request": {}}], "rejects": 1})).unwrap();
    let started = clock::now();
    let mut log = WireLog::default();
    let mut answers = Vec::new();
    for (at, signal) in requests {
        let at = started + Duration::from_millis(*at);
        log.exchanges.push(Exchange {
            port: Port::Main,
            connection: 0,
            arrived: at,
            method: "POST".to_owned(),
            path: "/c/run/case/call-0".to_owned(),
            fields: Vec::new(),
            body: Vec::new(),
            head_at: Some(at),
            answered: (*signal).to_owned(),
            body_written: 0,
        });
        let header = |value: &str| vec![("Overload-Signal".to_owned(), value.as_bytes().to_vec())];
        answers.push(Some(match *signal {
            "" => Seen {
                status: 200,
                ..Seen::default()
            },
            signal => Seen {
                status: 503,
                headers: header(signal),
                ..Seen::default()
            },
        }));
    }
    let Value::Object(said) = said else {
        panic!("a result is an object")
    };
    let call = CallSeen::new(
        "/c/run/case/call-0".to_owned(),
        started,
        started + Duration::from_secs(1),
        None,
        Reply::Said(said),
    );
    let played = Played {
        groups: vec![vec![call]],
        log,
        started,
        slack: Duration::from_millis(250),
        stills: Stills::default(),
        metrics: None,
    };
    judge(&case, &played, &answers)
}

const WINDOW: &str = "v=1, code=queue_full, retry=after, applied=no, after=100, max=200";
const NO: &str = "v=1, code=deadline_unattainable, retry=no, applied=no";

fn ok(findings: &Result<Findings, NotRun>) -> bool {
    findings
        .as_ref()
        .is_ok_and(|findings| !findings.checks.is_empty() && findings.failed().next().is_none())
}

fn served(attempts: u64) -> Value {
    json!({"kind": "response", "status": 200, "attempts": attempts, "elapsed_ms": 1})
}

fn stopped(code: &str, attempts: u64) -> Value {
    json!({"kind": "overloaded", "status": 503, "code": code, "attempts": attempts, "why": "retry_forbidden"})
}

#[test]
fn a_retry_inside_the_window_that_was_given_passes_and_before_or_after_it_fails() {
    let at = |ms: u64| ok(&played(&[(0, WINDOW), (ms, "")], served(2)));
    assert!(at(100) && at(150) && at(440));
    assert!(!at(90));
    assert!(!at(460));
}

#[test]
fn a_request_after_a_no_fails_and_stopping_there_passes() {
    assert!(ok(&played(&[(0, NO)], stopped("deadline_unattainable", 1))));
    assert!(!ok(&played(&[(0, NO), (500, "")], served(2))));
}

#[test]
fn a_client_that_says_another_code_or_other_attempts_than_crossed_the_wire_fails() {
    assert!(!ok(&played(&[(0, NO)], stopped("queue_full", 1))));
    assert!(!ok(&played(&[(0, NO)], stopped("deadline_unattainable", 2))));
    assert!(!ok(&played(&[(0, NO)], served(1))));
}

#[test]
fn a_wire_without_a_reject_shows_nothing_and_is_not_a_pass() {
    let nothing = played(&[(0, "")], served(1));
    assert!(matches!(nothing, Err(NotRun::Untestable(_))), "{nothing:?}");
}

#[test]
fn a_call_that_ran_out_of_time_says_what_it_heard_and_not_what_came_too_late() {
    let mut said = stopped("queue_full", 2);
    said["why"] = json!("deadline_exceeded");
    assert!(ok(&played(&[(0, WINDOW), (150, NO)], said.clone())));
    said["code"] = json!("tier_shed");
    assert!(!ok(&played(&[(0, WINDOW), (150, NO)], said)));
}
