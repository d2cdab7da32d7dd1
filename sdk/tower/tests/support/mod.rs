//! A server in memory that answers from a script and keeps what it was asked, for tests in paused time.
#![allow(
    dead_code,
    clippy::expect_used,
    reason = "test code, of which each test file uses its own part"
)]

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use holdoff_tower::{CallOptions, Error, OverloadLayer, ResponseBody};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tower::{Layer, Service, ServiceExt};

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What the server does with a request.
pub(crate) enum Step {
    Answer(Response<Body>),
    /// Answers after this long.
    Late(Duration, Response<Body>),
    Fail(io::ErrorKind),
    /// Never answers.
    Hang,
}

/// What the server was asked, and when on the paused clock.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Duration,
    pub(crate) method: Method,
    pub(crate) uri: http::Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.field(name).expect(name).parse().expect("a number")
    }
}

#[derive(Clone)]
pub(crate) struct Server {
    inner: Arc<Inner>,
    /// Set by `poll_ready`, used up by `call`.
    ready: bool,
}

struct Inner {
    start: tokio::time::Instant,
    script: Mutex<VecDeque<Step>>,
    /// What happens when the script is over.
    then: fn() -> Step,
    seen: Mutex<Vec<Seen>>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the tests' own reading of the paused clock"
)]
pub(crate) fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

impl Server {
    /// Follows the script, and then answers 200.
    pub(crate) fn new(script: impl IntoIterator<Item = Step>) -> Self {
        Self::with_end(script, || Step::Answer(ok()))
    }

    pub(crate) fn with_end(script: impl IntoIterator<Item = Step>, then: fn() -> Step) -> Self {
        Self {
            inner: Arc::new(Inner {
                start: now(),
                script: Mutex::new(script.into_iter().collect()),
                then,
                seen: Mutex::default(),
            }),
            ready: false,
        }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.inner
            .seen
            .lock()
            .expect("no test holds it while it fails")
            .clone()
    }

    /// Times between one request and the next.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        self.seen().windows(2).map(|two| two[1].at - two[0].at).collect()
    }
}

impl Service<Request<Full<Bytes>>> for Server {
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without having been polled ready"
        );
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let body = body.to_bytes();
            let seen = Seen {
                at: now() - inner.start,
                method: parts.method,
                uri: parts.uri,
                headers: parts.headers,
                body,
            };
            inner
                .seen
                .lock()
                .expect("no test holds it while it fails")
                .push(seen);
            let step = inner
                .script
                .lock()
                .expect("no test holds it while it fails")
                .pop_front();
            match step.unwrap_or_else(inner.then) {
                Step::Answer(response) => Ok(response),
                Step::Late(after, response) => {
                    tokio::time::sleep(after).await;
                    Ok(response)
                }
                Step::Fail(kind) => Err(io::Error::new(kind, "scripted")),
                Step::Hang => std::future::pending().await,
            }
        })
    }
}

pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body that gives this chunk each `every`, for ever.
pub(crate) fn drip(chunk: &'static [u8], every: Duration) -> Body {
    let stream = futures_util::stream::unfold((), move |()| async move {
        tokio::time::sleep(every).await;
        Some((Ok(Frame::data(Bytes::from_static(chunk))), ()))
    });
    StreamBody::new(stream).boxed_unsync()
}

pub(crate) fn answer(status: u16, fields: &[(&'static str, &str)], body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    for (name, value) in fields {
        response
            .headers_mut()
            .append(*name, value.parse().expect("a value"));
    }
    response
}

pub(crate) fn ok() -> Response<Body> {
    answer(200, &[], full("done"))
}

/// A 503 with this signal.
pub(crate) fn refuse(signal: &str) -> Response<Body> {
    answer(503, &[("overload-signal", signal)], empty())
}

/// A 503 with a window, applied=no.
pub(crate) fn window(after_ms: u64, max_ms: u64) -> Response<Body> {
    refuse(&format!(
        "v=1, code=queue_full, retry=after, applied=no, after={after_ms}, max={max_ms}"
    ))
}

pub(crate) fn get(options: CallOptions) -> Request<Full<Bytes>> {
    request(Method::GET, "", options)
}

pub(crate) fn post(body: &'static str, options: CallOptions) -> Request<Full<Bytes>> {
    request(Method::POST, body, options)
}

fn request(method: Method, body: &'static str, options: CallOptions) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(Bytes::from_static(body.as_bytes())));
    *request.method_mut() = method;
    *request.uri_mut() = "http://a.example/work".parse().expect("a URI");
    request.extensions_mut().insert(options);
    request
}

pub(crate) type Answer = Result<Response<ResponseBody<Body>>, Error>;

/// One call through a layer.
pub(crate) async fn call(layer: &OverloadLayer, server: &Server, request: Request<Full<Bytes>>) -> Answer {
    layer.layer(server.clone()).oneshot(request).await
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
