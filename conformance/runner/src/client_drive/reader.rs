//! A small HTTP/1.1 request reader over a raw socket, with a bound on everything.
//!
//! It keeps every field line as it came and tells the instant at which a head was complete. It reads no more of
//! HTTP than a client under test sends: a body by Content-Length or chunked, keep-alive, `Expect: 100-continue`.

use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::clock;

/// The largest request head.
pub(crate) const MAX_HEAD_BYTES: usize = 64 << 10;
/// The most field lines of a request.
pub(crate) const MAX_FIELDS: usize = 128;
/// The largest request body.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) arrived: Instant,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A connection's read side.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
}

enum Framing {
    Length(usize),
    Chunked,
}

impl Reader {
    /// The next request; none when the client has closed or reset the connection between two. To whoever has closed it with part
    /// of an answer unread, the system does the latter.
    ///
    /// # Errors
    /// What came is not a request of HTTP/1.1, or is over a limit, or the connection broke inside one.
    pub(crate) async fn next(&mut self, stream: &mut TcpStream) -> Result<Option<Incoming>, String> {
        let arrived_and_end = self.read_head(stream).await?;
        let Some((arrived, end)) = arrived_and_end else {
            return Ok(None);
        };
        let (mut incoming, framing) = parse_head(&self.buffer[..end], arrived)?;
        self.buffer.drain(..end);
        if incoming
            .fields
            .iter()
            .any(|(n, v)| n == "expect" && v.eq_ignore_ascii_case("100-continue"))
        {
            stream
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                .await
                .map_err(|e| e.to_string())?;
        }
        incoming.body = match framing {
            Framing::Length(length) => self.take(stream, length).await?,
            Framing::Chunked => self.chunked(stream).await?,
        };
        Ok(Some(incoming))
    }

    async fn read_head(&mut self, stream: &mut TcpStream) -> Result<Option<(Instant, usize)>, String> {
        loop {
            // Taken before the search: the bytes are here, however long it takes to look at them.
            let now = clock::now();
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                return Ok(Some((now, end + 4)));
            }
            if self.buffer.len() > MAX_HEAD_BYTES {
                return Err(format!("a request head of more than {MAX_HEAD_BYTES} bytes"));
            }
            let more = self.fill(stream).await;
            match (more, self.buffer.is_empty()) {
                (Ok(true), _) => {}
                (_, true) => return Ok(None),
                (Ok(false), false) => return Err(broken_off("head", "closed")),
                (Err(error), false) => return Err(broken_off("head", &error)),
            }
        }
    }

    /// Reads more. False at the end of the stream.
    async fn fill(&mut self, stream: &mut TcpStream) -> Result<bool, String> {
        let mut chunk = [0_u8; 16 << 10];
        let n = stream.read(&mut chunk).await.map_err(|error| error.to_string())?;
        self.buffer.extend_from_slice(&chunk[..n]);
        Ok(n > 0)
    }

    async fn take(&mut self, stream: &mut TcpStream, length: usize) -> Result<Vec<u8>, String> {
        while self.buffer.len() < length {
            match self.fill(stream).await {
                Ok(true) => {}
                Ok(false) => return Err(broken_off("body", "closed")),
                Err(error) => return Err(broken_off("body", &error)),
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    async fn chunked(&mut self, stream: &mut TcpStream) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        loop {
            let line = self.line(stream).await?;
            let digits = line.split(|b| *b == b';').next().unwrap_or_default();
            let digits = std::str::from_utf8(digits).unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16).map_err(|_| "a chunk without a size".to_owned())?;
            if size > MAX_BODY_BYTES || body.len() + size > MAX_BODY_BYTES {
                return Err(format!("a request body of more than {MAX_BODY_BYTES} bytes"));
            }
            if size == 0 {
                while !self.line(stream).await?.is_empty() {} // trailers, bounded by MAX_HEAD_BYTES per line
                return Ok(body);
            }
            body.extend(self.take(stream, size).await?);
            self.take(stream, 2).await?;
        }
    }

    async fn line(&mut self, stream: &mut TcpStream) -> Result<Vec<u8>, String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line = self.buffer[..end].to_vec();
                self.buffer.drain(..end + 2);
                return Ok(line);
            }
            if self.buffer.len() > MAX_HEAD_BYTES {
                return Err(format!(
                    "a line of a chunked body of more than {MAX_HEAD_BYTES} bytes"
                ));
            }
            match self.fill(stream).await {
                Ok(true) => {}
                Ok(false) => return Err(broken_off("chunked body", "closed")),
                Err(error) => return Err(broken_off("chunked body", &error)),
            }
        }
    }
}

fn broken_off(part: &str, how: &str) -> String {
    format!(
        "a request whose {part} broke off: the client's side of the connection ended before it was whole ({how})"
    )
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn parse_head(head: &[u8], arrived: Instant) -> Result<(Incoming, Framing), String> {
    let mut space = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut space);
    request
        .parse(head)
        .map_err(|error| format!("not an HTTP/1.1 request: {error}"))?;
    let target = request.path.unwrap_or("/");
    let path = target.split('?').next().unwrap_or("/").to_owned();
    let fields: Vec<(String, String)> = request
        .headers
        .iter()
        .map(|h| {
            (
                h.name.to_ascii_lowercase(),
                String::from_utf8_lossy(h.value).into_owned(),
            )
        })
        .collect();
    let value = |name: &str| {
        fields
            .iter()
            .find(|(have, _)| have == name)
            .map(|(_, value)| value.as_str())
    };
    let chunked = value("transfer-encoding").is_some_and(|v| v.to_ascii_lowercase().ends_with("chunked"));
    let framing = match (chunked, value("content-length")) {
        (true, _) => Framing::Chunked,
        (false, None) => Framing::Length(0),
        (false, Some(length)) => match length.trim().parse() {
            Ok(length) if length <= MAX_BODY_BYTES => Framing::Length(length),
            _ => {
                return Err(format!(
                    "Content-Length {length:?}; the limit is {MAX_BODY_BYTES}"
                ));
            }
        },
    };
    let method = request.method.unwrap_or_default().to_owned();
    Ok((
        Incoming {
            arrived,
            method,
            path,
            fields,
            body: Vec::new(),
        },
        framing,
    ))
}
