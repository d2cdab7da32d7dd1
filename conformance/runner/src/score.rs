//! What a case's outcome counts for, and what all of them say about each requirement.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde_json::Value;

use crate::baseline::Baseline;
use crate::report::{CaseReport, Conclusion, RequirementLine, RequirementState};
use crate::required::Required;
use crate::requirement::{Requirement, Requirements};
use crate::verdict::Verdict;

/// Everything that stands between what a case found and what its report says.
#[derive(Debug, Clone, Default)]
pub struct Scoring {
    /// What is scored; absent: every case is.
    pub required: Option<Required>,
    /// What is known not to hold.
    pub baseline: Option<Baseline>,
    /// Where the wire logs go.
    pub record: Option<PathBuf>,
}

impl Scoring {
    /// Settles a report: writes its wire log, then looks at the baseline and the frozen list.
    pub(crate) fn settle(&self, report: &mut CaseReport, record: &[Value]) {
        if let Some(dir) = self.record.as_ref().filter(|_| !record.is_empty()) {
            let file = dir.join(format!("{}.jsonl", report.id.replace('/', "-")));
            match write(&file, record) {
                Ok(()) => report.record = Some(file.display().to_string()),
                Err(error) => {
                    report.verdict = Verdict::HarnessError;
                    report.reason = Some(format!("--record {}: {error}", file.display()));
                }
            }
        }
        if let Some(baseline) = &self.baseline {
            baseline.apply(report);
        }
        let required = self.required.as_ref();
        report.scored = required.is_none_or(|required| required.scores(&report.id, &report.requirements));
        if !report.scored && (report.verdict.fails() || report.verdict == Verdict::Warn) {
            let own = report
                .reason
                .take()
                .map_or(String::new(), |own| format!(": {own}"));
            let verdict = report.verdict.word();
            report.reason = Some(format!(
                "{verdict}, but not on the frozen list: told, not scored{own}"
            ));
            report.verdict = Verdict::Info;
        }
    }
}

fn write(file: &std::path::Path, record: &[Value]) -> io::Result<()> {
    let lines: String = record.iter().map(|line| format!("{line}\n")).collect();
    fs::write(file, lines)
}

/// What the reports say about each requirement that `belongs` to the run.
pub fn by_requirement(
    requirements: &Requirements,
    reports: &[CaseReport],
    belongs: impl Fn(&Requirement) -> bool,
) -> Vec<RequirementLine> {
    let spoken = |id: &str| {
        reports
            .iter()
            .any(|report| report.requirements.iter().any(|r| r == id))
    };
    requirements
        .iter()
        .filter(|requirement| belongs(requirement) || spoken(&requirement.id))
        .map(|requirement| {
            let speaks = |report: &&CaseReport| report.requirements.contains(&requirement.id);
            let cases: Vec<&CaseReport> = reports.iter().filter(speaks).collect();
            let verdicts: Vec<Verdict> = cases
                .iter()
                .filter(|case| case.scored)
                .map(|case| case.verdict_on(&requirement.id))
                .collect();
            RequirementLine {
                id: requirement.id.clone(),
                level: requirement.level.clone(),
                text: requirement.text.clone(),
                state: RequirementState::of(&verdicts),
                cases: cases.into_iter().map(|case| case.id.clone()).collect(),
            }
        })
        .collect()
}

/// Of what a run says about requirements, that which bears on the claim: rows that `belongs` takes in, and others only where
/// something was seen of them. A client that speaks no gRPC leaves nothing of `client-core` open.
pub fn of_the_claim(
    mut lines: Vec<RequirementLine>,
    requirements: &Requirements,
    belongs: impl Fn(&Requirement) -> bool,
) -> Vec<RequirementLine> {
    lines.retain(|line| {
        line.state != RequirementState::NotTested || requirements.get(&line.id).is_some_and(&belongs)
    });
    lines
}

/// The conclusion of a run, from the cases that are scored.
pub fn conclude(reports: &[CaseReport]) -> Conclusion {
    let scored = reports.iter().filter(|report| report.scored);
    match Conclusion::of(scored.map(|report| report.verdict)) {
        Conclusion::Conformant if reports.iter().any(CaseReport::is_excused_must) => {
            Conclusion::KnownFailures
        }
        conclusion => conclusion,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Level;

    fn report(id: &str, verdict: Verdict) -> CaseReport {
        CaseReport {
            id: id.to_owned(),
            title: "t".to_owned(),
            requirements: vec!["CLI-06".to_owned()],
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

    #[test]
    fn a_case_that_came_later_is_told_and_does_not_change_the_conclusion() {
        let requirements = Requirements::load_embedded().unwrap();
        let scoring = Scoring {
            required: Some(Required::v1(&requirements).unwrap()),
            ..Scoring::default()
        };
        let mut reports = vec![
            report("stop-retry-no", Verdict::Pass),
            report("written-next-year", Verdict::Fail),
        ];
        assert_eq!(conclude(&reports), Conclusion::NotConformant);
        for report in &mut reports {
            scoring.settle(report, &[]);
        }
        assert!(reports[0].scored && !reports[1].scored);
        assert_eq!(reports[1].verdict, Verdict::Info);
        assert!(reports[1].reason.as_ref().unwrap().contains("told, not scored"));
        assert_eq!(conclude(&reports), Conclusion::Conformant);
        let lines = by_requirement(&requirements, &reports, |_| false);
        assert_eq!(lines[0].state, RequirementState::Pass);
        // Alone it verifies nothing, also where it passes.
        let mut later = vec![report("written-next-year", Verdict::Pass)];
        scoring.settle(&mut later[0], &[]);
        assert_eq!(conclude(&later), Conclusion::NothingVerified);
        assert_eq!(
            by_requirement(&requirements, &later, |_| false)[0].state,
            RequirementState::NotTested
        );
    }

    #[test]
    fn a_row_of_another_claim_is_there_only_where_something_was_seen_of_it() {
        let requirements = Requirements::load_embedded().unwrap();
        let client_core = |requirement: &Requirement| requirement.id == "CLI-06";
        let ids = |verdict| -> Vec<String> {
            let mut one = report("one", verdict);
            one.requirements.push("GRP-07".to_owned());
            let lines = by_requirement(&requirements, &[one], client_core);
            let lines = of_the_claim(lines, &requirements, client_core);
            lines.into_iter().map(|line| line.id).collect()
        };
        assert_eq!(ids(Verdict::NotApplicable), ["CLI-06"]);
        assert_eq!(ids(Verdict::Fail).len(), 2);
    }

    #[test]
    fn a_baseline_that_excuses_a_must_is_no_conformance_and_one_that_excuses_a_should_is() {
        let pass = || report("one", Verdict::Pass);
        for known in [Verdict::KnownFail, Verdict::KnownFlaky] {
            let mut reports = [pass(), report("two", known)];
            assert_eq!(conclude(&reports), Conclusion::KnownFailures);
            assert_eq!(conclude(&reports).exit_code(), 0);
            // Alone it verifies nothing, and beside a failure it does not matter.
            assert_eq!(conclude(&reports[1..]), Conclusion::NothingVerified);
            reports[0].verdict = Verdict::Fail;
            assert_eq!(conclude(&reports), Conclusion::NotConformant);
            reports[0].verdict = Verdict::Pass;
            reports[1].level = Level::Should;
            assert_eq!(conclude(&reports), Conclusion::Conformant);
        }
    }

    #[test]
    fn a_wire_log_that_cannot_be_written_is_the_runner_s_own_failure() {
        let scoring = Scoring {
            record: Some(PathBuf::from("/no/such/directory")),
            ..Scoring::default()
        };
        let mut one = report("stop-retry-no", Verdict::Pass);
        scoring.settle(&mut one, &[serde_json::json!({"event": "case"})]);
        assert_eq!(one.verdict, Verdict::HarnessError);
    }
}
