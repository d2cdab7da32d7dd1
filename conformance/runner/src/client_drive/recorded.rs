//! The judge on wire logs of real runs, recorded with `--record` from the example client: honest, and with one fault.
//!
//! Logs that were made up for a test share their author's idea of the wire. These came from sockets. Each is judged as
//! it was recorded, and then with one thing moved: a verdict has to follow what is in the log, and nothing else.

use std::time::Duration;

use super::judge::{EARLY_TOLERANCE, Played, judge};
use super::record;
use super::seen::Reply;
use crate::case::{Body, CaseSet, load_embedded};
use crate::clock;
use crate::verdict::{Findings, Verdict};

macro_rules! recorded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("recorded/", $name, ".jsonl")))),*]
    };
}

/// What the honest client left behind.
const HONEST: &[(&str, &str)] = recorded![
    "stop-retry-no.honest",
    "stop-over-cap.honest",
    "stop-post-applied-maybe.honest",
    "req-deadline-attempt-tier.honest",
    "window-spread-at-the-cap.honest",
];

/// What a client with one fault left behind, each in the case that is made for it.
const FAULTY: &[(&str, &str)] = recorded![
    "stop-retry-no.ignore-no",
    "stop-over-cap.clamp",
    "stop-post-applied-maybe.replay",
    "req-deadline-attempt-tier.stale-deadline",
    "window-spread-at-the-cap.no-jitter",
];

struct Recorded {
    set: CaseSet,
    id: String,
    played: Played,
}

impl Recorded {
    fn read(text: &str) -> Self {
        let (id, played) = record::read(text, clock::now()).unwrap();
        let set = load_embedded().unwrap();
        Self { set, id, played }
    }

    fn judge(&self) -> Findings {
        let case = self.set.cases.iter().find(|case| case.id == self.id).unwrap();
        let Body::Client(body) = &case.body else {
            panic!("{} is a client case", self.id)
        };
        judge(body, &self.played)
    }

    fn verdict(&self) -> Verdict {
        self.judge().verdict(crate::case::Level::Must)
    }

    /// The shortest time from a reject's head to the next request of the same call.
    fn least_gap(&self) -> Duration {
        let all = &self.played.log.exchanges;
        let gap = |at: usize| {
            let (path, head) = (&all[at].path, all[at].head_at?);
            let next = all[at + 1..].iter().find(|other| other.path == *path)?;
            Some(next.arrived.saturating_duration_since(head))
        };
        (0..all.len()).filter_map(gap).min().unwrap()
    }
}

fn all(of: &[(&str, &str)], wanted: Verdict) {
    for (name, text) in of {
        let recorded = Recorded::read(text);
        let findings = recorded.judge();
        let failed: Vec<_> = findings.failed().collect();
        assert_eq!(recorded.verdict(), wanted, "{name}: {failed:#?}");
    }
}

#[test]
fn what_an_honest_client_left_behind_passes() {
    all(HONEST, Verdict::Pass);
}

#[test]
fn what_a_client_with_a_fault_left_behind_fails() {
    all(FAULTY, Verdict::Fail);
}

#[test]
fn a_record_that_is_read_and_written_again_is_the_same() {
    for (name, text) in HONEST.iter().chain(FAULTY) {
        let (id, played) = record::read(text, clock::now()).unwrap();
        let again: String = record::lines(&id, &played)
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(again, *text, "{name}");
    }
}

#[test]
fn a_request_that_is_moved_before_its_window_flips_the_verdict() {
    let mut recorded = Recorded::read(HONEST[4].1);
    assert_eq!(recorded.verdict(), Verdict::Pass);
    // Heads are moved instead of requests, so that nothing else changes: the same gap, later begun.
    let least = Duration::from_millis(600);
    let spare = recorded.least_gap().saturating_sub(least);
    for exchange in &mut recorded.played.log.exchanges {
        exchange.head_at = exchange
            .head_at
            .map(|at| at + spare + EARLY_TOLERANCE + Duration::from_millis(1));
    }
    assert_eq!(recorded.verdict(), Verdict::Fail);
}

#[test]
fn lateness_flips_the_verdict_only_beyond_the_slack() {
    let moved = |by: Duration, slack: Duration| {
        let mut recorded = Recorded::read(HONEST[4].1);
        recorded.played.slack = slack;
        for exchange in &mut recorded.played.log.exchanges {
            // Every answer was given that much earlier: each gap grows by it.
            exchange.head_at = exchange.head_at.map(|at| at.checked_sub(by).unwrap());
        }
        recorded.verdict()
    };
    let (slack, late) = (Duration::from_secs(1), Duration::from_millis(600));
    assert_eq!(moved(late, slack), Verdict::Pass);
    assert_eq!(moved(late, Duration::from_millis(250)), Verdict::Fail);
}

#[test]
fn either_witness_alone_cannot_make_a_pass() {
    for (name, text) in HONEST {
        let mut silent = Recorded::read(text);
        silent.played.log.exchanges.clear();
        assert_eq!(silent.verdict(), Verdict::Fail, "{name} without its wire log");
        let mut mute = Recorded::read(text);
        for call in mute.played.groups.iter_mut().flatten() {
            call.reply = Reply::Broke("nothing was said".to_owned());
        }
        assert_eq!(mute.verdict(), Verdict::Fail, "{name} without its replies");
    }
}

#[test]
fn a_line_that_is_no_record_is_refused_with_its_number() {
    let error = |text: &str| record::read(text, clock::now()).unwrap_err();
    let first = HONEST[0].1.lines().next().unwrap();
    assert!(error("").contains("which case"));
    assert!(error("{}").starts_with("line 1"));
    assert!(error(&format!("{first}\nhello")).starts_with("line 2"));
    assert!(error(&first.replace("overload-wire/1", "overload-wire/9")).contains("overload-wire/9"));
    let head = r#"{"event":"case","schema":"overload-wire/1","slack_us":250000}"#;
    assert!(error(head).contains("only a client's can be judged again"));
    let far = r#"{"event":"call","group":4000000000,"path":"/","sent_us":0,"returned_us":0}"#;
    assert!(error(&format!("{first}\n{far}")).contains("at most 1000"));
}

#[test]
fn a_log_that_was_cut_is_refused_and_names_what_is_missing() {
    for (name, text) in HONEST.iter().chain(FAULTY) {
        let all: Vec<&str> = text.lines().collect();
        for kept in 1..all.len() {
            let error = record::read(&all[..kept].join("\n"), clock::now()).unwrap_err();
            let words = format!("is cut: after line {kept} the last line is missing, which has event `end`");
            assert!(error.contains(&words), "{name}, {kept} lines: {error}");
        }
        let error = record::read(&all[1..].join("\n"), clock::now()).unwrap_err();
        assert!(error.starts_with("line 1: the first line"), "{name}: {error}");
        let error = record::read(&format!("{text}{}\n", all[1]), clock::now()).unwrap_err();
        assert!(
            error.contains("comes after the line with event `end`"),
            "{name}: {error}"
        );
    }
}
