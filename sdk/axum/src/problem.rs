//! What a handler answers when it cannot serve.

use std::error::Error as StdError;
use std::fmt;

use axum_core::body::Body;
use axum_core::response::{IntoResponse, Response};
use holdoff_contract::write::{self, Audience};
use holdoff_contract::{Applied, CalledAs, Hint, Overload, Retry};
use holdoff_tower::{Error, Inbound, PassUp};
use http::{HeaderValue, StatusCode, header};

/// An answer in place of the work: a refusal in the words of the contract, or a plain failure without them.
///
/// Made from a Holdoff [`Error`] by `?`, from a `reqwest::Error` while the answer is read (feature `reqwest`), from several with [`Problem::combine`], or from an [`Overload`] that this
/// service decided itself (hop 0, INT-20). It takes what the caller may be told, and what was done already, from the
/// request being answered ([`Inbound::current`]); outside of [`crate::ContextLayer`] it answers a stranger whose
/// request may not be repeated, which is the stricter reading.
#[derive(Debug)]
#[must_use = "a problem that is not returned is not answered"]
pub struct Problem {
    kind: Kind,
    /// The request being answered.
    inbound: Option<Inbound>,
    audience: Audience,
    /// This service's own hint beside it.
    own_hint: Hint,
    /// This service tried again in a way that the error does not know of.
    retried: bool,
}

#[derive(Debug)]
enum Kind {
    /// This service's own refusal.
    Overload(Box<Overload>),
    /// A call that ended without an answer. Passed up when it is needed, so that it ages until then.
    Call(Box<Error>, CalledAs),
    /// An answer that came and cannot be used, with the status that says so.
    #[cfg(feature = "reqwest")]
    Unusable(StatusCode, reqwest::Error),
    /// Several of these, at least one.
    Several(Vec<Problem>),
}

impl Problem {
    fn new(kind: Kind, inbound: Option<Inbound>) -> Self {
        let audience = inbound.as_ref().map_or(Audience::Stranger, Inbound::audience);
        Self {
            kind,
            inbound,
            audience,
            own_hint: Hint::Absent,
            retried: false,
        }
    }

    /// One answer for several failures (INT-18): where any of them is overload, the first of those names the
    /// condition, with the largest delay and the smallest permission of all. `None` for none.
    pub fn combine(several: impl IntoIterator<Item = impl Into<Self>>) -> Option<Self> {
        let problems: Vec<Self> = several.into_iter().map(Into::into).collect();
        let inbound = problems.first()?.inbound.clone();
        Some(Self::new(Kind::Several(problems), inbound))
    }

    /// The dependency was called with another identity than the layer's [`crate::ContextLayer::called_as`] says.
    pub fn called_as(mut self, called_as: CalledAs) -> Self {
        match &mut self.kind {
            Kind::Call(_, before) => *before = called_as,
            #[cfg(feature = "reqwest")]
            Kind::Unusable(..) => {}
            Kind::Overload(_) | Kind::Several(_) => {}
        }
        self
    }

    /// This service has a hint of its own as well: the larger goes out (CONTRACT section 6.4).
    pub fn own_hint(mut self, hint: Hint) -> Self {
        self.own_hint = hint;
        self
    }

    /// This service tried again by itself, at another instance, say: its caller must not (INT-04). Retries that a
    /// Holdoff client made are known without it.
    pub fn retried(mut self) -> Self {
        self.retried = true;
        self
    }

    /// Who reads it. Default: as the request being answered has it, else a stranger.
    pub fn audience(mut self, audience: Audience) -> Self {
        self.audience = audience;
        self
    }

    /// The refusal as it goes out now; `None` where the failure is not overload.
    pub fn overload(&self) -> Option<Overload> {
        let hop = self
            .inbound
            .as_ref()
            .map_or(UNKNOWN, |inbound| inbound.pass_up(false));
        let mut overload = match &self.kind {
            Kind::Overload(overload) => (**overload).clone(),
            Kind::Call(error, called_as) => error.for_caller(PassUp {
                called_as: *called_as,
                ..hop
            })?,
            #[cfg(feature = "reqwest")]
            Kind::Unusable(..) => return None,
            Kind::Several(problems) => Overload::combine(problems.iter().filter_map(Self::overload))?,
        };
        overload.hint = overload.hint.combine(self.own_hint);
        if hop.side_effect {
            overload.applied = Applied::Maybe;
        }
        if self.retried || (hop.side_effect && !hop.idempotent) {
            overload.retry = Retry::No;
        }
        Some(overload)
    }

    /// The error it was made from, the first of several; `None` for a refusal of this service's own.
    pub fn error(&self) -> Option<&Error> {
        match &self.kind {
            Kind::Overload(_) => None,
            #[cfg(feature = "reqwest")]
            Kind::Unusable(..) => None,
            Kind::Call(error, _) => Some(error),
            Kind::Several(problems) => problems.iter().find_map(Self::error),
        }
    }

    /// The status where it is not overload: 500 for a request of ours that could not be built, 502 for a dependency
    /// that was not reached.
    fn plain_status(&self) -> StatusCode {
        #[cfg(feature = "reqwest")]
        if let Kind::Unusable(status, _) = self.kind {
            return status;
        }
        match self.error() {
            Some(error) if error.is_request() => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_GATEWAY,
        }
    }
}

/// Without a context: this service's own identity, a request that may not be repeated, nothing done before.
const UNKNOWN: PassUp = PassUp {
    called_as: CalledAs::OwnService,
    idempotent: false,
    side_effect: false,
};

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let inbound = Inbound::current();
        let hop = inbound.as_ref().map_or(UNKNOWN, |inbound| inbound.pass_up(false));
        Self::new(Kind::Call(Box::new(error), hop.called_as), inbound)
    }
}

impl From<Overload> for Problem {
    fn from(overload: Overload) -> Self {
        Self::new(Kind::Overload(Box::new(overload)), Inbound::current())
    }
}

/// What goes wrong after a dependency answered: its body does not come in time (504 dependency_timeout), breaks off or
/// is not what was expected, or [`reqwest::Response::error_for_status`] does not like the status (502 without contract
/// fields: it is not overload). A request that could not be built is this service's own fault: 500.
#[cfg(feature = "reqwest")]
impl From<reqwest::Error> for Problem {
    fn from(error: reqwest::Error) -> Self {
        let kind = if error.is_timeout() {
            Kind::Overload(Box::new(Overload::dependency_timeout()))
        } else if error.is_builder() {
            Kind::Unusable(StatusCode::INTERNAL_SERVER_ERROR, error)
        } else {
            Kind::Unusable(StatusCode::BAD_GATEWAY, error)
        };
        Self::new(kind, Inbound::current())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        if let Some(overload) = self.overload() {
            let encoded = write::overload(&overload, self.audience);
            let mut response = Response::new(Body::from(encoded.body));
            *response.status_mut() = encoded.status;
            *response.headers_mut() = encoded.headers;
            return response;
        }
        // What went wrong is for our own log: a stranger is told the status only.
        let status = self.plain_status();
        let title = status.canonical_reason().unwrap_or("Error");
        let body = format!(
            r#"{{"type":"about:blank","title":"{title}","status":{}}}"#,
            status.as_u16()
        );
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let (kind, cache) = ("application/problem+json", "no-store");
        for (name, value) in [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, cache)] {
            response
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// One line, safe to log.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Overload(overload) => write!(f, "{overload}"),
            Kind::Call(error, _) => write!(f, "{error}"),
            // Without its URL, which may hold secrets; the source has the rest.
            #[cfg(feature = "reqwest")]
            Kind::Unusable(..) => f.write_str("the answer of a dependency cannot be used"),
            Kind::Several(problems) => {
                for (index, problem) in problems.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "; " })?;
                    write!(f, "{problem}")?;
                }
                Ok(())
            }
        }
    }
}

impl StdError for Problem {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        #[cfg(feature = "reqwest")]
        if let Kind::Unusable(_, error) = &self.kind {
            return Some(error);
        }
        self.error().and_then(StdError::source)
    }
}
