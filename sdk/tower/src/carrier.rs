//! What the loop asks of a transport.
//!
//! tower hands requests on as `http::Request`s. A transport that has types of its own would have to turn each of them
//! around and back, and on loopback that costs more than all that the loop decides. So the loop is written against
//! [`Carrier`]: a tower service is one, and an adapter with a request type of its own brings another.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::time::Instant;

use bytes::Bytes;
use http::header::HOST;
use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use tower_service::Service;

use crate::body::{ReplayBody, ResponseBody};
use crate::clock;
use crate::error::BoxError;
use crate::options::AttemptContext;
use crate::origin;

/// One request that can be sent, as often as its body allows, in a transport's own types.
pub trait Carrier {
    /// The body of an answer that is looked into.
    type Body: Body<Data = Bytes> + Unpin;
    /// An answer.
    type Answer;
    /// Why there is none.
    type Error: Into<BoxError>;

    /// Whether [`Self::send`] ends at the limit that it is given by itself, with an error. The loop sets no timer of
    /// its own then.
    const KEEPS_LIMIT: bool = false;

    /// Scheme and authority that the request names, in one spelling: lower case, without the scheme's own port.
    fn origin(&self) -> (&str, Cow<'_, str>);

    /// The method.
    fn method(&self) -> &Method;

    /// The fields that the caller set.
    fn headers(&self) -> &HeaderMap;

    /// Whether the body can be sent again byte for byte.
    fn can_replay(&self) -> bool;

    /// Whether an attempt can be sent without waiting for [`Self::ready`].
    fn is_ready(&self) -> bool {
        true
    }

    /// Waits until an attempt can be sent, no longer than to the limit.
    fn ready(&mut self, limit: Option<Instant>) -> impl Future<Output = Readiness> + Send {
        let _ = limit;
        std::future::ready(Readiness::Ready)
    }

    /// Gives back what [`Self::ready`] got, before a wait: somebody else may want it.
    fn idle(&mut self) {}

    /// Makes the next attempt's request and lends its fields to be written: those that the caller set. `at` names the
    /// instance to ask where it is not the one that the request names. `None` where there is no request any more.
    fn next(&mut self, context: AttemptContext, at: Option<(&str, &str)>) -> Option<&mut HeaderMap>;

    /// Sends what [`Self::next`] made, once: the transport's own future, and none of ours around it. `None` where there is
    /// no request.
    fn send(&mut self) -> Option<impl Future<Output = Result<Self::Answer, Self::Error>> + Send>;

    /// What is told of why there is no answer.
    fn told(error: Self::Error) -> BoxError {
        error.into()
    }

    /// Whether [`Self::follow`] is to be asked for the answer that counts, since this one leads on to it.
    fn leads_on(&self, answer: &Self::Answer) -> bool {
        let _ = answer;
        false
    }

    /// Follows an answer that leads on. `fields` writes the fields of the attempt again into those that the caller set.
    fn follow(
        &mut self,
        answer: Self::Answer,
        limit: Option<Instant>,
        fields: &(dyn Fn(&mut HeaderMap) + Sync),
    ) -> impl Future<Output = Result<Self::Answer, BoxError>> + Send;

    /// An answer's status.
    fn status(answer: &Self::Answer) -> StatusCode;

    /// An answer's extensions.
    fn extensions_mut(answer: &mut Self::Answer) -> &mut Extensions;

    /// Opens an answer, so that it can be looked into; marked [`crate::Redirected`] where it comes from another origin
    /// than was asked.
    fn open(&self, answer: Self::Answer) -> Response<Self::Body>;
}

/// What a call brought.
pub enum Answered<A, B: Body> {
    /// As the transport handed it over.
    AsItCame(A),
    /// It had to be looked into; what was read of it is put back. Boxed, since most are not.
    LookedInto(Box<Response<ResponseBody<B>>>),
}

/// Whether an attempt can be sent.
#[derive(Debug)]
#[must_use]
pub enum Readiness {
    /// It can, now.
    Ready,
    /// It cannot within the limit.
    RanOut,
    /// It cannot: this is what the next send brings.
    Broken(BoxError),
}

/// Waits for the future, but no longer than until then: for carriers that keep their limit piece by piece. `None` where
/// the limit ran out.
pub async fn within<F: Future>(limit: Option<Instant>, future: F) -> Option<F::Output> {
    clock::within(limit, future).await.ok()
}

/// A tower service and the request that goes through it.
pub(crate) struct Tower<S, B> {
    service: S,
    /// It was polled ready, and not called since.
    ready: bool,
    parts: Parts,
    body: Option<B>,
    replay: bool,
    next: Option<Request<B>>,
}

impl<S, B: ReplayBody> Tower<S, B> {
    /// `ready` says that the service was polled ready.
    pub(crate) fn new(service: S, ready: bool, request: Request<B>) -> Self {
        let (parts, body) = request.into_parts();
        Self {
            service,
            ready,
            parts,
            replay: body.can_replay(),
            body: Some(body),
            next: None,
        }
    }
}

impl<S, B, RB> Carrier for Tower<S, B>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: ReplayBody + Send,
    RB: Body<Data = Bytes> + Send + Unpin,
{
    type Body = RB;
    type Answer = Response<RB>;
    type Error = S::Error;

    fn origin(&self) -> (&str, Cow<'_, str>) {
        origin::key(&self.parts.uri)
    }

    fn method(&self) -> &Method {
        &self.parts.method
    }

    fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    fn can_replay(&self) -> bool {
        self.replay
    }

    fn is_ready(&self) -> bool {
        self.ready
    }

    /// Before the policy is asked, so that the deadline which a send carries is still true.
    async fn ready(&mut self, limit: Option<Instant>) -> Readiness {
        if self.ready {
            return Readiness::Ready;
        }
        match clock::within(limit, poll_fn(|cx| self.service.poll_ready(cx))).await {
            Ok(Ok(())) => {
                self.ready = true;
                Readiness::Ready
            }
            Ok(Err(error)) => Readiness::Broken(error.into()),
            // The policy sees that time is up.
            Err(clock::RanOut) => Readiness::RanOut,
        }
    }

    fn idle(&mut self) {
        if std::mem::take(&mut self.ready) {
            // A clone is not ready; dropping the original is what gives the place up.
            self.service = self.service.clone();
        }
    }

    fn next(&mut self, context: AttemptContext, at: Option<(&str, &str)>) -> Option<&mut HeaderMap> {
        let body = match self.body.as_ref()?.replay() {
            Some(copy) => copy,
            None => self.body.take()?,
        };
        let mut parts = self.parts.clone();
        if let Some(uri) = at.and_then(|at| elsewhere(&parts.uri, at)) {
            parts.uri = uri;
            // It named the first one.
            parts.headers.remove(HOST);
        }
        parts.extensions.insert(context);
        let next = self.next.insert(Request::from_parts(parts, body));
        Some(next.headers_mut())
    }

    fn send(&mut self) -> Option<impl Future<Output = Result<Self::Answer, S::Error>> + Send> {
        let request = self.next.take()?;
        self.ready = false;
        Some(self.service.call(request))
    }

    async fn follow(
        &mut self,
        answer: Response<RB>,
        _: Option<Instant>,
        _: &(dyn Fn(&mut HeaderMap) + Sync),
    ) -> Result<Response<RB>, BoxError> {
        Ok(answer)
    }

    fn status(answer: &Self::Answer) -> StatusCode {
        answer.status()
    }

    fn extensions_mut(answer: &mut Self::Answer) -> &mut Extensions {
        answer.extensions_mut()
    }

    fn open(&self, answer: Self::Answer) -> Response<RB> {
        answer
    }
}

/// The same resource at another origin.
fn elsewhere(uri: &Uri, (scheme, authority): (&str, &str)) -> Option<Uri> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Uri::builder()
        .scheme(scheme)
        .authority(authority)
        .path_and_query(path)
        .build()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use http_body_util::Empty;

    use super::*;

    #[test]
    fn a_place_that_was_polled_ready_is_given_up_before_a_wait() {
        let held = Arc::new(());
        let place = Arc::downgrade(&held);
        let mut carrier = Tower::new(Place(held), true, Request::new(()));
        carrier.idle();
        assert!(!carrier.ready);
        assert_eq!(place.strong_count(), 0);
    }

    #[test]
    fn the_same_resource_is_named_at_another_instance() {
        let uri: Uri = "http://a:1/x?y=1".parse().unwrap();
        assert_eq!(elsewhere(&uri, ("https", "b:2")).unwrap(), "https://b:2/x?y=1");
    }

    /// Holds a place, which its clones do not have, as tower's own limits do.
    struct Place(Arc<()>);

    impl Clone for Place {
        fn clone(&self) -> Self {
            let _ = &self.0;
            Self(Arc::default())
        }
    }

    impl Service<Request<()>> for Place {
        type Response = Response<Empty<Bytes>>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            std::future::ready(Ok(Response::default()))
        }
    }
}
