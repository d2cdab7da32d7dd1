//! Reading a refusal from anybody: the contract's own fields, and what others already send (sections 4 and 8).
//!
//! Reading has two steps because a body arrives later than its head, may be slow, huge or hostile, and is not
//! always wanted: [`Head::read`] decides from status and fields, [`Head::finish`] adds the body where one came in
//! time.

use std::time::SystemTime;

use http::{HeaderMap, StatusCode};

use crate::{Overload, ServiceState};

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
    _private: (),
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
        let _ = (status, headers, options);
        unimplemented!("contract helper")
    }

    /// True when a body could change the reading: read it, within [`crate::limits`], before [`Self::finish`].
    pub fn wants_body(&self) -> bool {
        unimplemented!("contract helper")
    }

    /// The result. `body` is the whole body, or `None` where it was not wanted, too large, truncated or too late.
    pub fn finish(self, body: Option<&[u8]>) -> Reading {
        let _ = body;
        unimplemented!("contract helper")
    }
}

impl Advice {
    /// Reads the advice on a success.
    pub fn read(headers: &HeaderMap) -> Self {
        let _ = headers;
        unimplemented!("contract helper")
    }
}
