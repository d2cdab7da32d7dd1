//! The tower layer: everything that [`Gate`] does, around a service that knows nothing of it.
//!
//! It decides in `call`, never in `poll_ready`: a layer that reports "not ready" hides a queue in front of the door
//! where nobody sees its age, and the readiness of a pool can be a scheduling accident that becomes a spurious
//! overload. So it is always ready, and whether the inner service is ready is waited for under the permit.

use std::future::{Ready, poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::Either;
use holdoff_contract::{ServiceState, TaskClass, field_name};
use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::{Asked, Gate, GuardBody, Place, Refusal, RequestHead, Run, drain};

/// Names the class of a request that does not say it (or whose word is not taken).
pub trait Classify: Send + Sync + 'static {
    /// The class, `None` for the profile's default. `named` is what the request says.
    fn classify(&self, head: RequestHead<'_>, named: Option<TaskClass>) -> Option<TaskClass>;
}

impl<F> Classify for F
where
    F: Fn(RequestHead<'_>, Option<TaskClass>) -> Option<TaskClass> + Send + Sync + 'static,
{
    fn classify(&self, head: RequestHead<'_>, named: Option<TaskClass>) -> Option<TaskClass> {
        self(head, named)
    }
}

/// What happens to a handler whose caller's deadline passes while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overrun {
    /// It is dropped and the caller answered `deadline_expired`, applied=maybe: the default, since a worker that goes on
    /// for nobody is lost to those who wait. Non-sheddable work is never dropped.
    #[default]
    Cut,
    /// It runs to its end: for handlers that must not be dropped half done.
    Finish,
}

/// Puts admission in front of a service. Health and metrics routes belong outside it (ADM-18).
#[derive(Clone)]
pub struct AdmissionLayer {
    gate: Gate,
    classify: Option<Arc<dyn Classify>>,
    overrun: Overrun,
}

/// A service behind admission; made by [`AdmissionLayer`].
#[derive(Clone)]
pub struct AdmissionService<S> {
    inner: S,
    layer: AdmissionLayer,
}

impl std::fmt::Debug for AdmissionLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmissionLayer")
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}

impl<S> std::fmt::Debug for AdmissionService<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmissionService")
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}

impl AdmissionLayer {
    /// Classes come from `Overload-Task-Class`, everything else from the gate.
    pub fn new(gate: Gate) -> Self {
        Self {
            gate,
            classify: None,
            overrun: Overrun::default(),
        }
    }

    /// What happens to a handler whose caller's deadline passes.
    #[must_use]
    pub fn overrun(mut self, overrun: Overrun) -> Self {
        self.overrun = overrun;
        self
    }

    /// Takes the class from `classify`, for instance from the route.
    #[must_use]
    pub fn classify(mut self, classify: impl Classify) -> Self {
        self.classify = Some(Arc::new(classify));
        self
    }
}

impl<S> Layer<S> for AdmissionLayer {
    type Service = AdmissionService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AdmissionService {
            inner,
            layer: self.clone(),
        }
    }
}

type Answer<B> = Response<GuardBody<B>>;
type Served<B, E> = Pin<Box<dyn Future<Output = Result<Answer<B>, E>> + Send>>;

impl<S, ReqB, ResB> Service<Request<ReqB>> for AdmissionService<S>
where
    S: Service<Request<ReqB>, Response = Response<ResB>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    ReqB: Body + Send + 'static,
    ReqB::Data: Send,
    ResB: Body<Data = Bytes> + Send + 'static,
{
    type Response = Answer<ResB>;
    type Error = S::Error;
    type Future = Either<Ready<Result<Answer<ResB>, S::Error>>, Served<ResB, S::Error>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        let head = RequestHead::from(&request);
        let mut asked = self.layer.gate.read(head);
        if let Some(classify) = &self.layer.classify {
            asked.ask.class = classify.classify(head, asked.ask.class.take());
        }
        asked.ask.bytes = request.body().size_hint().lower();
        match self.layer.gate.admit(&asked) {
            Ok(place) => {
                let held = Box::new(Held {
                    work: Some((self.inner.clone(), request)),
                    asked,
                });
                Either::Right(Box::pin(serve(held, place, self.layer.overrun)))
            }
            Err(refusal) => {
                let (parts, body) = request.into_parts();
                drain(&parts.headers, body);
                Either::Left(ready(Ok(refuse(refusal))))
            }
        }
    }
}

fn refuse<B: Body>(refusal: Refusal) -> Answer<B> {
    refusal.into_response().map(GuardBody::refused)
}

/// What waits with a place.
struct Held<S, ReqB> {
    /// Gone when the handler is called, or refused.
    work: Option<(S, Request<ReqB>)>,
    asked: Asked,
}

/// Waits for the turn, runs the inner service under the permit, and leaves the permit with the response body.
///
/// The future is made for every request, so it is kept small: an `async` block, which holds its captures once where an
/// `async fn` holds its arguments twice, and what it works on in one box.
#[expect(clippy::manual_async_fn, reason = "an async block holds its captures once")]
fn serve<S, ReqB, ResB>(
    mut held: Box<Held<S, ReqB>>,
    place: Place,
    overrun: Overrun,
) -> impl Future<Output = Result<Answer<ResB>, S::Error>>
where
    S: Service<Request<ReqB>, Response = Response<ResB>>,
    ReqB: Body + Send + 'static,
    ReqB::Data: Send,
    ResB: Body<Data = Bytes>,
{
    async move {
        let permit = match place.turn().await {
            Ok(permit) => permit,
            Err(rejection) => {
                if let Some((_, request)) = held.work.take() {
                    let (parts, body) = request.into_parts();
                    drain(&parts.headers, body);
                }
                return Ok(refuse(held.asked.refusal(rejection)));
            }
        };
        let handled = handle(&mut held.work);
        let ended = match overrun {
            Overrun::Cut => permit.run(handled).await,
            Overrun::Finish => {
                let (handled, permit) = permit.run_to_end(handled).await;
                Run::Finished(handled, permit)
            }
        };
        finish(ended, &held.asked)
    }
}

/// Waits until the service is ready and calls it; the work is there.
async fn handle<S, ReqB>(work: &mut Option<(S, Request<ReqB>)>) -> Result<S::Response, S::Error>
where
    S: Service<Request<ReqB>>,
{
    if let Some((service, _)) = work {
        poll_fn(|cx| service.poll_ready(cx)).await?;
    }
    let handled = match work.take() {
        Some((mut service, request)) => service.call(request),
        // Its only taker otherwise is a refusal, after which nothing is handled.
        None => unreachable!("the work is taken here, once"),
    };
    handled.await
}

/// The answer to what was run.
fn finish<ResB, E>(ended: Run<Result<Response<ResB>, E>>, asked: &Asked) -> Result<Answer<ResB>, E>
where
    ResB: Body<Data = Bytes>,
{
    match ended {
        Run::Finished(Ok(mut response), permit) => {
            // A handler that says more of itself is left alone.
            if response.status().is_success() && !response.headers().contains_key(field_name::OVERLOAD_SIGNAL)
            {
                asked.advise(response.headers_mut(), false, false, ServiceState::Normal);
            }
            let failed = response.status().is_server_error();
            if asked.is_head() {
                // Its body is never sent, so nobody will say that it ended.
                if failed {
                    permit.failed();
                } else {
                    permit.completed();
                }
                return Ok(response.map(GuardBody::bare));
            }
            Ok(response.map(|body| GuardBody::served(body, permit, failed)))
        }
        Run::Finished(Err(error), permit) => {
            permit.failed();
            Err(error)
        }
        Run::Overdue(permit) => {
            permit.timed_out();
            Ok(refuse(asked.overdue()))
        }
    }
}
