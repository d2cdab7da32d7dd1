//! An HTTP client hides what a judge must see: it merges duplicate lines, lowercases, drops trailers, reads ahead, and
//! refuses to send what a bad caller sends. So a request and an answer are kept here as they are on the wire.

use std::net::Ipv4Addr;
use std::time::Duration;

/// How the body of a request goes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Everything at once, behind the head.
    #[default]
    AtOnce,
    /// The declared length is the whole body, but only this many bytes are sent; then the caller stalls. Shows whether
    /// a reject waits for the request body (SEC-05).
    StallAfter(usize),
}

/// One request, exactly as it is to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Header lines in order; duplicates and malformed values are sent as they are. `Host`, `Connection` and
    /// `Content-Length` are added by the probe.
    pub headers: Vec<(String, String)>,
    /// Body; empty means none is declared for GET and HEAD.
    pub body: Vec<u8>,
    /// How the body goes out.
    pub pace: Pace,
    /// Hang up after this long, answered or not (SRQ-10).
    pub leave_after: Option<Duration>,
    /// The whole exchange may take this long.
    pub limit: Duration,
    /// The address that it comes from, where the system lets us choose.
    pub from: Option<Ipv4Addr>,
}

/// One answer, exactly as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Status code.
    pub status: u16,
    /// Header lines in order; values without the white space around them.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Trailer lines, where the body was chunked.
    pub trailers: Vec<(String, Vec<u8>)>,
    /// Body, decoded from chunks.
    pub body: Vec<u8>,
}

impl Seen {
    /// Every line of one field, in order, as text (invalid UTF-8 replaced).
    pub fn lines(&self, name: &str) -> Vec<String> {
        lines_of(&self.headers, name)
    }

    /// All of it in lowercase, to look for words.
    pub fn words(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.body).to_lowercase();
        for (name, value) in &self.headers {
            text.push_str(&format!("\n{name}: {}", String::from_utf8_lossy(value)).to_lowercase());
        }
        text
    }

    /// The media type without parameters, lowercase; empty where there is none.
    pub fn media_type(&self) -> String {
        let line = self.lines("content-type").into_iter().next();
        let line = line.unwrap_or_default();
        let head = line.split(';').next().unwrap_or_default();
        head.trim().to_ascii_lowercase()
    }
}

/// Every line of one field of a header or trailer section.
pub fn lines_of(section: &[(String, Vec<u8>)], name: &str) -> Vec<String> {
    section
        .iter()
        .filter(|(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        .collect()
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The connection could not be made.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// Nothing, or not all, came within the limit.
    #[error("no complete answer within {0:?}")]
    TimedOut(Duration),
    /// The server closed or reset the connection before a complete answer.
    #[error("the connection ended before a complete answer: {0}")]
    Cut(String),
    /// What came is not HTTP/1.1.
    #[error("not an HTTP answer: {0}")]
    Garbage(String),
    /// The answer is over a limit of the probe.
    #[error("the answer's {part} is over {limit} bytes")]
    TooLarge {
        /// `head` or `body`.
        part: &'static str,
        /// Limit in bytes.
        limit: usize,
    },
    /// The probe hung up on purpose.
    #[error("no answer by the time this runner hung up")]
    Left,
}

/// One exchange with its times, measured from the moment the first byte was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// The label of the send, from the case.
    pub label: String,
    /// What was sent.
    pub ask: Ask,
    /// When it was sent, from the start of the case.
    pub sent_at: Duration,
    /// From send to the whole head; zero where none came.
    pub head_after: Duration,
    /// From send to the end.
    pub done_after: Duration,
    /// The answer.
    pub answer: Result<Seen, NoAnswer>,
    /// What `force_reject` asked the server to say to this request.
    pub forced: Option<Forced>,
}

/// A reject that the server was told to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forced {
    /// Code.
    pub code: String,
    /// `after` in ms.
    pub after_ms: u64,
    /// `max` in ms.
    pub max_ms: u64,
}
