//! What a case can come out as, and how single checks add up to it.
//!
//! "Passed" must never be the value that falls out of nothing having happened. So a case without a single check
//! is a harness error, and every way in which a case did not run has a name of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::case::Level;

/// The outcome of one case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[must_use]
pub enum Verdict {
    /// Every check held, on both witnesses.
    Pass,
    /// A check of a MUST or MUST NOT did not hold, or the program under test hung, crashed or answered garbage.
    Fail,
    /// A check of a SHOULD or SHOULD NOT did not hold. Reported, not scored.
    Warn,
    /// Told, not scored: a case that came after the frozen list, or one that is excluded with a reason.
    Info,
    /// The program does not declare a capability that the case needs, or the target cannot take what it needs.
    NotApplicable,
    /// What the case needs to see could not be brought about; it names what is missing. Counts as a failure, since
    /// a rule that nobody could look at has not been shown to hold.
    Untestable,
    /// The situation that the case needs could not be set up (a fixture refused, `configure` or `start` failed).
    SetupFail,
    /// The runner itself failed; says nothing about the program under test.
    HarnessError,
    /// Did not hold, and the baseline says so, with a reason and a date that is not past.
    KnownFail,
    /// Did not hold this time, and the baseline says that it comes and goes.
    KnownFlaky,
    /// The baseline says that it fails, and it passed; or the entry's date is past. Counts as a failure, so that a
    /// baseline only ever shrinks.
    StaleBaseline,
}

/// Every verdict, in the order in which reports list them.
pub const ALL: [Verdict; 11] = [
    Verdict::Fail,
    Verdict::Untestable,
    Verdict::SetupFail,
    Verdict::StaleBaseline,
    Verdict::HarnessError,
    Verdict::Warn,
    Verdict::KnownFail,
    Verdict::KnownFlaky,
    Verdict::Pass,
    Verdict::Info,
    Verdict::NotApplicable,
];

impl Verdict {
    /// True for the verdicts after which something about the program under test is known to hold or not. What the baseline
    /// excuses is not among them: a run of nothing else has shown nothing that anybody can go by.
    pub fn verified(self) -> bool {
        matches!(
            self,
            Verdict::Pass | Verdict::Fail | Verdict::Warn | Verdict::StaleBaseline
        )
    }

    /// True for the verdicts that make a run not conformant.
    pub fn fails(self) -> bool {
        matches!(
            self,
            Verdict::Fail | Verdict::Untestable | Verdict::SetupFail | Verdict::StaleBaseline
        )
    }

    /// The word used in the JSON report.
    pub fn key(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Warn => "warn",
            Verdict::Info => "info",
            Verdict::NotApplicable => "not_applicable",
            Verdict::Untestable => "untestable",
            Verdict::SetupFail => "setup_fail",
            Verdict::HarnessError => "harness_error",
            Verdict::KnownFail => "known_fail",
            Verdict::KnownFlaky => "known_flaky",
            Verdict::StaleBaseline => "stale_baseline",
        }
    }

    /// The words used in reports for people.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::NotApplicable => "not applicable",
            Verdict::SetupFail => "setup failed",
            Verdict::HarnessError => "harness error",
            Verdict::KnownFail => "known fail",
            Verdict::KnownFlaky => "known flaky",
            Verdict::StaleBaseline => "stale baseline",
            other => other.key(),
        }
    }
}

/// One thing that a case looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What was looked at, for instance `gap[1]`.
    pub name: String,
    /// Whether it held.
    pub ok: bool,
    /// What the contract asks for.
    pub expected: String,
    /// What was seen.
    pub seen: String,
    /// The requirements that did not hold, where the check looks for several and can tell which.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub blames: BTreeSet<String>,
}

/// What was measured on one call to a client, or on one request to a server: figures, no judgement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Which call of the case.
    pub call: String,
    /// Requests seen on the wire for it.
    pub requests: usize,
    /// From the head of answer k to request k + 1, in ms, for each k.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps_ms: Vec<f64>,
    /// What came out, in a few words: the last answer and what the program said.
    pub outcome: String,
    /// From the call to its end, in ms.
    pub elapsed_ms: f64,
}

/// The most calls of a case whose figures are kept, so that a case of 2,000 calls does not drown a report.
pub const MAX_MEASURED: usize = 100;

/// A length in ms with three decimals: what a report carries.
pub fn millis_of(length: Duration) -> f64 {
    (length.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

/// Everything that a case found out. Collected while judging, turned into a verdict once.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// The checks in the order in which they were made.
    pub checks: Vec<Check>,
    /// What happened on the wire, with times; shown when the case fails.
    pub timeline: Vec<String>,
    /// The figures, of [`MAX_MEASURED`] calls at most.
    pub measured: Vec<Measured>,
    /// The wire log for `--record`, one JSON value a line; empty unless it was asked for.
    pub record: Vec<Value>,
    /// Requirements that the case looks for and that nothing which it saw could keep or break.
    pub unseen: BTreeSet<String>,
    /// How many of the checks that did not hold are explained by a standstill of the program or the machine.
    pub excused: usize,
    /// How long the program or the machine stood still at once at most, where that was looked at.
    pub stood: Duration,
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
            blames: BTreeSet::new(),
        });
    }

    /// Says of the check that was made last which requirements it found broken.
    pub fn blame(&mut self, requirements: BTreeSet<String>) {
        if let Some(check) = self.checks.last_mut() {
            check.blames = requirements;
        }
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

    /// Whatever does not hold is explained by a standstill: the program had no chance.
    pub fn excuse_all(&mut self) {
        self.excused = self.failed().count();
    }

    /// True when checks did not hold, and every one of them is explained by a standstill.
    pub fn is_excused(&self) -> bool {
        self.excused > 0 && self.failed().count() == self.excused
    }

    /// Records one line of what happened.
    pub fn saw(&mut self, line: impl Into<String>) {
        self.timeline.push(line.into());
    }

    /// Keeps the figures of one call, while there is room.
    pub fn measure(&mut self, measured: Measured) {
        if self.measured.len() < MAX_MEASURED {
            self.measured.push(measured);
        }
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
    /// What it needs to see cannot be brought about here; says what is missing.
    #[error("{0}")]
    Untestable(String),
    /// Left out on purpose, with the reason.
    #[error("{0}")]
    Excluded(String),
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
            NotRun::Excluded(_) => Verdict::Info,
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
    fn the_key_of_a_verdict_is_what_the_report_carries_and_every_verdict_is_listed_once() {
        let mut all = ALL.to_vec();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 11);
        for verdict in ALL {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.key());
        }
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
