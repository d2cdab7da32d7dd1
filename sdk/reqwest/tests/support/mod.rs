//! A server on a loopback socket that speaks just enough HTTP/1.1, answers by a closure, and tells when each answer
//! had been written: the clock that "never early" is judged by.
#![allow(
    dead_code,
    clippy::expect_used,
    reason = "test code, of which each test file uses its own part"
)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with one request.
pub(crate) enum Reply {
    /// Sends this and keeps the connection.
    Send(String),
    /// Sends this, and then a chunk each 100 ms for ever.
    Drip(String),
    /// Closes without an answer.
    Close,
    /// Never answers.
    Hang,
}

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) fields: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// When all of it had been read.
    pub(crate) arrived: Instant,
    /// When the answer had been written.
    pub(crate) answered: Option<Instant>,
}

impl Seen {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.field(name).expect(name).parse().expect("a number")
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: tokio::task::JoinHandle<()>,
}

type Answer = dyn Fn(usize, &Seen) -> Reply + Send + Sync;
type Answered = dyn Fn(&Seen, Instant) + Send + Sync;

struct Shared {
    connections: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
    answer: Box<Answer>,
    /// Told when an answer had been written, in place of keeping what was seen: for runs too long to keep.
    answered: Option<Box<Answered>>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server's own clock, by which the client is judged"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

impl Server {
    /// Listens; the closure gets the number of the request (0 is the first) and the request.
    pub(crate) async fn start(answer: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::serving(Box::new(answer), None).await
    }

    /// The same, but `answered` is told of each answer once it was written, and nothing is kept: all numbers are 0.
    pub(crate) async fn start_forgetful(
        answer: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static,
        answered: impl Fn(&Seen, Instant) + Send + Sync + 'static,
    ) -> Self {
        Self::serving(Box::new(answer), Some(Box::new(answered))).await
    }

    async fn serving(answer: Box<Answer>, answered: Option<Box<Answered>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            connections: AtomicUsize::new(0),
            seen: Mutex::default(),
            answer,
            answered,
        });
        let accepting = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    shared.connections.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(serve(stream, Arc::clone(&shared)));
                }
            }
        });
        Self {
            address,
            shared,
            accepting,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared
            .seen
            .lock()
            .expect("no test holds it while it fails")
            .clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while let Some(seen) = read_request(&mut stream, &mut buffer).await {
        let number = if shared.answered.is_some() {
            0
        } else {
            let mut all = shared.seen.lock().expect("no test holds it while it fails");
            all.push(seen.clone());
            all.len() - 1
        };
        let text = match (shared.answer)(number, &seen) {
            Reply::Close => return,
            Reply::Hang => std::future::pending().await,
            Reply::Send(text) => text,
            Reply::Drip(head) => {
                // Ends with the connection.
                let _ = drip(&mut stream, &head).await;
                return;
            }
        };
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
        let at = now();
        match &shared.answered {
            Some(answered) => answered(&seen, at),
            None => shared.seen.lock().expect("no test holds it while it fails")[number].answered = Some(at),
        }
    }
}

async fn drip(stream: &mut TcpStream, head: &str) -> std::io::Result<()> {
    stream.write_all(head.as_bytes()).await?;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.write_all(b"1\r\n \r\n").await?;
    }
}

/// Reads one request with a Content-Length or a chunked body; `None` at the end of the connection.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    let head_end = loop {
        if let Some(at) = find(buffer, b"\r\n\r\n") {
            break at + 4;
        }
        fill(stream, buffer).await?;
    };
    let head = String::from_utf8(buffer.drain(..head_end).collect()).expect("ASCII");
    let mut lines = head.lines();
    let mut start = lines.next()?.split(' ');
    let (method, path) = (start.next()?.to_owned(), start.next()?.to_owned());
    let fields: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let body = if fields
        .get("transfer-encoding")
        .is_some_and(|coding| coding == "chunked")
    {
        let end = loop {
            if let Some(at) = find(buffer, b"0\r\n\r\n") {
                break at + 5;
            }
            fill(stream, buffer).await?;
        };
        buffer.drain(..end).collect()
    } else {
        let length = fields
            .get("content-length")
            .map_or(0, |text| text.parse().expect("a length"));
        while buffer.len() < length {
            fill(stream, buffer).await?;
        }
        buffer.drain(..length).collect()
    };
    Some(Seen {
        method,
        path,
        fields,
        body,
        arrived: now(),
        answered: None,
    })
}

async fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut chunk = [0; 4096];
    let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
    buffer.extend_from_slice(&chunk[..count]);
    Some(())
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// An answer with a body of known length.
pub(crate) fn answer(status: &str, fields: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text
}

pub(crate) fn ok() -> Reply {
    Reply::Send(answer("200 OK", &[], "done"))
}

/// A refusal with this signal and a small body, as a server of the contract sends it.
pub(crate) fn refuse(signal: &str) -> Reply {
    let fields = [("overload-signal", signal), ("content-type", "text/plain")];
    Reply::Send(answer("503 Service Unavailable", &fields, "too busy"))
}

pub(crate) fn window(after_ms: u64, max_ms: u64) -> Reply {
    refuse(&format!(
        "v=1, code=queue_full, retry=after, applied=no, after={after_ms}, max={max_ms}"
    ))
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
