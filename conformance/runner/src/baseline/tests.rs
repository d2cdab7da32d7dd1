use std::time::Duration;

use super::*;
use crate::case::Level;

/// 2026-11-30, a little after midnight.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_796_000_000)
}

fn parse(entries: &str) -> Result<Baseline, BaselineError> {
    let known = ["one", "two"].map(str::to_owned).into();
    Baseline::parse(&format!("schema = \"{SCHEMA}\"\n{entries}"), &known, now())
}

fn entry(case: &str, kind: &str, expires: &str) -> String {
    format!(
        "[[known]]\ncase = \"{case}\"\nkind = \"{kind}\"\nreason = \"tracked as #123\"\nexpires = {expires}\n"
    )
}

fn report(verdict: Verdict) -> CaseReport {
    CaseReport {
        id: "one".to_owned(),
        title: "t".to_owned(),
        requirements: vec!["CLI-01".to_owned()],
        level: Level::Must,
        verdict,
        scored: true,
        reason: None,
        checks: Vec::new(),
        unseen: std::collections::BTreeSet::new(),
        timeline: Vec::new(),
        measured: Vec::new(),
        record: None,
        elapsed_ms: 1,
        reproduce: String::new(),
    }
}

fn after(entries: &str, verdict: Verdict) -> Verdict {
    let mut report = report(verdict);
    parse(entries).unwrap().apply(&mut report);
    report.verdict
}

#[test]
fn days_are_counted_as_the_calendar_does() {
    assert_eq!(Day::civil(1970, 1, 1), Day(0));
    assert_eq!(Day::civil(1969, 12, 31), Day(-1));
    assert_eq!(Day::civil(2000, 3, 1), Day(11_017));
    assert_eq!(Day::civil(2028, 2, 29).0 + 1, Day::civil(2028, 3, 1).0);
    assert_eq!(Day::of(now()), Day::civil(2026, 11, 30));
}

#[test]
fn what_is_known_to_fail_is_not_news_and_what_holds_again_is() {
    let known = entry("one", "fail", "2026-12-31");
    assert_eq!(after(&known, Verdict::Fail), Verdict::KnownFail);
    assert_eq!(after(&known, Verdict::Warn), Verdict::KnownFail);
    assert_eq!(after(&known, Verdict::SetupFail), Verdict::KnownFail);
    assert_eq!(after(&known, Verdict::Pass), Verdict::StaleBaseline);
    assert_eq!(after(&known, Verdict::HarnessError), Verdict::HarnessError);
    assert_eq!(after(&known, Verdict::NotApplicable), Verdict::NotApplicable);
}

#[test]
fn what_comes_and_goes_may_hold() {
    let known = entry("one", "flaky", "2026-12-31");
    assert_eq!(after(&known, Verdict::Fail), Verdict::KnownFlaky);
    assert_eq!(after(&known, Verdict::Pass), Verdict::Pass);
}

#[test]
fn an_entry_counts_on_its_last_day_and_fails_on_the_day_after() {
    assert_eq!(
        after(&entry("one", "fail", "2026-11-30"), Verdict::Fail),
        Verdict::KnownFail
    );
    let past = entry("one", "fail", "2026-11-29");
    assert_eq!(after(&past, Verdict::Fail), Verdict::StaleBaseline);
    assert_eq!(after(&past, Verdict::Pass), Verdict::StaleBaseline);
    assert_eq!(
        after(&entry("one", "flaky", "2026-11-29"), Verdict::Pass),
        Verdict::StaleBaseline
    );
}

#[test]
fn another_case_is_left_alone() {
    assert_eq!(
        after(&entry("two", "fail", "2026-12-31"), Verdict::Fail),
        Verdict::Fail
    );
}

#[test]
fn bad_entries_are_refused_with_the_case_the_value_and_the_limit() {
    for (entries, words) in [
        (
            entry("three", "fail", "2026-12-31"),
            "case three: there is no case",
        ),
        (entry("one", "fail", "2028-01-01"), "at most 366 days"),
        (entry("one", "fail", "2026-12-31T00:00:00Z"), "it is a date"),
        (entry("one", "fail", "\"tomorrow\""), "expires"),
        (entry("one", "never", "2026-12-31"), "never"),
        (
            entry("one", "fail", "2026-12-31") + &entry("one", "flaky", "2026-12-31"),
            "there twice",
        ),
        (
            entry("one", "fail", "2026-12-31").replace("tracked as #123", "later"),
            "at least 10",
        ),
        (entry("one", "fail", "2026-12-31") + "owner = \"me\"\n", "owner"),
    ] {
        let error = parse(&entries).unwrap_err().to_string();
        assert!(error.contains(words), "{words:?} in {error}");
    }
    let other = Baseline::parse("schema = \"x\"", &BTreeSet::new(), now());
    assert!(matches!(other, Err(BaselineError::Schema(_))));
}
