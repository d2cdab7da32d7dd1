//! One reqwest request on its way through the loop.
//!
//! Almost every request is sent once and answered. So the request that the caller made is the one that is sent, as it
//! is, and only a copy is kept, for a retry or a redirect that will mostly not come: sharing its body, and made before
//! our own fields stand in it, since a table without fields costs nothing to copy.

use std::borrow::Cow;
use std::future::Future;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdoff_tower::carrier::{Carrier, within};
use holdoff_tower::{AttemptContext, BoxError, Redirected};
use http::header::{HOST, HeaderMap};
use http::{Extensions, Method, StatusCode};
use reqwest::{Request, Response};
use url::{Position, Url};

use crate::body::Answer;
use crate::invalid::told;
use crate::transport::{Redirects, Transport, crosses, follow, is_same_origin};

/// Who made a request, and so what may be in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// Our builder, which leaves reqwest's settings of single requests alone.
    Builder,
    /// Somebody else: only reqwest can copy what it was set up with.
    Others,
}

/// A request, and what is needed to send it again.
#[derive(Debug)]
pub(crate) struct Parcel<'a> {
    transport: &'a Transport,
    maker: Maker,
    /// As the caller made it; without the body where that is a stream.
    kept: Box<Request>,
    replay: bool,
    /// The request to be sent next: at first the caller's own.
    next: Option<Request>,
    begun: bool,
    /// Another instance than the one that the caller's URL names.
    elsewhere: Option<Box<Url>>,
    time_left: Option<Duration>,
}

impl<'a> Parcel<'a> {
    /// Inlined, so that the request is not moved from place to place.
    #[inline(always)]
    pub(crate) fn new(transport: &'a Transport, mut request: Request, maker: Maker) -> Self {
        let (kept, replay) = keep(&mut request, maker);
        Self {
            transport,
            maker,
            kept,
            replay,
            next: Some(request),
            begun: false,
            elsewhere: None,
            time_left: None,
        }
    }

    fn asked(&self) -> &Url {
        self.elsewhere.as_deref().unwrap_or_else(|| self.kept.url())
    }

    /// What was sent, made anew for a redirect.
    fn sent(&self, fields: &(dyn Fn(&mut HeaderMap) + Sync)) -> Option<Request> {
        let mut sent = *copy(&self.kept, self.maker)?;
        *sent.url_mut() = self.asked().clone();
        fields(sent.headers_mut());
        if self.time_left.is_some() {
            *sent.timeout_mut() = self.time_left;
        }
        Some(sent)
    }
}

/// What is kept of a request, and whether that is all of it.
fn keep(request: &mut Request, maker: Maker) -> (Box<Request>, bool) {
    if maker == Maker::Builder && request.body().is_none() {
        return (bare(request), true);
    }
    if let Some(copy) = copy(request, maker) {
        return (copy, true);
    }
    let stream = request.body_mut().take();
    let without = copy(request, maker).unwrap_or_else(|| bare(request));
    *request.body_mut() = stream;
    (without, false)
}

/// Up to so many bytes a body is copied: reqwest can share it, but does so only together with a table of settings, which
/// costs more than copying these.
const SHORT_BODY: usize = 4096;

/// The same request again; `None` where its body is a stream. Boxed where it is made, since a request is large.
fn copy(request: &Request, maker: Maker) -> Option<Box<Request>> {
    if maker == Maker::Others {
        return request.try_clone().map(Box::new);
    }
    let Some(body) = request.body() else {
        return Some(bare(request));
    };
    let bytes = body.as_bytes()?;
    if bytes.len() > SHORT_BODY {
        return request.try_clone().map(Box::new);
    }
    let mut copy = bare(request);
    *copy.body_mut() = Some(Bytes::copy_from_slice(bytes).into());
    Some(copy)
}

/// The same request without its body and without reqwest's settings.
fn bare(request: &Request) -> Box<Request> {
    let mut copy = Box::new(Request::new(request.method().clone(), request.url().clone()));
    *copy.version_mut() = request.version();
    if !request.headers().is_empty() {
        *copy.headers_mut() = request.headers().clone();
    }
    copy
}

/// The same resource at another origin.
fn at(url: &Url, (scheme, authority): (&str, &str)) -> Option<Url> {
    let path = &url[Position::BeforePath..Position::AfterQuery];
    Url::parse(&format!("{scheme}://{authority}{path}")).ok()
}

impl Carrier for Parcel<'_> {
    type Body = Answer;
    type Answer = Response;
    type Error = reqwest::Error;

    /// reqwest is given what is left of the call's deadline as a limit of its own.
    const KEEPS_LIMIT: bool = true;

    fn origin(&self) -> (&str, Cow<'_, str>) {
        // A URL has one spelling already.
        let url = self.kept.url();
        let authority = &url[Position::BeforeHost..Position::AfterPort];
        (url.scheme(), Cow::Borrowed(authority))
    }

    fn method(&self) -> &Method {
        self.kept.method()
    }

    fn headers(&self) -> &HeaderMap {
        self.kept.headers()
    }

    fn can_replay(&self) -> bool {
        self.replay
    }

    fn next(&mut self, context: AttemptContext, other: Option<(&str, &str)>) -> Option<&mut HeaderMap> {
        if std::mem::replace(&mut self.begun, true) {
            self.next = if self.replay {
                copy(&self.kept, self.maker).map(|copy| *copy)
            } else {
                None
            };
        }
        self.elsewhere = other.and_then(|other| at(self.kept.url(), other)).map(Box::new);
        self.time_left = context.time_left;
        let next = self.next.as_mut()?;
        if let Some(url) = &self.elsewhere {
            next.url_mut().clone_from(url);
            // It named the first one.
            next.headers_mut().remove(HOST);
        }
        if self.time_left.is_some() {
            // It also covers the reading of the response's body, after the head was handed on.
            *next.timeout_mut() = self.time_left;
        }
        Some(next.headers_mut())
    }

    #[inline]
    fn send(&mut self) -> Option<impl Future<Output = reqwest::Result<Response>> + Send> {
        Some(self.transport.client.execute(self.next.take()?))
    }

    fn told(error: reqwest::Error) -> BoxError {
        told(error)
    }

    fn leads_on(&self, answer: &Response) -> bool {
        matches!(self.transport.redirects, Redirects::Ours { .. }) && crosses(answer).is_some()
    }

    async fn follow(
        &mut self,
        answer: Response,
        limit: Option<Instant>,
        fields: &(dyn Fn(&mut HeaderMap) + Sync),
    ) -> Result<Response, BoxError> {
        let Redirects::Ours { max } = self.transport.redirects else {
            return Ok(answer);
        };
        let Some((next, sent)) = crosses(&answer).zip(self.sent(fields)) else {
            return Ok(answer);
        };
        let followed = follow(&self.transport.client, max, (sent, self.replay), answer, next);
        let in_time = Box::pin(within(limit, followed)).await;
        in_time.ok_or("the time limit ran out during a redirect")?
    }

    fn status(answer: &Response) -> StatusCode {
        answer.status()
    }

    fn extensions_mut(answer: &mut Response) -> &mut Extensions {
        answer.extensions_mut()
    }

    fn open(&self, mut answer: Response) -> http::Response<Answer> {
        let mut head = http::Response::new(());
        *head.status_mut() = answer.status();
        *head.version_mut() = answer.version();
        *head.headers_mut() = std::mem::take(answer.headers_mut());
        *head.extensions_mut() = std::mem::take(answer.extensions_mut());
        if !is_same_origin(self.asked(), answer.url()) {
            head.extensions_mut().insert(Redirected);
        }
        head.map(|()| Answer::Whole(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_resource_is_named_at_another_instance() {
        let url = Url::parse("http://user@a:1/x?y=1#z").unwrap();
        assert_eq!(at(&url, ("https", "b:2")).unwrap().as_str(), "https://b:2/x?y=1");
    }
}
