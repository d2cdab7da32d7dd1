//! The layer and its service: where a tower stack meets the loop.
//!
//! Whether to hold a call back is decided in `call`, never in `poll_ready`: a service that is "not ready" because one
//! destination refused would stop calls to all others, and tokio's cooperative yields would look like overload.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use holdoff_contract::read::Compat;
use holdoff_policy::{Destinations, Policy};
use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use crate::body::{ReplayBody, ResponseBody};
use crate::clock::Entropy;
use crate::context::Watch;
use crate::dialect::Dialect;
use crate::drive::{Inner, call_span, drive};
use crate::error::{BoxError, Classify, Error};
use crate::options::{BeforeSend, CallOptions};
use crate::plan::{Defaults, Plan};
use crate::telemetry::Counters;
use crate::vocabulary::Vocabularies;

/// What all calls through one layer share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) policy: Arc<Policy>,
    pub(crate) destinations: Destinations,
    pub(crate) compat: Compat,
    pub(crate) dialect: Option<Box<dyn Dialect>>,
    pub(crate) vocabularies: Vocabularies,
    pub(crate) defaults: Defaults,
    pub(crate) classify: Classify,
    pub(crate) entropy: Entropy,
    pub(crate) before_send: Option<BeforeSend>,
    pub(crate) counters: Counters,
}

/// Makes callers that obey overload out of HTTP services. Services made by one layer, and clones of it, share
/// retry budgets, hold-offs and counters.
#[derive(Clone, Debug)]
pub struct OverloadLayer {
    pub(crate) shared: Arc<Shared>,
}

/// A caller that obeys overload around an HTTP service; made by [`OverloadLayer`].
#[derive(Clone, Debug)]
pub struct OverloadService<S> {
    inner: S,
    shared: Arc<Shared>,
}

/// The future of a call. Dropping it ends the call at once and gives back what it held (CLI-17).
pub type CallFuture<B> = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<B>>, Error>> + Send>>;

impl OverloadLayer {
    /// The counts of all calls through this layer.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }
}

impl<S> Layer<S> for OverloadLayer {
    type Service = OverloadService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        OverloadService {
            inner,
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S> OverloadService<S> {
    /// The counts of all calls through this service's layer.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// The service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, B, RB> Service<Request<B>> for OverloadService<S>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: ReplayBody + Send + 'static,
    RB: Body<Data = Bytes> + Send + Unpin + 'static,
    RB::Error: Send,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = Error;
    type Future = CallFuture<RB>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner
            .poll_ready(cx)
            .map_err(|error| Error::unready(error.into()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let options = request.extensions_mut().remove().unwrap_or_default();
        // The service that was polled ready is the one to use; the clone left behind is polled next time.
        let clone = self.inner.clone();
        let inner = Inner::Ready(std::mem::replace(&mut self.inner, clone));
        self.start(inner, request, options)
    }
}

impl<S> OverloadService<S> {
    /// One call, with its wishes beside the request instead of in its extensions. Needs no `poll_ready`: the service
    /// inside is polled ready as part of the call.
    pub fn oneshot<B, RB>(&self, request: Request<B>, options: CallOptions) -> CallFuture<RB>
    where
        S: Service<Request<B>, Response = Response<RB>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: ReplayBody + Send + 'static,
        RB: Body<Data = Bytes> + Send + Unpin + 'static,
        RB::Error: Send,
    {
        self.start(Inner::Idle(self.inner.clone()), request, options)
    }

    fn start<B, RB>(&self, inner: Inner<S>, request: Request<B>, options: CallOptions) -> CallFuture<RB>
    where
        S: Service<Request<B>, Response = Response<RB>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: ReplayBody + Send + 'static,
        RB: Body<Data = Bytes> + Send + Unpin + 'static,
        RB::Error: Send,
    {
        let span = call_span(&request);
        let watch = Watch::begin(&request, &options);
        let plan = Plan::new(
            request,
            options,
            &self.shared.defaults,
            self.shared.dialect.as_deref(),
        );
        let call = drive(inner, Box::new(plan), Arc::clone(&self.shared)).instrument(span);
        Box::pin(async move {
            let result = call.await;
            watch.end(&result);
            result
        })
    }
}
