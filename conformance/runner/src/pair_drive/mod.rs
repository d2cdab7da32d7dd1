//! Puts any client before any server, and judges what goes between them.
//!
//! A client that is right before our servers and a server that is right before our callers may still not get on: each
//! was judged against the runner's own idea of the other. Here the two meet, and the runner is only a witness on the
//! wire (`proxy`). What it holds them to needs no script: every reject that the server really sent is one that the
//! client must obey (`judge`).

mod judge;
#[cfg(test)]
mod judge_tests;
mod proxy;
pub mod spec;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

pub use spec::PairCase;

use crate::adapter::{Adapter, AdapterPool, COMMAND_LIMIT};
use crate::case::Case;
use crate::client_drive::judge::Played;
use crate::client_drive::record;
use crate::client_drive::reply_of;
use crate::client_drive::seen::CallSeen;
use crate::run::{self, RunContext};
use crate::server_drive::ServerTarget;
use crate::server_drive::probe::Address;
use crate::verdict::{NotRun, Outcome};
use crate::{clock, slack};
use proxy::Witness;
use spec::PairGroup;

/// How long the wire is watched after the last reply.
const WATCH: Duration = Duration::from_millis(200);

/// Runs one case between a client and a server.
///
/// # Errors
/// [`NotRun`] says why there are no findings.
pub async fn run_case(
    case: &Case,
    body: &PairCase,
    client: &AdapterPool,
    server: &ServerTarget,
    context: &RunContext,
) -> Outcome {
    match server {
        ServerTarget::Url { url, .. } => {
            if !body.plain {
                let why = "needs a server adapter: a bare URL takes no profile and no fixture";
                return Err(NotRun::NotApplicable(why.to_owned()));
            }
            let address = Address::parse(url.as_str()).map_err(|error| NotRun::Harness(error.to_string()))?;
            between(case, body, client, address, None, context).await
        }
        ServerTarget::Adapter(pool) => {
            let adapter = pool.start_own().await?;
            let outcome = with_server(case, body, client, &adapter, context).await;
            adapter.stop().await;
            outcome
        }
    }
}

async fn with_server(
    case: &Case,
    body: &PairCase,
    client: &AdapterPool,
    server: &Adapter,
    context: &RunContext,
) -> Outcome {
    let missing: Vec<&str> = body
        .needs()
        .into_iter()
        .filter(|name| !server.can(name))
        .collect();
    if !missing.is_empty() {
        let words = format!("the server's adapter does not declare {}", missing.join(", "));
        return Err(NotRun::NotApplicable(words));
    }
    let mut command = json!({"cmd": "start"});
    command["profile"] = body.profile.clone().unwrap_or_else(|| json!({}));
    let reply = server.request(command, COMMAND_LIMIT).await?;
    let address = server.listens("start", &reply).await?;
    for fixture in &body.fixtures {
        set(server, fixture).await?;
    }
    between(case, body, client, address, Some(server), context).await
}

async fn set(server: &Adapter, fixture: &Map<String, Value>) -> Result<(), NotRun> {
    let mut command = Value::Object(fixture.clone());
    command["cmd"] = Value::from("fixture");
    server.request(command, COMMAND_LIMIT).await?;
    Ok(())
}

async fn between(
    case: &Case,
    body: &PairCase,
    client: &AdapterPool,
    address: Address,
    server: Option<&Adapter>,
    context: &RunContext,
) -> Outcome {
    let give_up = run::give_up(case);
    let client = client.get().await?;
    let witness = Witness::before(address)
        .await
        .map_err(|error| NotRun::Harness(format!("loopback: {error}")))?;
    let name = format!("{}/{}", context.run_id, case.id);
    let mut configure = json!({
        "cmd": "configure", "client": name, "trusted": [witness.base()], "instances": [],
        "tenant": null, "vocabulary": null,
    });
    if let Some(policy) = &body.policy {
        configure["policy"] = policy.clone();
    }
    client.request(configure, COMMAND_LIMIT).await?;
    let started = clock::now();
    let stage = Stage {
        client: &client,
        witness: &witness,
        name: &name,
        give_up,
        limit: Duration::from_millis(case.limit_ms),
    };
    let calls = join_all(body.calls.iter().map(|group| stage.group(group)));
    let later = async {
        if let (Some(then), Some(server)) = (&body.then, server) {
            tokio::time::sleep(Duration::from_millis(then.at_ms)).await;
            for fixture in &then.fixtures {
                set(server, fixture).await?;
            }
        }
        Ok::<_, NotRun>(())
    };
    // Hundreds of calls at once make the machine late: what a late bound is given is measured while they run.
    let ((groups, later), pace) = slack::during(async { tokio::join!(calls, later) }).await;
    later?;
    tokio::time::sleep(WATCH).await;
    let crossed = witness.seen();
    let played = Played {
        groups,
        log: crossed.log.clone(),
        started,
        slack: pace.slack.max(context.slack),
        stills: pace.stills,
        metrics: None,
    };
    let mut findings = judge::judge(body, &played, &crossed.answers)?;
    findings.stood = played.stills.longest();
    if context.records() {
        findings.record = record::lines(&case.id, &played);
    }
    Ok(findings)
}

struct Stage<'a> {
    client: &'a Adapter,
    witness: &'a Witness,
    name: &'a str,
    give_up: Instant,
    /// What the case may take in all.
    limit: Duration,
}

impl Stage<'_> {
    async fn group(&self, group: &PairGroup) -> Vec<CallSeen> {
        join_all((0..group.count).map(|index| self.call(group, index))).await
    }

    async fn call(&self, group: &PairGroup, index: usize) -> CallSeen {
        let path = format!("/c/{}/{}-{index}", self.name, group.name);
        let ask = &group.request;
        let request = json!({
            "method": ask.method.as_deref().unwrap_or("POST"), "url": self.witness.url(&path, &group.path),
            "headers": ask.headers, "body": ask.body, "stream": ask.stream,
            "idempotency_key": ask.idempotency_key, "deadline_ms": ask.deadline_ms,
            "tier": ask.tier, "task_class": ask.task_class,
        });
        let command = json!({"cmd": "call", "client": self.name, "request": request});
        let sent = clock::now();
        let left = self.give_up.saturating_duration_since(sent);
        let reply = match self.client.send(command).await {
            Ok(pending) => self.client.reply_in_case(pending, left, self.limit).await,
            Err(error) => Err(error),
        };
        let returned = clock::now();
        let reply = reply_of(self.client, reply).await;
        CallSeen::new(path, sent, returned, None, reply)
    }
}
