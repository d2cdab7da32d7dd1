//! Where a server mutant stands: a proxy in front of the honest server that changes what goes through.

use std::path::Path;

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

#[derive(Clone)]
struct Proxy {
    mutant: ServerMutant,
    target: String,
    client: Client<HttpConnector, Body>,
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

async fn forward(State(proxy): State<Proxy>, mut request: Request) -> Response {
    if proxy.mutant == ServerMutant::SilentSpec && request.uri().path() == "/openapi.json" {
        return Response::new(Body::from(r#"{"openapi":"3.1.0","paths":{}}"#));
    }
    if let Some(status) = proxy.mutant.refuses(request.uri().path(), request.headers()) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        return response;
    }
    proxy.mutant.request(request.headers_mut());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
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
