//! reqwest as the service under the layer.
//!
//! Two habits of reqwest do not fit a caller that owns its retries and its headers. It retries by itself, which is
//! turned off where the client is ours. And it takes our fields along when a redirect leads to another origin: a
//! tenant's name must not go there (REQ-07). So a client of ours stops at such a redirect, and the step across is
//! made here, without the tenant and without the credentials that reqwest would leave behind as well.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use holdoff_contract::field_name::OVERLOAD_TENANT;
use holdoff_tower::{AttemptContext, BoxError, Failure, Redirected, ReplayBody, by_io_kind};
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, LOCATION, PROXY_AUTHORIZATION,
    TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::{Extensions, HeaderName, Method, Request, Response, StatusCode, Uri};
use reqwest::ResponseBuilderExt;
use tower_service::Service;
use url::{Position, Url};

use crate::body::{Answer, Body, Payload};

/// reqwest's own default.
pub(crate) const MAX_REDIRECTS: usize = 10;

/// Who follows a redirect to another origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redirects {
    /// This transport: the client was built with [`same_origin`].
    Ours { max: usize },
    /// The client, or nobody: it was handed to us as it is.
    Theirs,
}

/// A redirect chain that does not end.
#[derive(Debug, thiserror::Error)]
#[error("more than {max} redirects")]
pub(crate) struct TooManyRedirects {
    max: usize,
}

/// A `reqwest::Client` as a service over `http` types.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    pub(crate) client: reqwest::Client,
    pub(crate) redirects: Redirects,
}

/// The redirect policy of a client of ours: follow within an origin, stop before another.
pub(crate) fn same_origin(max: usize) -> reqwest::redirect::Policy {
    reqwest::redirect::Policy::custom(move |attempt| {
        let crosses = attempt
            .previous()
            .last()
            .is_none_or(|last| !is_same_origin(last, attempt.url()));
        if crosses {
            attempt.stop()
        } else if attempt.previous().len() > max {
            attempt.error(TooManyRedirects { max })
        } else {
            attempt.follow()
        }
    })
}

fn is_same_origin(a: &Url, b: &Url) -> bool {
    a.scheme() == b.scheme()
        && a.host_str() == b.host_str()
        && a.port_or_known_default() == b.port_or_known_default()
}

/// The same question of the URI that was asked, which was made of a URL: one spelling.
fn is_origin_of(asked: &Uri, url: &Url) -> bool {
    if asked.scheme_str() != Some(url.scheme()) {
        return false;
    }
    let spelled = &url[Position::BeforeHost..Position::AfterPort];
    if asked.authority().is_some_and(|asked| asked.as_str() == spelled) {
        return true;
    }
    let port = match asked.port_u16() {
        None if url.port().is_none() => url.port_or_known_default(),
        port => port,
    };
    asked.host() == url.host_str() && port == url.port_or_known_default()
}

/// The URL to send to: the call's own, unless this attempt goes to another instance (CLI-07), which only the URI names.
fn at(asked: &Uri, url: Url) -> Result<Url, url::ParseError> {
    if is_origin_of(asked, &url) {
        return Ok(url);
    }
    Url::parse(&asked.to_string())
}

/// What a failure of reqwest means for sending again.
pub fn classify(error: &(dyn StdError + 'static)) -> Failure {
    if error.is::<TooManyRedirects>() {
        return Failure::Final;
    }
    match error.downcast_ref::<reqwest::Error>() {
        Some(error) if error.is_builder() || error.is_redirect() => Failure::Final,
        Some(error) if error.is_connect() || is_unprocessed(error) => Failure::NotConnected,
        Some(_) => Failure::Broken,
        None => by_io_kind(error),
    }
}

/// Did an HTTP/2 server say that it never looked at the request (RFC 9113 sections 6.8 and 8.7)? reqwest's own
/// retries, which are off, would repeat these.
#[cfg(feature = "http2")]
fn is_unprocessed(error: &reqwest::Error) -> bool {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            let leaving = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
            return error.is_remote() && (refused || leaving);
        }
        next = error.source();
    }
    false
}

#[cfg(not(feature = "http2"))]
fn is_unprocessed(_: &reqwest::Error) -> bool {
    false
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut parts, Body { payload, url }) = request.into_parts();
        let asked = parts.uri.clone();
        let url = match at(&asked, url) {
            Ok(url) => url,
            Err(error) => return Box::pin(async move { Err(error.into()) }),
        };
        let context = parts.extensions.remove::<AttemptContext>();
        let limit = context.and_then(|context| context.time_left);
        if parts.extensions.is_empty() {
            // An empty table costs as much to clone as a full one.
            parts.extensions = Extensions::new();
        }
        match self.redirects {
            Redirects::Theirs => {
                let sent = send(&self.client, parts, payload, url, limit);
                Box::pin(async move { Ok(whole(sent?.await?, &asked)) })
            }
            Redirects::Ours { max } => {
                let (client, copy) = (self.client.clone(), payload.replay());
                let kept = parts.clone();
                let sent = send(&client, parts, payload, url, limit);
                Box::pin(async move {
                    let mut response = sent?.await?;
                    if let Some(next) = crosses(&response) {
                        response = Box::pin(follow(client, max, limit, kept, copy, response, next)).await?;
                    }
                    Ok(whole(response, &asked))
                })
            }
        }
    }
}

/// Sends once through reqwest, with what is left of the call's deadline as reqwest's own limit too: it also covers
/// the reading of the response's body, after the head was handed on.
fn send(
    client: &reqwest::Client,
    parts: Parts,
    payload: Payload,
    url: Url,
    limit: Option<Duration>,
) -> Result<impl Future<Output = reqwest::Result<reqwest::Response>> + Send + use<>, BoxError> {
    let mut request = if !parts.extensions.is_empty() {
        // What a reqwest request was set up with is in its extensions, which only reqwest can hand back.
        let mut request = reqwest::Request::try_from(Request::from_parts(parts, payload))?;
        *request.url_mut() = url;
        request
    } else {
        let mut request = reqwest::Request::new(parts.method, url);
        *request.version_mut() = parts.version;
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(payload.into());
        request
    };
    if let Some(limit) = limit {
        *request.timeout_mut() = Some(limit);
    }
    Ok(client.execute(request))
}

/// Follows a redirect from one origin to another, and those that come after it, at most `max` of them.
async fn follow(
    client: reqwest::Client,
    max: usize,
    limit: Option<Duration>,
    mut parts: Parts,
    mut payload: Option<Payload>,
    mut response: reqwest::Response,
    mut next: Url,
) -> Result<reqwest::Response, BoxError> {
    for _ in 0..max {
        if drops_body(response.status(), &parts.method) {
            turn_into_get(&mut parts);
            payload = Some(Payload::Bytes(bytes::Bytes::new()));
        }
        let Some(copy) = payload.as_ref().and_then(ReplayBody::replay) else {
            // As reqwest does it: what cannot be sent again is not redirected.
            return Ok(response);
        };
        leave_origin(&mut parts);
        response = send(&client, parts.clone(), copy, next, limit)?.await?;
        match crosses(&response) {
            Some(further) => next = further,
            None => return Ok(response),
        }
    }
    Err(TooManyRedirects { max }.into())
}

/// Where this response redirects to, if that is another origin.
fn crosses(response: &reqwest::Response) -> Option<Url> {
    let redirects = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let location = response.headers().get(LOCATION).filter(|_| redirects)?;
    let next = response.url().join(location.to_str().ok()?).ok()?;
    let follows = matches!(next.scheme(), "http" | "https") && !is_same_origin(&next, response.url());
    follows.then_some(next)
}

/// RFC 9110 sections 15.4.2 to 15.4.4, as browsers and reqwest do it.
fn drops_body(status: StatusCode, method: &Method) -> bool {
    match status {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::POST,
        StatusCode::SEE_OTHER => *method != Method::HEAD,
        _ => false,
    }
}

fn turn_into_get(parts: &mut Parts) {
    parts.method = Method::GET;
    for name in [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
}

/// What stays behind: the tenant (REQ-07), and what reqwest leaves behind too.
fn leave_origin(parts: &mut Parts) {
    const COOKIE2: HeaderName = HeaderName::from_static("cookie2");
    for name in [
        OVERLOAD_TENANT,
        AUTHORIZATION,
        COOKIE,
        COOKIE2,
        PROXY_AUTHORIZATION,
        WWW_AUTHENTICATE,
    ] {
        parts.headers.remove(name);
    }
}

/// As an `http` response whose body is the rest of the same reqwest response.
fn whole(mut response: reqwest::Response, asked: &Uri) -> Response<Answer> {
    let mut head = Response::new(());
    *head.status_mut() = response.status();
    *head.version_mut() = response.version();
    *head.headers_mut() = std::mem::take(response.headers_mut());
    *head.extensions_mut() = std::mem::take(response.extensions_mut());
    if !is_origin_of(asked, response.url()) {
        head.extensions_mut().insert(Redirected);
    }
    head.map(|()| Answer::Whole(response))
}

/// As an `http` response that turns back into the same reqwest response, its URL included. `asked` is the URL that was
/// asked: an answer of another origin is marked [`Redirected`], so that its hint binds this call only (SEC-01).
pub fn into_http(response: reqwest::Response, asked: &Url) -> Response<reqwest::Body> {
    let url = response.url().clone();
    let elsewhere = !is_same_origin(&url, asked);
    let mut response = Response::<reqwest::Body>::from(response);
    if let Ok(carrier) = Response::builder().url(url).body(()) {
        response
            .extensions_mut()
            .extend(carrier.into_parts().0.extensions);
    }
    if elsewhere {
        response.extensions_mut().insert(Redirected);
    }
    response
}
