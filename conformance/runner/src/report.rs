//! What a run found, for people and for machines.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::adapter::Implementation;
use crate::case::Level;
use crate::verdict::{Check, Verdict};

/// The schema that a JSON report names.
pub const SCHEMA: &str = "overload-report/1";

/// What came out of one case or vector.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// The case id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The requirements that it speaks for.
    pub requirements: Vec<String>,
    /// How much a failure weighs.
    pub level: Level,
    /// What came out.
    pub verdict: Verdict,
    /// Why, when the case has no findings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Every check that was made.
    pub checks: Vec<Check>,
    /// What happened on the wire, with times.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<String>,
    /// How long the case took.
    pub elapsed_ms: u64,
    /// One command that runs this case again.
    pub reproduce: String,
}

/// A whole run.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// The contract version that was judged.
    pub contract_version: u32,
    /// The version of this runner.
    pub runner: &'static str,
    /// `client`, `server` or `vectors`.
    pub mode: &'static str,
    /// What was judged.
    pub target: String,
    /// What the program calls itself; absent for a bare URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub implementation: Option<Implementation>,
    /// The profile that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The filters of the run; with any, most requirements are not tested on purpose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<String>,
    /// The seed of the run.
    pub seed: u64,
    /// What late bounds were given, in ms.
    pub slack_ms: u64,
    /// How long the run took.
    pub elapsed_ms: u64,
    /// Cases by verdict.
    pub summary: BTreeMap<&'static str, usize>,
    /// `conformant`, `not_conformant` or `nothing_verified`.
    pub conclusion: Conclusion,
    /// Every case.
    pub cases: Vec<CaseReport>,
    /// Requirements of this role: tested by which verdicts, or not.
    pub requirements: Vec<RequirementLine>,
}

/// What a run as a whole says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[must_use]
pub enum Conclusion {
    /// Something was verified and nothing failed.
    Conformant,
    /// Something failed, or could not be set up.
    NotConformant,
    /// The runner itself failed in a case.
    HarnessError,
    /// Nothing was verified: no case ran.
    NothingVerified,
}

impl Conclusion {
    /// From the verdicts of all cases.
    pub fn of(verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        let (mut verified, mut bad, mut broken) = (false, false, false);
        for verdict in verdicts {
            verified |= verdict.verified();
            bad |= matches!(verdict, Verdict::Fail | Verdict::SetupFail);
            broken |= verdict == Verdict::HarnessError;
        }
        match (bad, broken, verified) {
            (true, ..) => Conclusion::NotConformant,
            (false, true, _) => Conclusion::HarnessError,
            (false, false, true) => Conclusion::Conformant,
            (false, false, false) => Conclusion::NothingVerified,
        }
    }

    /// The exit code: 0 conformant, 1 not conformant, 2 harness error, 3 nothing verified.
    pub fn exit_code(self) -> u8 {
        match self {
            Conclusion::Conformant => 0,
            Conclusion::NotConformant => 1,
            Conclusion::HarnessError => 2,
            Conclusion::NothingVerified => 3,
        }
    }
}

/// What a run says about one requirement.
#[derive(Debug, Clone, Serialize)]
pub struct RequirementLine {
    /// The requirement id.
    pub id: String,
    /// `pass`, `fail`, `warn`, or why it was not tested.
    pub state: &'static str,
    /// The cases that speak for it.
    pub cases: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_which_nothing_was_verified_is_not_conformant() {
        assert_eq!(Conclusion::of([]).exit_code(), 3);
        assert_eq!(
            Conclusion::of([Verdict::NotApplicable, Verdict::Untestable]).exit_code(),
            3
        );
    }

    #[test]
    fn one_failure_outweighs_every_pass_and_a_warning_does_not() {
        assert_eq!(Conclusion::of([Verdict::Pass, Verdict::Warn]).exit_code(), 0);
        assert_eq!(Conclusion::of([Verdict::Pass, Verdict::Fail]).exit_code(), 1);
        assert_eq!(Conclusion::of([Verdict::Pass, Verdict::SetupFail]).exit_code(), 1);
        assert_eq!(
            Conclusion::of([Verdict::Pass, Verdict::HarnessError]).exit_code(),
            2
        );
    }
}
