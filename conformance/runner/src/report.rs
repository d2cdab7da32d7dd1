//! What a run found, for people and for machines.

pub mod badge;
pub mod junit;
pub mod markdown;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::adapter::Implementation;
use crate::case::Level;
use crate::verdict::{Check, Measured, Verdict};
use crate::words;

/// The longest line that says why a case did not pass; the whole is in what explains it.
const MAX_SHORT: usize = 240;

/// The schema that a JSON report names.
pub const SCHEMA: &str = "overload-report/1";

/// What came out of one case or vector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// False for a case that came after the frozen list of the contract version: told, not scored.
    pub scored: bool,
    /// Why, when the case has no findings, or when something else than the checks decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Every check that was made.
    pub checks: Vec<Check>,
    /// Those of the requirements that nothing which was seen could keep or break: the case says nothing about them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unseen: BTreeSet<String>,
    /// What happened on the wire, with times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<String>,
    /// What was measured, without judgement: each call's requests, gaps and end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<Measured>,
    /// The file that `--record` wrote for the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// How long the case took.
    pub elapsed_ms: u64,
    /// One command that runs this case again.
    pub reproduce: String,
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The contract version that was judged.
    pub contract_version: u32,
    /// The version of this runner.
    pub runner: String,
    /// `client`, `server`, `relay`, `both` or `vectors`.
    pub mode: String,
    /// What was judged.
    pub target: String,
    /// What the program calls itself; absent for a bare URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation: Option<Implementation>,
    /// The profile that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The frozen list that decides which cases are scored; absent where cases were read from a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    /// Which part of the cases ran, `i/n`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The filters of the run; with any, most requirements are not tested on purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<String>,
    /// The seed of the run.
    pub seed: u64,
    /// What late bounds were given, in ms.
    pub slack_ms: u64,
    /// How long the run took.
    pub elapsed_ms: u64,
    /// Present where the run was stopped before its end: what is in the report is what it had judged by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interrupted>,
    /// Cases that were selected and not played, since `--fail-fast` ended the run before them.
    #[serde(default, skip_serializing_if = "is_none_left")]
    pub left_out: usize,
    /// What may make the run say less than was meant (a capability that no case knows), and what is no case's fault and yet not
    /// as it should be (a program that did not end as ADAPTER.md asks).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Cases by verdict, under [`Verdict::key`].
    pub summary: BTreeMap<String, usize>,
    /// What the run as a whole says.
    pub conclusion: Conclusion,
    /// Every case.
    pub cases: Vec<CaseReport>,
    /// Requirements of this role: tested by which verdicts, or not.
    pub requirements: Vec<RequirementLine>,
}

fn is_none_left(count: &usize) -> bool {
    *count == 0
}

impl CaseReport {
    /// True where the baseline takes the case out of the score although it is a MUST that did not hold.
    pub fn is_excused_must(&self) -> bool {
        let known = matches!(self.verdict, Verdict::KnownFail | Verdict::KnownFlaky);
        self.scored && known && self.level == Level::Must
    }

    /// What the case says about one of its requirements. A case that found which of them are broken does not blame the rest.
    pub fn verdict_on(&self, requirement: &str) -> Verdict {
        let spared = match self.verdict {
            Verdict::Pass => true,
            Verdict::Fail | Verdict::Warn | Verdict::KnownFail | Verdict::KnownFlaky => {
                !self.blames(requirement)
            }
            _ => false,
        };
        match (spared, self.unseen.contains(requirement)) {
            (false, _) => self.verdict,
            (true, true) => Verdict::NotApplicable,
            (true, false) => Verdict::Pass,
        }
    }

    /// True where a case that did not hold blames this requirement, as far as its checks can tell.
    pub fn blames(&self, requirement: &str) -> bool {
        let failed = || self.checks.iter().filter(|check| !check.ok);
        let ours = |id: &String| self.requirements.contains(id);
        // A check that does not say whom it blames, or blames none of these, blames all of them; so does a case without one.
        let told = failed().next().is_some() && failed().all(|check| check.blames.iter().any(ours));
        // What is no rule of single rejects is about whole answers ("also to callers that sent nothing"): those are broken.
        let of_one = crate::server_drive::rules::RULES.contains(&requirement);
        !told || !of_one || failed().any(|check| check.blames.contains(requirement))
    }

    /// Why the case did not pass, in one line.
    pub fn in_short(&self) -> String {
        let check = self.checks.iter().find(|check| !check.ok);
        let text = match (&self.reason, check) {
            (Some(reason), _) => reason.lines().next().unwrap_or_default().to_owned(),
            (None, Some(check)) => format!("{}: expected {}, saw {}", check.name, check.expected, check.seen),
            (None, None) => self.title.clone(),
        };
        words::short(&text, MAX_SHORT)
    }
}

impl RunReport {
    /// What was judged: the program's own name and version, or the target as it was given.
    pub fn name(&self) -> String {
        match &self.implementation {
            Some(it) => format!("{} {}", it.name, it.version),
            None => self.target.clone(),
        }
    }

    /// True when a filter, a shard or the end of the run left cases out.
    pub fn partial(&self) -> bool {
        !self.filters.is_empty() || self.shard.is_some() || self.interrupted.is_some() || self.left_out > 0
    }

    /// How many MUST cases the baseline excuses.
    pub fn excused(&self) -> usize {
        self.cases.iter().filter(|case| case.is_excused_must()).count()
    }

    /// How many requirements came out so.
    pub fn count(&self, state: RequirementState) -> usize {
        self.requirements
            .iter()
            .filter(|line| line.state == state)
            .count()
    }

    /// The conclusion in words, with what it leaves open; for a run that was stopped, by what and how far it had got.
    pub fn words(&self) -> String {
        let mut words = match (self.interrupted, self.conclusion) {
            (Some(Interrupted { by, selected }), _) => {
                let judged = self.cases.len();
                return format!(
                    "interrupted by {by} with {judged} of {selected} cases judged: no conclusion"
                );
            }
            (None, Conclusion::KnownFailures) => {
                let known = self.excused();
                format!("conformant but for {known} known: a baseline that excuses a MUST claims no profile")
            }
            (None, conclusion) => conclusion.words().to_owned(),
        };
        if matches!(
            self.conclusion,
            Conclusion::HarnessError | Conclusion::NothingVerified
        ) {
            return words;
        }
        let not_tested = self.count(RequirementState::NotTested);
        if self.partial() {
            words.push_str("; only a part of the cases was played");
        } else if not_tested > 0 {
            let were = if not_tested == 1 {
                "requirement was"
            } else {
                "requirements were"
            };
            words.push_str(&format!("; {not_tested} {were} not tested"));
        }
        words
    }

    /// The exit code of the run: that of the conclusion, or of the signal that stopped it.
    pub fn exit_code(&self) -> u8 {
        match self.interrupted {
            None => self.conclusion.exit_code(),
            Some(interrupted) => interrupted.by.exit_code(),
        }
    }
}

/// A run that was stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interrupted {
    /// What stopped it.
    pub by: Signal,
    /// How many cases would have been judged.
    pub selected: usize,
}

/// A signal that stops a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// Ctrl-C.
    #[serde(rename = "SIGINT")]
    Interrupt,
    /// What `kill` and CI systems send.
    #[serde(rename = "SIGTERM")]
    Terminate,
    /// The terminal went away.
    #[serde(rename = "SIGHUP")]
    HangUp,
}

impl Signal {
    /// What a shell says for a program that was ended by it: 130, 143 or 129.
    pub fn exit_code(self) -> u8 {
        match self {
            Signal::Interrupt => 130,
            Signal::Terminate => 143,
            Signal::HangUp => 129,
        }
    }
}

impl std::fmt::Display for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Signal::Interrupt => "SIGINT",
            Signal::Terminate => "SIGTERM",
            Signal::HangUp => "SIGHUP",
        })
    }
}

/// What a run as a whole says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[must_use]
pub enum Conclusion {
    /// Something was verified and nothing failed.
    Conformant,
    /// The same but for a MUST that the baseline excuses: good enough for a gate, and no claim.
    KnownFailures,
    /// Something failed, could not be set up or could not be seen, or the baseline is stale.
    NotConformant,
    /// The runner itself failed in a case.
    HarnessError,
    /// Nothing was verified: no case ran.
    NothingVerified,
    /// The run was stopped before its end, whatever it had seen by then.
    Interrupted,
}

impl Conclusion {
    /// From the verdicts of the cases that are scored. Where nothing but untestable cases ran, nothing was verified.
    pub fn of(verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        let (mut verified, mut bad, mut unseen, mut broken) = (false, false, false, false);
        for verdict in verdicts {
            verified |= verdict.verified();
            unseen |= verdict == Verdict::Untestable;
            bad |= verdict.fails() && verdict != Verdict::Untestable;
            broken |= verdict == Verdict::HarnessError;
        }
        match (bad || (unseen && verified), broken, verified) {
            (true, ..) => Conclusion::NotConformant,
            (false, true, _) => Conclusion::HarnessError,
            (false, false, true) => Conclusion::Conformant,
            (false, false, false) => Conclusion::NothingVerified,
        }
    }

    /// The conclusion in words.
    pub fn words(self) -> &'static str {
        match self {
            Conclusion::Conformant => "conformant: every MUST that was tested held",
            Conclusion::KnownFailures => "conformant but for what the baseline excuses",
            Conclusion::NotConformant => "NOT conformant",
            Conclusion::HarnessError => "no conclusion: the runner itself failed in a case",
            Conclusion::NothingVerified => "nothing was verified",
            Conclusion::Interrupted => "interrupted: no conclusion",
        }
    }

    /// The exit code: 0 conformant, also but for what the baseline excuses, 1 not conformant, 2 harness error, 3 nothing verified, 130 interrupted
    /// ([`RunReport::exit_code`] knows by what).
    pub fn exit_code(self) -> u8 {
        match self {
            Conclusion::Conformant | Conclusion::KnownFailures => 0,
            Conclusion::NotConformant => 1,
            Conclusion::HarnessError => 2,
            Conclusion::NothingVerified => 3,
            Conclusion::Interrupted => Signal::Interrupt.exit_code(),
        }
    }
}

/// What a run says about one requirement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequirementLine {
    /// The requirement id.
    pub id: String,
    /// Its level.
    pub level: String,
    /// The rule.
    pub text: String,
    /// What the run says about it.
    pub state: RequirementState,
    /// The cases that speak for it.
    pub cases: Vec<String>,
}

/// What a run says about a requirement: the worst that its scored cases say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequirementState {
    /// A case failed, could not be set up or could not be seen, or its baseline is stale.
    Fail,
    /// The runner failed in a case.
    HarnessError,
    /// A case warned.
    Warn,
    /// A case failed as the baseline says.
    Known,
    /// Every case that ran passed.
    Pass,
    /// No case said anything.
    NotTested,
}

impl RequirementState {
    /// From the verdicts of the cases that speak for it.
    pub fn of(verdicts: &[Verdict]) -> Self {
        let any = |wanted: &[Verdict]| verdicts.iter().any(|verdict| wanted.contains(verdict));
        if verdicts.iter().any(|verdict| verdict.fails()) {
            RequirementState::Fail
        } else if any(&[Verdict::HarnessError]) {
            RequirementState::HarnessError
        } else if any(&[Verdict::Warn]) {
            RequirementState::Warn
        } else if any(&[Verdict::KnownFail, Verdict::KnownFlaky]) {
            RequirementState::Known
        } else if any(&[Verdict::Pass]) {
            RequirementState::Pass
        } else {
            RequirementState::NotTested
        }
    }

    /// The word used in reports for people.
    pub fn word(self) -> &'static str {
        match self {
            RequirementState::Fail => "fail",
            RequirementState::HarnessError => "broken run",
            RequirementState::Warn => "warn",
            RequirementState::Known => "known fail",
            RequirementState::Pass => "pass",
            RequirementState::NotTested => "not tested",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_blames_what_its_checks_name_and_everything_where_one_of_them_names_nothing() {
        let check = |ok: bool, blames: &[&str]| Check {
            name: "c".to_owned(),
            ok,
            expected: String::new(),
            seen: String::new(),
            blames: blames.iter().map(|id| (*id).to_owned()).collect(),
        };
        let mut case = CaseReport {
            id: "a".to_owned(),
            title: "t".to_owned(),
            requirements: ["SRV-04", "SRV-05", "SRV-27", "SRV-24"].map(str::to_owned).into(),
            level: Level::Must,
            verdict: Verdict::Fail,
            scored: true,
            reason: None,
            checks: vec![check(true, &[]), check(false, &["SRV-04", "SEC-02"])],
            unseen: BTreeSet::from(["SRV-27".to_owned()]),
            timeline: Vec::new(),
            measured: Vec::new(),
            record: None,
            elapsed_ms: 0,
            reproduce: String::new(),
        };
        let on = |case: &CaseReport| ["SRV-04", "SRV-05", "SRV-27", "SRV-24"].map(|id| case.verdict_on(id));
        use Verdict::{Fail, NotApplicable, Pass};
        assert_eq!(on(&case), [Fail, Pass, NotApplicable, Fail]);
        case.checks.push(check(false, &[]));
        assert_eq!(on(&case), [Fail; 4]);
        case.checks = vec![check(false, &["SEC-02"])];
        assert_eq!(on(&case), [Fail; 4]);
        // A program that hung has no checks.
        case.checks.clear();
        assert_eq!(on(&case), [Fail; 4]);
        case.verdict = Pass;
        case.checks.push(check(true, &[]));
        assert_eq!(on(&case), [Pass, Pass, NotApplicable, Pass]);
    }

    #[test]
    fn what_could_not_be_seen_and_a_stale_baseline_count_as_failures_once_something_was_verified() {
        assert_eq!(
            Conclusion::of([Verdict::Pass, Verdict::Untestable]).exit_code(),
            1
        );
        assert_eq!(
            Conclusion::of([Verdict::Pass, Verdict::StaleBaseline]).exit_code(),
            1
        );
        assert_eq!(Conclusion::of([Verdict::Pass, Verdict::KnownFail]).exit_code(), 0);
        for known in [Verdict::KnownFail, Verdict::KnownFlaky] {
            assert_eq!(Conclusion::of([known]).exit_code(), 3, "{known:?} alone");
        }
        assert_eq!(Conclusion::of([Verdict::Info]).exit_code(), 3);
    }

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

#[cfg(test)]
mod shapes;
