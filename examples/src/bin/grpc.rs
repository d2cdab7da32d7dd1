//! Forty callers meet a gRPC service with room for four: first with plain tonic, then with Holdoff's layer.
//!
//! `cargo run -p holdoff-examples --bin grpc`: about three seconds, on loopback, nothing to set up.
//!
//! The service refuses at once what it has no room for, and gives each caller a window of its own to come back in. A
//! plain tonic client shows its caller the refusal and leaves it there. With the layer the same calls wait inside
//! their windows; one whose deadline is too short for its window fails at once, and says so.
//!
//! The service is written by hand, where yours is generated, so that building needs no protoc.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use holdoff::contract::write::Audience;
use holdoff::tonic::{CallOptions, ClientLayer, ServerLayer, StatusExt, status};
use holdoff::{Code, Hint, Overload, Tier};
use http::uri::PathAndQuery;
use http::{Request, Response};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tower::{Layer, Service};

/// Pieces of work that run at the same time.
const ROOM: usize = 4;
/// How long one takes.
const WORK: Duration = Duration::from_millis(40);
/// Callers that come together.
const CALLERS: usize = 40;
/// What a caller has time for.
const DEADLINE: Duration = Duration::from_secs(3);
/// What the last caller has time for: less than its window will ask for.
const SHORT: Duration = Duration::from_millis(100);

#[derive(Clone, PartialEq, Message)]
struct Text {
    #[prost(string, tag = "1")]
    value: String,
}

type Codec = tonic_prost::ProstCodec<Text, Text>;

/// The service, with a place in line for each caller that it refuses.
#[derive(Clone)]
struct Worker {
    room: Arc<Semaphore>,
    refused: Arc<AtomicU64>,
}

impl Worker {
    fn new() -> Self {
        Self {
            room: Arc::new(Semaphore::new(ROOM)),
            refused: Arc::default(),
        }
    }

    /// A window for each: so many are in front of it, and so long they take.
    fn refusal(&self) -> Overload {
        let in_front = self.refused.fetch_add(1, Ordering::Relaxed) % CALLERS as u64;
        let turns = in_front / ROOM as u64 + 1;
        let delay = WORK * 3 / 2 * u32::try_from(turns).unwrap_or(u32::MAX);
        Overload {
            hint: Hint::Window {
                delay,
                max: delay + WORK * 2,
            },
            ..Overload::new(Code::ConcurrencyLimit)
        }
    }
}

impl UnaryService<Text> for Worker {
    type Response = Text;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Text>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Text>) -> Self::Future {
        let worker = self.clone();
        Box::pin(async move {
            // Decided at the door, before any work: nothing was applied.
            let Ok(_place) = worker.room.try_acquire() else {
                return Err(status(&worker.refusal(), Audience::Stranger));
            };
            tokio::time::sleep(WORK).await;
            Ok(tonic::Response::new(request.into_inner()))
        })
    }
}

impl NamedService for Worker {
    const NAME: &'static str = "example.Worker";
}

impl Service<Request<Body>> for Worker {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let worker = self.clone();
        Box::pin(async move {
            Ok(tonic::server::Grpc::new(Codec::default())
                .unary(worker, request)
                .await)
        })
    }
}

/// Starts a service of its own; it ends with the set.
async fn serve(tasks: &mut JoinSet<()>) -> anyhow::Result<Channel> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = Server::builder()
        .layer(ServerLayer::new())
        .add_service(Worker::new());
    tasks.spawn(async move {
        if let Err(error) = server.serve_with_incoming(TcpIncoming::from(listener)).await {
            say(&format!("the service ended: {error}"));
        }
    });
    Ok(Channel::from_shared(url)?.connect().await?)
}

/// One call, as a generated client makes it.
async fn work<S>(service: S, deadline: Duration) -> Result<String, Status>
where
    S: GrpcService<Body>,
    S::ResponseBody: Send + 'static,
    <S::ResponseBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut request = tonic::Request::new(Text {
        value: "work".to_owned(),
    });
    request
        .extensions_mut()
        .insert(CallOptions::new().deadline(deadline).tier(Tier::Deferrable));
    let mut client = tonic::client::Grpc::new(service);
    if let Err(error) = client.ready().await {
        return Err(Status::from_error(error.into()));
    }
    let path = PathAndQuery::from_static("/example.Worker/Run");
    Ok(client
        .unary(request, path, Codec::default())
        .await?
        .into_inner()
        .value)
}

/// All callers at once; gives what each came to.
async fn storm<S>(service: S) -> anyhow::Result<Vec<Result<String, Status>>>
where
    S: GrpcService<Body> + Clone + Send + 'static,
    S::Future: Send,
    S::ResponseBody: Send + 'static,
    <S::ResponseBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut calls = JoinSet::new();
    for number in 1..=CALLERS {
        let deadline = if number == CALLERS { SHORT } else { DEADLINE };
        calls.spawn(work(service.clone(), deadline));
    }
    let mut ends = Vec::with_capacity(CALLERS);
    while let Some(end) = calls.join_next().await {
        ends.push(end?);
    }
    Ok(ends)
}

fn tell(name: &str, ends: &[Result<String, Status>]) {
    let served = ends.iter().filter(|end| end.is_ok()).count();
    say(&format!("{name}: {served} of {} calls were served", ends.len()));
    for status in ends.iter().filter_map(|end| end.as_ref().err()).take(2) {
        let Some(overload) = status.overload() else {
            say(&format!("  one ended with {status}"));
            continue;
        };
        match status.call_error() {
            None => say(&format!(
                "  one was refused ({overload}) and left its caller with that"
            )),
            Some(error) => say(&format!("  one stopped at once: {error}")),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut servers = JoinSet::new();
    say(&format!(
        "{CALLERS} callers at once, room for {ROOM}, {} ms of work each",
        WORK.as_millis()
    ));

    let channel = serve(&mut servers).await?;
    tell("plain tonic", &storm(channel).await?);

    let channel = serve(&mut servers).await?;
    let layer = ClientLayer::new();
    tell("with Holdoff", &storm(layer.layer(channel)).await?);
    let counts = layer.counters().snapshot();
    say(&format!(
        "  {} sends for {CALLERS} calls, {} waits, {} of them cut short",
        counts.attempts_total, counts.waits_total, counts.early_retries_total
    ));
    servers.shutdown().await;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn say(text: &str) {
    println!("{text}");
}
