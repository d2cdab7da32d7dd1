//! Each kind of check: evidence that satisfies it, and evidence that does not.

use std::time::Duration;

use super::{Change, changed, good, signal};
use crate::server_drive::answered;
use crate::server_drive::check::judge;
use crate::server_drive::message::{Exchange, Forced, NoAnswer};
use crate::server_drive::page::Page;
use crate::server_drive::play::Evidence;
use crate::server_drive::spec::Check;
use crate::verdict::Findings;

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
        "same_header: { of: [r], header: retry-after }",
        "silent: { of: r, words: [zebra] }",
        "ended: { of: r, at_least: 1 }",
        "turn: { of: r, by: r, at_most: 9 }",
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
fn a_rule_is_unseen_where_no_answer_could_keep_or_break_it() {
    let unseen = |checks: &[&str], evidence: &Evidence| {
        let checks: Vec<Check> = checks
            .iter()
            .map(|check| serde_saphyr::from_str(check).unwrap())
            .collect();
        let checks: Vec<&Check> = checks.iter().collect();
        super::super::check::unseen(&checks, evidence)
    };
    let whole = evidence(vec![good()]);
    let bare = evidence(vec![changed(vec![
        Change::Drop("overload-signal"),
        Change::Drop("retry-after"),
        Change::Body("<h1>busy</h1>"),
    ])]);
    let milli = "rules: { of: r, only: [SRV-27] }";
    assert!(unseen(&[milli], &whole).is_empty());
    assert_eq!(
        unseen(&[milli], &bare).into_iter().collect::<Vec<_>>(),
        ["SRV-27"]
    );
    let all = unseen(&["rules: { of: r, but: [SRV-23] }"], &bare);
    assert!(
        all.contains("SRV-09") && !all.contains("SRV-04") && !all.contains("SRV-23"),
        "{all:?}"
    );
    // Another kind of check may have seen it.
    assert!(unseen(&[milli, "windows: { of: r, distinct: 1, per: 1 }"], &bare).is_empty());
    // What only other answers than those of the label could show stays unseen.
    assert!(unseen(&["rules: { of: other, only: [SRV-27] }"], &whole).contains("SRV-27"));
}

#[test]
fn every_answer_that_breaks_a_rule_is_one_that_the_rule_speaks_of() {
    use crate::server_drive::rules::{RULES, broken, reaches};
    let answers = [
        good(),
        changed(vec![Change::Status(500)]),
        changed(vec![Change::Status(504)]),
        changed(vec![Change::Status(422)]),
        changed(vec![Change::Status(429)]),
        changed(vec![Change::Drop("overload-signal")]),
        changed(vec![Change::Drop("retry-after"), Change::Drop("retry-after-ms")]),
        changed(vec![Change::Drop("overload-signal"), Change::Body("no JSON")]),
        changed(vec![
            Change::Trailer("overload-signal", "v=1"),
            Change::Member("status", 500.into()),
        ]),
        changed(vec![signal(
            "v=2, code=Q, retry=after, applied=no, after=1, max=0",
        )]),
        changed(vec![
            signal("v=1, code=rate_limited, retry=after, applied=no, after=70000, max=1"),
            Change::Member("predicted_wait_ms", 1234.into()),
            Change::Member("tenant", "a".into()),
        ]),
        changed(vec![
            signal("v=1, code=deadline_unattainable, retry=no, applied=maybe"),
            Change::Member("code", "deadline_unattainable".into()),
        ]),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for answer in &answers {
        for rule in broken(answer) {
            assert!(reaches(rule.rule, answer), "{}: {}", rule.rule, rule.why);
            seen.insert(rule.rule);
        }
    }
    assert!(
        seen.len() > RULES.len() * 2 / 3,
        "few rules were broken: {seen:?}"
    );
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

/// A reject whose head came after so many ms, on a machine that stood still from when to when.
fn judged(took: u64, stood: &[(u64, u64)]) -> Findings {
    let ms = Duration::from_millis;
    let slow = Exchange {
        sent_at: ms(1000),
        head_after: ms(took),
        done_after: ms(took),
        ..good()
    };
    let evidence = Evidence {
        exchanges: vec![slow],
        stood: stood.iter().map(|(from, to)| (ms(*from), ms(*to))).collect(),
        ..Evidence::default()
    };
    let check: Check = serde_saphyr::from_str("time: { of: r, min_ms: 20, max_ms: 100 }").unwrap();
    let mut findings = Findings::default();
    judge(&check, &evidence, ms(250), &mut findings);
    findings
}

#[test]
fn a_late_answer_is_the_machine_s_only_where_the_machine_stood_still_for_what_it_is_late_by() {
    let failed = |findings: &Findings| findings.failed().next().is_some();
    let late = judged(900, &[]);
    assert!(failed(&late) && !late.is_excused(), "a slow server is caught");
    // It stood still for 600 of the 900 ms, in pieces.
    let held = judged(900, &[(1000, 1300), (1500, 1800)]);
    assert!(failed(&held) && held.is_excused());
    // Before the request, after the answer, or too short to explain it.
    for stood in [(0, 1000), (1900, 2800), (1100, 1640)] {
        let late = judged(900, &[stood]);
        assert!(failed(&late) && !late.is_excused(), "{stood:?}");
    }
    let early = judged(10, &[(1000, 1900)]);
    assert!(failed(&early) && !early.is_excused(), "early is never explained");
    assert!(!failed(&judged(300, &[(1000, 1900)])));
}

#[test]
fn an_answer_that_never_came_is_the_machine_s_only_where_it_stood_still_for_half_of_the_time() {
    let ms = Duration::from_millis;
    let without = |error: NoAnswer| Exchange {
        sent_at: ms(0),
        answer: Err(error),
        ..good()
    };
    let judged = |exchanges: Vec<Exchange>, stood: u64| {
        let evidence = Evidence {
            exchanges,
            stood: vec![(ms(100), ms(100 + stood))],
            ..Evidence::default()
        };
        let mut findings = Findings::default();
        let lost = answered(&evidence, &mut findings);
        assert!(findings.failed().next().is_some() && lost == findings.is_excused());
        lost
    };
    let late = || without(NoAnswer::TimedOut(ms(5000)));
    assert!(judged(vec![late(), good()], 2500));
    assert!(
        !judged(vec![late(), good()], 2400),
        "a server that hangs is caught"
    );
    // What was cut off is no matter of time, and one such is enough.
    let cut = || without(NoAnswer::Cut("no byte was sent".to_owned()));
    assert!(!judged(vec![cut()], 4000));
    assert!(!judged(vec![late(), cut()], 4000));
}

#[test]
fn a_metrics_page_that_never_came_is_the_machine_s_on_the_same_terms() {
    let ms = Duration::from_millis;
    let lost = |stood: u64, exchanges: Vec<Exchange>| {
        let evidence = Evidence {
            exchanges,
            blank_pages: vec![(ms(100), ms(2000))],
            stood: vec![(ms(50), ms(50 + stood))],
            ..Evidence::default()
        };
        answered(&evidence, &mut Findings::default())
    };
    assert!(lost(1050, vec![good()]));
    assert!(!lost(1040, vec![good()]), "a page that hangs by itself is caught");
    let cut = Exchange {
        answer: Err(NoAnswer::Cut("no byte was sent".to_owned())),
        ..good()
    };
    assert!(!lost(1050, vec![good(), cut]));
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
fn a_light_tenant_behind_a_heavy_ones_whole_line_does_not_hold() {
    let served = |label: &str, sent: u64, took: u64| {
        let mut exchange = changed(vec![
            Change::Status(200),
            Change::Drop("overload-signal"),
            Change::Body("{}"),
        ]);
        exchange.label = label.to_owned();
        exchange.sent_at = Duration::from_millis(sent);
        exchange.done_after = Duration::from_millis(took);
        exchange
    };
    let with = |took| {
        let heavy = (1..=40).map(|i| served("a", 0, 20 * i));
        evidence(heavy.chain([served("b", 100, took)]).collect())
    };
    let check = "turn: { of: b, by: a, at_most: 4 }";
    assert!(holds(check, &with(50)));
    assert!(!holds(check, &with(400)));
    assert!(
        !holds(check, &with(5000)),
        "with nothing behind it there was no line"
    );
}

#[test]
fn a_caller_that_left_is_not_counted_as_unanswered_or_answered() {
    let left = Exchange {
        answer: Err(NoAnswer::Left),
        ..good()
    };
    let check = "count: { of: r, where: { status: [503], after_up_to: 1740 }, all: true }";
    assert!(holds(check, &evidence(vec![good(), left.clone()])));
    assert!(!holds(check, &evidence(vec![left])));
    assert!(!holds(
        "count: { of: r, where: { after_up_to: 1739 }, all: true }",
        &evidence(vec![good()])
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

#[test]
fn one_value_of_a_field_is_told_from_two_from_none_and_from_a_single_answer() {
    let check = "same_header: { of: [r], header: retry-after-ms }";
    let later = || changed(vec![Change::Set("retry-after-ms", "9999".to_owned())]);
    let without = || changed(vec![Change::Drop("retry-after-ms")]);
    assert!(holds(check, &evidence(vec![good(), good()])));
    assert!(!holds(check, &evidence(vec![good(), later()])));
    assert!(!holds(check, &evidence(vec![without(), without()])));
    assert!(!holds(check, &evidence(vec![good()])));
}
