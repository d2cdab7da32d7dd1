//! A server under test may never listen, hang, answer garbage or answer without end. Every exchange here has one limit
//! in time and one in bytes, and ends in a value that says which.
//!
//! Plain HTTP/1.1 over one connection an exchange: no pool, so that a reject's `Connection: close` and an early hang-up
//! touch nothing else.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::Url;

use super::callers;
use super::message::{Ask, NoAnswer, Pace, Seen};
use crate::clock;

/// A head longer than this is not read.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// A body longer than this is not read; a metrics page is the largest that is expected.
pub const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;
/// Header lines read at most.
const MAX_LINES: usize = 128;
/// Interim (1xx) answers skipped at most.
const MAX_INTERIM: usize = 8;
/// How long an answer to HEAD is watched for a body that must not come.
const HEAD_WATCH: Duration = Duration::from_millis(100);

/// Where the server under test listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    authority: String,
    base: String,
}

/// The URL cannot be probed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url} cannot be probed: {why}")]
pub struct BadUrl {
    /// What was given.
    pub url: String,
    /// Why not.
    pub why: String,
}

impl Address {
    /// Reads `http://host:port[/base]`.
    ///
    /// # Errors
    /// Another scheme, no host, or no URL at all.
    pub fn parse(url: &str) -> Result<Self, BadUrl> {
        let bad = |why: String| BadUrl {
            url: url.to_owned(),
            why,
        };
        let form = "it must be http://host:port, with a port in 1..=65535";
        let parsed = Url::parse(url).map_err(|error| bad(format!("{error}; {form}")))?;
        if parsed.scheme() != "http" {
            return Err(bad(format!("the scheme is {}; it must be http", parsed.scheme())));
        }
        let host = parsed
            .host_str()
            .ok_or_else(|| bad("it has no host".to_owned()))?;
        let port = parsed.port_or_known_default().unwrap_or(80);
        Ok(Self {
            authority: format!("{host}:{port}"),
            base: parsed.path().trim_end_matches('/').to_owned(),
        })
    }

    /// `host:port`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// As a URL again, without a closing slash.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.base)
    }

    /// The path of the URL, without a closing slash.
    pub fn base(&self) -> &str {
        &self.base
    }
}

/// Times of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// When the first byte was about to be written (or the connection was tried).
    pub sent: Instant,
    /// When the head was complete.
    pub head: Option<Instant>,
    /// When the exchange ended.
    pub done: Instant,
}

/// Sends one request and reads its answer, within `ask.limit`.
pub async fn exchange(address: &Address, ask: &Ask) -> (Times, Result<Seen, NoAnswer>) {
    let mut times = Times {
        sent: clock::now(),
        head: None,
        done: clock::now(),
    };
    let limit = ask.leave_after.unwrap_or(ask.limit).min(ask.limit);
    let talk = talk(address, ask, &mut times);
    let answer = match tokio::time::timeout(limit, talk).await {
        Ok(answer) => answer,
        Err(_) if ask.leave_after.is_some_and(|leave| leave <= ask.limit) => Err(NoAnswer::Left),
        Err(_) => Err(NoAnswer::TimedOut(limit)),
    };
    times.done = clock::now();
    (times, answer)
}

async fn talk(address: &Address, ask: &Ask, times: &mut Times) -> Result<Seen, NoAnswer> {
    // The limit of the exchange holds for connecting too: a full accept queue is a slow answer, not the lack of one.
    let mut stream = callers::connect(address.authority(), ask.from)
        .await
        .map_err(|error| NoAnswer::Unreachable(error.to_string()))?;
    // Small requests and answers: waiting for a fuller segment would only blur the times.
    let _ = stream.set_nodelay(true);
    times.sent = clock::now();
    let request = encode(address, ask);
    let (mut read, mut write) = stream.split();
    let send = async {
        // An error here is no verdict: a server may answer and close before it has read everything.
        let _ = write.write_all(&request).await;
        std::future::pending::<()>().await;
    };
    let receive = receive(&mut read, ask.method == "HEAD", times);
    tokio::select! {
        () = send => unreachable_send(),
        answer = receive => answer,
    }
}

/// The sending half never ends by itself; the answer decides.
fn unreachable_send() -> Result<Seen, NoAnswer> {
    Err(NoAnswer::Cut("the request could not be sent".to_owned()))
}

/// The bytes of a request. Header values go out as they are, malformed ones too; only line ends are taken out.
fn encode(address: &Address, ask: &Ask) -> Vec<u8> {
    let target = format!("{}{}", address.base(), ask.path);
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
        ask.method,
        if target.is_empty() { "/" } else { &target },
        address.authority()
    );
    for (name, value) in &ask.headers {
        let value: String = value.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let bodiless = matches!(ask.method.as_str(), "GET" | "HEAD") && ask.body.is_empty();
    if !bodiless {
        head.push_str(&format!("Content-Length: {}\r\n", ask.body.len()));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    let sent = match ask.pace {
        Pace::AtOnce => ask.body.len(),
        Pace::StallAfter(sent) => sent.min(ask.body.len()),
    };
    bytes.extend_from_slice(&ask.body[..sent]);
    bytes
}

async fn receive<R>(read: &mut R, to_head: bool, times: &mut Times) -> Result<Seen, NoAnswer>
where
    R: AsyncReadExt + Unpin,
{
    let mut source = Source {
        read,
        buffer: Vec::new(),
    };
    for _ in 0..MAX_INTERIM {
        let mut seen = source.head().await?;
        if (100..200).contains(&seen.status) {
            continue;
        }
        times.head = Some(clock::now());
        if to_head {
            let after = source.rest();
            if let Ok(Ok(rest)) = tokio::time::timeout(HEAD_WATCH, after).await {
                seen.body = rest;
            } else {
                seen.body = source.buffer;
            }
        } else {
            source.body(&mut seen).await?;
        }
        return Ok(seen);
    }
    Err(NoAnswer::Garbage(format!(
        "more than {MAX_INTERIM} interim answers"
    )))
}

/// Buffered reading with limits.
struct Source<'a, R> {
    read: &'a mut R,
    buffer: Vec<u8>,
}

impl<R: AsyncReadExt + Unpin> Source<'_, R> {
    /// Reads more; `false` at the end of the stream.
    async fn more(&mut self) -> Result<bool, NoAnswer> {
        let mut chunk = [0_u8; 8192];
        match self.read.read(&mut chunk).await {
            Ok(0) => Ok(false),
            Ok(n) => {
                self.buffer.extend_from_slice(&chunk[..n]);
                Ok(true)
            }
            Err(error) => Err(NoAnswer::Cut(error.to_string())),
        }
    }

    async fn head(&mut self) -> Result<Seen, NoAnswer> {
        loop {
            if let Some((seen, used)) = parse_head(&self.buffer)? {
                self.buffer.drain(..used);
                return Ok(seen);
            }
            if self.buffer.len() > MAX_HEAD_BYTES {
                return Err(NoAnswer::TooLarge {
                    part: "head",
                    limit: MAX_HEAD_BYTES,
                });
            }
            if !self.more().await? {
                let what = if self.buffer.is_empty() {
                    "no byte was sent".to_owned()
                } else {
                    format!("{} bytes of a head", self.buffer.len())
                };
                return Err(NoAnswer::Cut(what));
            }
        }
    }

    async fn body(&mut self, seen: &mut Seen) -> Result<(), NoAnswer> {
        let chunked = seen
            .lines("transfer-encoding")
            .iter()
            .any(|line| line.to_ascii_lowercase().contains("chunked"));
        if chunked {
            return self.chunks(seen).await;
        }
        if matches!(seen.status, 204 | 304) {
            return Ok(());
        }
        if let Some(line) = seen.lines("content-length").first() {
            let length: usize = line
                .trim()
                .parse()
                .map_err(|_| NoAnswer::Garbage(format!("Content-Length is {line:?}")))?;
            seen.body = self.exactly(length).await?;
        } else {
            seen.body = self.rest().await?;
        }
        Ok(())
    }

    async fn exactly(&mut self, length: usize) -> Result<Vec<u8>, NoAnswer> {
        if length > MAX_BODY_BYTES {
            return Err(too_large_body());
        }
        while self.buffer.len() < length {
            if !self.more().await? {
                let got = self.buffer.len();
                return Err(NoAnswer::Cut(format!("{got} of {length} body bytes")));
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    async fn rest(&mut self) -> Result<Vec<u8>, NoAnswer> {
        while self.more().await? {
            if self.buffer.len() > MAX_BODY_BYTES {
                return Err(too_large_body());
            }
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    async fn line(&mut self) -> Result<Vec<u8>, NoAnswer> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
            if self.buffer.len() > MAX_HEAD_BYTES {
                return Err(NoAnswer::TooLarge {
                    part: "head",
                    limit: MAX_HEAD_BYTES,
                });
            }
            if !self.more().await? {
                return Err(NoAnswer::Cut("in the middle of a chunked body".to_owned()));
            }
        }
    }

    async fn chunks(&mut self, seen: &mut Seen) -> Result<(), NoAnswer> {
        loop {
            let line = self.line().await?;
            let text = String::from_utf8_lossy(&line).into_owned();
            let digits = text.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16)
                .map_err(|_| NoAnswer::Garbage(format!("chunk size {digits:?}")))?;
            if size == 0 {
                break;
            }
            if seen.body.len().saturating_add(size) > MAX_BODY_BYTES {
                return Err(too_large_body());
            }
            seen.body.extend(self.exactly(size).await?);
            if !self.line().await?.is_empty() {
                return Err(NoAnswer::Garbage("a chunk without its end".to_owned()));
            }
        }
        for _ in 0..MAX_LINES {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(());
            }
            let colon = line.iter().position(|byte| *byte == b':');
            let colon = colon.ok_or_else(|| NoAnswer::Garbage("a trailer line".to_owned()))?;
            let name = String::from_utf8_lossy(&line[..colon]).into_owned();
            seen.trailers
                .push((name, line[colon + 1..].trim_ascii().to_vec()));
        }
        Err(NoAnswer::Garbage(format!("more than {MAX_LINES} trailer lines")))
    }
}

fn too_large_body() -> NoAnswer {
    NoAnswer::TooLarge {
        part: "body",
        limit: MAX_BODY_BYTES,
    }
}

/// A complete head and its length, or `None` while more bytes are needed.
fn parse_head(bytes: &[u8]) -> Result<Option<(Seen, usize)>, NoAnswer> {
    let mut lines = [httparse::EMPTY_HEADER; MAX_LINES];
    let mut head = httparse::Response::new(&mut lines);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(used)) => {
            let seen = Seen {
                status: head.code.unwrap_or_default(),
                headers: head
                    .headers
                    .iter()
                    .map(|line| (line.name.to_owned(), line.value.to_vec()))
                    .collect(),
                ..Seen::default()
            };
            Ok(Some((seen, used)))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(error) => {
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
            Err(NoAnswer::Garbage(format!("{error} in {start:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8], to_head: bool) -> Result<Seen, NoAnswer> {
        let mut times = Times {
            sent: clock::now(),
            head: None,
            done: clock::now(),
        };
        let mut source = bytes;
        receive(&mut source, to_head, &mut times).await
    }

    #[tokio::test]
    async fn an_answer_is_kept_as_it_is_on_the_wire() {
        let wire = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 503 Busy\r\nRetry-After: 1\r\nretry-after: 2\r\n\
                     Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nOverload-Signal: v=1\r\n\r\n";
        let seen = read(wire, false).await.unwrap();
        assert_eq!(seen.status, 503);
        assert_eq!(seen.lines("RETRY-AFTER"), ["1", "2"]);
        assert_eq!(seen.body, b"abcde");
        assert_eq!(seen.trailers, [("Overload-Signal".to_owned(), b"v=1".to_vec())]);
    }

    #[tokio::test]
    async fn a_body_ends_with_its_length_or_with_the_connection() {
        let seen = read(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", false)
            .await
            .unwrap();
        assert_eq!(seen.body, b"ab");
        let seen = read(b"HTTP/1.1 200 OK\r\n\r\nabc", false).await.unwrap();
        assert_eq!(seen.body, b"abc");
        let seen = read(b"HTTP/1.1 503 X\r\nContent-Length: 9\r\n\r\n", true)
            .await
            .unwrap();
        assert_eq!(seen.body, b"");
        let seen = read(b"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\noops", true)
            .await
            .unwrap();
        assert_eq!(seen.body, b"oops");
    }

    #[tokio::test]
    async fn what_is_no_answer_says_why() {
        for (wire, wanted) in [
            (&b""[..], "no byte"),
            (b"HTTP/1.1 200", "12 bytes of a head"),
            (b"SSH-2.0-x\r\n\r\n", "not an HTTP answer"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
                "2 of 5 body bytes",
            ),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nab",
                "Content-Length is",
            ),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
                "body is over",
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                "chunk size",
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc",
                "middle of a chunked",
            ),
        ] {
            let error = read(wire, false).await.expect_err(wanted).to_string();
            assert!(error.contains(wanted), "{wanted}: {error}");
        }
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(MAX_INTERIM + 1);
        let error = read(interim.as_bytes(), false)
            .await
            .expect_err("interim")
            .to_string();
        assert!(error.contains("interim"), "{error}");
        let head = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(MAX_HEAD_BYTES + 10));
        let error = read(head.as_bytes(), false).await.expect_err("head").to_string();
        assert!(error.contains("head is over"), "{error}");
    }

    #[test]
    fn a_request_goes_out_as_it_was_asked_for() {
        let address = Address::parse("http://127.0.0.1:80/base/").unwrap();
        let ask = Ask {
            method: "POST".to_owned(),
            path: "/v1/work".to_owned(),
            headers: vec![
                ("Overload-Deadline-Ms".to_owned(), "1".to_owned()),
                ("Overload-Deadline-Ms".to_owned(), "ab\r\nX: y".to_owned()),
            ],
            body: b"0123456789".to_vec(),
            pace: Pace::StallAfter(4),
            ..Ask::default()
        };
        let wire = String::from_utf8(encode(&address, &ask)).unwrap();
        assert!(
            wire.starts_with("POST /base/v1/work HTTP/1.1\r\nHost: 127.0.0.1:80\r\n"),
            "{wire}"
        );
        assert!(
            wire.contains("Overload-Deadline-Ms: 1\r\nOverload-Deadline-Ms: abX: y\r\n"),
            "{wire}"
        );
        assert!(wire.ends_with("Content-Length: 10\r\n\r\n0123"), "{wire}");
    }

    #[test]
    fn a_url_that_cannot_be_probed_says_why() {
        assert!(Address::parse("https://h/").is_err_and(|error| error.to_string().contains("https")));
        assert!(Address::parse("not a url").is_err());
        assert_eq!(Address::parse("http://h").unwrap().authority(), "h:80");
    }
}
