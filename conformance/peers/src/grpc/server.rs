//! A tonic server under test: it echoes, and refuses where it is told to.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use holdoff::tonic::ServerLayer;
use holdoff_contract::write::Audience;
use holdoff_contract::{Code, Hint, Overload, ServiceState};
use http::{Request, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tower::Service;

use super::{Codec, Text};
use crate::protocol::{Adapter, bad_command, unknown_command};

/// How refusals are said; a mutant says them otherwise.
pub trait Voice: Clone + Send + Sync + 'static {
    /// The status of a refusal.
    fn status(&self, overload: &Overload, audience: Audience) -> Status;

    /// A last look at an answer.
    fn response(&self, response: Response<Body>) -> Response<Body> {
        response
    }
}

/// As the SDK says them.
#[derive(Clone, Copy, Debug)]
pub struct Honest;

impl Voice for Honest {
    fn status(&self, overload: &Overload, audience: Audience) -> Status {
        holdoff::tonic::status(overload, audience)
    }
}

/// What the fixtures have set.
#[derive(Debug, Default)]
struct Told {
    forced: Option<(Overload, u32)>,
    state: Option<ServiceState>,
    identities: Vec<String>,
}

/// Identities that are trusted at once at most.
const MAX_IDENTITIES: usize = 64;

/// The members of a fixture.
#[derive(Debug, Deserialize)]
struct Members {
    on: Option<bool>,
    code: Option<String>,
    after_ms: Option<u64>,
    max_ms: Option<u64>,
    count: Option<u32>,
    state: Option<String>,
    identity: Option<String>,
}

impl Told {
    fn apply(&mut self, name: &str, members: Members) -> anyhow::Result<()> {
        let on = members.on.unwrap_or(true);
        match name {
            "force_reject" if !on => self.forced = None,
            "force_reject" => {
                let code = members.code.unwrap_or_default().parse::<Code>()?;
                let delay = Duration::from_millis(members.after_ms.unwrap_or(1000));
                let max = members.max_ms.map_or(delay, Duration::from_millis);
                let overload = Overload {
                    hint: Hint::Window { delay, max },
                    ..Overload::new(code)
                };
                self.forced = Some((overload, members.count.unwrap_or(1)));
            }
            "force_state" => {
                let state = members.state.filter(|_| on);
                self.state = state.map(|state| state.parse()).transpose()?;
            }
            "trust" if self.identities.len() < MAX_IDENTITIES => self.identities.extend(members.identity),
            _ => anyhow::bail!("fixture {name:?} is unknown, or there are too many of it"),
        }
        Ok(())
    }

    /// Takes one forced refusal, if there is one left.
    fn take(&mut self) -> Option<Overload> {
        let (overload, left) = self.forced.as_mut()?;
        *left = left.checked_sub(1)?;
        let state = self.state;
        Some(Overload {
            state,
            ..overload.clone()
        })
    }

    fn audience(&self, request: &tonic::Request<Text>) -> Audience {
        let shown = request.metadata().get("authorization");
        let token = shown.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        match token {
            Some(token) if self.identities.iter().any(|known| known == token) => Audience::Trusted,
            _ => Audience::Stranger,
        }
    }
}

#[derive(Clone)]
struct Echo<V> {
    voice: V,
    told: Arc<Mutex<Told>>,
}

impl<V> NamedService for Echo<V> {
    const NAME: &'static str = "overload.test.v1.Echo";
}

impl<V: Voice> Service<Request<Body>> for Echo<V> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = self.clone();
        Box::pin(async move {
            let voice = method.voice.clone();
            let mut grpc = tonic::server::Grpc::new(Codec::default());
            Ok(voice.response(grpc.unary(method, request).await))
        })
    }
}

impl<V: Voice> UnaryService<Text> for Echo<V> {
    type Response = Text;
    type Future = std::future::Ready<Result<tonic::Response<Text>, Status>>;

    fn call(&mut self, request: tonic::Request<Text>) -> Self::Future {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match told.take() {
            Some(overload) => Err(self.voice.status(&overload, told.audience(&request))),
            None => Ok(tonic::Response::new(request.into_inner())),
        };
        std::future::ready(answer)
    }
}

/// The adapter around the server.
pub struct GrpcServerAdapter<V> {
    voice: V,
    told: Arc<Mutex<Told>>,
    running: tokio::sync::Mutex<JoinSet<()>>,
}

impl<V: Voice> GrpcServerAdapter<V> {
    /// An adapter with nothing running.
    pub fn new(voice: V) -> Self {
        Self {
            voice,
            told: Arc::default(),
            running: tokio::sync::Mutex::default(),
        }
    }

    /// Starts anew, on a free port of loopback.
    async fn start(&self) -> anyhow::Result<Value> {
        let mut running = self.running.lock().await;
        running.shutdown().await;
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Told::default();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let echo = Echo {
            voice: self.voice.clone(),
            told: Arc::clone(&self.told),
        };
        let server = Server::builder().layer(ServerLayer::new()).add_service(echo);
        running.spawn(async move {
            // A server that ends shows in the calls to it.
            let _ = server.serve_with_incoming(TcpIncoming::from(listener)).await;
        });
        Ok(json!({"url": url}))
    }

    fn fixture(&self, command: Value) -> anyhow::Result<Value> {
        let name = command
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let members = serde_json::from_value(command)?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.apply(&name, members)?;
        Ok(json!({"ok": true}))
    }
}

impl<V: Voice> Adapter for GrpcServerAdapter<V> {
    fn hello(&self) -> Value {
        json!({
            "role": "server",
            "implementation": {"name": "holdoff-tonic", "version": env!("CARGO_PKG_VERSION")},
            "contract_versions": [1],
            "capabilities": ["grpc", "force_reject", "force_state", "trust"],
        })
    }

    async fn answer(&self, cmd: &str, command: Value) -> Value {
        let answer = match cmd {
            "start" => self.start().await,
            "fixture" => self.fixture(command),
            _ => return unknown_command(),
        };
        answer.unwrap_or_else(|error| bad_command(format!("{error:#}")))
    }
}
