//! The judge on made-up wire logs: each rule is shown to hold and to fail.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::judge::{Played, judge};
use super::seen::{CallSeen, Reply};
use super::spec::{ClientCase, Port};
use super::wire::{Exchange, WireLog};
use crate::clock;
use crate::still::Stills;
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
            stills: Stills::default(),
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

/// Forty calls of the window 100 to 200, and a standstill.
fn many_with_still(still: (f64, f64), gap: impl Fn(usize) -> f64) -> Findings {
    let mut made = Made::new();
    for n in 0..40 {
        made = made.call(&[0.0, gap(n)], gap(n), success(2));
    }
    made.played.stills = Stills(vec![(made.at(still.0), made.at(still.1))]);
    made.judge(&json!({"requests": 2, "spread": [{"k": 1, "lo_ms": 100, "hi_ms": 200}], "result": {"kind": "response"}}))
}

#[test]
fn a_bunch_right_after_a_standstill_shows_nothing_and_any_other_bunch_is_a_failure() {
    let drawn = |n: usize| 100.0 + 2.5 * n as f64;
    let held = |n: usize| {
        if (110.0..160.0).contains(&drawn(n)) {
            161.0
        } else {
            drawn(n)
        }
    };
    let honest = many_with_still((110.0, 161.0), held);
    assert!(!ok(&honest) && honest.is_excused(), "{honest:?}");
    // The same arrivals, and nobody stood still then.
    assert!(!many_with_still((20.0, 80.0), held).is_excused());
    // Everybody at D; a standstill that ends there moved each by nothing.
    for still in [(20.0, 100.0), (150.0, 190.0), (60.0, 101.0)] {
        let same = many_with_still(still, |_| 101.0);
        assert!(!ok(&same) && !same.is_excused(), "{still:?}: {same:?}");
    }
}

#[test]
fn a_standstill_excuses_what_is_late_and_never_what_is_early() {
    let judged = |gap: f64, still: (f64, f64)| {
        let mut made = Made::new().call(&[0.0, gap], gap, success(2));
        made.played.stills = Stills(vec![(made.at(still.0), made.at(still.1))]);
        made.judge(&window())
    };
    let late = judged(600.0, (150.0, 598.0));
    assert!(!ok(&late) && late.is_excused(), "{late:?}");
    assert!(!judged(600.0, (150.0, 300.0)).is_excused());
    // A short one at the end does not explain seconds.
    assert!(!judged(5800.0, (5780.0, 5799.0)).is_excused());
    let early = judged(90.0, (10.0, 89.0));
    assert!(!ok(&early) && !early.is_excused(), "{early:?}");
}

#[test]
fn a_call_whose_time_ran_out_in_a_standstill_counts_neither_way() {
    let share = json!({"requests": [1, 2], "results": [{"calls": [3, 4], "result": {"kind": "response"}}]});
    let out = || json!({"kind": "error", "why": "deadline_exceeded", "attempts": 1, "elapsed_ms": 1000});
    let judged = |still: (f64, f64)| {
        let mut made = Made::new();
        for n in 0..4 {
            made = match n {
                0 | 1 => made.call(&[0.0], 1000.0, out()),
                _ => made.call(&[0.0, 300.0], 300.0, success(2)),
            };
        }
        made.played.stills = Stills(vec![(made.at(still.0), made.at(still.1))]);
        made.judge(&share)
    };
    let held = judged((700.0, 999.0));
    assert!(!ok(&held) && held.is_excused(), "{held:?}");
    assert!(!judged((400.0, 600.0)).is_excused());
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
