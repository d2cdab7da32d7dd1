//! JUnit XML: what CI systems show beside other tests.
//!
//! A suite for each family of requirements would spread one case over several, so there is one suite: the run. A case
//! that counts as a failure has `<failure>` (the runner's own has `<error>`), with everything that explains it; what
//! did not run is `<skipped>` with the reason.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{CaseReport, RunReport};
use crate::render;
use crate::verdict::Verdict;

/// The whole run.
///
/// # Errors
/// The text cannot be written as XML.
pub fn render(report: &RunReport) -> Result<String, quick_junit::SerializeError> {
    let name = format!("holdoff-conformance {}", report.mode);
    let mut suite = TestSuite::new(report.target.clone());
    suite.set_time(Duration::from_millis(report.elapsed_ms));
    suite.add_property(("seed", report.seed.to_string().as_str()));
    suite.add_property(("slack_ms", report.slack_ms.to_string().as_str()));
    suite.add_property(("contract_version", report.contract_version.to_string().as_str()));
    if !report.warnings.is_empty() {
        suite.set_system_out(report.warnings.join("\n"));
    }
    for case in &report.cases {
        suite.add_test_case(test_case(case, report));
    }
    if report.interrupted.is_some() {
        // A file with nothing but passes in it would be green.
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_type("interrupted");
        status.set_message(report.words());
        suite.add_test_case(TestCase::new("the run came to its end", status));
    }
    let mut junit = Report::new(name);
    junit.set_time(Duration::from_millis(report.elapsed_ms));
    junit.add_test_suite(suite);
    junit.to_string()
}

fn test_case(case: &CaseReport, report: &RunReport) -> TestCase {
    let bad = |kind: NonSuccessKind| {
        let mut status = TestCaseStatus::non_success(kind);
        status.set_type(case.verdict.key());
        status.set_message(case.in_short());
        status.set_description(render::explain(case, &report.requirements));
        status
    };
    let skipped = || {
        let mut status = TestCaseStatus::skipped();
        status.set_message(format!(
            "{}: {}",
            case.verdict.word(),
            case.reason.as_deref().unwrap_or("no reason was given")
        ));
        status
    };
    let status = match case.verdict {
        Verdict::Pass => TestCaseStatus::success(),
        Verdict::Fail | Verdict::Untestable | Verdict::SetupFail | Verdict::StaleBaseline => {
            bad(NonSuccessKind::Failure)
        }
        Verdict::HarnessError => bad(NonSuccessKind::Error),
        // A SHOULD that does not hold does not fail a run: it is shown, and does not turn a build red.
        Verdict::Warn | Verdict::Info => TestCaseStatus::success(),
        Verdict::NotApplicable | Verdict::KnownFail | Verdict::KnownFlaky => skipped(),
    };
    let mut test = TestCase::new(case.id.clone(), status);
    test.set_classname(case.requirements.first().cloned().unwrap_or_default());
    test.set_time(Duration::from_millis(case.elapsed_ms));
    if matches!(case.verdict, Verdict::Warn | Verdict::Info) {
        test.set_system_out(render::explain(case, &report.requirements));
    }
    test
}
