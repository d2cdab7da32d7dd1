//! Cells on made-up measurements.

use std::collections::BTreeMap;

use super::super::measure::Ending;
use super::*;

fn behaviour(reading: Reading) -> Behaviour {
    Behaviour {
        id: "a".to_owned(),
        part: None,
        column: "a | b".to_owned(),
        asks: "nothing".to_owned(),
        reading,
        due_ms: Some(1000),
        limit_ms: 6000,
        calls: vec![serde_json::Map::new()],
    }
}

fn client(capabilities: &[&str]) -> Surveyed {
    Surveyed {
        name: "c".to_owned(),
        version: "1".to_owned(),
        configuration: String::new(),
        capabilities: capabilities.iter().map(|it| (*it).to_owned()).collect(),
        command: "c".to_owned(),
        failed: None,
        measured: BTreeMap::new(),
        not_measured: BTreeMap::new(),
    }
}

fn call(wait: Option<f64>) -> Call {
    let end = Ending {
        after_ms: wait.unwrap_or(5.0),
        kind: "response".to_owned(),
        status: Some(200),
        why: None,
    };
    Call {
        requests: 1 + usize::from(wait.is_some()),
        first_ms: Some(3.0),
        waits_ms: wait.into_iter().collect(),
        second_at_ms: wait,
        last_at_ms: Some(wait.unwrap_or(3.0)),
        ended: Some(end),
    }
}

fn told(reading: Reading, calls: Vec<Call>) -> String {
    cell(
        &behaviour(reading),
        &Measured { groups: vec![calls] },
        &client(&[]),
    )
}

#[test]
fn a_wait_is_told_as_its_median_or_its_range_and_marked_when_one_call_is_early() {
    let waits = |all: &[f64]| told(Reading::Wait, all.iter().map(|wait| call(Some(*wait))).collect());
    assert_eq!(waits(&[1001.0, 1003.0, 1002.0]), "1.00 s");
    assert_eq!(waits(&[1001.0, 1903.0]), "1.00 s to 1.90 s");
    assert_eq!(waits(&[998.5]), "1.00 s");
    assert_eq!(waits(&[12.0, 14.0]), "14 ms *early*");
}

#[test]
fn a_call_that_is_not_sent_again_differs_from_one_that_still_waits() {
    assert_eq!(told(Reading::Wait, vec![call(None)]), "not sent again (200)");
    let open = Call {
        ended: None,
        ..call(None)
    };
    assert_eq!(told(Reading::Wait, vec![open]), "not within 6.00 s");
    assert_eq!(
        told(Reading::Wait, vec![call(Some(1500.0)), call(None)]),
        "1.50 s (1 of 2)"
    );
}

#[test]
fn a_crowd_is_told_by_its_length_and_its_fullest_moment() {
    let calls = [1000.0, 1010.0, 1049.0, 1500.0].map(|at| call(Some(at))).to_vec();
    assert_eq!(told(Reading::Spread, calls), "over 0.50 s, up to 3 in 50 ms");
}

#[test]
fn requests_are_counted_over_all_calls_and_open_calls_are_said() {
    let open = Call {
        ended: None,
        ..call(Some(2000.0))
    };
    assert_eq!(
        told(Reading::Requests, vec![call(None), open]),
        "3 (1.5 per call) in 2.00 s, 1 calls still open"
    );
}

#[test]
fn an_end_is_told_with_its_status_and_with_whether_the_client_has_the_setting() {
    assert_eq!(
        told(Reading::Ending, vec![call(Some(3000.0))]),
        "200 after 3.00 s (no such setting)"
    );
    let measured = Measured {
        groups: vec![vec![call(Some(3000.0))]],
    };
    let can = cell(&behaviour(Reading::Ending), &measured, &client(&["deadline"]));
    assert_eq!(can, "200 after 3.00 s");
}

#[test]
fn a_page_keeps_its_tables_whole_whatever_a_name_holds() {
    let survey = Survey {
        schema: super::super::SCHEMA.to_owned(),
        date: "today".to_owned(),
        machine: "here".to_owned(),
        load: None,
        jobs: 1,
        runner: "0".to_owned(),
        elapsed_ms: 1000,
        behaviours: vec![behaviour(Reading::Wait)],
        clients: vec![client(&[])],
    };
    let page = page(&survey);
    assert!(
        page.contains("| client | a \\| b (n=1) |\n|---|---|\n| c | not measured |\n"),
        "{page}"
    );
}
