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

use crate::body::{ReplayBody, ResponseBody};
use crate::carrier::{Answered, Carrier, Tower};
use crate::clock::Entropy;
use crate::dialect::Dialect;
use crate::drive::{Begun, drive};
use crate::error::{BoxError, Classify, Error};
use crate::options::{BeforeSend, CallOptions};
use crate::plan::Defaults;
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
        let options = request.extensions_mut().remove().map(Box::new);
        // The service that was polled ready is the one to use; the clone left behind is polled next time.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        self.start(Tower::new(ready, true, request), options)
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
        self.start(
            Tower::new(self.inner.clone(), false, request),
            Some(Box::new(options)),
        )
    }

    fn start<C>(&self, carrier: C, options: Option<Box<CallOptions>>) -> CallFuture<C::Body>
    where
        C: Carrier<Answer = Response<<C as Carrier>::Body>> + Send + 'static,
        C::Body: Send + 'static,
        <C::Body as Body>::Error: Send,
    {
        let begun = Begun::new(&carrier, options, &self.shared);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let mut carrier = carrier;
            Ok(match drive(&mut carrier, |_| begun, &shared).await? {
                Answered::AsItCame(response) => response.map(ResponseBody::from),
                Answered::LookedInto(response) => *response,
            })
        })
    }
}

impl OverloadLayer {
    /// For adapters: one call through a carrier. Not boxed, and begun when polled: the span and the inbound request
    /// around it are those of whoever awaits it.
    #[doc(hidden)]
    pub fn carry<C: Carrier>(
        &self,
        carrier: &mut C,
        options: Option<Box<CallOptions>>,
    ) -> impl Future<Output = Result<Answered<C::Answer, C::Body>, Error>> {
        let begin = |carrier: &C| Begun::new(carrier, options, &self.shared);
        drive(carrier, begin, &self.shared)
    }
}
