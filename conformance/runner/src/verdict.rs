//! What a case can come out as, and how single checks add up to it.
//!
//! "Passed" must never be the value that falls out of nothing having happened. So a case without a single check
//! is a harness error, and every way in which a case did not run has a name of its own.

use serde::Serialize;

use crate::case::Level;

/// The outcome of one case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[must_use]
pub enum Verdict {
    /// Every check held, on both witnesses.
    Pass,
    /// A check of a MUST or MUST NOT did not hold, or the program under test hung, crashed or answered garbage.
    Fail,
    /// A check of a SHOULD or SHOULD NOT did not hold. Reported, not scored.
    Warn,
    /// The program does not declare a capability that the case needs, or the profile leaves the case out.
    NotApplicable,
    /// The case is known but cannot be seen from outside yet; it says why.
    Untestable,
    /// The situation that the case needs could not be set up (a fixture refused, `configure` or `start` failed).
    SetupFail,
    /// The runner itself failed; says nothing about the program under test.
    HarnessError,
}

impl Verdict {
    /// True for the verdicts that say something about the program under test.
    pub fn verified(self) -> bool {
        matches!(self, Verdict::Pass | Verdict::Fail | Verdict::Warn)
    }

    /// The word used in reports.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Warn => "warn",
            Verdict::NotApplicable => "not applicable",
            Verdict::Untestable => "untestable",
            Verdict::SetupFail => "setup failed",
            Verdict::HarnessError => "harness error",
        }
    }
}

/// One thing that a case looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at, for instance `gap[1]`.
    pub name: String,
    /// Whether it held.
    pub ok: bool,
    /// What the contract asks for.
    pub expected: String,
    /// What was seen.
    pub seen: String,
}

/// Everything that a case found out. Collected while judging, turned into a verdict once.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// The checks in the order in which they were made.
    pub checks: Vec<Check>,
    /// What happened on the wire, with times; shown when the case fails.
    pub timeline: Vec<String>,
    /// How many of the checks that did not hold are explained by a standstill of the program or the machine.
    pub excused: usize,
}

impl Findings {
    /// Records one check.
    pub fn check(
        &mut self,
        name: impl Into<String>,
        ok: bool,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) {
        self.checks.push(Check {
            name: name.into(),
            ok,
            expected: expected.into(),
            seen: seen.into(),
        });
    }

    /// Records a check that a standstill may break; `excused` where one was seen that explains it.
    pub fn check_unless(
        &mut self,
        excused: bool,
        name: impl Into<String>,
        ok: bool,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) {
        self.excused += usize::from(!ok && excused);
        self.check(name, ok, expected, seen);
    }

    /// True when checks did not hold, and every one of them is explained by a standstill.
    pub fn is_excused(&self) -> bool {
        self.excused > 0 && self.failed().count() == self.excused
    }

    /// Records one line of what happened.
    pub fn saw(&mut self, line: impl Into<String>) {
        self.timeline.push(line.into());
    }

    /// The checks that did not hold.
    pub fn failed(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| !check.ok)
    }

    /// The verdict: pass when there was at least one check and all held; a failing SHOULD is a warning.
    pub fn verdict(&self, level: Level) -> Verdict {
        match (self.checks.is_empty(), self.failed().next().is_none(), level) {
            (true, _, _) => Verdict::HarnessError,
            (false, true, _) => Verdict::Pass,
            (false, false, Level::Must) => Verdict::Fail,
            (false, false, Level::Should) => Verdict::Warn,
        }
    }
}

/// Why a case has no findings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRun {
    /// The program under test broke the protocol, hung or died: a failure of the case.
    #[error("{0}")]
    PeerBroke(String),
    /// A capability is missing.
    #[error("{0}")]
    NotApplicable(String),
    /// Known, but not observable yet.
    #[error("{0}")]
    Untestable(String),
    /// The situation could not be set up.
    #[error("{0}")]
    Setup(String),
    /// The runner's own fault.
    #[error("{0}")]
    Harness(String),
}

impl NotRun {
    /// The verdict that this reason stands for.
    pub fn verdict(&self) -> Verdict {
        match self {
            NotRun::PeerBroke(_) => Verdict::Fail,
            NotRun::NotApplicable(_) => Verdict::NotApplicable,
            NotRun::Untestable(_) => Verdict::Untestable,
            NotRun::Setup(_) => Verdict::SetupFail,
            NotRun::Harness(_) => Verdict::HarnessError,
        }
    }
}

/// What a drive hands back for one case: findings, or why there are none.
pub type Outcome = Result<Findings, NotRun>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_checked_nothing_is_not_a_pass() {
        assert_eq!(Findings::default().verdict(Level::Must), Verdict::HarnessError);
    }

    #[test]
    fn a_should_that_does_not_hold_is_a_warning_and_a_must_is_a_failure() {
        let mut findings = Findings::default();
        findings.check("a", true, "1", "1");
        assert_eq!(findings.verdict(Level::Must), Verdict::Pass);
        findings.check("b", false, "1", "2");
        assert_eq!(findings.verdict(Level::Should), Verdict::Warn);
        assert_eq!(findings.verdict(Level::Must), Verdict::Fail);
    }
}
