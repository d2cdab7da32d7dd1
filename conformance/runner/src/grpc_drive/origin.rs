//! A gRPC server that does exactly what a case says, over HTTP/2 without a gRPC library, and keeps what it sees.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::proto;
use super::script::{GrpcFault, GrpcStep};
use crate::client_drive::reader::Incoming;
use crate::client_drive::script::Repeat;
use crate::client_drive::spec::Port;
use crate::client_drive::wire::WireLog;
use crate::clock;
use crate::lock::lock;

/// Bytes of a request that are read.
const MAX_REQUEST: usize = 1 << 20;
/// How long a request's body is waited for.
const BODY_LIMIT: Duration = Duration::from_secs(10);

/// The script of one call, and how far it has got.
#[derive(Debug)]
struct Route {
    steps: Arc<Vec<GrpcStep>>,
    step: usize,
    used: usize,
}

impl Route {
    /// The next answer. Past the end of the script a request is served, so that one too many is counted.
    fn next(&mut self) -> GrpcStep {
        while let Some(step) = self.steps.get(self.step) {
            self.used += 1;
            match step.repeat {
                Repeat::Word(_) => return step.clone(),
                Repeat::Times(times) if self.used <= times => return step.clone(),
                Repeat::Times(_) => (self.step, self.used) = (self.step + 1, 0),
            }
        }
        GrpcStep {
            reply: Some("past the end of the script".to_owned()),
            ..GrpcStep::default()
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    routes: Mutex<HashMap<String, Route>>,
    log: Mutex<WireLog>,
}

/// The server of one case. Dropping it closes its port and every connection.
#[derive(Debug)]
pub(super) struct Origin {
    base: String,
    shared: Arc<Shared>,
    _listener: JoinSet<()>,
}

impl Origin {
    /// Listens on a free port of loopback.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn open() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let base = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            base,
            shared,
            _listener: tasks,
        })
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Says what requests to a path are answered.
    pub(super) fn route(&self, path: String, steps: Arc<Vec<GrpcStep>>) {
        let (step, used) = (0, 0);
        lock(&self.shared.routes).insert(path, Route { steps, step, used });
    }

    /// The wire log so far.
    pub(super) fn log(&self) -> WireLog {
        lock(&self.shared.log).clone()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let number = {
            let mut log = lock(&shared.log);
            log.main.accepted += 1;
            log.main.open += 1;
            log.main.most_open = log.main.most_open.max(log.main.open);
            usize::try_from(log.main.accepted - 1).unwrap_or(usize::MAX)
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            serve(stream, number, &shared).await;
            let mut log = lock(&shared.log);
            log.main.open = log.main.open.saturating_sub(1);
        });
    }
}

async fn serve(stream: TcpStream, number: usize, shared: &Arc<Shared>) {
    let _ = stream.set_nodelay(true); // a socket that refuses this is slower, not wrong
    let mut connection = match h2::server::handshake(stream).await {
        Ok(connection) => connection,
        Err(error) => return stray(shared, format!("no HTTP/2: {error}")),
    };
    let mut calls = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        while calls.try_join_next().is_some() {}
        let shared = Arc::clone(shared);
        calls.spawn(async move { call(request, respond, number, &shared).await });
    }
}

fn stray(shared: &Shared, what: String) {
    lock(&shared.log).stray(what);
}

async fn call(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    connection: usize,
    shared: &Shared,
) {
    let arrived = clock::now();
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let step = lock(&shared.routes).get_mut(&path).map(Route::next);
    let Some(step) = step else {
        stray(shared, format!("{} {path}", head.method));
        return respond.send_reset(Reason::REFUSED_STREAM);
    };
    let body = tokio::time::timeout(BODY_LIMIT, read(body))
        .await
        .unwrap_or_default();
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let incoming = Incoming {
        arrived,
        method: head.method.to_string(),
        path,
        // A length counts frames; what is looked at is the message.
        fields: head
            .headers
            .iter()
            .filter(|(name, _)| *name != http::header::CONTENT_LENGTH)
            .map(|(name, value)| (name.as_str().to_owned(), text(value)))
            .collect(),
        body: proto::unframe(&body).map_or(body, String::into_bytes),
    };
    let Some(index) = lock(&shared.log).record(Port::Main, connection, incoming) else {
        return;
    };
    let note = |answered: String| {
        if let Some(exchange) = lock(&shared.log).exchanges.get_mut(index) {
            exchange.answered = answered;
            exchange.head_at = Some(clock::now());
        }
    };
    match step.fault {
        Some(GrpcFault::Hang) => std::future::pending().await,
        Some(GrpcFault::Refuse) => {
            note("(stream refused)".to_owned());
            respond.send_reset(Reason::REFUSED_STREAM);
        }
        Some(GrpcFault::Reset) => {
            note("(stream reset)".to_owned());
            respond.send_reset(Reason::INTERNAL_ERROR);
        }
        None => answer(&step, respond, note),
    }
}

/// Hands head, data and trailers to the connection. The clock of "never early" is read before the head.
fn answer(step: &GrpcStep, mut respond: SendResponse<Bytes>, note: impl Fn(String)) {
    let Some(rendered) = step.render() else { return };
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::from_u16(rendered.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *head.headers_mut() = rendered.head;
    let only = rendered.data.is_none() && rendered.trailers.is_none();
    note(rendered.shown);
    // A client that has gone away is not the runner's fault.
    let Ok(mut stream) = respond.send_response(head, only) else {
        return;
    };
    if let Some(data) = rendered.data {
        let _ = stream.send_data(data, rendered.trailers.is_none());
    }
    if let Some(trailers) = rendered.trailers {
        let _ = stream.send_trailers(trailers);
    }
}

async fn read(mut body: RecvStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        if bytes.len() + data.len() > MAX_REQUEST {
            break;
        }
        bytes.extend_from_slice(&data);
    }
    bytes
}
