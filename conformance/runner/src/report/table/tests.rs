use super::*;
use crate::case::Level;
use crate::report::{Conclusion, RequirementLine, SCHEMA};
use crate::verdict::Measured;

/// A report of a program with one case.
fn report(name: &str, verdict: Verdict, gaps: &[f64]) -> RunReport {
    RunReport {
        schema: SCHEMA.to_owned(),
        contract_version: 1,
        runner: "0".to_owned(),
        mode: "client".to_owned(),
        target: name.to_owned(),
        implementation: None,
        profile: None,
        required: None,
        shard: None,
        filters: Vec::new(),
        seed: 1,
        slack_ms: 250,
        elapsed_ms: 10,
        summary: [(verdict.key().to_owned(), 1)].into(),
        interrupted: None,
        warnings: Vec::new(),
        conclusion: Conclusion::of([verdict]),
        cases: vec![CaseReport {
            id: "one".to_owned(),
            title: "It waits.".to_owned(),
            requirements: vec!["CLI-01".to_owned()],
            level: Level::Must,
            verdict,
            scored: true,
            reason: None,
            checks: Vec::new(),

            unseen: std::collections::BTreeSet::new(),
            timeline: Vec::new(),
            measured: gaps
                .iter()
                .map(|gap| Measured {
                    call: "call-0".to_owned(),
                    requests: 2,
                    gaps_ms: vec![*gap],
                    ..Measured::default()
                })
                .collect(),
            record: None,
            elapsed_ms: 5,
            reproduce: "x".to_owned(),
        }],
        requirements: vec![RequirementLine {
            id: "CLI-01".to_owned(),
            level: "MUST".to_owned(),
            text: "Wait.".to_owned(),
            state: RequirementState::of(&[verdict]),
            cases: vec!["one".to_owned()],
        }],
    }
}

#[test]
fn reports_lie_beside_each_other_with_median_and_range_of_the_delays() {
    let reports = [
        report("ours", Verdict::Pass, &[120.0, 100.0, 180.0]),
        report("theirs", Verdict::Fail, &[3.0]),
        report("silent", Verdict::NotApplicable, &[]),
    ];
    let table = Table::new(&reports);
    let cells: Vec<_> = table.cases[0].cells.iter().flatten().collect();
    assert_eq!(cells[0].delays.unwrap().to_string(), "120 ms (100 to 180, n=3)");
    assert_eq!(cells[1].delays.unwrap().to_string(), "3 ms");
    assert_eq!(cells[2].delays, None);
    let text = markdown(&table);
    assert!(
        text.contains("| one | pass, 120 ms (100 to 180, n=3) | fail, 3 ms | not applicable |"),
        "{text}"
    );
    assert!(
        text.contains("| CLI-01 MUST: Wait. | pass | fail | not tested |"),
        "{text}"
    );
}

#[test]
fn a_case_that_only_one_program_ran_leaves_a_gap_and_not_a_pass() {
    let mut other = report("other", Verdict::Pass, &[]);
    other.cases[0].id = "two".to_owned();
    let reports = [report("one", Verdict::Pass, &[]), other];
    let table = Table::new(&reports);
    assert_eq!(table.cases.len(), 2);
    assert!(table.cases[0].cells[1].is_none() && table.cases[1].cells[0].is_none());
}

#[test]
fn the_page_fetches_nothing_and_what_a_program_says_stays_text() {
    let mut evil = report("<script>alert(1)</script>", Verdict::Fail, &[1.0]);
    evil.cases[0].reason = Some("it said <img src=x onerror=y> & \"z\"".to_owned());
    let reports = [evil];
    let page = html(&Table::new(&reports));
    assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("http"));
    assert!(page.contains("&lt;img src=x onerror=y&gt; &amp; &quot;z&quot;"));
    assert_eq!(page.matches("<table>").count(), page.matches("</table>").count());
    assert_eq!(page.matches("<td").count(), page.matches("</td>").count());
}
