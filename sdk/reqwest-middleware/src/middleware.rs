//! The middleware.
//!
//! `holdoff-tower`'s loop owns the service it sends through; the rest of a middleware stack ([`Next`]) is only lent, for
//! the time of one call. So the loop gets a [`Door`]: it hands each attempt out, [`OverloadMiddleware::handle`] sends
//! it on through the stack, and hands back what came.

use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use holdoff_contract::field_name::OVERLOAD_TENANT;
use holdoff_reqwest::adapter::{self, Body};
use holdoff_tower::{
    AttemptContext, BoxError, CallOptions, Counters, Error, Failure, OverloadLayer, OverloadLayerBuilder,
};
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next};
use tokio::sync::{mpsc, oneshot};
use tower_layer::Layer;
use tower_service::Service;

/// A middleware that obeys overload. Cheap to clone; clones share retry budgets, hold-offs and counters, so make one
/// for a process, and give it to every client that calls the same services.
#[derive(Clone, Debug)]
pub struct OverloadMiddleware {
    layer: OverloadLayer,
}

impl OverloadMiddleware {
    /// A middleware with the contract's defaults.
    pub fn new() -> Self {
        Self::over(OverloadLayer::builder())
    }

    /// A middleware with settings of its own: policy, default deadline and tier, instances, vocabularies, observer and what
    /// else [`OverloadLayerBuilder`] has. Two have no effect here: `classify`, since this middleware knows the errors
    /// of its stack, and `trusted`, since `Overload-Tenant` would be taken along on redirects (REQ-07).
    ///
    /// ```
    /// use std::time::Duration;
    /// use holdoff_reqwest_middleware::{OverloadLayer, OverloadMiddleware};
    ///
    /// let settings = OverloadLayer::builder().default_deadline(Duration::from_secs(5))?;
    /// let overload = OverloadMiddleware::over(settings);
    /// # let _ = overload;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn over(settings: OverloadLayerBuilder) -> Self {
        Self {
            layer: settings.classify(classify).build(),
        }
    }

    /// The counts of all calls through this middleware and its clones.
    pub fn counters(&self) -> &Counters {
        self.layer.counters()
    }
}

impl Default for OverloadMiddleware {
    fn default() -> Self {
        Self::new()
    }
}

/// The reason why a call stopped, where this middleware stopped it; `None` for the errors of others.
pub fn overload_error(error: &reqwest_middleware::Error) -> Option<&Error> {
    match error {
        reqwest_middleware::Error::Middleware(error) => error.downcast_ref(),
        reqwest_middleware::Error::Reqwest(_) => None,
    }
}

/// What a failure further in means for sending again. Another middleware that failed for a reason of its own has
/// nothing to gain from a second try: it is told by the lack of a reqwest or I/O error among the causes.
fn classify(error: &(dyn StdError + 'static)) -> Failure {
    let failed = match error.downcast_ref() {
        Some(reqwest_middleware::Error::Reqwest(error)) => return adapter::classify(error),
        Some(reqwest_middleware::Error::Middleware(failed)) => failed,
        // Our own conversions: the request cannot be sent as it is.
        None => return Failure::Unsendable,
    };
    failed
        .chain()
        .find(|cause| cause.is::<reqwest::Error>() || cause.is::<std::io::Error>())
        .map_or(Failure::Final, adapter::classify)
}

/// One attempt on its way out of the loop, and where its answer goes.
struct Attempt {
    request: http::Request<Body>,
    answer: oneshot::Sender<Result<http::Response<reqwest::Body>, BoxError>>,
}

/// The service under the loop: hands out one attempt at a time.
#[derive(Clone)]
struct Door(mpsc::Sender<Attempt>);

/// The call is over, and nobody sends for it any more. Its own future is dropped by then, so nobody sees this.
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the call is over")
    }
}

impl StdError for Closed {}

impl Service<http::Request<Body>> for Door {
    type Response = http::Response<reqwest::Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let door = self.0.clone();
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            door.send(Attempt { request, answer }).await.map_err(|_| Closed)?;
            answered.await.map_err(|_| Closed)?
        })
    }
}

#[async_trait::async_trait]
impl Middleware for OverloadMiddleware {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let mut options = extensions.get::<CallOptions>().cloned().unwrap_or_default();
        options.deadline = options.deadline.or_else(|| request.timeout().copied());
        let request = http::Request::<reqwest::Body>::try_from(request)?;
        let mut request = request.map(Body::from);
        request.extensions_mut().insert(options);

        // The loop sends one attempt at a time.
        let (door, mut attempts) = mpsc::channel(1);
        let mut service = self.layer.layer(Door(door));
        poll_fn(|cx| service.poll_ready(cx)).await.map_err(told)?;
        let mut call = service.call(request);
        drop(service);
        loop {
            let attempt = tokio::select! {
                done = &mut call => return finish(done),
                Some(attempt) = attempts.recv() => attempt,
            };
            let Attempt { request, mut answer } = attempt;
            let sent = send(request, extensions, next.clone());
            tokio::select! {
                // The call can end before its attempt does.
                done = &mut call => return finish(done),
                // The attempt's time ran out: the loop does not wait for its answer any more.
                () = answer.closed() => {}
                // Whoever does not want the answer is gone; the loop goes on by itself.
                brought = sent => drop(answer.send(brought)),
            }
        }
    }
}

/// Sends one attempt through the rest of the stack, with what is left of the deadline as reqwest's own limit too: it
/// also covers the reading of the response's body, after the head was handed on.
async fn send<'a>(
    request: http::Request<Body>,
    extensions: &'a mut Extensions,
    next: Next<'a>,
) -> Result<http::Response<reqwest::Body>, BoxError> {
    let left = request
        .extensions()
        .get::<AttemptContext>()
        .and_then(|context| context.time_left);
    let mut request = Request::try_from(request.map(reqwest::Body::from))?;
    if let Some(left) = left {
        *request.timeout_mut() = Some(left);
    }
    // The inner client follows redirects, and would take it along to another origin.
    request.headers_mut().remove(OVERLOAD_TENANT);
    let asked = request.url().clone();
    let response = match next.run(request, extensions).await {
        Ok(response) => response,
        Err(reqwest_middleware::Error::Reqwest(error)) if error.is_builder() => {
            return Err(adapter::told(error));
        }
        Err(error) => return Err(error.into()),
    };
    Ok(adapter::into_http(response, &asked))
}

fn finish(
    done: Result<http::Response<holdoff_tower::ResponseBody<reqwest::Body>>, Error>,
) -> reqwest_middleware::Result<Response> {
    let response = done.map_err(told)?;
    // Nothing was read of the body of almost every answer; then it is reqwest's own again.
    Ok(Response::from(response.map(|body| {
        body.into_inner().unwrap_or_else(reqwest::Body::wrap)
    })))
}

fn told(error: Error) -> reqwest_middleware::Error {
    reqwest_middleware::Error::middleware(error)
}
