//! Reports of every shape, held against the schema; what a badge and the words claim.

use serde_json::Value;

use super::*;
use crate::score;

const FULL: &str = "every optional member is there";

fn check(ok: bool) -> Check {
    Check {
        name: "gap[1]".to_owned(),
        ok,
        expected: "1".to_owned(),
        seen: "2".to_owned(),
        blames: BTreeSet::from(["CLI-01".to_owned()]),
    }
}

fn case(verdict: Verdict) -> CaseReport {
    CaseReport {
        id: "one".to_owned(),
        title: "It waits.".to_owned(),
        requirements: vec!["CLI-01".to_owned()],
        level: Level::Must,
        verdict,
        scored: true,
        reason: Some(FULL.to_owned()),
        checks: vec![check(verdict == Verdict::Pass)],
        unseen: BTreeSet::from(["CLI-01".to_owned()]),
        timeline: vec!["0 ms".to_owned()],
        measured: vec![Measured {
            call: "call-0".to_owned(),
            requests: 2,
            gaps_ms: vec![1.5],
            outcome: "200".to_owned(),
            elapsed_ms: 2.0,
        }],
        record: Some("wire/one.jsonl".to_owned()),
        elapsed_ms: 1,
        reproduce: "holdoff-conformance client --filter one".to_owned(),
    }
}

fn line(state: RequirementState, cases: &[&str]) -> RequirementLine {
    RequirementLine {
        id: "CLI-01".to_owned(),
        level: "MUST".to_owned(),
        text: "Wait.".to_owned(),
        state,
        cases: cases.iter().map(|id| (*id).to_owned()).collect(),
    }
}

/// A whole run of client-core: these cases, one requirement that held.
fn whole(cases: Vec<CaseReport>) -> RunReport {
    RunReport {
        schema: SCHEMA.to_owned(),
        contract_version: 1,
        runner: "0.1.0".to_owned(),
        mode: "client".to_owned(),
        target: "python3 adapter.py".to_owned(),
        implementation: None,
        profile: Some("client-core".to_owned()),
        required: Some("requirements/v1".to_owned()),
        shard: None,
        filters: Vec::new(),
        seed: u64::MAX,
        slack_ms: 250,
        elapsed_ms: 1000,
        interrupted: None,
        left_out: 0,
        warnings: Vec::new(),
        summary: cases
            .iter()
            .map(|case| (case.verdict.key().to_owned(), 1))
            .collect(),
        conclusion: score::conclude(&cases),
        cases,
        requirements: vec![line(RequirementState::Pass, &["one"])],
    }
}

/// Every optional member there at once.
fn full() -> RunReport {
    RunReport {
        implementation: Some(Implementation {
            name: "python-kit".to_owned(),
            version: "1".to_owned(),
            configuration: Some("Session(retries=3)".to_owned()),
        }),
        shard: Some("1/3".to_owned()),
        filters: vec!["one".to_owned()],
        interrupted: Some(Interrupted {
            by: Signal::Terminate,
            selected: 7,
        }),
        left_out: 3,
        warnings: vec!["the adapter declares the capability \"x\"".to_owned()],
        ..whole(vec![case(Verdict::Pass)])
    }
}

fn errors(report: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(include_str!("../../report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors = validator.iter_errors(report);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

fn fits(report: &RunReport) {
    let json = serde_json::to_value(report).unwrap();
    let errors = errors(&json);
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(serde_json::from_value::<RunReport>(json).unwrap(), *report);
}

#[test]
fn a_report_of_every_shape_fits_its_schema_and_reads_back_the_same() {
    fits(&full());
    for verdict in crate::verdict::ALL {
        fits(&whole(vec![case(verdict)]));
        let bare = CaseReport {
            unseen: BTreeSet::new(),
            timeline: Vec::new(),
            measured: Vec::new(),
            record: None,
            ..case(verdict)
        };
        fits(&whole(vec![bare]));
    }
    for conclusion in [
        Conclusion::Conformant,
        Conclusion::KnownFailures,
        Conclusion::NotConformant,
        Conclusion::HarnessError,
        Conclusion::NothingVerified,
        Conclusion::Interrupted,
    ] {
        fits(&RunReport {
            conclusion,
            ..whole(Vec::new())
        });
    }
    for state in [
        RequirementState::Fail,
        RequirementState::HarnessError,
        RequirementState::Warn,
        RequirementState::Known,
        RequirementState::Pass,
        RequirementState::NotTested,
    ] {
        let requirements = vec![line(state, &[])];
        fits(&RunReport {
            requirements,
            ..whole(Vec::new())
        });
    }
    for by in [Signal::Interrupt, Signal::Terminate, Signal::HangUp] {
        let interrupted = Some(Interrupted { by, selected: 0 });
        fits(&RunReport {
            interrupted,
            ..whole(Vec::new())
        });
    }
}

/// What the schema calls optional is in the full report, so that none is forgotten when one is added.
#[test]
fn the_full_report_has_every_member_that_the_schema_knows() {
    let schema: Value = serde_json::from_str(include_str!("../../report.schema.json")).unwrap();
    let report = serde_json::to_value(full()).unwrap();
    let all = |of: &Value, there: &Value, what: &str| {
        for name in of["properties"].as_object().unwrap().keys() {
            assert!(there.get(name).is_some(), "{what}: {name} is never tried");
        }
    };
    all(&schema, &report, "report");
    all(
        &schema["properties"]["implementation"],
        &report["implementation"],
        "implementation",
    );
    all(
        &schema["properties"]["interrupted"],
        &report["interrupted"],
        "interrupted",
    );
    let of_case = &schema["$defs"]["case"];
    let case = &report["cases"][0];
    all(of_case, case, "case");
    all(
        &of_case["properties"]["checks"]["items"],
        &case["checks"][0],
        "check",
    );
    all(
        &of_case["properties"]["measured"]["items"],
        &case["measured"][0],
        "measured",
    );
    all(
        &schema["$defs"]["requirement"],
        &report["requirements"][0],
        "requirement",
    );
}

fn badge(report: &RunReport) -> (String, String) {
    let badge: Value = serde_json::from_str(&badge::render(report)).unwrap();
    let text = |key: &str| badge[key].as_str().unwrap().to_owned();
    (text("message"), text("color"))
}

fn says(report: &RunReport, message: &str, color: &str) {
    assert_eq!(badge(report), (message.to_owned(), color.to_owned()));
}

#[test]
fn a_baseline_that_excuses_a_must_buys_no_green_badge_and_no_claim() {
    let clean = whole(vec![case(Verdict::Pass)]);
    says(&clean, "conformant 1/1", "brightgreen");
    assert_eq!(clean.words(), "conformant: every MUST that was tested held");
    for known in [Verdict::KnownFail, Verdict::KnownFlaky] {
        let report = whole(vec![case(Verdict::Pass), case(known), case(known)]);
        says(&report, "conformant but for 2 known, 1/1", "yellow");
        assert!(
            report.words().starts_with("conformant but for 2 known: "),
            "{}",
            report.words()
        );
        assert!(report.words().contains("claims no profile"));
        let title = markdown::render(&report);
        assert!(
            title.starts_with("# python3 adapter.py: conformant but for 2 known"),
            "{title}"
        );
        assert_eq!(report.exit_code(), 0);
        let alone = whole(vec![case(known)]);
        says(&alone, "nothing verified", "lightgrey");
        assert_eq!(alone.exit_code(), 3);
    }
}

#[test]
fn what_was_not_tested_is_on_the_badge_and_in_the_words() {
    let with = |requirements| RunReport {
        requirements,
        ..whole(vec![case(Verdict::Pass)])
    };
    let held = || line(RequirementState::Pass, &["one"]);
    let undeclared = || line(RequirementState::NotTested, &["one"]);
    let nobody_can = || line(RequirementState::NotTested, &[]);
    let report = with(vec![held(), undeclared(), undeclared()]);
    says(&report, "conformant 1/1, 2 not tested", "green");
    assert!(
        report.words().ends_with("; 2 requirements were not tested"),
        "{}",
        report.words()
    );
    let report = with(vec![held(), nobody_can()]);
    says(&report, "conformant 1/1, 1 not tested", "brightgreen");
    assert!(
        report.words().ends_with("; 1 requirement was not tested"),
        "{}",
        report.words()
    );
}

#[test]
fn a_part_says_that_it_is_one() {
    let clean = || whole(vec![case(Verdict::Pass)]);
    let failed = || whole(vec![case(Verdict::Fail)]);
    let known = || whole(vec![case(Verdict::Pass), case(Verdict::KnownFail)]);
    let parts = |report: fn() -> RunReport| {
        [
            RunReport {
                shard: Some("1/2".to_owned()),
                ..report()
            },
            RunReport {
                filters: vec!["x".to_owned()],
                ..report()
            },
            RunReport {
                left_out: 1,
                ..report()
            },
        ]
    };
    for report in parts(clean) {
        says(&report, "1/1 of a part", "yellowgreen");
        assert!(
            report.words().ends_with("; only a part of the cases was played"),
            "{}",
            report.words()
        );
    }
    for report in parts(failed) {
        says(&report, "not conformant 1/1 of a part", "red");
    }
    for report in parts(known) {
        says(&report, "conformant but for 1 known, 1/1 of a part", "yellow");
    }
    let own = RunReport {
        required: None,
        ..clean()
    };
    says(&own, "1/1 of own cases", "yellowgreen");
}

#[test]
fn one_line_of_a_long_failure_stays_short_wherever_it_is_shown() {
    let mut long = case(Verdict::Fail);
    long.reason = Some("Connection refused (os error 111), ".repeat(50));
    assert!(
        long.in_short().chars().count() <= MAX_SHORT + 4,
        "{}",
        long.in_short()
    );
    let xml = junit::render(&whole(vec![long])).unwrap();
    let message = xml.split("message=\"").nth(1).unwrap();
    assert!(message.split('"').next().unwrap().matches("os error").count() < 10);
}

#[test]
fn markdown_without_a_profile_has_no_hole_in_it() {
    let report = RunReport {
        profile: None,
        ..whole(vec![case(Verdict::Pass)])
    };
    assert!(markdown::render(&report).contains("contract v1, client, runner"));
    let report = whole(vec![case(Verdict::Pass)]);
    assert!(markdown::render(&report).contains("contract v1, client (profile client-core), runner"));
}
