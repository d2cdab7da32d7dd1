//! The layer for tonic clients.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use holdoff_tower::{
    BoxError, Counters, Failure, Origin, OverloadLayer, OverloadLayerBuilder, OverloadService, ResponseBody,
    by_io_kind,
};
use http::{Request, Response, Uri};
use http_body::Body;
use tonic::Status;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{AnswerBody, CallBody};
use crate::details;
use crate::dialect::Grpc;
use crate::status::of_error;

/// Bytes of a request that are kept for sending it again: 1 MiB. Requests that are tried again are small; a large one
/// costs its memory while it is under way.
pub const DEFAULT_REPLAY_LIMIT: usize = 1024 * 1024;

/// Makes tonic clients obey overload: put it around a `Channel`, and give the result to the generated client.
/// Services made by one layer, and clones of it, share retry budgets, hold-offs and counters.
///
/// Unary calls, and any other whose request is there at once and not longer than the replay limit, are tried again
/// by the contract's rules; a stream of requests is sent once. gRPC methods are POSTs, so a call whose fate is not
/// known is tried again only where [`holdoff_tower::CallOptions::safety`] or an idempotency key says that it may be.
#[derive(Clone, Debug)]
pub struct ClientLayer {
    layer: OverloadLayer,
    replay_limit: usize,
}

/// A tonic channel, or any service like it, whose caller obeys overload; made by [`ClientLayer`].
#[derive(Clone, Debug)]
pub struct ClientService<S> {
    inner: OverloadService<Sender<S>>,
    replay_limit: usize,
    /// Whom calls without an origin of their own go to.
    origin: Uri,
}

impl ClientLayer {
    /// A layer with the contract's defaults.
    pub fn new() -> Self {
        Self::with(OverloadLayer::builder())
    }

    /// A layer set up by the builder of `holdoff-tower`: policy, default deadline and tier, tenant, trusted origins.
    /// What its errors mean, and how it reads and writes, is set here.
    pub fn with(builder: OverloadLayerBuilder) -> Self {
        Self {
            layer: builder.dialect(Grpc).classify(classify).build(),
            replay_limit: DEFAULT_REPLAY_LIMIT,
        }
    }

    /// Keeps at most so many bytes of a request; a longer one is sent once. Default: [`DEFAULT_REPLAY_LIMIT`].
    #[must_use]
    pub fn replay_limit(mut self, bytes: usize) -> Self {
        self.replay_limit = bytes;
        self
    }

    /// The counts of all calls through this layer.
    pub fn counters(&self) -> &Counters {
        self.layer.counters()
    }
}

impl Default for ClientLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl ClientLayer {
    /// Wraps the channel to this origin. Channels to one origin share its budget and hold-offs, and the tenant goes
    /// out where that origin is trusted.
    pub fn layer_to<S>(&self, origin: &Origin, channel: S) -> ClientService<S> {
        self.wrap(origin.to_string(), channel)
    }

    fn wrap<S>(&self, origin: String, channel: S) -> ClientService<S> {
        ClientService {
            inner: self.layer.layer(Sender(channel)),
            replay_limit: self.replay_limit,
            // Scheme and authority of an origin, or of our own making, are a URI.
            origin: origin.parse().unwrap_or_default(),
        }
    }
}

/// A channel does not say where it leads, and the calls of a generated client name a path only. So each channel that is
/// wrapped counts as a destination of its own, which what one server says about itself does not leave (SEC-01); use
/// [`ClientLayer::layer_to`] where two channels lead to one server. Calls that name their origin themselves
/// (`with_origin` of a generated client) go by that.
impl<S> Layer<S> for ClientLayer {
    type Service = ClientService<S>;

    fn layer(&self, channel: S) -> ClientService<S> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.wrap(format!("http://channel-{number}.invalid"), channel)
    }
}

impl<S> ClientService<S> {
    /// The counts of all calls through this service's layer.
    pub fn counters(&self) -> &Counters {
        self.inner.counters()
    }
}

impl<S, RB> Service<Request<tonic::body::Body>> for ClientService<S>
where
    S: Service<Request<tonic::body::Body>, Response = Response<RB>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    RB: Body<Data = Bytes> + Send + Unpin + 'static,
    RB::Error: Send,
{
    type Response = Response<AnswerBody<ResponseBody<RB>>>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.inner.poll_ready(cx).map_err(of_error)
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        // The service that was polled ready is the one to use.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let limit = self.replay_limit;
        let origin = self.origin.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            if parts.uri.authority().is_none()
                && let Some(uri) = at(origin, &parts.uri)
            {
                let path = std::mem::replace(&mut parts.uri, uri);
                parts.extensions.insert(PathOnly(path));
            }
            let body = CallBody::gather(body, limit).await;
            let answer = inner.call(Request::from_parts(parts, body)).await;
            let mut response = answer.map_err(of_error)?;
            details::scrub(response.headers_mut());
            Ok(response.map(AnswerBody::new))
        })
    }
}

/// The URI as the caller gave it: where it goes is for the channel to say.
#[derive(Clone, Debug)]
struct PathOnly(Uri);

/// The path at an origin.
fn at(origin: Uri, path: &Uri) -> Option<Uri> {
    let mut parts = origin.into_parts();
    parts.path_and_query = Some(path.path_and_query()?.clone());
    Uri::from_parts(parts).ok()
}

/// Hands requests to a service that takes tonic's own body.
#[derive(Clone, Debug)]
pub(crate) struct Sender<S>(S);

impl<S> Service<Request<CallBody>> for Sender<S>
where
    S: Service<Request<tonic::body::Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<CallBody>) -> S::Future {
        if let Some(PathOnly(path)) = request.extensions_mut().remove() {
            *request.uri_mut() = path;
        }
        self.0.call(request.map(tonic::body::Body::new))
    }
}

/// Not connected where no connection was made, or where the server says by HTTP/2 that it never looked at the
/// request; else broken.
fn classify(error: &(dyn StdError + 'static)) -> Failure {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            let leaving = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
            if refused || leaving {
                return Failure::NotConnected;
            }
        }
        next = error.source();
    }
    by_io_kind(error)
}
