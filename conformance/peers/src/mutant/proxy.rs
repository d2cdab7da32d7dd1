//! Where a server mutant stands: a proxy in front of the honest server that changes what goes through.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::server::{ANYBODY, ServerMutant};
use crate::server::Edge;

/// Bytes of a refusal's body that are read to be changed; ours are at most 4096.
const MOST: usize = 64 * 1024;
/// Bytes of a metrics page that are read to be changed.
const MOST_PAGE: usize = 4 << 20;
/// A task that stands for a worker which is not given back.
const KEPT: &str = r#"{"class":"t","payload":"","duration_ms":20000}"#;
/// How often a call is charged whose caller says that it is costly.
const COPIES: usize = 4;
/// What a caller must say for that, in ms.
const COSTLY: u64 = 10_000;

#[derive(Clone)]
struct Proxy {
    mutant: ServerMutant,
    target: String,
    client: Client<HttpConnector, Body>,
    /// Whether anything was refused yet ([`ServerMutant::StaysShut`]).
    shut: Arc<AtomicBool>,
}

/// The task classes that callers named ([`ServerMutant::LabelsAnyClass`]); the page of metrics has a proxy of its own.
static CLASSES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn classes() -> MutexGuard<'static, BTreeSet<String>> {
    CLASSES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Edge for ServerMutant {
    fn profile(&self, profile: &mut Value) {
        match self {
            Self::DeepQueue => deepen(profile),
            Self::WideWait | Self::NoSlowStart => {
                profile["tiers"]["deferrable"]["min_wait_ms"] = json!(30_000);
            }
            Self::HidesAdmin => profile["observe"] = json!({"admin": false}),
            Self::Unreserved => profile["tiers"]["critical"]["reserved_workers"] = json!(0),
            Self::Hasty => {
                profile["hold_ms"] = json!(0);
                profile["ramp_ms"] = json!(0);
            }
            Self::Patient => {
                for tier in ["critical", "non-sheddable", "deferrable"] {
                    profile["tiers"][tier]["min_wait_ms"] = json!(3_600_000);
                    profile["tiers"][tier]["max_wait_ms"] = json!(3_600_000);
                }
            }
            Self::NoBudgets => profile["tenants"] = json!({}),
            Self::TrustsAnybody => {
                profile["identities"][ANYBODY] =
                    json!({"trusted": true, "tiers": ["critical", "non-sheddable", "deferrable"]});
            }
            _ => {}
        }
    }

    fn notices(&self, fixture: &str) -> bool {
        match self {
            Self::TrustsItsData => fixture != "freeze_controller",
            Self::StateStuck => fixture != "force_state",
            _ => true,
        }
    }

    fn fixture(&self, command: &mut Value) {
        if *self == Self::OneTenant && command.get("tenant").is_some() {
            command["tenant"] = json!("everybody");
        }
    }

    async fn expose_metrics(&self, url: String, stop: CancellationToken) -> anyhow::Result<String> {
        match (self, url.strip_suffix("/metrics")) {
            (Self::LabelsAnyClass, Some(base)) => {
                Ok(format!("{}/metrics", self.expose(base.to_owned(), stop).await?))
            }
            _ => Ok(url),
        }
    }

    fn crashed(&self, data: &Path) -> std::io::Result<()> {
        if *self == Self::Forgets {
            std::fs::remove_dir_all(data)?;
        }
        Ok(())
    }

    async fn expose(&self, url: String, stop: CancellationToken) -> anyhow::Result<String> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let exposed = format!("http://{}", listener.local_addr()?);
        let client = Client::builder(TokioExecutor::new()).build_http();
        let proxy = Proxy {
            mutant: *self,
            target: url,
            client,
            shut: Arc::default(),
        };
        let router = Router::new().fallback(forward).with_state(proxy);
        tokio::spawn(async move {
            tokio::select! {
                served = axum::serve(listener, router) => served,
                () = stop.cancelled() => Ok(()),
            }
        });
        Ok(exposed)
    }
}

/// Every declared queue depth, a hundred times deeper.
fn deepen(profile: &mut Value) {
    let deeper = |value: &mut Value| {
        if let Some(depth) = value.as_u64() {
            *value = json!(depth.max(1) * 100);
        }
    };
    deeper(&mut profile["queue"]);
    if let Some(tiers) = profile.get_mut("tiers").and_then(Value::as_object_mut) {
        for tier in tiers.values_mut() {
            if let Some(depth) = tier.get_mut("queue") {
                deeper(depth);
            }
        }
    }
    if profile["queue"].is_null() {
        profile["queue"] = json!(100_000);
    }
}

/// A task of our own for the server behind the edge.
fn task(proxy: &Proxy, body: &'static str) -> Request {
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = format!("{}/v1/work", proxy.target).parse().unwrap_or_default();
    request.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    let deadline = http::HeaderValue::from_static("60000");
    request
        .headers_mut()
        .insert(holdoff_contract::field_name::OVERLOAD_DEADLINE_MS, deadline);
    request
}

/// Reads a request's body, does what the mutant does with it, and puts it back.
async fn looked_into(proxy: &Proxy, request: Request) -> Request {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, MOST).await.unwrap_or_default();
    let told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let cost = parts
        .headers
        .get("overload-cost-ms")
        .and_then(|value| value.to_str().ok()?.parse().ok());
    match proxy.mutant {
        ServerMutant::LabelsAnyClass => {
            classes().extend(told["class"].as_str().map(str::to_owned));
        }
        ServerMutant::BelievesCosts if cost.is_some_and(|cost: u64| cost >= COSTLY) => {
            for _ in 0..COPIES {
                let mut copy = Request::new(Body::from(bytes.clone()));
                copy.method_mut().clone_from(&parts.method);
                copy.headers_mut().clone_from(&parts.headers);
                *copy.uri_mut() = format!("{}{}", proxy.target, parts.uri.path())
                    .parse()
                    .unwrap_or_default();
                tokio::spawn(proxy.client.request(copy));
            }
        }
        _ => {}
    }
    Request::from_parts(parts, Body::from(bytes))
}

async fn forward(State(proxy): State<Proxy>, mut request: Request) -> Response {
    if proxy.mutant == ServerMutant::SilentSpec && request.uri().path() == "/openapi.json" {
        return Response::new(Body::from(r#"{"openapi":"3.1.0","paths":{}}"#));
    }
    if let Some(status) = proxy.mutant.refuses(request.uri().path(), request.headers()) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        return response;
    }
    if proxy.mutant == ServerMutant::StaysShut && proxy.shut.load(Ordering::Relaxed) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        return response;
    }
    proxy.mutant.request(request.headers_mut());
    if matches!(
        proxy.mutant,
        ServerMutant::BelievesCosts | ServerMutant::LabelsAnyClass
    ) {
        request = looked_into(&proxy, request).await;
    }
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();
    let answer = match format!("{}{path}", proxy.target).parse() {
        Ok(uri) => {
            *request.uri_mut() = uri;
            let sent = proxy.client.request(request);
            if proxy.mutant == ServerMutant::Detached {
                // A task of its own goes on when the caller has left.
                match tokio::spawn(sent).await {
                    Ok(answer) => answer.map_err(anyhow::Error::from),
                    Err(error) => Err(anyhow::Error::from(error)),
                }
            } else {
                sent.await.map_err(anyhow::Error::from)
            }
        }
        Err(error) => Err(anyhow::Error::from(error)),
    };
    let Ok(answer) = answer else {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        return response;
    };
    let (mut parts, body) = answer.into_parts();
    let body = Body::new(body);
    if proxy.mutant == ServerMutant::KeepsWorkers && parts.status == StatusCode::INTERNAL_SERVER_ERROR {
        tokio::spawn(proxy.client.request(task(&proxy, KEPT)));
    }
    if matches!(parts.status.as_u16(), 429 | 503) {
        proxy.shut.store(true, Ordering::Relaxed);
        tokio::time::sleep(proxy.mutant.hesitates()).await;
    }
    if proxy.mutant == ServerMutant::LabelsAnyClass && path == "/metrics" {
        let mut page = to_bytes(body, MOST_PAGE).await.map(Vec::from).unwrap_or_default();
        for class in classes().iter() {
            let labels = format!("decision=\"accept\",task_class=\"{class}\",tenant_tier=\"deferrable\"");
            page.extend_from_slice(format!("agent_admission_total{{{labels}}} 1\n").as_bytes());
        }
        parts.headers.remove(http::header::CONTENT_LENGTH);
        return Response::from_parts(parts, Body::from(page));
    }
    if parts.status.is_success() {
        if proxy.mutant == ServerMutant::SilentDegraded {
            parts
                .headers
                .remove(holdoff_contract::field_name::OVERLOAD_SIGNAL);
        }
        return Response::from_parts(parts, body);
    }
    let mut bytes = to_bytes(body, MOST).await.map(Vec::from).unwrap_or_default();
    proxy
        .mutant
        .response(&mut parts.status, &mut parts.headers, &mut bytes);
    Response::from_parts(parts, Body::from(bytes))
}
