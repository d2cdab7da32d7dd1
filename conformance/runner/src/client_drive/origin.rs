//! Two listening ports that play scripts and keep the wire log of one case.
//!
//! Each case has ports of its own, so that budgets and hold-offs of a client, which go by destination, start fresh.
//! Which script answers is found by the URL path, never by a header that the client under test controls.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::reader::{Incoming, Reader};
use super::script::{BodyPlan, Endless, Fault, Places, Repeat, Step};
use super::spec::Port;
use super::wire::{Exchange, WireLog};
use crate::clock;
use crate::lock::lock;

/// The most connections of one port that are served at the same time.
const MAX_CONNECTIONS: u64 = 4096;
/// How much of an endless body is offered at most.
const MAX_ENDLESS_BYTES: u64 = 64 << 20;
/// The pause between two bytes of a slow body.
const DRIP: Duration = Duration::from_millis(50);
const BACKLOG: u32 = 1024;
/// What the system keeps of an answer that nobody reads. Left to itself it takes megabytes for a client that has not had the processor
/// yet, and they would count as taken by that client.
const SEND_BUFFER: u32 = 64 << 10;

/// The script of one call, and how far it has got.
#[derive(Debug)]
struct Route {
    steps: Arc<Vec<Step>>,
    step: usize,
    used: usize,
}

impl Route {
    /// The next answer. Past the end of the script a request is answered 200, so that one too many is counted, not
    /// punished.
    fn next(&mut self) -> Step {
        while let Some(step) = self.steps.get(self.step) {
            self.used += 1;
            match step.repeat {
                Repeat::Word(_) => return step.clone(),
                Repeat::Times(times) if self.used <= times => return step.clone(),
                Repeat::Times(_) => {
                    self.step += 1;
                    self.used = 0;
                }
            }
        }
        Step {
            status: Some(200),
            text: Some("past the end of the script".to_owned()),
            ..Step::default()
        }
    }
}

#[derive(Debug)]
struct Shared {
    routes: Mutex<HashMap<String, Route>>,
    log: Mutex<WireLog>,
    places: Places,
}

/// The two ports of one case. Dropping it closes both and every connection.
#[derive(Debug)]
pub(crate) struct Origin {
    shared: Arc<Shared>,
    _listeners: JoinSet<()>,
}

impl Origin {
    /// Binds both ports. Connections to the main one are refused for the first `refuse`.
    ///
    /// # Errors
    /// Loopback has no port left.
    pub(crate) fn open(refuse: Duration) -> std::io::Result<Self> {
        let bind = || -> std::io::Result<(TcpSocket, SocketAddr)> {
            let socket = TcpSocket::new_v4()?;
            // Handed on to every connection that is accepted.
            socket.set_send_buffer_size(SEND_BUFFER)?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        let (main, main_address) = bind()?;
        let (second, second_address) = bind()?;
        let places = Places {
            main: format!("http://{main_address}"),
            second: format!("http://{second_address}"),
        };
        let shared = Arc::new(Shared {
            routes: Mutex::default(),
            log: Mutex::default(),
            places,
        });
        let mut listeners = JoinSet::new();
        if refuse.is_zero() {
            listeners.spawn(accept(main.listen(BACKLOG)?, Port::Main, Arc::clone(&shared)));
        } else {
            let shared = Arc::clone(&shared);
            listeners.spawn(async move {
                tokio::time::sleep(refuse).await;
                // Bound but not listening until now: every connection so far was refused.
                if let Ok(listener) = main.listen(BACKLOG) {
                    accept(listener, Port::Main, shared).await;
                }
            });
        }
        listeners.spawn(accept(second.listen(BACKLOG)?, Port::Second, Arc::clone(&shared)));
        Ok(Self {
            shared,
            _listeners: listeners,
        })
    }

    /// The base URL of a port.
    pub(crate) fn base(&self, port: Port) -> &str {
        match port {
            Port::Main => &self.shared.places.main,
            Port::Second => &self.shared.places.second,
        }
    }

    /// Says what requests to a path are answered.
    pub(crate) fn route(&self, path: String, steps: Arc<Vec<Step>>) {
        lock(&self.shared.routes).insert(
            path,
            Route {
                steps,
                step: 0,
                used: 0,
            },
        );
    }

    /// When the first request whose path begins so was answered.
    pub(crate) fn first_answer(&self, prefix: &str) -> Option<Instant> {
        let log = lock(&self.shared.log);
        let mut answered = log
            .exchanges
            .iter()
            .filter(|exchange| exchange.path.starts_with(prefix));
        answered.find_map(|exchange| exchange.head_at)
    }

    /// The wire log so far.
    pub(crate) fn log(&self) -> WireLog {
        lock(&self.shared.log).clone()
    }
}

async fn accept(listener: TcpListener, port: Port, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        let number = {
            let mut log = lock(&shared.log);
            let counts = log.port(port);
            counts.accepted += 1;
            if counts.open >= MAX_CONNECTIONS {
                continue; // dropped, which the client sees as a reset
            }
            counts.open += 1;
            counts.most_open = counts.most_open.max(counts.open);
            usize::try_from(counts.accepted - 1).unwrap_or(usize::MAX)
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            serve(stream, port, number, &shared).await;
            let mut log = lock(&shared.log);
            let counts = log.port(port);
            counts.open = counts.open.saturating_sub(1);
        });
    }
}

async fn serve(mut stream: TcpStream, port: Port, connection: usize, shared: &Shared) {
    let _ = stream.set_nodelay(true); // a socket that refuses this is slower, not wrong
    let mut reader = Reader::default();
    loop {
        let incoming = match reader.next(&mut stream).await {
            Ok(Some(incoming)) => incoming,
            Ok(None) => return,
            Err(what) => return stray(shared, format!("{what}, on the {} port", port.word())),
        };
        let step = lock(&shared.routes).get_mut(&incoming.path).map(Route::next);
        let Some(step) = step else {
            stray(
                shared,
                format!(
                    "{} {}, on the {} port",
                    incoming.method,
                    incoming.path,
                    port.word()
                ),
            );
            let _ = stream
                .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                .await;
            continue;
        };
        let head_only = incoming.method == "HEAD";
        let path = incoming.path.clone();
        let Some(index) = record(shared, port, connection, incoming) else {
            return;
        };
        if !answer(&mut stream, &step, &path, head_only, index, shared).await {
            return;
        }
    }
}

fn stray(shared: &Shared, what: String) {
    lock(&shared.log).stray(what);
}

fn record(shared: &Shared, port: Port, connection: usize, incoming: Incoming) -> Option<usize> {
    lock(&shared.log).record(port, connection, incoming)
}

/// Plays one step. False when the connection is over.
async fn answer(
    stream: &mut TcpStream,
    step: &Step,
    path: &str,
    head_only: bool,
    index: usize,
    shared: &Shared,
) -> bool {
    let note = |write: &dyn Fn(&mut Exchange)| {
        if let Some(exchange) = lock(&shared.log).exchanges.get_mut(index) {
            write(exchange);
        }
    };
    if step.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(step.delay_ms)).await;
    }
    match step.fault {
        None => {}
        Some(Fault::Hang) => {
            note(&|exchange| exchange.answered = "(no answer)".to_owned());
            // Until the client gives up or the case ends; what it still sends is not looked at.
            let mut sink = [0_u8; 1024];
            while let Ok(1..) = tokio::io::AsyncReadExt::read(stream, &mut sink).await {}
            return false;
        }
        Some(Fault::Reset) => {
            note(&|exchange| exchange.answered = "(connection reset)".to_owned());
            let _ = stream.set_zero_linger();
            return false;
        }
        Some(Fault::Close) => {
            note(&|exchange| exchange.answered = "(connection closed)".to_owned());
            return false;
        }
    }
    let rendered = step.render(&shared.places, path, clock::wall(), head_only);
    if !rendered.interim.is_empty() && stream.write_all(&rendered.interim).await.is_err() {
        return false;
    }
    note(&|exchange| {
        exchange.answered.clone_from(&rendered.shown);
        exchange.head_at = Some(clock::now());
    });
    match &rendered.body {
        BodyPlan::Bytes(body) => {
            // Head and small bodies leave in one write, as a real server's do.
            let mut out = rendered.head;
            out.extend_from_slice(body);
            let sent = stream.write_all(&out).await.is_ok();
            if sent {
                note(&|exchange| exchange.body_written = body.len() as u64);
            }
            sent
        }
        BodyPlan::Endless(pace) => {
            if stream.write_all(&rendered.head).await.is_ok() {
                endless(stream, *pace, &|bytes| {
                    note(&|exchange| exchange.body_written += bytes);
                })
                .await;
            }
            false
        }
    }
}

/// Chunks until the client closes, the case ends or the offer is used up.
async fn endless(stream: &mut TcpStream, pace: Endless, took: &(dyn Fn(u64) + Sync)) {
    let (chunk, size): (Vec<u8>, u64) = match pace {
        Endless::Fast => (
            [b"4000\r\n".to_vec(), vec![b'x'; 0x4000], b"\r\n".to_vec()].concat(),
            0x4000,
        ),
        Endless::Drip => (b"1\r\nx\r\n".to_vec(), 1),
    };
    let mut offered = 0;
    while offered < MAX_ENDLESS_BYTES && stream.write_all(&chunk).await.is_ok() {
        took(size);
        offered += size;
        if pace == Endless::Drip {
            tokio::time::sleep(DRIP).await;
        }
    }
}

#[cfg(test)]
mod tests;
