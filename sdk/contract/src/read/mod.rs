//! Reading a refusal from anybody: the contract's own fields, and what others already send (sections 4 and 8).
//!
//! Reading has two steps because a body arrives later than its head, may be slow, huge or hostile, and is not
//! always wanted: [`Head::read`] decides from status and fields, [`Head::finish`] adds the body where one came in
//! time.
//!
//! Numbers in fields are plain decimals. In a body they are JSON's: `1740`, `1739.2` (rounded up) and `1e3` (1000) are delays,
//! `"1740"` and `-1` are malformed and counted (HNT-10).

mod body;
mod date;
mod defacto;
mod merge;
mod number;
mod rate_limit;
mod retry_after;
mod signal;

use std::time::SystemTime;

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};

use self::merge::Delays;
use crate::limits::{MAX_BODY_READ, MAX_FIELD_BYTES, MAX_FIELD_LINES};
use crate::{Code, Overload, OverloadStatus, PolicyQuota, ServiceState};

pub(crate) use self::body::{KNOWN_MEMBERS, cut};
pub(crate) use self::merge::{Foreign, Said, Tally};
pub(crate) use self::number::{decimal_ms, decimal_seconds};
pub(crate) use self::rate_limit::{RATE_LIMIT, RATE_LIMIT_POLICY};
pub(crate) use self::retry_after::Clock;
pub(crate) use self::signal::KNOWN_KEYS;

/// Whether the fields that others use (section 8) count as hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compat {
    /// They count, with the same cap, floor and jitter: the default.
    #[default]
    On,
    /// Delays of others are ignored. (Permissions of others only tighten, and always count.)
    Off,
}

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Wall clock at receipt of the head, for an HTTP-date without a usable `Date`.
    pub now: SystemTime,
    /// De-facto fields.
    pub compat: Compat,
}

/// What was said wrongly: each is counted, none is fatal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Malformed {
    /// Sources (fields, keys, members) that were there and could not be used.
    pub sources: u16,
}

/// What a head alone says.
#[derive(Clone, Debug)]
#[must_use]
pub struct Head {
    status: Option<OverloadStatus>,
    signal: Option<Said>,
    delays: Delays,
    forbidden: bool,
    quotas: Vec<PolicyQuota>,
    wants_body: bool,
    tally: Tally,
}

/// A response, read.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Reading {
    /// Not an overload: hand the response on.
    NotOverload,
    /// A refusal.
    Overload(Box<Overload>, Malformed),
}

/// What a success says beside its content (section 2): never an error (CLI-19).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// `outcome=defer`: accepted, to be run later; poll its Location no faster than Retry-After (CLI-20).
    pub deferred: bool,
    /// Served, but cut down.
    pub degraded: bool,
    /// State of the service.
    pub state: Option<ServiceState>,
}

impl Head {
    /// Reads status and header fields.
    pub fn read(status: StatusCode, headers: &HeaderMap, options: &ReadOptions) -> Self {
        match OverloadStatus::from_u16(status.as_u16()) {
            Some(known) => Self::read_as(known, status, headers, options),
            None => Self {
                status: None,
                signal: None,
                delays: Delays::default(),
                forbidden: false,
                quotas: Vec::new(),
                wants_body: false,
                tally: Tally::default(),
            },
        }
    }

    /// The same where it is known to be an overload, whatever its status.
    pub(crate) fn read_as(
        known: OverloadStatus,
        status: StatusCode,
        headers: &HeaderMap,
        options: &ReadOptions,
    ) -> Self {
        let mut tally = Tally::default();
        let signal = signal::read(headers, &mut tally);
        let mut delays = Delays {
            seconds: retry_after::read(headers, options.now, &mut tally),
            ..Delays::default()
        };
        if options.compat == Compat::On {
            delays.ms = defacto::milliseconds(headers, &mut tally);
            delays.quota = defacto::quota_reset(status, headers, &mut tally);
        }
        Self {
            status: Some(known),
            signal,
            delays,
            forbidden: defacto::forbids_retry(headers),
            quotas: rate_limit::quotas(headers),
            wants_body: is_problem(headers) && fits(headers),
            tally,
        }
    }

    /// Adds `x-ratelimit-reset` in a unit that was configured (CMP-05), to be used where nothing else gives a delay.
    pub(crate) fn add_quota_reset(&mut self, headers: &HeaderMap, ms: impl Fn(&str) -> Option<u64>) {
        self.delays.quota = self
            .delays
            .quota
            .max(defacto::configured_reset(headers, ms, &mut self.tally));
    }

    pub(crate) fn set_status(&mut self, status: OverloadStatus) {
        self.status = Some(status);
    }

    pub(crate) fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// True when a body could change the reading: read it, within [`crate::limits`], before [`Self::finish`].
    pub fn wants_body(&self) -> bool {
        self.wants_body
    }

    /// The result. `body` is the whole body, or `None` where it was not wanted, too large, truncated or too late.
    pub fn finish(self, body: Option<&[u8]>) -> Reading {
        self.finish_with(body, None)
    }

    /// The same with what the service said in words of its own.
    pub(crate) fn finish_with(mut self, body: Option<&[u8]>, foreign: Option<Foreign>) -> Reading {
        let Some(status) = self.status else {
            return Reading::NotOverload;
        };
        let body = body
            .filter(|_| self.wants_body)
            .and_then(|body| body::read(body, &mut self.tally));
        let unmarked = self.signal.is_none() && body.is_none() && foreign.is_none();
        if status == OverloadStatus::GatewayTimeout && unmarked {
            return Reading::NotOverload;
        }
        let (signal, body) = (self.signal.unwrap_or_default(), body.unwrap_or_default());
        let mut overload = merge::merge(status, signal, body, foreign, self.delays, self.forbidden);
        if overload.code == Some(Code::RateLimited) {
            overload.quotas = self.quotas;
        }
        Reading::Overload(Box::new(overload), self.tally.get())
    }
}

/// What reading an answer over gRPC needs beside: more sources, and no body.
impl Head {
    pub(crate) fn has_signal(&self) -> bool {
        self.signal.is_some()
    }

    pub(crate) fn says_retry(&self) -> bool {
        self.signal.as_ref().is_some_and(|signal| signal.retry.is_some())
    }

    /// The signal's code.
    pub(crate) fn code(&self) -> Option<&Code> {
        self.signal.as_ref()?.code.as_ref()
    }

    /// Is there a valid signal, or a delay?
    pub(crate) fn says_anything(&self) -> bool {
        let Delays { ms, seconds, quota } = self.delays;
        self.has_signal() || ms.or(seconds).or(quota).is_some()
    }

    /// The result with what the status details say; `forbidden` where silence means no.
    pub(crate) fn finish_grpc(self, details: Said, forbidden: bool) -> Reading {
        let Some(status) = self.status else {
            return Reading::NotOverload;
        };
        let signal = self.signal.unwrap_or_default();
        let mut overload = merge::merge(
            status,
            signal,
            details,
            None,
            self.delays,
            self.forbidden || forbidden,
        );
        if overload.code == Some(Code::RateLimited) {
            overload.quotas = self.quotas;
        }
        Reading::Overload(Box::new(overload), self.tally.get())
    }
}

impl Reading {
    /// The refusal, where it is one.
    pub fn into_overload(self) -> Option<Overload> {
        match self {
            Self::NotOverload => None,
            Self::Overload(overload, _) => Some(*overload),
        }
    }
}

impl Advice {
    /// Reads the advice on a success.
    pub fn read(headers: &HeaderMap) -> Self {
        signal::advice(headers)
    }
}

fn is_problem(headers: &HeaderMap) -> bool {
    let value = headers
        .get(header::CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/problem+json")
}

/// False only for a `Content-Length` that says a body is too large to read.
pub(crate) fn fits(headers: &HeaderMap) -> bool {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    let length = length.and_then(|text| number::decimal(text.trim(), number::Unit::Milliseconds));
    length.is_none_or(|length| length <= MAX_BODY_READ as u64)
}

/// The lines of a field, within the limits.
pub(crate) struct Lines<'a> {
    lines: http::header::ValueIter<'a, HeaderValue>,
    lines_left: usize,
    bytes_left: usize,
    /// There was more than the limits allow.
    cut: bool,
}

pub(crate) fn lines<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Lines<'a> {
    let lines = headers.get_all(name).iter();
    Lines {
        lines,
        lines_left: MAX_FIELD_LINES,
        bytes_left: MAX_FIELD_BYTES,
        cut: false,
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a HeaderValue;

    fn next(&mut self) -> Option<&'a HeaderValue> {
        if self.cut {
            return None;
        }
        let line = self.lines.next()?;
        let left = self
            .lines_left
            .checked_sub(1)
            .zip(self.bytes_left.checked_sub(line.len()));
        let Some((lines_left, bytes_left)) = left else {
            self.cut = true;
            return None;
        };
        (self.lines_left, self.bytes_left) = (lines_left, bytes_left);
        Some(line)
    }
}
