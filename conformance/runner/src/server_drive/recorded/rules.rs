//! Each rule of single rejects: a recording that keeps it, and one that breaks it.

use super::{Change, GOOD_SIGNAL, changed, good, signal};
use crate::server_drive::rules::{Broken, broken, two_digits};

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
