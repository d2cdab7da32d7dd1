//! reqwest as the transport under the loop.
//!
//! Two habits of reqwest do not fit a caller that owns its retries and its headers. It retries by itself, which is
//! turned off where the client is ours. And it takes our fields along when a redirect leads to another origin: a
//! tenant's name must not go there (REQ-07). So a client of ours stops at such a redirect, and the step across is
//! made here, without the tenant and without the credentials that reqwest would leave behind as well.

use std::error::Error as StdError;

use holdoff_contract::InvalidField;
use holdoff_contract::field_name::OVERLOAD_TENANT;
use holdoff_tower::{BoxError, Failure, Redirected, by_io_kind};
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, LOCATION, PROXY_AUTHORIZATION,
    TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use reqwest::{Request, Response, ResponseBuilderExt};
use url::Url;

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

/// A `reqwest::Client`, and who follows its redirects.
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

pub(crate) fn is_same_origin(a: &Url, b: &Url) -> bool {
    a.scheme() == b.scheme()
        && a.host_str() == b.host_str()
        && a.port_or_known_default() == b.port_or_known_default()
}

/// What a failure of reqwest means for sending again.
pub fn classify(error: &(dyn StdError + 'static)) -> Failure {
    if error.is::<TooManyRedirects>() {
        return Failure::Final;
    }
    if error.is::<InvalidField>() {
        return Failure::Unsendable;
    }
    match error.downcast_ref::<reqwest::Error>() {
        Some(error) if error.is_builder() => Failure::Unsendable,
        Some(error) if error.is_redirect() => Failure::Final,
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

/// Follows a redirect from one origin to another, and those that come after it, at most `max` of them. The request is
/// what was sent, and false says that its body was a stream and is gone.
pub(crate) async fn follow(
    client: &reqwest::Client,
    max: usize,
    (mut request, mut replay): (Request, bool),
    mut response: Response,
    mut next: Url,
) -> Result<Response, BoxError> {
    for _ in 0..max {
        if drops_body(response.status(), request.method()) {
            turn_into_get(&mut request);
            replay = true;
        }
        leave_origin(request.headers_mut());
        *request.url_mut() = next;
        let copy = match replay {
            true => request.try_clone(),
            false => None,
        };
        let Some(copy) = copy else {
            // As reqwest does it: what cannot be sent again is not redirected.
            return Ok(response);
        };
        response = client.execute(copy).await?;
        match crosses(&response) {
            Some(further) => next = further,
            None => return Ok(response),
        }
    }
    Err(TooManyRedirects { max }.into())
}

/// Where this response redirects to, if that is another origin.
pub(crate) fn crosses(response: &Response) -> Option<Url> {
    let redirects = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    if !redirects {
        return None;
    }
    let location = response.headers().get(LOCATION)?;
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

fn turn_into_get(request: &mut Request) {
    *request.method_mut() = Method::GET;
    *request.body_mut() = None;
    for name in [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, TRANSFER_ENCODING] {
        request.headers_mut().remove(name);
    }
}

/// What stays behind: the tenant (REQ-07), and what reqwest leaves behind too.
fn leave_origin(fields: &mut HeaderMap) {
    const COOKIE2: HeaderName = HeaderName::from_static("cookie2");
    for name in [
        OVERLOAD_TENANT,
        AUTHORIZATION,
        COOKIE,
        COOKIE2,
        PROXY_AUTHORIZATION,
        WWW_AUTHENTICATE,
    ] {
        fields.remove(name);
    }
}

/// As an `http` response that turns back into the same reqwest response, its URL included. `asked` is the URL that was
/// asked: an answer of another origin is marked [`Redirected`], so that its hint binds this call only (SEC-01).
pub fn into_http(response: Response, asked: &Url) -> http::Response<reqwest::Body> {
    let url = response.url().clone();
    let elsewhere = !is_same_origin(&url, asked);
    let mut response = http::Response::<reqwest::Body>::from(response);
    if let Ok(carrier) = http::Response::builder().url(url).body(()) {
        response
            .extensions_mut()
            .extend(carrier.into_parts().0.extensions);
    }
    if elsewhere {
        response.extensions_mut().insert(Redirected);
    }
    response
}
