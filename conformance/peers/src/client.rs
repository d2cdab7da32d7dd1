//! The client under test: configured clients by name, calls by id.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdoff::tower::{AttemptContext, CounterSnapshot, Error, Progress};
use http::HeaderMap;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::command::{CallCommand, Configure, ParseCommand, check_knobs};
use crate::protocol::{Adapter, bad_command, unknown_command};
use crate::reply::{self, Answered};
use crate::{clock, parse};

/// One way of calling with Holdoff.
pub trait Flavour: Send + Sync + 'static {
    /// A configured client; calls on clones share hold-offs and budgets.
    type Client: Clone + Send + Sync + 'static;
    /// What a call ends with that was not answered.
    type Error: Send;
    /// `implementation.name`.
    const NAME: &'static str;
    /// `capabilities`.
    const CAPABILITIES: &'static [&'static str];

    /// Makes a client.
    ///
    /// # Errors
    /// When the configuration is out of range.
    fn configure(&self, configure: &Configure) -> anyhow::Result<Self::Client>;

    /// Makes a call. The outer error is one of the command, the inner one is the SDK's.
    fn call(
        &self,
        client: Self::Client,
        command: CallCommand,
        progress: &Progress,
    ) -> impl Future<Output = anyhow::Result<Result<Answered, Self::Error>>> + Send;

    /// The SDK's own error in it.
    fn error(ended: &Self::Error) -> Option<&Error>;

    /// The client's counts.
    fn counters(&self, client: &Self::Client) -> CounterSnapshot;

    /// Whether a call that is cancelled ends; it goes on in one mutant.
    fn cancels(&self) -> bool {
        true
    }

    /// A last look at a result before it is sent; mutants lie here.
    fn finish(&self, result: &mut Value) {
        let _ = result;
    }
}

/// The adapter around a flavour.
pub struct ClientAdapter<F: Flavour> {
    flavour: F,
    clients: Mutex<HashMap<String, F::Client>>,
    calls: Mutex<HashMap<String, CancellationToken>>,
    /// Of all calls, also those that only begin.
    stopped: CancellationToken,
}

impl<F: Flavour> ClientAdapter<F> {
    /// An adapter without clients.
    pub fn new(flavour: F) -> Self {
        Self {
            flavour,
            clients: Mutex::default(),
            calls: Mutex::default(),
            stopped: CancellationToken::new(),
        }
    }

    fn configure(&self, command: Value) -> anyhow::Result<Value> {
        check_knobs(&command)?;
        let configure: Configure = serde_json::from_value(command)?;
        let client = self.flavour.configure(&configure)?;
        lock(&self.clients).insert(configure.client, client);
        Ok(json!({"ok": true}))
    }

    fn client(&self, name: &str) -> anyhow::Result<F::Client> {
        let client = lock(&self.clients).get(name).cloned();
        client.ok_or_else(|| anyhow::anyhow!("client {name:?} is not configured"))
    }

    async fn call(&self, command: Value) -> anyhow::Result<Value> {
        let command: CallCommand = serde_json::from_value(command)?;
        let client = self.client(&command.client)?;
        let id = command.id.to_string();
        let token = self.stopped.child_token();
        lock(&self.calls).insert(id.clone(), token.clone());
        let started = clock::now();
        let progress = Progress::new();
        let call = self.flavour.call(client, command, &progress);
        let done = tokio::select! {
            biased;
            () = token.cancelled(), if self.flavour.cancels() => None,
            done = call => Some(done),
        };
        let elapsed = clock::now() - started;
        lock(&self.calls).remove(&id);
        let mut result = match done {
            None => reply::cancelled(progress.attempts(), elapsed),
            Some(Err(error)) => reply::unusable(error),
            Some(Ok(Ok(answered))) => reply::result(Ok(answered), elapsed),
            Some(Ok(Err(ended))) => match F::error(&ended) {
                Some(error) => reply::result(Err(error), elapsed),
                None => reply::unusable("the call ended with an error that is not the SDK's"),
            },
        };
        self.flavour.finish(&mut result);
        Ok(json!({"result": result}))
    }

    fn cancel(&self, command: &Value) -> anyhow::Result<Value> {
        let id = command
            .get("call")
            .ok_or_else(|| anyhow::anyhow!("cancel without call"))?;
        let call = lock(&self.calls).get(&id.to_string()).cloned();
        call.ok_or_else(|| anyhow::anyhow!("call {id} is not under way"))?
            .cancel();
        Ok(json!({"ok": true}))
    }

    fn metrics(&self, command: &Value) -> anyhow::Result<Value> {
        let name = command.get("client").and_then(Value::as_str).unwrap_or_default();
        let counts = self.flavour.counters(&self.client(name)?);
        let gave_up: Map<String, Value> = counts
            .gave_up
            .iter()
            .map(|(why, count)| (why.as_str().to_owned(), json!(count)))
            .collect();
        let mut result = json!({
            "attempts_total": counts.attempts_total,
            "waits_total": counts.waits_total,
            "retries_total": counts.retries_total,
            "early_retries_total": counts.early_retries_total,
            "hints_honoured_total": counts.hints_honoured_total,
            "hints_malformed_total": counts.hints_malformed_total,
            "gave_up": gave_up,
        });
        self.flavour.finish(&mut result);
        Ok(json!({"result": result}))
    }
}

impl<F: Flavour> Adapter for ClientAdapter<F> {
    fn hello(&self) -> Value {
        json!({
            "role": "client",
            "implementation": {"name": F::NAME, "version": env!("CARGO_PKG_VERSION")},
            "contract_versions": [1],
            "capabilities": F::CAPABILITIES,
        })
    }

    async fn answer(&self, cmd: &str, command: Value) -> Value {
        let answer = match cmd {
            "configure" => self.configure(command),
            "call" => self.call(command).await,
            "cancel" => self.cancel(&command),
            "metrics" => self.metrics(&command),
            "parse" => check_knobs(&command)
                .and_then(|()| typed::<ParseCommand>(command))
                .and_then(|command| parse::parse(&command)),
            _ => return unknown_command(),
        };
        answer.unwrap_or_else(|error| bad_command(format!("{error:#}")))
    }

    fn stop(&self) {
        self.stopped.cancel();
    }
}

fn typed<T: DeserializeOwned>(command: Value) -> anyhow::Result<T> {
    Ok(serde_json::from_value(command)?)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Origins from the `trusted` member, which may carry a path.
///
/// # Errors
/// When one is no origin.
pub fn origins(trusted: &[String]) -> anyhow::Result<Vec<holdoff::tower::Origin>> {
    trusted
        .iter()
        .map(|text| Ok(text.trim_end_matches('/').parse()?))
        .collect()
}

/// What a tracer does: keeps the trace of a `traceparent` that is there, and makes this attempt a parent of its own.
pub fn trace(fields: &mut HeaderMap, _: AttemptContext) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let parent = NEXT.fetch_add(1, Ordering::Relaxed);
    let given = fields.get("traceparent").and_then(|value| value.to_str().ok());
    let parts: Vec<&str> = given.unwrap_or_default().split('-').collect();
    if let ["00", trace, _, flags] = parts[..]
        && let Ok(value) = format!("00-{trace}-{parent:016x}-{flags}").parse()
    {
        fields.insert("traceparent", value);
    }
}

/// Deadline of a call command.
pub fn deadline(command: &CallCommand) -> Option<Duration> {
    command.request.deadline_ms.map(Duration::from_millis)
}

/// Reads a response's body to its end, at most 1 MiB and a second of it, so that the connection can be used again.
pub async fn read_on<B: http_body::Body + Unpin>(body: B)
where
    B::Error: Into<holdoff::tower::BoxError>,
{
    const MOST: usize = 1024 * 1024;
    let whole = http_body_util::Limited::new(body, MOST).collect();
    // Whatever the body does, the call was answered: only its connection may be lost.
    let _ = tokio::time::timeout(Duration::from_secs(1), whole).await;
}
