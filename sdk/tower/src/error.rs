//! How a call ends that brought no response.
//!
//! "Timed out" helps nobody. A caller that stops knows why, what the server said last and how long it waited, and
//! all of it is in here, typed (CLI-14). When a later attempt fails otherwise, the refusal before it stays in the
//! chain of causes (CLI-27).

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use holdoff_contract::{Applied, CalledAs, Hint, Overload, Relay};
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
    /// Sending again cannot help: a redirect loops.
    Final,
    /// The transport does not take the request: nothing was sent, and [`Error::is_request`] says so where nothing was sent
    /// before either.
    Unsendable,
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
/// Its `Display` is one line, safe to log (SEC-04): of our own words and, where a value was refused before anything was
/// sent, that value's name, what was given and what is allowed. Its chain of causes is the last refusal, as [`Refused`],
/// and then the transport's own error, each where there was one.
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
    /// There is nothing to send, or nobody to send it: what could not be built.
    Unbuilt(&'static str),
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
        Self::unbuilt("request", error.into())
    }

    /// For adapters: the client could not be built, a value that it was set up with is not allowed.
    pub fn client(error: impl Into<BoxError>) -> Self {
        Self::unbuilt("client", error.into())
    }

    fn unbuilt(what: &'static str, error: BoxError) -> Self {
        Self(Box::new(Inner {
            kind: Kind::Unbuilt(what),
            cause: Cause::Other(error),
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
            Kind::Unbuilt(_) => None,
        }
    }

    /// Why the call stopped; `None` where there was no request to send.
    pub fn why(&self) -> Option<StopReason> {
        match &self.0.kind {
            Kind::GaveUp { give_up, .. } => Some(give_up.why),
            Kind::Unbuilt(_) => None,
        }
    }

    /// Sends made; zero when the call was held back before the first.
    pub fn attempts(&self) -> u32 {
        match &self.0.kind {
            Kind::GaveUp { give_up, .. } => give_up.attempts,
            Kind::Unbuilt(_) => 0,
        }
    }

    /// The time spent waiting, without the attempts themselves.
    pub fn waited(&self) -> Duration {
        self.give_up().map_or(Duration::ZERO, |give_up| give_up.waited)
    }

    /// When a call like this can go: what was left of the server's delay when the call stopped, not cut by any cap, or of
    /// the hold-off that stopped it, at most 30 s. `None` where neither was said.
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

    /// Was a value refused before anything was sent: of the request (a bad URL, header, tenant or task class), or of the
    /// client when it was built? The error's text names it, [`Self::build_error`] has it typed.
    pub fn is_request(&self) -> bool {
        matches!(self.0.kind, Kind::Unbuilt(_))
    }

    /// What was wrong with the request or the client, where one could not be built. Downcast it to look inside, mostly
    /// to [`InvalidField`](holdoff_contract::InvalidField). It is no [`source`](StdError::source), since this error's own
    /// text says the same.
    pub fn build_error(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        match (&self.0.kind, &self.0.cause) {
            (Kind::Unbuilt(_), Cause::Other(error)) => Some(&**error),
            _ => None,
        }
    }

    /// The transport's own error, where the last attempt failed by one. Downcast it to look inside.
    pub fn transport_error(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        match (&self.0.kind, &self.0.cause) {
            (Kind::Unbuilt(_), _) | (_, Cause::Nothing) => None,
            (_, Cause::Refused(refused)) => refused.then.as_deref(),
            (_, Cause::Other(error)) => Some(&**error),
        }
    }

    /// Did the last attempt end without an answer, so that nobody knows what came of it?
    fn is_unanswered(&self) -> bool {
        match &self.0.kind {
            Kind::GaveUp { give_up, failure } => {
                let cut = give_up.why == StopReason::DeadlineExceeded || *failure == Some(Failure::Broken);
                give_up.attempts > 0 && cut
            }
            Kind::Unbuilt(_) => false,
        }
    }

    /// May the last attempt have been applied? It was not where it was refused with applied=no, found no connection,
    /// or was never sent.
    pub(crate) fn may_have_applied(&self) -> bool {
        let refused_maybe = self
            .overload()
            .is_some_and(|overload| overload.applied == Applied::Maybe);
        self.attempts() > 0 && (self.is_unanswered() || refused_maybe)
    }

    /// The answer to this service's own caller by CONTRACT section 6: the refusal, aged by the time since it was
    /// received; dependency_timeout where a dependency may have begun and did not answer; deadline_expired where no
    /// time was left to call it. `None` where the failure is not overload: answer 502 or 503 without contract fields.
    pub fn for_caller(&self, hop: PassUp) -> Option<Overload> {
        let give_up = self.give_up()?;
        let passed_up = give_up.last.as_ref().map(|last| {
            last.overload.for_caller(&Relay {
                elapsed: clock::now().saturating_duration_since(last.received),
                called_as: hop.called_as,
                retried: give_up.attempts > 1,
                idempotent: hop.idempotent,
                side_effect: hop.side_effect,
            })
        });
        if self.is_unanswered() {
            // What an earlier attempt was told still paces new work.
            return Some(Overload {
                hint: passed_up.map_or(Hint::Absent, |overload| overload.hint),
                ..Overload::dependency_timeout()
            });
        }
        let too_late = give_up.attempts == 0 && give_up.why == StopReason::DeadlineExceeded;
        let done = if hop.side_effect {
            Applied::Maybe
        } else {
            Applied::No
        };
        passed_up.or_else(|| too_late.then(|| Overload::deadline_expired(done)))
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

/// What was refused, and why: an error and its causes in one line.
fn write_chain(f: &mut fmt::Formatter<'_>, error: &(dyn StdError + 'static)) -> fmt::Result {
    use fmt::Write as _;
    let mut next = Some(error);
    while let Some(error) = next {
        f.write_str(": ")?;
        for letter in error.to_string().chars() {
            if matches!(letter, ' '..='~') {
                f.write_char(letter)?;
            } else {
                write!(f, "{}", letter.escape_debug())?;
            }
        }
        next = error.source();
    }
    Ok(())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let give_up = match &self.0.kind {
            Kind::Unbuilt(what) => {
                write!(f, "the {what} could not be built")?;
                return self.build_error().map_or(Ok(()), |error| write_chain(f, error));
            }
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
            // Rounded up: who obeys it is not early.
            let ms = retry_in.as_nanos().div_ceil(1_000_000);
            write!(f, ", may come back in {ms} ms")?;
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
            Kind::Unbuilt(what) => {
                out.field("unbuilt", what);
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
        match (&self.0.kind, &self.0.cause) {
            // All of its chain is in the text already.
            (Kind::Unbuilt(_), _) | (_, Cause::Nothing) => None,
            (_, Cause::Refused(refused)) => Some(refused),
            (_, Cause::Other(error)) => Some(&**error),
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
