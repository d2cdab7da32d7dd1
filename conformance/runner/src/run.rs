//! Picks the cases, runs them one after another or side by side, and puts a time limit around each.
//!
//! A case that measures time runs alone: two of them on one machine would blame the program under test for the
//! other's load. A case that hangs costs its own limit and no more; one in which the machine stood still is played again (module `still`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rand::RngExt as _;

use crate::adapter::AdapterPool;
use crate::case::{Body, Case, CaseSet, Level, Role};
use crate::client_drive;
use crate::clock;
use crate::grpc_drive;
use crate::pair_drive;
use crate::relay_drive;
use crate::report::CaseReport;
use crate::requirement::Requirements;
use crate::score::Scoring;
use crate::select::{Selection, VECTOR};
use crate::server_drive::silence::Silence;
use crate::server_drive::{self, ServerTarget};
use crate::still;
use crate::vector::{self, Vector, Vectors};
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
    /// What an outcome counts for.
    pub scoring: Arc<Scoring>,
    /// What is known about a server that does not answer.
    pub(crate) silence: Arc<Silence>,
}

impl RunContext {
    /// A context for a run with this seed.
    pub fn new(seed: u64, slack: Duration) -> Self {
        let run_id = format!("{:08x}", clock::rng(seed).random::<u32>());
        Self {
            run_id,
            seed,
            slack,
            scoring: Arc::default(),
            silence: Arc::default(),
        }
    }

    /// The context of another play of the same case: its clients, relays and paths have a past with no other play.
    fn of_play(&self, number: u32) -> Self {
        let mut context = self.clone();
        if number > 1 {
            context.run_id.push_str(&format!("~{number}"));
        }
        context
    }

    /// The same context with another scoring; every case counts by default.
    #[must_use]
    pub fn with_scoring(mut self, scoring: Scoring) -> Self {
        self.scoring = Arc::new(scoring);
        self
    }

    /// True when the drives are to keep a wire log.
    pub(crate) fn records(&self) -> bool {
        self.scoring.record.is_some()
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
    /// A client behind an adapter, before a server.
    Both {
        /// The client.
        client: AdapterPool,
        /// The server.
        server: ServerTarget,
    },
}

impl Target {
    /// The adapter that is shared by the cases, where there is one.
    pub(crate) fn pool(&self) -> Option<&AdapterPool> {
        match self {
            Target::Client(pool)
            | Target::Relay(pool)
            | Target::Server(ServerTarget::Adapter(pool))
            | Target::Both { client: pool, .. } => Some(pool),
            Target::Server(ServerTarget::Url { .. }) => None,
        }
    }

    /// True for a running server whose metrics nobody told us.
    fn is_blind(&self) -> bool {
        matches!(
            self,
            Target::Server(ServerTarget::Url {
                metrics_url: None,
                ..
            })
        )
    }

    /// How the programs ended that did not end as ADAPTER.md asks; to be asked after [`Target::stop`].
    pub fn bad_ends(&self) -> Vec<String> {
        let server = match self {
            Target::Both {
                server: ServerTarget::Adapter(pool),
                ..
            } => Some(pool),
            _ => None,
        };
        let pools = self.pool().into_iter().chain(server);
        pools.filter_map(AdapterPool::bad_ends).collect()
    }

    /// Ends whatever was started.
    pub async fn stop(&self) {
        if let Some(pool) = self.pool() {
            pool.stop().await;
        }
    }

    /// Kills whatever was started and is shared by the cases; what a case started by itself ends with the case.
    pub async fn kill(&self) {
        if let Some(pool) = self.pool() {
            pool.kill().await;
        }
    }
}

/// The cases of the target's role that the selection takes in: those that run alone, and those that need not.
fn selected<'a>(set: &'a CaseSet, target: &Target, selection: &Selection) -> (Vec<&'a Case>, Vec<&'a Case>) {
    let role = match target {
        Target::Client(_) => Role::Client,
        Target::Server(_) => Role::Server,
        Target::Relay(_) => Role::Relay,
        Target::Both { .. } => Role::Both,
    };
    let takes = |case: &&Case| {
        case.role() == role && selection.takes(&case.id, &case.requirements, &set.requirements)
    };
    let (alone, together) = set.cases.iter().filter(takes).partition(|case| case.timing);
    (selection.part(alone), selection.part(together))
}

/// How many cases [`run_cases`] would run.
pub fn count(set: &CaseSet, target: &Target, selection: &Selection) -> usize {
    let (alone, together) = selected(set, target, selection);
    alone.len() + together.len()
}

/// The vectors that the selection takes in.
fn selected_vectors<'a>(
    vectors: &'a Vectors,
    requirements: &Requirements,
    selection: &Selection,
) -> Vec<(String, &'a Vector)> {
    let named = vectors
        .vectors
        .iter()
        .map(|vector| (format!("{VECTOR}{}", vector.id), vector));
    let takes = |(id, vector): &(String, &Vector)| selection.takes(id, &vector.req, requirements);
    selection.part(named.filter(takes).collect())
}

/// How many vectors [`run_vectors`] would run.
pub fn count_vectors(vectors: &Vectors, requirements: &Requirements, selection: &Selection) -> usize {
    selected_vectors(vectors, requirements, selection).len()
}

/// Runs the selected cases of the target's role. `done` is told of each report as it comes.
pub async fn run_cases(
    set: &CaseSet,
    target: &Target,
    context: &RunContext,
    selection: &Selection,
    mut done: impl FnMut(&CaseReport),
) -> Vec<CaseReport> {
    let (alone, together) = selected(set, target, selection);
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
    report.scored && (report.verdict.fails() || report.verdict == Verdict::HarnessError)
}

async fn run_case(case: &Case, target: &Target, context: &RunContext, selection: &Selection) -> CaseReport {
    let started = clock::now();
    let mut unseen: BTreeSet<String> = case.limits_only.iter().cloned().collect();
    if target.is_blind() {
        unseen.extend(case.metrics_show.iter().cloned());
    }
    let outcome = match applicable(case, target).await {
        Err(not_run) => Err(not_run),
        Ok(()) => {
            still::steadily(|number| {
                let context = context.of_play(number);
                async move { play(case, target, &context).await }
            })
            .await
        }
    };
    let elapsed = clock::now().saturating_duration_since(started);
    let report = CaseReport {
        title: case.title.clone(),
        requirements: case.requirements.clone(),
        level: case.level,
        unseen,
        elapsed_ms: millis(elapsed),
        ..blank(&case.id, selection)
    };
    fill(report, outcome, &context.scoring)
}

/// How much earlier than the limit of a case its answers are given up, so that the wire log can still be shown.
const SPARE: Duration = Duration::from_millis(500);

/// When the answers of a case that begins now are given up.
pub(crate) fn give_up(case: &Case) -> Instant {
    clock::now() + Duration::from_millis(case.limit_ms).saturating_sub(SPARE)
}

/// Plays a case once, within its limit.
async fn play(case: &Case, target: &Target, context: &RunContext) -> Outcome {
    let drive = async {
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
            (Body::Pair(body), Target::Both { client, server }) => {
                pair_drive::run_case(case, body, client, server, context).await
            }
            _ => Err(NotRun::Harness("the case is for another role".to_owned())),
        }
    };
    match tokio::time::timeout(Duration::from_millis(case.limit_ms), Box::pin(drive)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(overran(case, target).await),
    }
}

/// A report in which nothing has happened yet.
fn blank(id: &str, selection: &Selection) -> CaseReport {
    CaseReport {
        id: id.to_owned(),
        title: String::new(),
        requirements: Vec::new(),
        level: Level::Must,
        verdict: Verdict::HarnessError,
        scored: true,
        reason: None,
        checks: Vec::new(),
        unseen: BTreeSet::new(),
        timeline: Vec::new(),
        measured: Vec::new(),
        record: None,
        elapsed_ms: 0,
        reproduce: selection.reproduce(id),
    }
}

/// Whether the case can run against this target at all.
async fn applicable(case: &Case, target: &Target) -> Result<(), NotRun> {
    if let Some(why) = &case.excluded {
        return Err(NotRun::Excluded(why.clone()));
    }
    if target.is_blind() && case.requirements.iter().all(|id| case.metrics_show.contains(id)) {
        let why = "needs the metrics page; no --metrics-url was given";
        return Err(NotRun::NotApplicable(why.to_owned()));
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

fn fill(mut report: CaseReport, outcome: Outcome, scoring: &Scoring) -> CaseReport {
    let mut record = Vec::new();
    match outcome {
        Ok(findings) => {
            report.verdict = findings.verdict(report.level);
            if findings.checks.is_empty() {
                report.reason = Some("the case made no check at all".to_owned());
            }
            report.checks = findings.checks;
            report.unseen.extend(findings.unseen);
            report.unseen.retain(|id| report.requirements.contains(id));
            report.timeline = findings.timeline;
            report.measured = findings.measured;
            record = findings.record;
        }
        Err(not_run) => {
            report.verdict = not_run.verdict();
            if report.verdict == Verdict::Fail && report.level == Level::Should {
                report.verdict = Verdict::Warn;
            }
            report.reason = Some(not_run.to_string());
            report.unseen.clear();
        }
    }
    scoring.settle(&mut report, &record);
    report
}

/// Runs the selected hint vectors through `parse`.
pub async fn run_vectors(
    vectors: &Vectors,
    requirements: &Requirements,
    pool: &AdapterPool,
    context: &RunContext,
    selection: &Selection,
    mut done: impl FnMut(&CaseReport),
) -> Vec<CaseReport> {
    let mut reports = Vec::new();
    for (id, vector) in selected_vectors(vectors, requirements, selection) {
        let started = clock::now();
        let outcome = match pool.get().await {
            Ok(adapter) => vector::ask(&adapter, vectors.command(vector), &vector.expect).await,
            Err(error) => Err(error.into()),
        };
        let report = CaseReport {
            title: format!("The response {} is read as the contract says.", vector.id),
            requirements: vector.req.clone(),
            level: vector.level(requirements),
            elapsed_ms: millis(clock::now().saturating_duration_since(started)),
            ..blank(&id, selection)
        };
        let report = fill(report, outcome, &context.scoring);
        done(&report);
        let stop = selection.fail_fast && failed(&report);
        reports.push(report);
        if stop {
            break;
        }
    }
    reports
}

/// A length in whole ms.
pub fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
