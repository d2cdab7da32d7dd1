//! The relay under test: an axum service that calls its dependencies with Holdoff for each request it is asked.
//!
//! It holds no rule of CONTRACT section 6 itself: what goes along and what comes back is left to holdoff-axum and
//! holdoff-tower, as in anybody's service, so that the suite judges them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::join_all;
use holdoff::axum::{CalledAs, ContextLayer, Inbound, Problem};
use holdoff::contract::field_name;
use holdoff::contract::read::Advice;
use holdoff::contract::write::{self, Audience};
use holdoff::tower::{CallOptions, Error, OverloadLayer, OverloadService, ResponseBody};
use holdoff::{Applied, Attempt, Compat, Incoming};
use holdoff_admission::Profile;
use holdoff_admission_tower::{Admission, AdmissionLayer, Gate};
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming as Streamed;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::{Layer, ServiceExt};

use crate::client::origins;
use crate::command::Configure;
use crate::outbound::Outbound;
use crate::protocol::{Adapter, bad_command, unknown_command};
use crate::transport::Payload;

/// Longest request body taken, and response body passed on.
const MAX_BODY: usize = 1024 * 1024;
/// Relays at once; a `configure` of a name that is there replaces it.
const MAX_RELAYS: usize = 1024;

/// What a mutant changes.
pub trait Edge: Clone + Send + Sync + 'static {
    /// A last look at the configuration.
    fn configure(&self, configure: &mut RelayConfigure) {
        let _ = configure;
    }

    /// What stands around the relay.
    fn wrap(&self, relay: Router) -> Router {
        relay
    }

    /// A request to a dependency, as it leaves.
    fn outbound(&self, headers: &mut HeaderMap) {
        let _ = headers;
    }

    /// The calls that failed.
    fn failures(&self, failed: &mut Vec<Error>) {
        let _ = failed;
    }
}

/// Changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Honest;

impl Edge for Honest {}

/// `configure` of a relay.
#[derive(Clone, Debug, Deserialize)]
pub struct RelayConfigure {
    /// What it has in common with a client.
    #[serde(flatten)]
    pub common: Configure,
    /// Base URLs that are each called for each request.
    #[serde(default)]
    pub dependencies: Vec<String>,
    /// With whose identity.
    #[serde(default)]
    pub identity: Identity,
    /// Opted in to retries.
    #[serde(default)]
    pub retry: bool,
    /// Time spent before the calls, and again before the answer.
    #[serde(default)]
    pub delay_ms: u64,
    /// Something is done before the calls.
    #[serde(default)]
    pub side_effect: bool,
    /// Callers are inside the trust domain.
    #[serde(default)]
    pub trusted_callers: bool,
    /// Requests at once before it refuses by itself; `None` is no limit.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// With whose identity dependencies are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The caller's tenant.
    Tenant,
    /// The relay's own.
    #[default]
    Service,
}

type Client<E> = OverloadService<Outbound<E>>;
type Answer = http::Response<ResponseBody<Streamed>>;

struct Relay<E> {
    edge: E,
    client: Client<E>,
    configure: RelayConfigure,
}

/// The adapter: relays by name.
pub struct RelayAdapter<E> {
    edge: E,
    relays: Mutex<HashMap<String, CancellationToken>>,
}

impl<E: Edge> RelayAdapter<E> {
    /// An adapter without relays.
    pub fn new(edge: E) -> Self {
        Self {
            edge,
            relays: Mutex::default(),
        }
    }

    async fn configure(&self, command: Value) -> anyhow::Result<Value> {
        let mut configure: RelayConfigure = serde_json::from_value(command)?;
        self.edge.configure(&mut configure);
        let name = configure.common.client.clone();
        let app = self.edge.wrap(router(self.edge.clone(), configure)?);
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let stop = CancellationToken::new();
        let mut relays = self.relays.lock().unwrap_or_else(PoisonError::into_inner);
        if relays.len() >= MAX_RELAYS && !relays.contains_key(&name) {
            anyhow::bail!("more than {MAX_RELAYS} relays");
        }
        if let Some(before) = relays.insert(name, stop.clone()) {
            before.cancel();
        }
        tokio::spawn(async move {
            tokio::select! {
                served = axum::serve(listener, app) => served,
                () = stop.cancelled() => Ok(()),
            }
        });
        Ok(json!({"url": url}))
    }
}

impl<E: Edge> Adapter for RelayAdapter<E> {
    fn hello(&self) -> Value {
        json!({
            "role": "relay",
            "implementation": {"name": "holdoff-axum", "version": env!("CARGO_PKG_VERSION")},
            "contract_versions": [1],
            "capabilities": ["deadline", "tier", "retry", "replicas", "own_limit", "hold_off"],
        })
    }

    async fn answer(&self, cmd: &str, command: Value) -> Value {
        let answer = match cmd {
            "configure" => self.configure(command).await,
            _ => return unknown_command(),
        };
        answer.unwrap_or_else(|error| bad_command(format!("{error:#}")))
    }
}

fn router<E: Edge>(edge: E, configure: RelayConfigure) -> anyhow::Result<Router> {
    let mut context = ContextLayer::new().called_as(match configure.identity {
        Identity::Tenant => CalledAs::CallersTenant,
        Identity::Service => CalledAs::OwnService,
    });
    if configure.trusted_callers {
        context = context.trust_all();
    }
    if configure.retry {
        context = context.with_retries();
    }
    let limit = configure.limit;
    let relay = Arc::new(Relay {
        client: client(edge.clone(), &configure.common)?,
        edge,
        configure,
    });
    let mut app = Router::new().fallback(serve::<E>).with_state(relay);
    if let Some(workers) = limit {
        let profile = Profile {
            workers,
            queue: 0,
            ..Profile::default()
        };
        app = app.layer(AdmissionLayer::new(Gate::new(Admission::start(profile, None)?)));
    }
    // Outermost, so that time in a queue of our own counts against the deadline.
    Ok(app.layer(context))
}

fn client<E: Edge>(edge: E, configure: &Configure) -> anyhow::Result<Client<E>> {
    let knobs = configure.policy.clone().unwrap_or_default();
    let mut layer = OverloadLayer::builder().policy(knobs.build()?);
    if knobs.compat == Some(false) {
        layer = layer.compat(Compat::Off);
    }
    if let Some(tenant) = configure.tenant()? {
        layer = layer.tenant(tenant);
    }
    for origin in origins(&configure.trusted)? {
        layer = layer.trusted(origin);
    }
    Ok(layer.build().layer(Outbound::new(edge)))
}

async fn serve<E: Edge>(State(relay): State<Arc<Relay<E>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let answer = relay.answer(&parts, &body).await;
    answer.unwrap_or_else(IntoResponse::into_response)
}

impl<E: Edge> Relay<E> {
    async fn answer(&self, head: &Parts, body: &Bytes) -> Result<Response, Problem> {
        let delay = Duration::from_millis(self.configure.delay_ms);
        tokio::time::sleep(delay).await;
        if let Some(inbound) = Inbound::current().filter(|_| self.configure.side_effect) {
            inbound.mark_side_effect();
        }
        let instances = &self.configure.common.instances;
        let answered = if instances.len() > 1 {
            self.of_replicas(instances, head, body).await
        } else {
            self.of_all(head, body).await
        };
        tokio::time::sleep(delay).await;
        Ok(pass_on(answered?).await)
    }

    /// Calls every dependency at once; each must serve.
    async fn of_all(&self, head: &Parts, body: &Bytes) -> Result<Answer, Problem> {
        let bases = &self.configure.dependencies;
        let calls = bases
            .iter()
            .map(|base| self.call(base, head, body, CallOptions::new()));
        let (mut answers, mut failed) = (Vec::new(), Vec::new());
        for result in join_all(calls).await {
            match result {
                Ok(answer) => answers.push(answer),
                Err(error) => failed.push(error),
            }
        }
        self.edge.failures(&mut failed);
        if let Some(problem) = Problem::combine(failed) {
            return Err(problem);
        }
        // The first that did not serve speaks for all.
        let unserved = answers.iter().position(|answer| !answer.status().is_success());
        let no_dependency = || Problem::from(Error::request("no dependency is configured"));
        answers
            .into_iter()
            .nth(unserved.unwrap_or(0))
            .ok_or_else(no_dependency)
    }

    /// Calls one instance after another, until one serves (INT-19). Another instance is a retry: only where this
    /// relay opted in, and its caller does not retry (INT-05, INT-06).
    async fn of_replicas(&self, bases: &[String], head: &Parts, body: &Bytes) -> Result<Answer, Problem> {
        let incoming = Inbound::current().map_or(Attempt::FIRST, |inbound| {
            inbound.fields().attempt.unwrap_or(Attempt::FIRST)
        });
        let most = if self.configure.retry && incoming == Attempt::FIRST {
            bases.len()
        } else {
            1
        };
        let mut failed = Vec::new();
        for (number, base) in (1..).zip(&bases[..most]) {
            let options = CallOptions::new().incoming(once(incoming.max(Attempt::saturating(number))));
            match self.call(base, head, body, options).await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    let elsewhere = error
                        .overload()
                        .is_some_and(|overload| overload.applied == Applied::No);
                    failed.push(error);
                    if !elsewhere {
                        break;
                    }
                }
            }
        }
        let tried = failed.len();
        let problem = Problem::combine(failed)
            .unwrap_or_else(|| Problem::from(Error::request("no instance is configured")));
        Err(if tried > 1 { problem.retried() } else { problem })
    }

    async fn call(
        &self,
        base: &str,
        head: &Parts,
        body: &Bytes,
        options: CallOptions,
    ) -> Result<Answer, Error> {
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = http::Request::new(Payload::Bytes(Full::new(body.clone())));
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = format!("{}{path}", base.trim_end_matches('/'))
            .parse()
            .map_err(Error::request)?;
        // The key goes to the one that owns the operation, where that can only be one.
        let key = (self.configure.dependencies.len() == 1).then_some(field_name::IDEMPOTENCY_KEY);
        for name in [header::CONTENT_TYPE].into_iter().chain(key) {
            for value in head.headers.get_all(&name) {
                request.headers_mut().append(&name, value.clone());
            }
        }
        request.extensions_mut().insert(options);
        self.client.clone().oneshot(request).await
    }
}

/// One send, for the request that is being answered.
fn once(attempt: Attempt) -> Incoming {
    let inbound = Inbound::current();
    Incoming {
        attempt,
        retries: false,
        tier: inbound.as_ref().and_then(|inbound| inbound.fields().tier),
        deadline: inbound.and_then(|inbound| inbound.time_left()),
    }
}

/// Passes an answer on as it is, all but what belongs to the connection and what a stranger is not told (INT-15,
/// INT-16).
async fn pass_on(answer: Answer) -> Response {
    const OF_THE_CONNECTION: [HeaderName; 6] = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::TE,
        header::TRAILER,
        header::UPGRADE,
    ];
    let (mut head, body) = answer.into_parts();
    for name in OF_THE_CONNECTION {
        head.headers.remove(name);
    }
    let stranger = Inbound::current().is_none_or(|inbound| inbound.audience() == Audience::Stranger);
    let advice = Advice::read(&head.headers);
    if stranger && advice.state.is_some() {
        head.headers.remove(field_name::OVERLOAD_SIGNAL);
        write::advice(&mut head.headers, advice.deferred, advice.degraded, None);
    }
    match to_bytes(Body::new(body), MAX_BODY).await {
        Ok(body) => Response::from_parts(head, Body::from(body)),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}
