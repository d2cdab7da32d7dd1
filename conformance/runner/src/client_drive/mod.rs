//! Plays a server and judges a client.
//!
//! A client that says "I waited" proves nothing; a server that saw one request cannot know why. So a case keeps two
//! witnesses apart: [`wire::WireLog`], what the runner's own sockets saw, and the replies, what the client said.
//! The judge reads both, and is a pure function over them.

pub(crate) mod judge;
mod judge_fields;
pub(crate) mod judge_result;
#[cfg(test)]
mod judge_tests;
pub(crate) mod origin;
pub(crate) mod reader;
pub(crate) mod record;
#[cfg(test)]
mod recorded;
pub mod script;
pub(crate) mod seen;
pub mod spec;
mod spread;
pub(crate) mod timeline;
mod watch;
pub mod wire;

use std::collections::BTreeSet;
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

pub use spec::ClientCase;

use crate::adapter::{Adapter, AdapterError, AdapterPool, COMMAND_LIMIT};
use crate::case::{Body, Case, CaseSet, Level};
use crate::clock;
use crate::lock::lock;
use crate::run::{self, RunContext};
use crate::still::Stills;
use crate::vector;
use crate::verdict::{Findings, NotRun, Outcome};
use judge::{Played, judge};
use origin::Origin;
use seen::{CallSeen, Reply};
use spec::{Group, ParseCase, Port, Start, Who};
use watch::Watch;

/// Runs one case against the client behind the adapter.
///
/// # Errors
/// [`NotRun`] says why there are no findings.
pub async fn run_case(
    case: &Case,
    body: &ClientCase,
    adapters: &AdapterPool,
    context: &RunContext,
) -> Outcome {
    let give_up = run::give_up(case);
    let adapter = adapters.get().await?;
    if !body.parse.is_empty() {
        return parse_all(&adapter, &body.parse).await;
    }
    let started = clock::now();
    let drive = Drive {
        id: &case.id,
        body,
        context,
        adapter: &adapter,
        origin: &open(body)?,
        started,
        give_up,
        limit: Duration::from_millis(case.limit_ms),
        over: Mutex::default(),
    };
    drive.once().await
}

/// Judges the record of a case again: what `--record` wrote, without a socket, a clock or the program.
///
/// # Errors
/// The text is no record of a client case that `set` knows.
pub fn rejudge(set: &CaseSet, text: &str) -> Result<(String, Level, Findings), String> {
    let (id, played) = record::read(text, clock::now())?;
    let case = set
        .cases
        .iter()
        .find(|case| case.id == id)
        .ok_or_else(|| format!("there is no case {id:?}"))?;
    let Body::Client(body) = &case.body else {
        return Err(format!("case {id:?} is not one of an HTTP client"));
    };
    Ok((id, case.level, judge(body, &played)))
}

/// Plays the calls of a case once and hands back what both witnesses saw, without a judgement. Calls that are still
/// open after `limit` are given up, and the program is then ended.
///
/// # Errors
/// [`NotRun`] says why there is nothing to hand back.
pub(crate) async fn observe(
    id: &str,
    body: &ClientCase,
    limit: Duration,
    adapter: &Adapter,
    context: &RunContext,
) -> Result<Played, NotRun> {
    let started = clock::now();
    let drive = Drive {
        id,
        body,
        context,
        adapter,
        origin: &open(body)?,
        started,
        give_up: started + limit,
        limit,
        over: Mutex::default(),
    };
    drive.configure(&drive.shared_client()).await?;
    let groups = drive.play().await?;
    tokio::time::sleep(Duration::from_millis(body.watch_ms)).await;
    Ok(Played {
        groups,
        log: drive.origin.log(),
        started,
        slack: context.slack,
        stills: Stills::default(),
        metrics: None,
    })
}

fn open(body: &ClientCase) -> Result<Origin, NotRun> {
    Origin::open(Duration::from_millis(body.refuse_ms))
        .map_err(|error| NotRun::Harness(format!("loopback: {error}")))
}

/// A policy that makes no sense may be refused instead of played, if the refusal says which knob it is about.
fn refused(knob: &str, what: String) -> Findings {
    let mut findings = Findings::default();
    let named = what.contains(knob);
    findings.check("configure: the refusal", named, format!("names {knob:?}"), what);
    findings
}

async fn parse_all(adapter: &Adapter, cases: &[ParseCase]) -> Outcome {
    let mut all = Findings::default();
    for case in cases {
        let headers: Vec<(&str, &str)> = case
            .headers
            .iter()
            .filter_map(|line| line.split_once(':'))
            .map(|(n, v)| (n, v.strip_prefix(' ').unwrap_or(v)))
            .collect();
        let command = json!({
            "cmd": "parse",
            "response": {"status": case.status, "headers": headers, "body": case.body},
            "now": case.now,
            "policy": {},
            "request": {"idempotent": case.idempotent},
        });
        let one = vector::ask(adapter, command, &case.expect).await?;
        let shown = case.headers.join("; ");
        all.checks.extend(one.checks.into_iter().map(|mut check| {
            check.name = format!("{} of [{shown}]", check.name);
            check
        }));
        all.timeline.extend(one.timeline);
    }
    Ok(all)
}

struct Drive<'a> {
    id: &'a str,
    body: &'a ClientCase,
    context: &'a RunContext,
    adapter: &'a Adapter,
    origin: &'a Origin,
    started: Instant,
    give_up: Instant,
    /// What the case may take in all.
    limit: Duration,
    /// The groups whose calls have all ended.
    over: Mutex<BTreeSet<String>>,
}

impl Drive<'_> {
    /// Plays the case and judges it.
    async fn once(&self) -> Outcome {
        match (
            self.configure(&self.shared_client()).await,
            &self.body.refusal_names,
        ) {
            (Ok(()), _) => {}
            (Err(AdapterError::Refused { error, .. }), Some(knob)) => return Ok(refused(knob, error)),
            (Err(other), _) => return Err(other.into()),
        }
        let watch = Watch::default();
        let groups = tokio::select! {
            groups = self.play() => groups?,
            () = watch.ask(self.adapter) => return Err(NotRun::Harness("the watch ended".to_owned())),
        };
        let stills = watch.stills(clock::now());
        tokio::time::sleep(Duration::from_millis(self.body.watch_ms)).await;
        let metrics = self.metrics().await?;
        let longest = stills.longest();
        let played = Played {
            groups,
            log: self.origin.log(),
            started: self.started,
            slack: self.context.slack,
            stills,
            metrics,
        };
        let mut findings = judge(self.body, &played);
        if self.context.records() {
            findings.record = record::lines(self.id, &played);
        }
        findings.stood = longest;
        Ok(findings)
    }

    fn shared_client(&self) -> String {
        format!("{}/{}", self.context.run_id, self.id)
    }

    fn path(&self, group: &Group, index: usize) -> String {
        format!("/c/{}/{}/{}-{index}", self.context.run_id, self.id, group.name)
    }

    async fn configure(&self, client: &str) -> Result<(), AdapterError> {
        let urls = |ports: &[Port]| -> Vec<String> {
            ports
                .iter()
                .map(|port| self.origin.base(*port).to_owned())
                .collect()
        };
        let mut command = json!({
            "cmd": "configure", "client": client,
            "trusted": urls(&self.body.trusted), "instances": urls(&self.body.instances),
            "tenant": self.body.tenant, "vocabulary": self.body.vocabulary,
        });
        if let Some(policy) = &self.body.policy {
            command["policy"] = policy.clone();
        }
        self.adapter.request(command, COMMAND_LIMIT).await?;
        Ok(())
    }

    /// Plays the groups: one without `at_ms` when those before it have ended, one with it beside them.
    async fn play(&self) -> Result<Vec<Vec<CallSeen>>, NotRun> {
        let mut done: Vec<Option<Vec<CallSeen>>> = self.body.calls.iter().map(|_| None).collect();
        let mut batch: Vec<usize> = Vec::new();
        for index in 0..=self.body.calls.len() {
            let beside = self
                .body
                .calls
                .get(index)
                .is_some_and(|group| group.at_ms.is_some());
            if !beside && !batch.is_empty() {
                let runs = batch.iter().map(|&index| self.group(&self.body.calls[index]));
                for (&index, seen) in batch.iter().zip(join_all(runs).await) {
                    done[index] = Some(seen?);
                }
                batch.clear();
            }
            batch.push(index);
        }
        Ok(done.into_iter().flatten().collect())
    }

    async fn group(&self, group: &Group) -> Result<Vec<CallSeen>, NotRun> {
        if let Some(at_ms) = group.at_ms {
            let from = match group.after.as_deref() {
                None => self.started,
                Some(name) => {
                    let prefix = format!("/c/{}/{}/{name}-", self.context.run_id, self.id);
                    let over = || lock(&self.over).contains(name);
                    first_answer(slice::from_ref(self.origin), &prefix, self.give_up, over).await
                }
            };
            tokio::time::sleep_until((from + Duration::from_millis(at_ms)).into()).await;
        }
        let steps = Arc::new(group.script.clone());
        let mut clients = Vec::with_capacity(group.count);
        for index in 0..group.count {
            self.origin.route(self.path(group, index), Arc::clone(&steps));
            clients.push(match group.client {
                Who::Shared => self.shared_client(),
                Who::Own => {
                    let own = format!("{}/{}-{index}", self.shared_client(), group.name);
                    self.configure(&own).await?;
                    own
                }
            });
        }
        let calls = clients
            .iter()
            .enumerate()
            .map(|(index, client)| self.call(group, index, client));
        let seen = match group.start {
            Start::Together => join_all(calls).await,
            Start::InTurn => {
                let mut seen = Vec::with_capacity(group.count);
                for call in calls {
                    seen.push(call.await);
                }
                seen
            }
        };
        lock(&self.over).insert(group.name.clone());
        Ok(seen)
    }

    fn command(&self, group: &Group, index: usize, client: &str) -> Value {
        let ask = &group.request;
        let mut request = json!({
            "method": ask.method.as_deref().unwrap_or("GET"),
            "url": format!("{}{}", self.origin.base(group.port), self.path(group, index)),
            "headers": ask.headers, "body": ask.body, "stream": ask.stream,
            "idempotency_key": ask.idempotency_key, "deadline_ms": ask.deadline_ms,
            "tier": ask.tier, "task_class": ask.task_class,
        });
        if let Some(tenant) = &ask.tenant {
            request["tenant"] = Value::String(tenant.clone());
        }
        let mut command = json!({"cmd": "call", "client": client, "request": request});
        if let Some(incoming) = &group.incoming {
            command["incoming"] = incoming.clone();
        }
        command
    }

    async fn call(&self, group: &Group, index: usize, client: &str) -> CallSeen {
        let sent = clock::now();
        let left = self.give_up.saturating_duration_since(sent);
        let mut cancelled = None;
        let reply = match self.adapter.send(self.command(group, index, client)).await {
            Err(error) => Err(error),
            Ok(pending) => {
                let id = pending.id.clone();
                let reply = self.adapter.reply_in_case(pending, left, self.limit);
                match group.cancel_at_ms {
                    None => reply.await,
                    Some(at_ms) => {
                        let cancel = async {
                            tokio::time::sleep(Duration::from_millis(at_ms)).await;
                            cancelled = Some(clock::now());
                            self.adapter
                                .request(json!({"cmd": "cancel", "call": id}), COMMAND_LIMIT)
                                .await
                        };
                        let (reply, cancel) = tokio::join!(
                            async {
                                let reply = reply.await;
                                (reply, clock::now())
                            },
                            cancel
                        );
                        let (reply, returned) = reply;
                        let reply = cancel.and(reply);
                        return CallSeen::new(
                            self.path(group, index),
                            sent,
                            returned,
                            cancelled,
                            reply_of(self.adapter, reply).await,
                        );
                    }
                }
            }
        };
        let returned = clock::now();
        let reply = reply_of(self.adapter, reply).await;
        CallSeen::new(self.path(group, index), sent, returned, cancelled, reply)
    }

    async fn metrics(&self) -> Result<Option<Value>, NotRun> {
        if self.body.metrics.is_empty() {
            return Ok(None);
        }
        let command = json!({"cmd": "metrics", "client": self.shared_client()});
        match self.adapter.request(command, COMMAND_LIMIT).await {
            Ok(mut reply) => Ok(reply.remove("result")),
            Err(AdapterError::Refused { .. }) => Ok(None), // then the checks see that nothing is there
            Err(other) => Err(other.into()),
        }
    }
}

/// How often the log is looked at for an answer that others wait for.
const LOOK: Duration = Duration::from_millis(2);

/// When the first request below the prefix was answered. Where none will be, since its calls are over or `give_up` has
/// come: now; that group's own checks tell.
pub(crate) async fn first_answer(
    origins: &[Origin],
    prefix: &str,
    give_up: Instant,
    over: impl Fn() -> bool,
) -> Instant {
    loop {
        let answered = origins
            .iter()
            .filter_map(|origin| origin.first_answer(prefix))
            .min();
        if let Some(at) = answered {
            return at;
        }
        let now = clock::now();
        if now >= give_up || over() {
            return now;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What a reply to `call` says.
pub(crate) async fn reply_of(adapter: &Adapter, reply: Result<Map<String, Value>, AdapterError>) -> Reply {
    match reply {
        Err(error) => Reply::Broke(error.to_string()),
        Ok(mut reply) => match reply.remove("result") {
            Some(Value::Object(result)) => Reply::Said(result),
            _ => Reply::Broke(format!(
                "a reply to `call` without a `result`: {}{}",
                Value::Object(reply),
                adapter.last_words().await
            )),
        },
    }
}
