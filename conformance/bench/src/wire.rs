//! A closed load that costs little: each connection sends the same bytes again as soon as its answer is complete. A
//! client library would be measured along with the server, and would be the slower of the two.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures_util::future::try_join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::clock;

/// Longest answer that is read, bytes.
const MAX_ANSWER: usize = 64 << 10;

/// Most fields of an answer.
const MAX_FIELDS: usize = 64;

/// Answers by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    /// 2xx.
    pub(crate) served: u64,
    /// 429 and 503.
    pub(crate) refused: u64,
    /// Anything else.
    pub(crate) other: u64,
    /// Connections that the server closed after an answer, and that were made anew.
    pub(crate) reconnects: u64,
}

impl Answers {
    fn add(self, more: Self) -> Self {
        Self {
            served: self.served + more.served,
            refused: self.refused + more.refused,
            other: self.other + more.other,
            reconnects: self.reconnects + more.reconnects,
        }
    }
}

/// Connections that are kept, with what they send.
#[derive(Debug)]
pub(crate) struct ClosedLoad {
    lines: Vec<Line>,
    request: Vec<u8>,
}

#[derive(Debug)]
struct Line {
    addr: SocketAddr,
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl ClosedLoad {
    /// Opens the connections.
    ///
    /// # Errors
    /// When one is refused.
    pub(crate) async fn connect(
        addr: SocketAddr,
        connections: usize,
        request: Vec<u8>,
    ) -> anyhow::Result<Self> {
        let mut lines = Vec::new();
        for _ in 0..connections {
            lines.push(Line {
                addr,
                stream: open(addr).await?,
                buffer: Vec::new(),
            });
        }
        Ok(Self { lines, request })
    }

    /// Keeps every connection busy for this long; the last answers are waited for.
    ///
    /// # Errors
    /// When an answer cannot be read.
    pub(crate) async fn run(&mut self, length: Duration) -> anyhow::Result<Answers> {
        let until = clock::now() + length;
        let request = &self.request;
        let lines = self
            .lines
            .iter_mut()
            .map(|line| async move { line.run(request, until).await });
        let answers = try_join_all(lines).await?;
        Ok(answers.into_iter().fold(Answers::default(), Answers::add))
    }
}

async fn open(addr: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(addr).await.context("cannot connect")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Line {
    async fn run(&mut self, request: &[u8], until: Instant) -> anyhow::Result<Answers> {
        let mut answers = Answers::default();
        while clock::now() < until {
            self.stream.write_all(request).await?;
            let (status, closes) = self.answer().await?;
            match status {
                200..=299 => answers.served += 1,
                429 | 503 => answers.refused += 1,
                _ => answers.other += 1,
            }
            if closes {
                answers.reconnects += 1;
                self.stream = open(self.addr).await?;
            }
        }
        Ok(answers)
    }

    /// Reads one whole answer: its status, and whether the connection ends with it.
    async fn answer(&mut self) -> anyhow::Result<(u16, bool)> {
        self.buffer.clear();
        loop {
            if let Some(head) = head(&self.buffer)? {
                while self.buffer.len() < head.length {
                    self.more().await?;
                }
                return Ok((head.status, head.closes));
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> anyhow::Result<()> {
        if self.buffer.len() > MAX_ANSWER {
            bail!("an answer is longer than {MAX_ANSWER} bytes");
        }
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => bail!("the connection ended in the middle of an answer"),
            _ => Ok(()),
        }
    }
}

/// What has to be known of an answer's head.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Of head and body.
    length: usize,
    closes: bool,
}

/// The head, once it is complete.
fn head(bytes: &[u8]) -> anyhow::Result<Option<Head>> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(start) = response.parse(bytes)? else {
        return Ok(None);
    };
    let field = |name: &str| {
        response
            .headers
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
    };
    let length = field("content-length").context("an answer without content-length")?;
    let length: usize = std::str::from_utf8(length)?.parse()?;
    Ok(Some(Head {
        status: response.code.unwrap_or_default(),
        length: start.saturating_add(length),
        closes: field("connection").is_some_and(|value| value.eq_ignore_ascii_case(b"close")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_to_the_length_it_declares() {
        let answer =
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy";
        assert_eq!(
            head(answer).unwrap(),
            Some(Head {
                status: 503,
                length: answer.len(),
                closes: true
            })
        );
        assert_eq!(head(&answer[..40]).unwrap(), None, "an incomplete head");
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err(), "no length");
        assert!(head(b"SMTP ready\r\n\r\n").is_err(), "not HTTP");
    }
}
