//! Picks the cases, runs them one after another or side by side, and puts a time limit around each.
//!
//! A case that measures time runs alone: two of them on one machine would blame the program under test for the
//! other's load. A case that hangs costs its own limit and no more.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rand::RngExt as _;

use crate::adapter::AdapterPool;
use crate::case::{Body, Case, CaseSet, Level, Role};
use crate::client_drive;
use crate::clock;
use crate::grpc_drive;
use crate::relay_drive;
use crate::report::{CaseReport, Conclusion, RequirementLine};
use crate::requirement::{Requirement, Requirements};
use crate::server_drive::{self, ServerTarget};
use crate::vector::{self, Vectors};
use crate::verdict::{NotRun, Outcome, Verdict};

/// How many cases that do not measure time may run side by side at most.
pub const MAX_JOBS: usize = 64;

/// What every case of a run shares.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// A short random word that is part of every URL path of this run.
    pub run_id: String,
    /// The seed of the run.
    pub seed: u64,
    /// What a late bound is given on top: p99 of loopback scheduling x 4, at least 250 ms.
    pub slack: Duration,
}

impl RunContext {
    /// A context for a run with this seed.
    pub fn new(seed: u64, slack: Duration) -> Self {
        let run_id = format!("{:08x}", clock::rng(seed).random::<u32>());
        Self { run_id, seed, slack }
    }

    /// [`RunContext::slack`] in ms.
    pub fn slack_ms(&self) -> u64 {
        u64::try_from(self.slack.as_millis()).unwrap_or(u64::MAX)
    }
}

/// What is judged.
#[derive(Debug)]
pub enum Target {
    /// A client behind an adapter.
    Client(AdapterPool),
    /// A server, behind an adapter or at a URL.
    Server(ServerTarget),
    /// A relay behind an adapter.
    Relay(AdapterPool),
}

impl Target {
    fn pool(&self) -> Option<&AdapterPool> {
        match self {
            Target::Client(pool) | Target::Relay(pool) | Target::Server(ServerTarget::Adapter(pool)) => {
                Some(pool)
            }
            Target::Server(ServerTarget::Url { .. }) => None,
        }
    }

    /// Ends whatever was started.
    pub async fn stop(&self) {
        if let Some(pool) = self.pool() {
            pool.stop().await;
        }
    }
}

/// The claims that a report can be about (CONTRACT section 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// REQ, HNT, CLI, VER and SEC of role client.
    ClientCore,
    /// CMP.
    ClientCompat,
    /// What a URL alone can show of SRV, SRQ, VER and SEC.
    ServerCore,
    /// All of SRV and ADM; needs fixtures.
    ServerAdmission,
    /// INT.
    Relay,
    /// GRP of role client.
    GrpcClient,
    /// GRP of role server.
    GrpcServer,
}

impl Profile {
    /// The mode of the command line that judges this profile (`vectors` judges what `client` does).
    pub fn mode(self) -> &'static str {
        match self {
            Profile::ClientCore | Profile::ClientCompat | Profile::GrpcClient => "client",
            Profile::ServerCore | Profile::ServerAdmission | Profile::GrpcServer => "server",
            Profile::Relay => "relay",
        }
    }

    /// True when a requirement belongs to the profile.
    pub fn holds(self, requirement: &Requirement) -> bool {
        let family = requirement.id.split('-').next().unwrap_or_default();
        let plays = |role: &str| requirement.role == role || requirement.role == "both";
        match self {
            Profile::ClientCore => plays("client") && ["REQ", "HNT", "CLI", "VER", "SEC"].contains(&family),
            Profile::ClientCompat => family == "CMP",
            Profile::Relay => family == "INT",
            Profile::GrpcClient => plays("client") && family == "GRP",
            Profile::GrpcServer => plays("server") && family == "GRP",
            Profile::ServerCore => plays("server") && ["SRV", "SRQ", "VER", "SEC"].contains(&family),
            Profile::ServerAdmission => {
                plays("server") && ["SRV", "SRQ", "VER", "SEC", "ADM"].contains(&family)
            }
        }
    }
}

/// Which cases run, and how.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Whole case ids, parts of case ids, or whole requirement ids; a case matches any of them. Empty: all.
    pub filters: Vec<String>,
    /// Those filters that are the whole id of a case, and therefore match only that one.
    pub exact: Vec<String>,
    /// Only cases that speak for this profile.
    pub profile: Option<Profile>,
    /// Stop at the first failure.
    pub fail_fast: bool,
    /// How many cases that measure no time run side by side, 1..=[`MAX_JOBS`].
    pub jobs: usize,
    /// The command line up to the filter, for the reproduce line.
    pub invocation: String,
}

impl Selection {
    /// True when the selection takes in a case with this id and these requirements.
    pub fn takes(&self, id: &str, speaks_for: &[String], requirements: &Requirements) -> bool {
        let part = |filter: &String| id.contains(filter.as_str()) && !self.exact.contains(filter);
        let names = |filter: &String| id == filter || speaks_for.contains(filter) || part(filter);
        let named = self.filters.is_empty() || self.filters.iter().any(names);
        let profiled = self.profile.is_none_or(|profile| {
            speaks_for
                .iter()
                .filter_map(|id| requirements.get(id))
                .any(|r| profile.holds(r))
        });
        named && profiled
    }

    fn reproduce(&self, id: &str) -> String {
        format!("{} --filter {id}", self.invocation)
    }
}

/// Runs the selected cases of the target's role. `done` is told of each report as it comes.
pub async fn run_cases(
    set: &CaseSet,
    target: &Target,
    context: &RunContext,
    selection: &Selection,
    mut done: impl FnMut(&CaseReport),
) -> Vec<CaseReport> {
    let role = match target {
        Target::Client(_) => Role::Client,
        Target::Server(_) => Role::Server,
        Target::Relay(_) => Role::Relay,
    };
    let takes = |case: &&Case| {
        case.role() == role && selection.takes(&case.id, &case.requirements, &set.requirements)
    };
    let (alone, together): (Vec<&Case>, Vec<&Case>) = set.cases.iter().filter(takes).partition(|c| c.timing);
    let mut reports = Vec::new();
    let mut waiting = together.into_iter();
    let mut running = FuturesUnordered::new();
    loop {
        let stop = selection.fail_fast && reports.iter().any(failed);
        while !stop && running.len() < selection.jobs.clamp(1, MAX_JOBS) {
            let Some(case) = waiting.next() else { break };
            running.push(run_case(case, target, context, selection));
        }
        let Some(report) = running.next().await else { break };
        done(&report);
        reports.push(report);
    }
    for case in alone {
        if selection.fail_fast && reports.iter().any(failed) {
            break;
        }
        let report = run_case(case, target, context, selection).await;
        done(&report);
        reports.push(report);
    }
    reports
}

/// True when a report ends a run that stops at the first failure.
pub fn failed(report: &CaseReport) -> bool {
    matches!(
        report.verdict,
        Verdict::Fail | Verdict::SetupFail | Verdict::HarnessError
    )
}

async fn run_case(case: &Case, target: &Target, context: &RunContext, selection: &Selection) -> CaseReport {
    let started = clock::now();
    let limit = Duration::from_millis(case.limit_ms);
    let outcome = match applicable(case, target).await {
        Err(not_run) => Err(not_run),
        Ok(()) => {
            let play = async {
                match (&case.body, target) {
                    (Body::Client(body), Target::Client(pool)) => {
                        client_drive::run_case(case, body, pool, context).await
                    }
                    (Body::GrpcClient(body), Target::Client(pool)) => {
                        grpc_drive::run_client_case(case, body, pool, context).await
                    }
                    (Body::GrpcServer(body), Target::Server(server)) => {
                        grpc_drive::run_server_case(case, body, server, context).await
                    }
                    (Body::Server(body), Target::Server(server)) => {
                        server_drive::run_case(case, body, server, context).await
                    }
                    (Body::Relay(body), Target::Relay(pool)) => {
                        relay_drive::run_case(case, body, pool, context).await
                    }
                    _ => Err(NotRun::Harness("the case is for another role".to_owned())),
                }
            };
            match tokio::time::timeout(limit, play).await {
                Ok(outcome) => outcome,
                Err(_) => Err(overran(case, target).await),
            }
        }
    };
    let elapsed = clock::now().saturating_duration_since(started);
    let report = CaseReport {
        id: case.id.clone(),
        title: case.title.clone(),
        requirements: case.requirements.clone(),
        level: case.level,
        verdict: Verdict::HarnessError,
        reason: None,
        checks: Vec::new(),
        timeline: Vec::new(),
        elapsed_ms: millis(elapsed),
        reproduce: selection.reproduce(&case.id),
    };
    fill(report, outcome)
}

/// Whether the case can run against this target at all.
async fn applicable(case: &Case, target: &Target) -> Result<(), NotRun> {
    if let Some(why) = &case.excluded {
        return Err(NotRun::Untestable(why.clone()));
    }
    let Some(pool) = target.pool() else {
        return match case.needs.first() {
            None => Ok(()),
            Some(need) => Err(NotRun::NotApplicable(format!(
                "needs {need:?}; a bare URL cannot declare it"
            ))),
        };
    };
    if case.needs.is_empty() {
        return Ok(());
    }
    let adapter = pool.get().await?;
    match case.needs.iter().find(|need| !adapter.can(need)) {
        None => Ok(()),
        Some(need) => Err(NotRun::NotApplicable(format!(
            "capability {need:?} is not declared"
        ))),
    }
}

async fn overran(case: &Case, target: &Target) -> NotRun {
    let stderr = match target.pool() {
        Some(pool) => pool.discard().await.to_string(),
        None => String::new(),
    };
    NotRun::PeerBroke(format!(
        "the case did not end within its limit of {} ms{stderr}",
        case.limit_ms
    ))
}

fn fill(mut report: CaseReport, outcome: Outcome) -> CaseReport {
    match outcome {
        Ok(findings) => {
            report.verdict = findings.verdict(report.level);
            if findings.checks.is_empty() {
                report.reason = Some("the case made no check at all".to_owned());
            }
            report.checks = findings.checks;
            report.timeline = findings.timeline;
        }
        Err(not_run) => {
            report.verdict = not_run.verdict();
            if report.verdict == Verdict::Fail && report.level == Level::Should {
                report.verdict = Verdict::Warn;
            }
            report.reason = Some(not_run.to_string());
        }
    }
    report
}

/// Runs the selected hint vectors through `parse`.
pub async fn run_vectors(
    vectors: &Vectors,
    requirements: &Requirements,
    pool: &AdapterPool,
    selection: &Selection,
    mut done: impl FnMut(&CaseReport),
) -> Vec<CaseReport> {
    let mut reports = Vec::new();
    for vector in &vectors.vectors {
        let id = format!("vector/{}", vector.id);
        if !selection.takes(&id, &vector.req, requirements) {
            continue;
        }
        let started = clock::now();
        let outcome = match pool.get().await {
            Ok(adapter) => vector::ask(&adapter, vectors.command(vector), &vector.expect).await,
            Err(error) => Err(error.into()),
        };
        let report = CaseReport {
            reproduce: selection.reproduce(&id),
            id,
            title: format!("The response {} is read as the contract says.", vector.id),
            requirements: vector.req.clone(),
            level: vector.level(requirements),
            verdict: Verdict::HarnessError,
            reason: None,
            checks: Vec::new(),
            timeline: Vec::new(),
            elapsed_ms: millis(clock::now().saturating_duration_since(started)),
        };
        let report = fill(report, outcome);
        done(&report);
        let stop = selection.fail_fast && failed(&report);
        reports.push(report);
        if stop {
            break;
        }
    }
    reports
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
            let any = |verdict: Verdict| cases.iter().any(|case| case.verdict == verdict);
            let state = if any(Verdict::Fail) || any(Verdict::SetupFail) {
                "fail"
            } else if any(Verdict::HarnessError) {
                "harness_error"
            } else if any(Verdict::Warn) {
                "warn"
            } else if any(Verdict::Pass) {
                "pass"
            } else {
                "not_tested"
            };
            let cases = cases.into_iter().map(|case| case.id.clone()).collect();
            RequirementLine {
                id: requirement.id.clone(),
                state,
                cases,
            }
        })
        .collect()
}

/// The conclusion of a run.
pub fn conclude(reports: &[CaseReport]) -> Conclusion {
    Conclusion::of(reports.iter().map(|report| report.verdict))
}

/// A length in whole ms.
pub fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(filter: &str, exact: &[&str], id: &str) -> bool {
        let requirements = Requirements::load_embedded().unwrap();
        let selection = Selection {
            filters: vec![filter.to_owned()],
            exact: exact.iter().map(|id| (*id).to_owned()).collect(),
            ..Selection::default()
        };
        selection.takes(id, &["CLI-06".to_owned()], &requirements)
    }

    #[test]
    fn a_filter_is_a_part_of_an_id_or_a_requirement_and_a_whole_id_matches_only_itself() {
        assert!(taken("retry", &[], "stop-retry-no"));
        assert!(taken("CLI-06", &[], "stop-retry-no"));
        assert!(!taken("CLI-0", &[], "stop-retry-no"));
        assert!(taken("stop-retry-no", &["stop-retry-no"], "stop-retry-no"));
        assert!(!taken(
            "stop-retry-no",
            &["stop-retry-no"],
            "stop-retry-no-in-body-only"
        ));
    }

    #[test]
    fn a_profile_takes_the_requirements_of_its_families_and_role() {
        let all = Requirements::load_embedded().unwrap();
        let holds = |profile: Profile, id: &str| profile.holds(all.get(id).unwrap());
        assert!(holds(Profile::ClientCore, "CLI-01") && !holds(Profile::ClientCore, "CMP-01"));
        assert!(holds(Profile::ClientCompat, "CMP-01") && !holds(Profile::ClientCore, "SRV-01"));
        assert!(holds(Profile::ServerCore, "VER-01") && !holds(Profile::ServerCore, "ADM-01"));
        assert!(holds(Profile::ServerAdmission, "ADM-01") && !holds(Profile::ServerAdmission, "SEC-01"));
    }
}
