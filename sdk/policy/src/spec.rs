//! What a call is, what it is told and what it answers: the words between an adapter and [`crate::Call`].

use std::time::{Duration, Instant};

use holdoff_contract::{Attempt, Overload, Tier};

use crate::{CallerKey, GiveUp, Instances};

/// May this request be sent again when it is not known whether it was applied?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// The method is idempotent (RFC 9110 section 9.2.2).
    Idempotent,
    /// Not idempotent, but it carries an Idempotency-Key.
    Keyed,
    /// Neither: only after applied=no, or when no connection was made.
    Unsafe,
}

/// Can the body be sent again byte for byte?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// It is empty or in memory.
    Bytes,
    /// It is a stream: one send.
    Once,
}

/// The request this call is made in answer to, where there is one (CONTRACT section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Its Overload-Attempt.
    pub attempt: Attempt,
    /// This relay opted in to retries.
    pub retries: bool,
    /// Its effective tier: ours is never higher.
    pub tier: Option<Tier>,
    /// What was left of its deadline when the call was made.
    pub deadline: Option<Duration>,
}

/// What one call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpec {
    /// See [`Safety`].
    pub safety: Safety,
    /// See [`Replay`].
    pub replay: Replay,
    /// Time for the whole call, at most 24 h (a longer one counts as that); `None` bounds waiting only.
    pub deadline: Option<Duration>,
    /// Tier, `None` = not said (deferrable at the server).
    pub tier: Option<Tier>,
    /// Whose call it is, for hold-offs with scope tenant. `None`: all calls that say nothing are one caller's.
    pub caller: Option<CallerKey>,
    /// The instances of the service (for retry=elsewhere). Default: one.
    pub instances: Instances,
    /// The request being answered.
    pub incoming: Option<Incoming>,
}

impl CallSpec {
    /// A call of one caller to one instance, without deadline or tier, made for itself.
    pub const fn new(safety: Safety, replay: Replay) -> Self {
        Self {
            safety,
            replay,
            deadline: None,
            tier: None,
            caller: None,
            instances: Instances::ONE,
            incoming: None,
        }
    }
}

/// Where to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instance {
    /// The one of the last attempt.
    Same,
    /// Another one: the last said retry=elsewhere.
    Another,
}

/// One attempt, with what it says about itself on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Send {
    /// For Overload-Attempt: max(incoming, own).
    pub attempt: Attempt,
    /// For `http.request.resend_count` and logs: 1 for the first send.
    pub number: u32,
    /// What is left of the deadline at `now`: the attempt's own time limit, and Overload-Deadline-Ms.
    pub time_left: Option<Duration>,
    /// Effective tier, never above the incoming one.
    pub tier: Option<Tier>,
    /// Which instance, by its place in the adapter's list; 0 where there is one only.
    pub instance: u8,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Action {
    /// Send the request now.
    Send(Send),
    /// Sleep until then, and ask again. Never an instant before the hint's end. A timer that fires early is harmless:
    /// the same instant is answered again.
    WaitUntil(Instant),
    /// The call is over.
    Finish(Finish),
}

/// How a call ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Finish {
    /// Hand on what the last attempt brought: an answer that is no overload (2xx to 5xx).
    Deliver,
    /// Stop with a typed reason.
    GiveUp(GiveUp),
}

/// What an attempt brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A 2xx: it also pays into the budget when it was the first try, and pays the retry's cost back.
    Success,
    /// Any other answer that is no overload and is not tried again.
    Answered,
    /// 502, or a 504 without a signal.
    BadGateway,
    /// A refusal.
    Overload(Box<Overload>),
    /// No connection was made: certainly not applied.
    NotConnected,
    /// The connection broke after it was made: perhaps applied.
    Broken,
    /// The attempt's time limit ran out.
    TimedOut,
}
