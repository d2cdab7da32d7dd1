//! The witness: stands between client and server, passes everything on and keeps what it saw.
//!
//! Each call has a path of its own at the witness, so that calls are told apart without looking at a field; the
//! authority is one, so that the client's budgets and hold-offs work as with the server itself.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::client_drive::reader::{Incoming, Reader};
use crate::client_drive::spec::Port;
use crate::client_drive::wire::WireLog;
use crate::clock;
use crate::lock::lock;
use crate::server_drive::look;
use crate::server_drive::message::{self, Ask, Pace, Seen};
use crate::server_drive::probe::{self, Address};

/// How long the server may take for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Fields that are about one connection, and not passed on.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What crossed the wire.
#[derive(Debug, Clone, Default)]
pub(super) struct Crossed {
    pub(super) log: WireLog,
    /// The server's answer to the exchange of the same index.
    pub(super) answers: Vec<Option<Seen>>,
}

#[derive(Debug)]
struct Shared {
    server: Address,
    targets: Mutex<HashMap<String, String>>,
    seen: Mutex<Crossed>,
}

/// A running witness. Dropping it closes its port and every connection.
#[derive(Debug)]
pub(super) struct Witness {
    shared: Arc<Shared>,
    base: String,
    _listener: JoinSet<()>,
}

impl Witness {
    /// Stands in front of a server.
    ///
    /// # Errors
    /// Loopback has no port left.
    pub(super) async fn before(server: Address) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let base = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            server,
            targets: Mutex::default(),
            seen: Mutex::default(),
        });
        let mut task = JoinSet::new();
        task.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            shared,
            base,
            _listener: task,
        })
    }

    /// The URL of a call whose requests go to `target` at the server.
    pub(super) fn url(&self, path: &str, target: &str) -> String {
        lock(&self.shared.targets).insert(path.to_owned(), target.to_owned());
        format!("{}{path}", self.base)
    }

    /// The base URL.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// What was seen so far.
    pub(super) fn seen(&self) -> Crossed {
        lock(&self.shared.seen).clone()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let number = {
            let mut seen = lock(&shared.seen);
            seen.log.main.accepted += 1;
            usize::try_from(seen.log.main.accepted - 1).unwrap_or(usize::MAX)
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move { serve(stream, number, &shared).await });
    }
}

async fn serve(mut stream: TcpStream, connection: usize, shared: &Shared) {
    let _ = stream.set_nodelay(true); // a socket that refuses this is slower, not wrong
    let mut reader = Reader::default();
    loop {
        let incoming = match reader.next(&mut stream).await {
            Ok(Some(incoming)) => incoming,
            Ok(None) => return,
            Err(what) => return stray(shared, what),
        };
        let target = lock(&shared.targets).get(&incoming.path).cloned();
        let Some(target) = target else {
            return stray(shared, format!("{} {}", incoming.method, incoming.path));
        };
        let ask = onward(&incoming, target);
        let Some(index) = record(shared, connection, incoming) else {
            return;
        };
        let (times, answer) = probe::exchange(&shared.server, &ask).await;
        let shown = look::brief(&message::Exchange {
            label: String::new(),
            ask: ask.clone(),
            sent_at: Duration::ZERO,
            head_after: Duration::ZERO,
            done_after: times.done.saturating_duration_since(times.sent),
            answer: answer.clone(),
            forced: None,
        });
        let answer = answer.ok();
        {
            let mut seen = lock(&shared.seen);
            if let Some(exchange) = seen.log.exchanges.get_mut(index) {
                exchange.answered = shown;
                exchange.head_at = answer.as_ref().map(|_| clock::now());
            }
            if let Some(place) = seen.answers.get_mut(index) {
                place.clone_from(&answer);
            }
        }
        // No answer is passed on as none: the client sees its connection end.
        let Some(answer) = answer else { return };
        if stream
            .write_all(&wire(&answer, ask.method == "HEAD"))
            .await
            .is_err()
        {
            return;
        }
    }
}

fn onward(incoming: &Incoming, target: String) -> Ask {
    let kept = |name: &str| !HOP_BY_HOP.contains(&name);
    Ask {
        method: incoming.method.clone(),
        path: target,
        headers: incoming
            .fields
            .iter()
            .filter(|(name, _)| kept(name))
            .cloned()
            .collect(),
        body: incoming.body.clone(),
        pace: Pace::AtOnce,
        leave_after: None,
        limit: ANSWER_LIMIT,
        from: None,
    }
}

/// An answer as it goes on to the client.
fn wire(answer: &Seen, head_only: bool) -> Vec<u8> {
    let mut out = format!("HTTP/1.1 {} Passed On\r\n", answer.status).into_bytes();
    for (name, value) in &answer.headers {
        if !HOP_BY_HOP.contains(&name.to_ascii_lowercase().as_str()) {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
    out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", answer.body.len()).as_bytes());
    if !head_only {
        out.extend_from_slice(&answer.body);
    }
    out
}

fn stray(shared: &Shared, what: String) {
    lock(&shared.seen).log.stray(what);
}

fn record(shared: &Shared, connection: usize, incoming: Incoming) -> Option<usize> {
    let mut seen = lock(&shared.seen);
    let at = seen.log.record(Port::Main, connection, incoming)?;
    seen.answers.push(None);
    Some(at)
}
