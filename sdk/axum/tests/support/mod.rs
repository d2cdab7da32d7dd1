//! A dependency in memory behind a Holdoff layer, and an axum app in front of it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "test code, of which each test file uses its own part"
)]

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use holdoff_contract::Tenant;
use holdoff_tower::{CallOptions, Error, OverloadLayer};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::{Layer, ServiceExt, service_fn};

/// What the dependency answers, each once; then 200.
pub(crate) enum Step {
    /// A refusal with this signal.
    Refuse(u16, &'static str),
    /// Nothing but a status.
    Bare(u16),
    /// No connection.
    Unreachable,
    /// The connection breaks after the request was sent.
    Broken,
    /// Never answers.
    Hang,
}

#[derive(Clone, Default)]
pub(crate) struct Dependency {
    script: Arc<Mutex<VecDeque<Step>>>,
    seen: Arc<Mutex<Vec<HeaderMap>>>,
    layer: OverloadLayer,
}

impl Dependency {
    pub(crate) fn new(script: impl IntoIterator<Item = Step>) -> Self {
        let layer = OverloadLayer::builder()
            .trusted("http://dep.example".parse().unwrap())
            .tenant(Tenant::new("the-relay").unwrap())
            .rng_seed(1)
            .build();
        let script = Arc::new(Mutex::new(script.into_iter().collect()));
        Self {
            script,
            layer,
            ..Self::default()
        }
    }

    /// Calls it, as a handler would.
    pub(crate) async fn call(&self, method: Method, options: CallOptions) -> Result<StatusCode, Error> {
        let (script, seen) = (Arc::clone(&self.script), Arc::clone(&self.seen));
        let transport = service_fn(move |request: Request<Full<Bytes>>| {
            seen.lock().unwrap().push(request.headers().clone());
            let step = script.lock().unwrap().pop_front();
            async move { answer(step).await }
        });
        let mut request = Request::new(Full::default());
        *request.method_mut() = method;
        *request.uri_mut() = "http://dep.example/".parse().unwrap();
        request.extensions_mut().insert(options);
        let response = self.layer.layer(transport).oneshot(request).await?;
        Ok(response.status())
    }

    pub(crate) async fn get(&self) -> Result<StatusCode, Error> {
        self.call(Method::GET, CallOptions::new()).await
    }

    /// What it was sent.
    pub(crate) fn seen(&self) -> Vec<HeaderMap> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn field(&self, attempt: usize, name: &str) -> Option<String> {
        Some(self.seen()[attempt].get(name)?.to_str().unwrap().to_owned())
    }
}

async fn answer(step: Option<Step>) -> io::Result<Response<Full<Bytes>>> {
    let mut response = Response::new(Full::default());
    match step {
        None => {}
        Some(Step::Bare(status)) => *response.status_mut() = StatusCode::from_u16(status).unwrap(),
        Some(Step::Refuse(status, signal)) => {
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
                .headers_mut()
                .insert("overload-signal", signal.parse().unwrap());
        }
        Some(Step::Unreachable) => return Err(io::ErrorKind::ConnectionRefused.into()),
        Some(Step::Broken) => return Err(io::ErrorKind::ConnectionReset.into()),
        Some(Step::Hang) => std::future::pending().await,
    }
    Ok(response)
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn signal(&self) -> &str {
        self.headers
            .get("overload-signal")
            .map_or("", |line| line.to_str().unwrap())
    }
}

pub(crate) async fn ask(app: Router, request: Request<Body>) -> Answer {
    let (parts, body) = app.oneshot(request).await.unwrap().into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    }
}

pub(crate) fn request(method: Method, fields: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().method(method).uri("/");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
