//! What a refusal says, read strictly and by our own code: a judge that borrowed the reader of the implementation under
//! test would share its mistakes. A client reads leniently (CONTRACT section 4); a judge does not.

use serde_json::Value;
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::message::Seen;
use crate::words;

/// Name of the header field.
pub const SIGNAL: &str = "overload-signal";

/// Codes of CONTRACT section 1 with what each may say.
pub const REGISTRY: &[Entry] = &[
    Entry::new("queue_full", 503, "after", Applied::No),
    Entry::new("queue_age_exceeded", 503, "after", Applied::No),
    Entry::new("concurrency_limit", 503, "after", Applied::No),
    Entry::new("tier_shed", 503, "after", Applied::No),
    Entry::new("tier_budget_exhausted", 503, "after", Applied::No),
    Entry::new("evicted", 503, "after", Applied::No),
    Entry::new("recovering", 503, "after", Applied::No),
    Entry::new("controller_stale", 503, "after", Applied::No),
    Entry::new("draining", 503, "elsewhere", Applied::No),
    Entry::new("deadline_unattainable", 503, "no", Applied::No),
    Entry::new("deadline_expired", 503, "no", Applied::NoOrMaybe),
    Entry::new("tenant_limit", 429, "after", Applied::No),
    Entry::new("rate_limited", 429, "after", Applied::No),
    Entry::new("retry_throttled", 429, "after", Applied::No),
    Entry::new("dependency_overloaded", 503, "after", Applied::NoOrMaybe),
    Entry::new("dependency_timeout", 504, "no", Applied::Maybe),
];

/// What a code may say of side effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// `no` only.
    No,
    /// `no`, or `maybe` once started.
    NoOrMaybe,
    /// `maybe` only.
    Maybe,
}

impl Applied {
    /// Whether this word is allowed.
    pub fn allows(self, word: &str) -> bool {
        match self {
            Self::No => word == "no",
            Self::NoOrMaybe => matches!(word, "no" | "maybe"),
            Self::Maybe => word == "maybe",
        }
    }
}

/// One row of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Code.
    pub code: &'static str,
    /// HTTP status.
    pub status: u16,
    /// Permission; `after` may be tightened to `no` (SRV-28).
    pub retry: &'static str,
    /// Side effects.
    pub applied: Applied,
}

impl Entry {
    const fn new(code: &'static str, status: u16, retry: &'static str, applied: Applied) -> Self {
        Self {
            code,
            status,
            retry,
            applied,
        }
    }

    /// The row of a code.
    pub fn of(code: &str) -> Option<&'static Self> {
        REGISTRY.iter().find(|entry| entry.code == code)
    }
}

/// The members of an Overload-Signal that this version knows, each with the type that it must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signal {
    /// Major version.
    pub v: Option<i64>,
    /// Code.
    pub code: Option<String>,
    /// Permission.
    pub retry: Option<String>,
    /// Side effects.
    pub applied: Option<String>,
    /// Least wait in ms.
    pub after: Option<i64>,
    /// Greatest wait in ms.
    pub max: Option<i64>,
    /// What else the hint speaks for.
    pub scope: Option<String>,
    /// State of the service.
    pub state: Option<String>,
    /// Effective tier.
    pub tier: Option<String>,
    /// Hops towards the dependency.
    pub hop: Option<i64>,
    /// `defer` with 202.
    pub outcome: Option<String>,
    /// Served, but cut down.
    pub degraded: Option<bool>,
    /// Keys that v1 does not know; allowed (VER-02), and looked at for what they reveal (SEC-02).
    pub other: Vec<String>,
    /// Members of the wrong type, each in words.
    pub wrong: Vec<String>,
}

/// The Overload-Signal of a header section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignalRead {
    /// No line.
    Absent,
    /// More than one line.
    Several(usize),
    /// One line that is no RFC 9651 Dictionary.
    Broken(String),
    /// One line.
    One(Box<Signal>),
}

impl SignalRead {
    /// Reads the field of an answer.
    pub fn of(seen: &Seen) -> Self {
        let lines = seen.lines(SIGNAL);
        match lines.as_slice() {
            [] => Self::Absent,
            [line] => match Parser::new(line.as_str()).parse::<Dictionary>() {
                Ok(dictionary) => Self::One(Box::new(signal(&dictionary))),
                Err(error) => Self::Broken(format!("{error}: {line:?}")),
            },
            several => Self::Several(several.len()),
        }
    }

    /// The signal, where there is exactly one that parses.
    pub fn signal(&self) -> Option<&Signal> {
        match self {
            Self::One(signal) => Some(signal),
            _ => None,
        }
    }
}

fn signal(dictionary: &Dictionary) -> Signal {
    let mut read = Signal::default();
    for (key, entry) in dictionary {
        let key = key.as_str();
        let item = match entry {
            ListEntry::Item(item) => &item.bare_item,
            ListEntry::InnerList(_) => {
                read.wrong.push(format!("{key} is an inner list"));
                continue;
            }
        };
        let wrong = &mut read.wrong;
        match key {
            "v" => read.v = integer(key, item, wrong),
            "after" => read.after = integer(key, item, wrong),
            "max" => read.max = integer(key, item, wrong),
            "hop" => read.hop = integer(key, item, wrong),
            "code" => read.code = token(key, item, wrong),
            "retry" => read.retry = token(key, item, wrong),
            "applied" => read.applied = token(key, item, wrong),
            "scope" => read.scope = token(key, item, wrong),
            "state" => read.state = token(key, item, wrong),
            "tier" => read.tier = token(key, item, wrong),
            "outcome" => read.outcome = token(key, item, wrong),
            "degraded" => {
                read.degraded = item.as_boolean();
                if read.degraded.is_none() {
                    wrong.push(format!("degraded is {}, not a Boolean", words::item(item)));
                }
            }
            other => read.other.push(other.to_owned()),
        }
    }
    read
}

fn integer(key: &str, item: &BareItem, wrong: &mut Vec<String>) -> Option<i64> {
    let read = item.as_integer().map(i64::from);
    if read.is_none() {
        wrong.push(format!("{key} is {}, not an Integer", words::item(item)));
    }
    read
}

fn token(key: &str, item: &BareItem, wrong: &mut Vec<String>) -> Option<String> {
    let read = item.as_token().map(|token| token.as_str().to_owned());
    if read.is_none() {
        wrong.push(format!("{key} is {}, not a Token", words::item(item)));
    }
    read
}

/// The body of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum BodyRead {
    /// None came (HEAD, or an empty answer).
    Absent,
    /// Not a JSON object.
    NotAnObject(String),
    /// A JSON object, whatever the media type says.
    Object(serde_json::Map<String, Value>),
}

impl BodyRead {
    /// Reads the body of an answer.
    pub fn of(seen: &Seen) -> Self {
        if seen.body.is_empty() {
            return Self::Absent;
        }
        match serde_json::from_slice(&seen.body) {
            Ok(Value::Object(members)) => Self::Object(members),
            Ok(_) => Self::NotAnObject("JSON, but not an object".to_owned()),
            Err(error) => Self::NotAnObject(error.to_string()),
        }
    }

    /// A text member.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self {
            Self::Object(members) => members.get(name).and_then(Value::as_str),
            _ => None,
        }
    }

    /// An integer member.
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self {
            Self::Object(members) => members.get(name).and_then(Value::as_i64),
            _ => None,
        }
    }

    /// Any member.
    pub fn member(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Object(members) => members.get(name),
            _ => None,
        }
    }
}

/// An answer with both of its readings.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Header field.
    pub signal: SignalRead,
    /// Body.
    pub body: BodyRead,
}

impl Reading {
    /// Reads both.
    pub fn of(seen: &Seen) -> Self {
        Self {
            signal: SignalRead::of(seen),
            body: BodyRead::of(seen),
        }
    }

    /// The code: the header's, else the body's.
    pub fn code(&self) -> Option<&str> {
        let header = self.signal.signal().and_then(|signal| signal.code.as_deref());
        header.or_else(|| self.body.text("code"))
    }

    /// The permission: the header's, else the body's.
    pub fn retry(&self) -> Option<&str> {
        let header = self.signal.signal().and_then(|signal| signal.retry.as_deref());
        header.or_else(|| self.body.text("retry"))
    }

    /// What is said of side effects: the header's, else the body's.
    pub fn applied(&self) -> Option<&str> {
        let header = self.signal.signal().and_then(|signal| signal.applied.as_deref());
        header.or_else(|| self.body.text("applied"))
    }

    /// Least wait in ms.
    pub fn after(&self) -> Option<i64> {
        let header = self.signal.signal().and_then(|signal| signal.after);
        header.or_else(|| self.body.integer("retry_after_ms"))
    }

    /// Greatest wait in ms.
    pub fn max(&self) -> Option<i64> {
        let header = self.signal.signal().and_then(|signal| signal.max);
        header.or_else(|| self.body.integer("retry_after_max_ms"))
    }

    /// Whether the body presents itself as an overload of this contract.
    fn problem(&self) -> bool {
        let typed = self
            .body
            .text("type")
            .is_some_and(|kind| kind.starts_with("urn:overload:"));
        typed || (self.body.member("contract_version").is_some() && self.body.text("code").is_some())
    }

    /// Whether an answer with this status is a refusal that the rules apply to: it says so by status (429, 503) or by a
    /// code of the contract.
    pub fn is_reject(&self, status: u16) -> bool {
        let coded = self.signal.signal().is_some_and(|signal| signal.code.is_some());
        matches!(status, 429 | 503) || coded || (status >= 400 && self.problem())
    }
}
