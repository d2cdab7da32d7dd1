//! The layer for tonic clients.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use holdoff_tower::{
    BoxError, Counters, Failure, OverloadLayer, OverloadLayerBuilder, OverloadService, ResponseBody,
    by_io_kind,
};
use http::{Request, Response};
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

impl<S> Layer<S> for ClientLayer {
    type Service = ClientService<S>;

    fn layer(&self, inner: S) -> ClientService<S> {
        ClientService {
            inner: self.layer.layer(Sender(inner)),
            replay_limit: self.replay_limit,
        }
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
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = CallBody::gather(body, limit).await;
            let answer = inner.call(Request::from_parts(parts, body)).await;
            let mut response = answer.map_err(of_error)?;
            details::scrub(response.headers_mut());
            Ok(response.map(AnswerBody::new))
        })
    }
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

    fn call(&mut self, request: Request<CallBody>) -> S::Future {
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
