//! The callers of the burst test, and the answers they get.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use super::{BurstError, STEP_LIMIT};
use crate::clock;

/// Most bytes of an answer that are read.
const MAX_ANSWER: usize = 1 << 20;

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
    pub(super) took: Duration,
}

impl Answer {
    pub(super) fn text(&self, member: &str) -> &str {
        self.body[member].as_str().unwrap_or_default()
    }

    pub(super) fn ms(&self, member: &str) -> Option<Duration> {
        self.body[member].as_u64().map(Duration::from_millis)
    }

    pub(super) fn code(&self) -> &str {
        self.text("code")
    }

    /// A window to come back in, in the body, in the signal and in Retry-After.
    pub(super) fn guides(&self) -> bool {
        let window = (self.ms("retry_after_ms"), self.ms("retry_after_max_ms"));
        self.text("retry") == "after"
            && self.text("applied") == "no"
            && matches!(window, (Some(after), Some(max)) if Duration::ZERO < after && after < max)
            && self.headers.contains_key("retry-after")
            && self.headers.contains_key("overload-signal")
    }
}

#[derive(Clone)]
pub(super) struct Caller {
    pub(super) client: Client<HttpConnector, Full<Bytes>>,
    pub(super) url: String,
}

impl Caller {
    pub(super) async fn send(
        &self,
        token: &str,
        class: &str,
        ms: u64,
        deadline: Option<u64>,
    ) -> Result<Answer, BurstError> {
        let body = json!({"class": class, "duration_ms": ms}).to_string();
        let mut request = Request::post(format!("{}/v1/work", self.url))
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {token}"));
        if let Some(deadline) = deadline {
            request = request.header("overload-deadline-ms", deadline);
        }
        let request = request.body(Full::from(body));
        self.exchange(format!("a {class} task"), request).await
    }

    pub(super) async fn metrics(&self) -> Result<String, BurstError> {
        let request = Request::get(format!("{}/metrics", self.url)).body(Full::default());
        let answer = self.exchange("the metrics".to_owned(), request).await?;
        Ok(answer.body.as_str().unwrap_or_default().to_owned())
    }

    async fn exchange(
        &self,
        what: String,
        request: http::Result<Request<Full<Bytes>>>,
    ) -> Result<Answer, BurstError> {
        let failed = |why: String| BurstError::Answer {
            what: what.clone(),
            why,
        };
        let request = request.map_err(|error| failed(error.to_string()))?;
        let sent = clock::now();
        let exchange = async {
            let response = self
                .client
                .request(request)
                .await
                .map_err(|error| error.to_string())?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            Ok((parts, body.map_err(|error| error.to_string())?.to_bytes()))
        };
        let (parts, body) = tokio::time::timeout(STEP_LIMIT, exchange)
            .await
            .map_err(|_| failed(format!("no answer in {STEP_LIMIT:?}")))?
            .map_err(failed)?;
        let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body: serde_json::from_slice(&body).unwrap_or_else(|_| text()),
            took: clock::now().saturating_duration_since(sent),
        })
    }
}
