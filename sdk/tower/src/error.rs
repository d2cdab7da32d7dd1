//! How a call ends that brought no response.
//!
//! "Timed out" helps nobody. A caller that stops knows why, what the server said last and how long it waited, and
//! all of it is in here, typed (CLI-14). When a later attempt fails otherwise, the refusal before it stays in the
//! chain of causes (CLI-27).

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use holdoff_contract::{Applied, CalledAs, Overload, Relay};
use holdoff_policy::{GiveUp, StopReason};

use crate::clock;

/// An error of any type that can go to another task.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// What a failed send means for whether it may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection was made, or the server said by its protocol that it never looked at the request: certainly
    /// not applied (CLI-11).
    NotConnected,
    /// The connection broke, or the answer did: perhaps applied (CLI-12).
    Broken,
    /// Sending again cannot help: the request itself cannot be sent, or a redirect loops.
    Final,
}

/// Tells what a transport's error means. The default is [`by_io_kind`].
pub type Classify = fn(&(dyn StdError + 'static)) -> Failure;

/// The default [`Classify`]: not connected where an I/O error in the chain of causes says that no connection was
/// made (refused, or the host or network cannot be reached), broken for all else.
pub fn by_io_kind(error: &(dyn StdError + 'static)) -> Failure {
    use std::io::ErrorKind;
    let mut next = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if matches!(
            kind,
            Some(
                ErrorKind::ConnectionRefused
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
                    | ErrorKind::AddrNotAvailable
            )
        ) {
            return Failure::NotConnected;
        }
        next = error.source();
    }
    Failure::Broken
}

/// A call that was not answered. Opaque; ask it.
///
/// Its `Display` is one line of our own words, safe to log (SEC-04). Its chain of causes is the last refusal, as
/// [`Refused`], and then the transport's own error, each where there was one.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    cause: Cause,
}

enum Kind {
    /// The call was stopped, by the policy or by a failure that sending again cannot help.
    GaveUp {
        give_up: GiveUp,
        failure: Option<Failure>,
    },
    /// There is no request to send.
    Request,
}

enum Cause {
    Nothing,
    Refused(Refused),
    Other(BoxError),
}

/// A refusal as a cause in a chain of errors.
#[derive(Debug)]
pub struct Refused {
    overload: Box<Overload>,
    then: Option<BoxError>,
}

/// What a service knows about its own request when it passes a dependency's refusal up (CONTRACT section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassUp {
    /// With whose identity the dependency was called.
    pub called_as: CalledAs,
    /// The incoming request's method is idempotent, or it carries a key.
    pub idempotent: bool,
    /// An earlier step of the incoming request had a side effect (INT-08).
    pub side_effect: bool,
}

impl Error {
    pub(crate) fn gave_up(give_up: GiveUp, failed: Option<(Failure, BoxError)>) -> Self {
        let (failure, transport) = failed.map_or((None, None), |(kind, error)| (Some(kind), Some(error)));
        let cause = match (&give_up.last, transport) {
            (Some(last), then) => Cause::Refused(Refused {
                overload: last.overload.clone(),
                then,
            }),
            (None, Some(error)) => Cause::Other(error),
            (None, None) => Cause::Nothing,
        };
        Self(Box::new(Inner {
            kind: Kind::GaveUp { give_up, failure },
            cause,
        }))
    }

    /// The service could not be polled ready: nothing was sent.
    pub(crate) fn unready(error: BoxError) -> Self {
        let give_up = GiveUp {
            why: StopReason::Transport,
            last: None,
            attempts: 0,
            waited: Duration::ZERO,
            retry_in: None,
        };
        Self::gave_up(give_up, Some((Failure::NotConnected, error)))
    }

    /// For adapters: the request could not be built, so there was nothing to send.
    pub fn request(error: impl Into<BoxError>) -> Self {
        Self(Box::new(Inner {
            kind: Kind::Request,
            cause: Cause::Other(error.into()),
        }))
    }

    /// Was the call refused for overload? Also true where a later attempt failed otherwise.
    pub fn is_overloaded(&self) -> bool {
        self.overload().is_some()
    }

    /// What the server said last, where it refused the call: status, code, retry, applied, hint, hop.
    pub fn overload(&self) -> Option<&Overload> {
        self.give_up()?.last.as_ref().map(|last| &*last.overload)
    }

    /// Why the call stopped, attempts made, time waited. `None` where there was no request to send.
    pub fn give_up(&self) -> Option<&GiveUp> {
        match &self.0.kind {
            Kind::GaveUp { give_up, .. } => Some(give_up),
            Kind::Request => None,
        }
    }

    /// Why the call stopped; `None` where there was no request to send.
    pub fn why(&self) -> Option<StopReason> {
        match &self.0.kind {
            Kind::GaveUp { give_up, .. } => Some(give_up.why),
            Kind::Request => None,
        }
    }

    /// Sends made; zero when the call was held back before the first.
    pub fn attempts(&self) -> u32 {
        match &self.0.kind {
            Kind::GaveUp { give_up, .. } => give_up.attempts,
            Kind::Request => 0,
        }
    }

    /// The time spent waiting, without the attempts themselves.
    pub fn waited(&self) -> Duration {
        self.give_up().map_or(Duration::ZERO, |give_up| give_up.waited)
    }

    /// What was left of the server's delay when the call stopped, not cut by any cap; `None` where none was said.
    pub fn retry_in(&self) -> Option<Duration> {
        self.give_up()?.retry_in
    }

    /// Did the call's own time run out, during an attempt or because the hint ends after it?
    pub fn is_timeout(&self) -> bool {
        matches!(
            self.why(),
            Some(StopReason::DeadlineExceeded | StopReason::DeadlineBeforeHint)
        )
    }

    /// Could the request not be built (a bad URL, header, tier or task class)?
    pub fn is_request(&self) -> bool {
        matches!(self.0.kind, Kind::Request)
    }

    /// The transport's own error, where the last attempt failed by one. Downcast it to look inside.
    pub fn transport_error(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        match (&self.0.kind, &self.0.cause) {
            (Kind::Request, _) | (_, Cause::Nothing) => None,
            (_, Cause::Refused(refused)) => refused.then.as_deref(),
            (_, Cause::Other(error)) => Some(&**error),
        }
    }

    /// The answer to this service's own caller by CONTRACT section 6: the refusal, aged by the time since it was
    /// received, dependency_timeout where a dependency may have begun and did not answer, or deadline_expired where no
    /// time was left to call it. `None` where the failure is not overload: answer 502 or 503 without contract fields.
    pub fn for_caller(&self, hop: PassUp) -> Option<Overload> {
        let Kind::GaveUp { give_up, failure } = &self.0.kind else {
            return None;
        };
        if let Some(last) = &give_up.last {
            let relay = Relay {
                elapsed: clock::now().saturating_duration_since(last.received),
                called_as: hop.called_as,
                retried: give_up.attempts > 1,
                idempotent: hop.idempotent,
                side_effect: hop.side_effect,
            };
            return Some(last.overload.for_caller(&relay));
        }
        let ran_out = give_up.why == StopReason::DeadlineExceeded;
        if give_up.attempts == 0 {
            let applied = if hop.side_effect {
                Applied::Maybe
            } else {
                Applied::No
            };
            return ran_out.then(|| Overload::deadline_expired(applied));
        }
        (ran_out || *failure == Some(Failure::Broken)).then(Overload::dependency_timeout)
    }
}

impl Refused {
    /// What was said.
    pub fn overload(&self) -> &Overload {
        &self.overload
    }
}

/// Status and code only: a code fits `[a-z][a-z0-9_]*`, other peer text is left out.
fn write_refusal(f: &mut fmt::Formatter<'_>, overload: &Overload) -> fmt::Result {
    write!(f, "{}", overload.status.as_u16())?;
    if let Some(code) = &overload.code {
        write!(f, " {}", code.as_str())?;
    }
    Ok(())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let give_up = match &self.0.kind {
            Kind::Request => return f.write_str("the request could not be built"),
            Kind::GaveUp { give_up, .. } => give_up,
        };
        write!(
            f,
            "gave up ({}) after {} attempt",
            give_up.why.as_str(),
            give_up.attempts
        )?;
        if give_up.attempts != 1 {
            f.write_str("s")?;
        }
        if !give_up.waited.is_zero() {
            write!(f, " and {} ms of waiting", give_up.waited.as_millis())?;
        }
        if let Some(last) = &give_up.last {
            f.write_str("; refused with ")?;
            write_refusal(f, &last.overload)?;
        }
        if let Some(retry_in) = give_up.retry_in {
            write!(f, ", may come back in {} ms", retry_in.as_millis())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Error");
        match &self.0.kind {
            Kind::GaveUp { give_up, failure } => {
                out.field("give_up", give_up).field("failure", failure);
            }
            Kind::Request => {
                out.field("kind", &"request");
            }
        }
        match &self.0.cause {
            Cause::Nothing => {}
            Cause::Refused(Refused { then: None, .. }) => {}
            Cause::Refused(Refused {
                then: Some(error), ..
            })
            | Cause::Other(error) => {
                out.field("source", error);
            }
        }
        out.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.cause {
            Cause::Nothing => None,
            Cause::Refused(refused) => Some(refused),
            Cause::Other(error) => Some(&**error),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server refused with ")?;
        write_refusal(f, &self.overload)
    }
}

impl StdError for Refused {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.then
            .as_ref()
            .map(|error| &**error as &(dyn StdError + 'static))
    }
}
