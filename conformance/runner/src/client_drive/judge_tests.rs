//! The judge on made-up wire logs: each rule is shown to hold and to fail.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::judge::{Played, judge};
use super::seen::{CallSeen, Reply};
use super::spec::{ClientCase, Port};
use super::wire::{Exchange, WireLog};
use crate::clock;
use crate::verdict::Findings;

const SLACK: Duration = Duration::from_millis(250);

/// A log under construction: times in ms after the start.
struct Made {
    start: Instant,
    played: Played,
}

impl Made {
    fn new() -> Self {
        let start = clock::now();
        let played = Played {
            groups: vec![Vec::new()],
            log: WireLog::default(),
            started: start,
            slack: SLACK,
            metrics: None,
        };
        Self { start, played }
    }

    fn at(&self, ms: f64) -> Instant {
        self.start + Duration::from_secs_f64(ms / 1000.0)
    }

    /// A call with requests that arrive at these times and are answered within the same instant.
    fn call(mut self, arrivals: &[f64], returned: f64, reply: Value) -> Self {
        let index = self.played.groups[0].len();
        let path = format!("/c/run/case/call-{index}");
        for (number, arrived) in arrivals.iter().enumerate() {
            let fields = vec![
                ("overload-attempt".to_owned(), (number + 1).to_string()),
                (
                    "overload-deadline-ms".to_owned(),
                    (1000.0 - arrived).floor().to_string(),
                ),
            ];
            let at = self.at(*arrived);
            self.played.log.exchanges.push(Exchange {
                port: Port::Main,
                connection: 0,
                arrived: at,
                method: "GET".to_owned(),
                path: path.clone(),
                fields,
                body: Vec::new(),
                head_at: Some(at),
                answered: "503".to_owned(),
                body_written: 0,
            });
        }
        let Value::Object(result) = reply else {
            panic!("a result is an object")
        };
        let (sent, returned) = (self.at(0.0), self.at(returned));
        self.played.groups[0].push(CallSeen::new(path, sent, returned, None, Reply::Said(result)));
        self
    }

    fn field(mut self, request: usize, name: &str, value: &str) -> Self {
        let fields = &mut self.played.log.exchanges[request].fields;
        fields.retain(|(have, _)| have != name);
        fields.push((name.to_owned(), value.to_owned()));
        self
    }

    fn judge(&self, expect: &Value) -> Findings {
        judge(&case(expect), &self.played)
    }
}

fn case(expect: &Value) -> ClientCase {
    let case = json!({"calls": [{"script": [{"status": 200}], "expect": expect}]});
    serde_json::from_value(case).expect("the case is well-formed")
}

fn ok(findings: &Findings) -> bool {
    !findings.checks.is_empty() && findings.failed().next().is_none()
}

fn success(attempts: u64) -> Value {
    json!({"kind": "response", "status": 200, "attempts": attempts, "elapsed_ms": 100})
}

fn window() -> Value {
    json!({"requests": 2, "gaps": [{"k": 1, "min_ms": 100, "max_ms": 200}], "result": {"kind": "response", "status": 200}})
}

#[test]
fn a_request_three_ms_before_the_window_fails_and_one_ms_before_it_passes() {
    let gap = |ms: f64| Made::new().call(&[0.0, ms], ms, success(2)).judge(&window());
    assert!(!ok(&gap(97.0)));
    assert!(ok(&gap(99.0)));
    assert!(ok(&gap(100.0)));
}

#[test]
fn a_request_past_the_window_and_the_slack_fails_and_within_the_slack_passes() {
    let gap = |ms: f64| Made::new().call(&[0.0, ms], ms, success(2)).judge(&window());
    assert!(ok(&gap(449.0)));
    assert!(!ok(&gap(451.0)));
}

#[test]
fn a_client_that_says_it_waited_but_sent_nothing_fails() {
    let made = Made::new().call(&[], 150.0, success(2));
    let findings = made.judge(&window());
    assert!(findings.failed().any(|check| check.name.ends_with("requests")));
    assert!(findings.failed().any(|check| check.name.contains("gap[1]")));
    assert!(
        findings
            .failed()
            .any(|check| check.name.ends_with("result.attempts"))
    );
}

#[test]
fn a_client_that_did_right_on_the_wire_but_says_something_else_fails() {
    let said = json!({"kind": "error", "why": "transport", "attempts": 2, "elapsed_ms": 1});
    assert!(!ok(&Made::new()
        .call(&[0.0, 150.0], 150.0, said)
        .judge(&window())));
    assert!(!ok(&Made::new()
        .call(&[0.0, 150.0], 150.0, success(1))
        .judge(&window())));
    assert!(ok(&Made::new()
        .call(&[0.0, 150.0], 150.0, success(2))
        .judge(&window())));
}

#[test]
fn zero_requests_pass_only_with_the_reason_that_the_case_expects() {
    let expect = json!({"requests": 0, "result": {"kind": "overloaded", "why": "held_off"}});
    let said = |why: &str| json!({"kind": "overloaded", "why": why, "attempts": 0, "elapsed_ms": 1});
    assert!(ok(&Made::new().call(&[], 1.0, said("held_off")).judge(&expect)));
    assert!(!ok(&Made::new().call(&[], 1.0, said("transport")).judge(&expect)));
    assert!(!ok(&Made::new()
        .call(&[0.0], 1.0, said("held_off"))
        .judge(&expect)));
}

#[test]
fn an_adapter_that_broke_fails_the_call_with_its_own_words() {
    let mut made = Made::new().call(&[0.0, 150.0], 150.0, success(2));
    made.played.groups[0][0].reply = Reply::Broke("it hung".to_owned());
    let findings = made.judge(&window());
    assert!(findings.failed().any(|check| check.seen == "it hung"));
}

#[test]
fn a_request_outside_the_calls_of_the_case_fails() {
    let mut made = Made::new().call(&[0.0, 150.0], 150.0, success(2));
    made.played.log.strays.push("GET /type".to_owned());
    assert!(!ok(&made.judge(&window())));
}

fn many(gap: impl Fn(usize) -> f64) -> Findings {
    let made = (0..40).fold(Made::new(), |made, n| {
        made.call(&[0.0, gap(n)], 300.0, success(2))
    });
    made.judge(&json!({"requests": 2, "spread": [{"k": 1, "lo_ms": 100, "hi_ms": 200}], "result": {"kind": "response"}}))
}

#[test]
fn waits_spread_over_the_window_pass() {
    assert!(ok(&many(|n| 100.0 + 2.5 * n as f64)));
}

#[test]
fn waits_that_are_all_the_same_or_bunched_in_a_corner_fail() {
    assert!(!ok(&many(|_| 100.0)));
    assert!(!ok(&many(|n| 100.0 + n as f64)));
    // The range is wide, but half of the callers share one slice.
    assert!(!ok(&many(|n| if n % 2 == 0 {
        101.0
    } else {
        100.0 + 2.5 * n as f64
    })));
}

#[test]
fn a_deadline_that_does_not_shrink_by_the_wait_fails() {
    let expect = json!({
        "requests": 2, "gaps": [{"k": 1, "min_ms": 100, "max_ms": 200}], "result": {"kind": "response"},
        "fields": {"deadline_ms": 1000, "attempt_from": 1}
    });
    let made = || Made::new().call(&[0.0, 150.0], 150.0, success(2));
    assert!(ok(&made().judge(&expect)));
    assert!(!ok(&made()
        .field(1, "overload-deadline-ms", "1000")
        .judge(&expect)));
    assert!(!ok(&made()
        .field(1, "overload-deadline-ms", "soon")
        .judge(&expect)));
    assert!(!ok(&made()
        .field(0, "overload-deadline-ms", "1001")
        .judge(&expect)));
    assert!(!ok(&made().field(1, "overload-attempt", "1").judge(&expect)));
}

#[test]
fn a_share_of_the_calls_is_counted_not_assumed() {
    let expect = |calls: Value| json!({"requests": 1, "results": [{"calls": calls, "result": {"kind": "overloaded", "why": "budget_exhausted"}}]});
    let stopped = json!({"kind": "overloaded", "why": "budget_exhausted", "attempts": 1});
    let made = Made::new()
        .call(&[0.0], 1.0, stopped.clone())
        .call(&[0.0], 1.0, success(1))
        .call(&[0.0], 1.0, stopped);
    assert!(ok(&made.judge(&expect(json!(2)))));
    assert!(!ok(&made.judge(&expect(json!(3)))));
    assert!(!ok(&made.judge(&expect(json!([0, 1])))));
}

#[test]
fn a_hint_that_is_said_where_none_was_given_fails() {
    let expect =
        json!({"requests": 1, "result": {"kind": "overloaded", "code": "none", "retry_in_ms": "none"}});
    let said = |code: Value, left: Value| json!({"kind": "overloaded", "code": code, "retry_in_ms": left, "attempts": 1});
    let judge = |said: Value| Made::new().call(&[0.0], 1.0, said).judge(&expect);
    assert!(ok(&judge(said(Value::Null, Value::Null))));
    assert!(!ok(&judge(said(Value::Null, json!(0)))));
    assert!(!ok(&judge(said(json!("queue_full"), Value::Null))));
}

#[test]
fn a_trace_with_another_parent_on_each_request_passes_and_the_same_parent_or_another_trace_fails() {
    let traced = |first: &str, second: &str| {
        let made = Made::new().call(&[0.0, 150.0], 300.0, success(2));
        let made = made
            .field(0, "traceparent", first)
            .field(1, "traceparent", second);
        let expect = json!({"requests": 2, "fields": {"trace_id": "aa"}, "result": {"kind": "response", "status": 200}});
        ok(&made.judge(&expect))
    };
    let (one, two) = ("00-aa-0000000000000001-01", "00-aa-0000000000000002-01");
    assert!(traced(one, two));
    assert!(!traced(one, one));
    assert!(!traced(one, "00-bb-0000000000000002-01"));
    assert!(!traced(one, "none"));
}
