//! Plays callers and dependencies around a relay and judges what it passes on.
//!
//! A relay can be wrong in both directions at once: calling on for a caller that has gone, and answering with what it
//! never was told. So both ends are ours. What the dependencies saw (the wire log of scripted origins) and what the
//! callers got (raw answers) are two witnesses that share no code with the relay, and `judge` compares them.

mod answer;
mod judge;
#[cfg(test)]
mod judge_tests;
mod record;
pub mod spec;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

pub use spec::RelayCase;

use crate::adapter::{AdapterPool, COMMAND_LIMIT};
use crate::case::Case;
use crate::client_drive::first_answer;
use crate::client_drive::origin::Origin;
use crate::client_drive::spec::Port;
use crate::client_drive::wire::WireLog;
use crate::lock::lock;
use crate::run::{self, RunContext};
use crate::server_drive::message::{Ask, NoAnswer, Pace, Seen};
use crate::server_drive::probe::{self, Address, Times};
use crate::still::Stills;
use crate::verdict::{NotRun, Outcome};
use crate::{clock, slack};
use spec::Group;

/// How long the wire is watched after the last answer: a relay that goes on calling is seen.
const WATCH: Duration = Duration::from_millis(50);
/// A port that is bound for the whole case and never listens.
const NEVER: Duration = Duration::from_secs(3600);

/// One call, as its caller saw it.
#[derive(Debug, Clone)]
pub(crate) struct CallSeen {
    pub(crate) path: String,
    pub(crate) ask: Ask,
    pub(crate) times: Times,
    pub(crate) answer: Result<Seen, NoAnswer>,
}

/// Everything that happened in one case.
#[derive(Debug)]
pub(crate) struct Played {
    /// The calls of each group.
    pub(crate) groups: Vec<Vec<CallSeen>>,
    /// What each dependency saw.
    pub(crate) logs: Vec<WireLog>,
    pub(crate) started: Instant,
    pub(crate) slack: Duration,
    /// When the machine stood still.
    pub(crate) stills: Stills,
}

/// Runs one case against the relay behind the adapter.
///
/// # Errors
/// [`NotRun`] says why there are no findings.
pub async fn run_case(
    case: &Case,
    body: &RelayCase,
    adapters: &AdapterPool,
    context: &RunContext,
) -> Outcome {
    let give_up = run::give_up(case);
    let adapter = adapters.get().await?;
    let open = |index| {
        let refuse = if body.unreachable.contains(&index) {
            NEVER
        } else {
            Duration::ZERO
        };
        Origin::open(refuse).map_err(|error| NotRun::Harness(format!("loopback: {error}")))
    };
    let origins: Vec<Origin> = (0..body.dependencies).map(open).collect::<Result<_, _>>()?;
    let bases: Vec<&str> = origins.iter().map(|origin| origin.base(Port::Main)).collect();
    let name = format!("{}/{}", context.run_id, case.id);
    let command = body.setup.command(&name, &bases, body.replicas);
    let reply = adapter.request(command, COMMAND_LIMIT).await?;
    let address = adapter.listens("configure", &reply).await?;
    let started = clock::now();
    let stage = Stage {
        prefix: format!("/c/{}/{}", context.run_id, case.id),
        address,
        origins: &origins,
        started,
        give_up,
        over: Mutex::default(),
    };
    let (groups, pace) = slack::during(stage.play(&body.calls)).await;
    tokio::time::sleep(WATCH).await;
    let played = Played {
        groups,
        logs: origins.iter().map(Origin::log).collect(),
        started,
        slack: pace.slack.max(context.slack),
        stills: pace.stills,
    };
    let mut findings = judge::judge(body, &played);
    findings.stood = played.stills.longest();
    record::measure(&played, &mut findings);
    if context.records() {
        findings.record = record::lines(&case.id, &played);
    }
    Ok(findings)
}

struct Stage<'a> {
    prefix: String,
    address: Address,
    origins: &'a [Origin],
    started: Instant,
    give_up: Instant,
    /// The groups whose calls have all ended.
    over: Mutex<BTreeSet<String>>,
}

impl Stage<'_> {
    /// Plays the groups: one without `at_ms` when those before it have ended, one with it beside them.
    async fn play(&self, groups: &[Group]) -> Vec<Vec<CallSeen>> {
        let mut seen = Vec::with_capacity(groups.len());
        let mut at = 0;
        while at < groups.len() {
            let beside = groups[at + 1..]
                .iter()
                .take_while(|group| group.at_ms.is_some())
                .count();
            let batch = &groups[at..=at + beside];
            seen.extend(join_all(batch.iter().map(|group| self.group(group))).await);
            at += batch.len();
        }
        seen
    }

    async fn group(&self, group: &Group) -> Vec<CallSeen> {
        if let Some(at_ms) = group.at_ms {
            let from = match group.after.as_deref() {
                None => self.started,
                Some(name) => {
                    let over = || lock(&self.over).contains(name);
                    first_answer(
                        self.origins,
                        &format!("{}/{name}-", self.prefix),
                        self.give_up,
                        over,
                    )
                    .await
                }
            };
            tokio::time::sleep_until((from + Duration::from_millis(at_ms)).into()).await;
        }
        let scripts: Vec<_> = group
            .scripts()
            .into_iter()
            .map(|script| Arc::new(script.to_vec()))
            .collect();
        let paths: Vec<String> = (0..group.count)
            .map(|index| format!("{}/{}-{index}", self.prefix, group.name))
            .collect();
        for path in &paths {
            for (origin, script) in self.origins.iter().zip(&scripts) {
                origin.route(path.clone(), Arc::clone(script));
            }
        }
        let first = clock::now();
        let calls = (0_u32..).zip(paths).map(|(index, path)| async move {
            let due = first + Duration::from_millis(group.every_ms) * index;
            tokio::time::sleep_until(due.into()).await;
            self.call(group, path).await
        });
        let seen = join_all(calls).await;
        lock(&self.over).insert(group.name.clone());
        seen
    }

    async fn call(&self, group: &Group, path: String) -> CallSeen {
        let limit = self.give_up.saturating_duration_since(clock::now());
        let ask = ask(&group.request, &path, limit);
        let (times, answer) = probe::exchange(&self.address, &ask).await;
        CallSeen {
            path,
            ask,
            times,
            answer,
        }
    }
}

fn ask(request: &spec::Request, path: &str, limit: Duration) -> Ask {
    let text = |value: &Option<String>| value.as_ref().map(|text| format!("\"{text}\""));
    let fields = [
        (
            "Overload-Deadline-Ms",
            request.deadline_ms.map(|ms| ms.to_string()),
        ),
        ("Overload-Tier", request.tier.clone()),
        ("Overload-Attempt", request.attempt.map(|n| n.to_string())),
        ("Overload-Tenant", text(&request.tenant)),
        ("Idempotency-Key", text(&request.key)),
    ];
    let own = request
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    let headers = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .chain(own)
        .collect();
    Ask {
        method: request.method.clone().unwrap_or_else(|| "GET".to_owned()),
        path: path.to_owned(),
        headers,
        body: request.body.clone().unwrap_or_default().into_bytes(),
        pace: Pace::AtOnce,
        leave_after: None,
        limit,
        from: None,
    }
}
