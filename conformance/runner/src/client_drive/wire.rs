//! The wire log: what the runner saw, with instants. The judge reads only this and the replies.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::reader::Incoming;
use super::spec::Port;

/// The most requests of one case that are kept.
const MAX_EXCHANGES: usize = 20_000;
/// The most strays that are kept.
const MAX_STRAYS: usize = 20;

/// One request that came in, and what was done with it.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The port that it came to.
    pub port: Port,
    /// Which connection of that port, from 0.
    pub connection: usize,
    /// When its head had been read.
    pub arrived: Instant,
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// All field lines in order, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body, up to the reader's limit.
    pub body: Vec<u8>,
    /// The clock of "never early": taken when the head is handed to the socket, so that no client can have seen it
    /// before, and a runner that is put to sleep after writing never accuses a client of being early.
    pub head_at: Option<Instant>,
    /// The answer in one line.
    pub answered: String,
    /// Bytes of the answer's body that the socket took.
    pub body_written: u64,
}

impl Exchange {
    /// The values of a field, in order.
    pub fn field<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.fields
            .iter()
            .filter(move |(have, _)| have == name)
            .map(|(_, value)| value.as_str())
    }

    /// The value of a field that is there exactly once.
    pub fn one_field<'a>(&'a self, name: &str) -> Option<&'a str> {
        let mut values = self.field(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// The same as a number: digits, and nothing else.
    pub fn number(&self, name: &str) -> Option<u64> {
        let digits = |value: &&str| value.bytes().all(|b| b.is_ascii_digit());
        self.one_field(name).filter(digits)?.parse().ok()
    }
}

/// What happened on one port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connections {
    /// Accepted in all.
    pub accepted: u64,
    /// Open now.
    pub open: u64,
    /// Open at the same time at most.
    pub most_open: u64,
}

/// Everything that happened on the wire during one case.
#[derive(Debug, Clone, Default)]
pub struct WireLog {
    /// Requests in the order of their arrival.
    pub exchanges: Vec<Exchange>,
    /// Paths that belong to no call of the case, and requests that are not HTTP.
    pub strays: Vec<String>,
    /// The main port.
    pub main: Connections,
    /// The second port.
    pub second: Connections,
    /// Requests beyond what is kept.
    pub dropped: u64,
}

impl WireLog {
    /// What was seen that belongs to no call, each thing once and with how often it was seen.
    pub(crate) fn told_strays(&self) -> String {
        let mut kinds: Vec<(&str, usize)> = Vec::new();
        for what in &self.strays {
            match kinds.iter_mut().find(|(known, _)| known == what) {
                Some((_, count)) => *count += 1,
                None => kinds.push((what, 1)),
            }
        }
        let mut told: Vec<String> = kinds
            .into_iter()
            .map(|(what, count)| match count {
                1 => what.to_owned(),
                _ => format!("{count} x {what}"),
            })
            .collect();
        if self.strays.len() >= MAX_STRAYS {
            told.push(format!("and perhaps more: {MAX_STRAYS} are kept"));
        }
        if self.dropped > 0 {
            told.push(format!(
                "{} requests more than the {MAX_EXCHANGES} that are kept",
                self.dropped
            ));
        }
        match told.is_empty() {
            true => "none".to_owned(),
            false => told.join("; "),
        }
    }

    /// Keeps what belongs to no call, up to a limit.
    pub(crate) fn stray(&mut self, what: String) {
        if self.strays.len() < MAX_STRAYS {
            self.strays.push(what);
        }
    }

    /// Keeps a request that came in, up to a limit, and says where.
    pub(crate) fn record(&mut self, port: Port, connection: usize, incoming: Incoming) -> Option<usize> {
        if self.exchanges.len() >= MAX_EXCHANGES {
            self.dropped += 1;
            return None;
        }
        let Incoming {
            arrived,
            method,
            path,
            fields,
            body,
        } = incoming;
        self.exchanges.push(Exchange {
            port,
            connection,
            arrived,
            method,
            path,
            fields,
            body,
            head_at: None,
            answered: String::new(),
            body_written: 0,
        });
        Some(self.exchanges.len() - 1)
    }

    /// The counters of a port.
    pub fn port(&mut self, port: Port) -> &mut Connections {
        match port {
            Port::Main => &mut self.main,
            Port::Second => &mut self.second,
        }
    }
}
