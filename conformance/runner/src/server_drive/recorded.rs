//! Recorded answers, good and bad. A check that cannot fail proves nothing, so each rule has an answer that breaks it.

use std::time::Duration;

use super::check::judge;
use super::message::{Ask, Exchange, Forced, NoAnswer, Seen};
use super::page::Page;
use super::play::Evidence;
use super::rules::{Broken, broken, two_digits};
use super::spec::Check;
use crate::verdict::Findings;

const GOOD_SIGNAL: &str =
    "v=1, code=queue_full, retry=after, applied=no, after=1740, max=2300, tier=deferrable";

fn good_body() -> serde_json::Value {
    serde_json::json!({
        "type": "urn:overload:v1:queue_full", "title": "Queue is full", "status": 503,
        "instance": "urn:uuid:6f1b0c9e-5a7e-4b1e-9f3a-2f4f4c1d2e3f", "contract_version": 1, "code": "queue_full",
        "retry": "after", "applied": "no", "retry_after_ms": 1740, "retry_after_max_ms": 2300, "tier": "deferrable"
    })
}

fn good() -> Exchange {
    let line = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
    Exchange {
        label: "r".to_owned(),
        ask: Ask {
            method: "POST".to_owned(),
            path: "/v1/work".to_owned(),
            ..Ask::default()
        },
        sent_at: Duration::ZERO,
        head_after: Duration::from_millis(3),
        done_after: Duration::from_millis(4),
        answer: Ok(Seen {
            status: 503,
            headers: vec![
                line("Content-Type", "application/problem+json"),
                line("Cache-Control", "no-store"),
                line("Retry-After", "2"),
                line("retry-after-ms", "1740"),
                line("Overload-Signal", GOOD_SIGNAL),
            ],
            trailers: Vec::new(),
            body: good_body().to_string().into_bytes(),
        }),
        forced: None,
    }
}

/// What a recording is changed with.
enum Change {
    Status(u16),
    Drop(&'static str),
    Set(&'static str, String),
    Add(&'static str, &'static str),
    Trailer(&'static str, &'static str),
    Member(&'static str, serde_json::Value),
    NoMember(&'static str),
    Body(&'static str),
}

fn changed(changes: Vec<Change>) -> Exchange {
    let mut exchange = good();
    let mut body = good_body();
    let mut raw = None;
    let seen = exchange.answer.as_mut().unwrap();
    let bytes = |text: &str| text.as_bytes().to_vec();
    for change in changes {
        match change {
            Change::Status(status) => seen.status = status,
            Change::Drop(name) => seen
                .headers
                .retain(|(field, _)| !field.eq_ignore_ascii_case(name)),
            Change::Set(name, value) => {
                let at = seen
                    .headers
                    .iter_mut()
                    .find(|(field, _)| field.eq_ignore_ascii_case(name));
                at.unwrap().1 = bytes(&value);
            }
            Change::Add(name, value) => seen.headers.push((name.to_owned(), bytes(value))),
            Change::Trailer(name, value) => seen.trailers.push((name.to_owned(), bytes(value))),
            Change::Member(name, value) => body[name] = value,
            Change::NoMember(name) => drop(body.as_object_mut().unwrap().remove(name)),
            Change::Body(text) => raw = Some(bytes(text)),
        }
    }
    seen.body = raw.unwrap_or_else(|| body.to_string().into_bytes());
    exchange
}

fn signal(text: &str) -> Change {
    Change::Set("overload-signal", text.to_owned())
}

fn assert_breaks(name: &str, changes: Vec<Change>, rule: &str, word: &str) {
    let found = broken(&changed(changes));
    let hit = found
        .iter()
        .any(|broken| broken.rule == rule && broken.why.contains(word));
    assert!(hit, "{name}: wanted {rule} with {word:?}, found {found:?}");
}

#[test]
fn the_contracts_own_example_breaks_no_rule() {
    assert_eq!(broken(&good()), Vec::<Broken>::new());
}

#[test]
fn a_deadline_reject_with_a_least_deadline_breaks_no_rule() {
    let exchange = changed(vec![
        signal("v=1, code=deadline_unattainable, retry=no, applied=no"),
        Change::Drop("retry-after-ms"),
        Change::Set("retry-after", "1".to_owned()),
        Change::Member("type", "urn:overload:v1:deadline_unattainable".into()),
        Change::Member("code", "deadline_unattainable".into()),
        Change::Member("retry", "no".into()),
        Change::NoMember("retry_after_ms"),
        Change::NoMember("retry_after_max_ms"),
        Change::NoMember("tier"),
        Change::Member("min_deadline_ms", 1200.into()),
    ]);
    assert_eq!(broken(&exchange), Vec::<Broken>::new());
}

#[test]
fn an_ordinary_success_and_a_validation_error_break_no_rule() {
    for status in [200, 404, 422] {
        let exchange = changed(vec![
            Change::Status(status),
            Change::Drop("overload-signal"),
            Change::Body("{\"id\":\"1\"}"),
        ]);
        assert_eq!(broken(&exchange), Vec::<Broken>::new(), "{status}");
    }
}

#[test]
fn a_wrong_status_is_named() {
    use Change::Status;
    assert_breaks("500", vec![Status(500)], "SRV-03", "500");
    assert_breaks("502", vec![Status(502)], "SRV-03", "502");
    assert_breaks("504", vec![Status(504)], "SRV-02", "504");
    assert_breaks(
        "429 for a common limit",
        vec![Status(429)],
        "SRV-01",
        "queue_full came with status 429",
    );
    assert_breaks("a code on a 422", vec![Status(422)], "SRV-18", "422 carries");
    assert_breaks("a code on a 409", vec![Status(409)], "SRV-18", "409 carries");
    assert_breaks(
        "body status",
        vec![Change::Member("status", 500.into())],
        "SRV-07",
        "500",
    );
}

#[test]
fn a_broken_signal_is_named() {
    assert_breaks(
        "none",
        vec![Change::Drop("overload-signal")],
        "SRV-04",
        "no Overload-Signal",
    );
    assert_breaks(
        "two",
        vec![Change::Add("Overload-Signal", "v=1")],
        "SRV-04",
        "2 Overload-Signal",
    );
    assert_breaks(
        "not a dictionary",
        vec![signal("v=1; code==")],
        "SRV-04",
        "no RFC 9651",
    );
    for (text, word) in [
        (
            "code=queue_full, retry=after, applied=no, after=1740, max=2300",
            "no v",
        ),
        ("v=1, retry=after, applied=no, after=1740, max=2300", "no code"),
        (
            "v=1, code=queue_full, applied=no, after=1740, max=2300",
            "no retry",
        ),
        (
            "v=1, code=queue_full, retry=after, after=1740, max=2300",
            "no applied",
        ),
        ("v=1, code=queue_full, retry=after, applied=no", "no after"),
        (
            "v=1, code=\"queue_full\", retry=after, applied=no, after=1740",
            "not a Token",
        ),
        (
            "v=1, code=queue_full, retry=after, applied=no, after=1740.0",
            "not an Integer",
        ),
        (
            "v=1, code=queue_full, retry=soon, applied=no, after=1740",
            "retry=soon",
        ),
        (
            "v=1, code=queue_full, retry=after, applied=no, after=1740, scope=planet",
            "scope=planet",
        ),
        (
            "v=1, code=queue_full, retry=after, applied=no, after=1740, tier=gold",
            "tier=gold",
        ),
        (
            "v=1, code=queue_full, retry=after, applied=no, after=1740, hop=17",
            "hop",
        ),
        (
            "v=1, code=queue_full, retry=after, applied=no, after=1740, degraded",
            "belong to 2xx",
        ),
        (
            "v=1, code=queue_full, retry=elsewhere, applied=no, after=1740",
            "registry says after",
        ),
        (
            "v=1, code=queue_full, retry=after, applied=maybe, after=1740",
            "applied=maybe",
        ),
    ] {
        assert_breaks(text, vec![signal(text)], "SRV-04", word);
    }
    let v2 = GOOD_SIGNAL.replace("v=1", "v=2");
    assert_breaks("v=2", vec![signal(&v2)], "VER-01", "v is 2");
    let unknown = GOOD_SIGNAL.replace("queue_full", "too_busy");
    assert_breaks("unregistered", vec![signal(&unknown)], "SRV-16", "too_busy");
    let shouting = GOOD_SIGNAL.replace("queue_full", "Queue-Full");
    assert_breaks("grammar", vec![signal(&shouting)], "SRV-16", "Queue-Full");
}

#[test]
fn a_broken_retry_after_is_named() {
    let set = |value: &str| vec![Change::Set("retry-after", value.to_owned())];
    assert_breaks(
        "date",
        set("Mon, 30 Nov 2026 18:00:00 GMT"),
        "SRV-09",
        "whole seconds",
    );
    assert_breaks("fraction", set("1.74"), "SRV-09", "1.74");
    assert_breaks("sign", set("+2"), "SRV-09", "+2");
    assert_breaks("rounded down", set("1"), "SRV-08", "rounds up to 2");
    assert_breaks("zero", set("0"), "SRV-08", "1..86400");
    assert_breaks(
        "twice",
        vec![Change::Add("Retry-After", "2")],
        "SRV-08",
        "2 Retry-After lines",
    );
    assert_breaks(
        "none",
        vec![Change::Drop("retry-after")],
        "SRV-10",
        "no Retry-After",
    );
    assert_breaks(
        "ms gone",
        vec![Change::Drop("retry-after-ms")],
        "SRV-27",
        "after is 1740",
    );
    let maybe = "v=1, code=deadline_expired, retry=no, applied=maybe";
    assert_breaks(
        "maybe with a hint",
        vec![signal(maybe)],
        "SRV-10",
        "there is a Retry-After",
    );
}

#[test]
fn a_hint_out_of_range_is_named() {
    let with = |after: i64, max: i64| {
        vec![signal(&format!(
            "v=1, code=queue_full, retry=after, applied=no, after={after}, max={max}"
        ))]
    };
    assert_breaks("max before after", with(1740, 1739), "SRV-25", "max is 1739");
    assert_breaks("too wide", with(1740, 61_741), "SRV-25", "max is 61741");
    assert_breaks("zero", with(0, 10), "SRV-25", "after is 0");
    assert_breaks(
        "a day and more",
        with(86_400_001, 86_400_002),
        "SRV-25",
        "after is 86400001",
    );
    assert_breaks("under the floor", with(49, 100), "SRV-28", "after is 49");
    assert_breaks(
        "over the ceiling",
        with(30_001, 45_002),
        "SRV-28",
        "after is 30001",
    );
    assert_breaks(
        "ceiling without width",
        with(30_000, 30_050),
        "SRV-28",
        "not widened",
    );
}

#[test]
fn a_broken_body_is_named() {
    let plain = vec![Change::Set("content-type", "application/json".to_owned())];
    assert_breaks("media type", plain, "SRV-05", "application/json");
    assert_breaks(
        "text",
        vec![Change::Body("overloaded")],
        "SRV-05",
        "not a JSON object",
    );
    assert_breaks("none", vec![Change::Body("")], "SRV-05", "no body");
    assert_breaks("no title", vec![Change::NoMember("title")], "SRV-05", "title");
    assert_breaks(
        "no hint",
        vec![Change::NoMember("retry_after_ms")],
        "SRV-05",
        "retry_after_ms",
    );
    assert_breaks(
        "other type",
        vec![Change::Member("type", "about:blank".into())],
        "SRV-05",
        "about:blank",
    );
    let version = vec![Change::Member("contract_version", 2.into())];
    assert_breaks("version", version, "VER-01", "contract_version");
}

#[test]
fn header_and_body_that_disagree_are_named() {
    for (member, value) in [
        ("code", serde_json::json!("tier_shed")),
        ("retry", serde_json::json!("no")),
        ("applied", serde_json::json!("maybe")),
        ("retry_after_ms", serde_json::json!(1741)),
        ("retry_after_max_ms", serde_json::json!(9000)),
        ("tier", serde_json::json!("critical")),
        ("scope", serde_json::json!("tenant")),
        ("hop", serde_json::json!(1)),
    ] {
        assert_breaks(member, vec![Change::Member(member, value)], "SRV-06", member);
    }
}

#[test]
fn a_reject_that_may_be_cached_or_is_oversized_or_trailing_is_named() {
    assert_breaks("cache", vec![Change::Drop("cache-control")], "SRV-12", "no-store");
    let stored = vec![Change::Set("cache-control", "max-age=60".to_owned())];
    assert_breaks("max-age", stored, "SRV-12", "max-age=60");
    let long = format!("{GOOD_SIGNAL}, grease-{}=1", "x".repeat(500));
    assert_breaks("signal", vec![signal(&long)], "SRV-14", "512");
    let detail = vec![Change::Member("detail", "x".repeat(5000).into())];
    assert_breaks("body", detail, "SRV-14", "4096");
    let trailer = vec![Change::Trailer("Overload-Signal", "v=1")];
    assert_breaks("trailer", trailer, "SRV-13", "trailer");
}

#[test]
fn what_a_stranger_should_not_learn_is_named() {
    let wait = vec![Change::Member("predicted_wait_ms", 1200.into())];
    assert_breaks("wait", wait, "SEC-02", "predicted_wait_ms");
    let depth = vec![Change::Member("queue_depth", 17.into())];
    assert_breaks("depth", depth, "SEC-02", "queue_depth");
    let tenant = vec![signal(&format!("{GOOD_SIGNAL}, tenant=acme"))];
    assert_breaks("tenant", tenant, "SEC-02", "tenant");
    let fine = vec![Change::Member("min_deadline_ms", 1234.into())];
    assert_breaks("digits", fine, "SEC-07", "1234");
}

#[test]
fn two_significant_digits_are_told_from_three() {
    assert!([0, 7, 99, 100, 1200, 95_000].into_iter().all(two_digits));
    assert!(![101, 1234, 12_345, 100_100].into_iter().any(two_digits));
}

fn evidence(exchanges: Vec<Exchange>) -> Evidence {
    Evidence {
        exchanges,
        ..Evidence::default()
    }
}

/// Judges one check that is written as in a case file.
fn holds(check: &str, evidence: &Evidence) -> bool {
    let check: Check = serde_saphyr::from_str(check).unwrap();
    let mut findings = Findings::default();
    judge(&check, evidence, Duration::from_millis(250), &mut findings);
    assert!(!findings.checks.is_empty());
    findings.failed().next().is_none()
}

fn with_window(after: i64, max: i64) -> Exchange {
    changed(vec![
        signal(&format!(
            "v=1, code=queue_full, retry=after, applied=no, after={after}, max={max}"
        )),
        Change::Member("retry_after_ms", after.into()),
        Change::Member("retry_after_max_ms", max.into()),
    ])
}

#[test]
fn one_window_for_everybody_does_not_pass_as_spread_hints() {
    let same = evidence((0..100).map(|_| with_window(1000, 1200)).collect());
    let spread = evidence(
        (0..100)
            .map(|i| with_window(1000 + 10 * (i % 25), 1400))
            .collect(),
    );
    let few = evidence((0..99).map(|i| with_window(1000 + i, 1400)).collect());
    let check = "windows: { of: r, distinct: 20, per: 100 }";
    assert!(!holds(check, &same));
    assert!(holds(check, &spread));
    assert!(!holds(check, &few));
}

#[test]
fn nothing_observed_never_holds() {
    let none = evidence(Vec::new());
    for check in [
        "rules: { of: r }",
        "count: { of: r, where: { status: [500] }, max: 0 }",
        "count: { of: r, all: true }",
        "forced: { of: r }",
        "time: { of: r, max_ms: 100000 }",
        "windows: { of: r, distinct: 1, per: 1 }",
        "growth: { small: r, large: r, factor: 0.1 }",
        "same_head: { of: r, as: r }",
        "silent: { of: r, words: [zebra] }",
        "ended: { of: r, at_least: 1 }",
        "metric: { scrape: p, name: a, present: false }",
        "moved: { from: p, to: p, name: a, max: 0 }",
        "agree: { from: p, to: p, of: r }",
        "labels: { scrape: p, name: a, allowed: [b] }",
        "page_silent: { scrape: p, words: [zebra] }",
        "series: { from: p, to: p, grows_by: 0 }",
    ] {
        assert!(!holds(check, &none), "{check}");
    }
}

#[test]
fn answers_are_counted_by_kind() {
    let mut success = changed(vec![
        Change::Status(200),
        Change::Drop("overload-signal"),
        Change::Body("{}"),
    ]);
    success.head_after = Duration::from_millis(700);
    let all = evidence(vec![good(), good(), success]);
    assert!(holds(
        "count: { of: r, where: { code: [queue_full], retry: after }, min: 2, max: 2 }",
        &all
    ));
    assert!(holds(
        "count: { of: r, where: { reject: false, degraded: false }, min: 1, max: 1 }",
        &all
    ));
    assert!(!holds(
        "count: { of: r, where: { reject: true }, all: true }",
        &all
    ));
    assert!(!holds(
        "count: { of: r, where: { tier: critical }, min: 1 }",
        &all
    ));
    assert!(holds("time: { of: r, where: { reject: true }, max_ms: 1 }", &all));
    assert!(!holds("time: { of: r, max_ms: 400 }", &all));
    assert!(!holds("time: { of: r, min_ms: 10, max_ms: 600 }", &all));
}

#[test]
fn a_forced_reject_that_says_something_else_does_not_hold() {
    let forced = |after_ms, max_ms| Exchange {
        forced: Some(Forced {
            code: "queue_full".to_owned(),
            after_ms,
            max_ms,
        }),
        ..good()
    };
    assert!(holds("forced: { of: r }", &evidence(vec![forced(1740, 2300)])));
    assert!(!holds("forced: { of: r }", &evidence(vec![forced(1000, 2300)])));
    let dead = Exchange {
        answer: Err(NoAnswer::Cut("reset".to_owned())),
        ..forced(1740, 2300)
    };
    assert!(!holds("forced: { of: r }", &evidence(vec![dead])));
}

#[test]
fn a_head_answer_with_other_fields_or_a_body_does_not_hold() {
    let named = |label: &str, exchange: Exchange| Exchange {
        label: label.to_owned(),
        ..exchange
    };
    let check = "same_head: { of: head, as: get }";
    let head = || changed(vec![Change::Body("")]);
    assert!(holds(
        check,
        &evidence(vec![named("head", head()), named("get", good())])
    ));
    let poorer = changed(vec![Change::Body(""), Change::Drop("retry-after")]);
    assert!(!holds(
        check,
        &evidence(vec![named("head", poorer), named("get", good())])
    ));
    assert!(!holds(
        check,
        &evidence(vec![named("head", good()), named("get", good())])
    ));
}

#[test]
fn metrics_that_tell_another_story_than_the_wire_do_not_hold() {
    let page = |accepts: u32, rejects: u32| {
        Ok(Page::parse(&format!(
            "agent_admission_total{{decision=\"accept\",task_class=\"t\",tenant_tier=\"deferrable\"}} {accepts}\n\
             agent_admission_total{{decision=\"reject_queue_full\",task_class=\"t\",tenant_tier=\"deferrable\"}} {rejects}\n"
        )))
    };
    let told = |accepts, rejects| {
        let mut all = evidence(vec![good(), good()]);
        all.pages.insert("before".to_owned(), page(5, 1));
        all.pages.insert("after".to_owned(), page(accepts, rejects));
        all
    };
    let check = "agree: { from: before, to: after, of: r }";
    assert!(holds(check, &told(5, 3)));
    assert!(!holds(check, &told(5, 2)));
    assert!(!holds(check, &told(7, 3)));
    let moved = "moved: { from: before, to: after, name: agent_admission_total, min: 2, max: 2 }";
    assert!(holds(moved, &told(5, 3)));
    assert!(!holds(moved, &told(6, 3)));
    let labels = "labels: { scrape: after, name: agent_admission_total, allowed: [decision, task_class] }";
    assert!(!holds(labels, &told(5, 3)));
    assert!(!holds(
        "page_silent: { scrape: after, words: [deferrable] }",
        &told(5, 3)
    ));
}

#[test]
fn a_task_without_an_end_does_not_hold() {
    let mut all = evidence(Vec::new());
    let check = "ended: { of: task, at_least: 2, not: [evicted] }";
    let mut set = |ends: Vec<Result<&str, &str>>| {
        let ends = ends
            .into_iter()
            .map(|end| end.map(str::to_owned).map_err(str::to_owned));
        all.ended.insert("task".to_owned(), ends.collect());
        holds(check, &all)
    };
    assert!(set(vec![Ok("done"), Ok("failed")]));
    assert!(!set(vec![Ok("done")]));
    assert!(!set(vec![Ok("done"), Ok("evicted")]));
    assert!(!set(vec![Ok("done"), Err("still \"queued\"")]));
}
