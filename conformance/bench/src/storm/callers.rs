//! Callers of two kinds with the same calls and the same patience.

use std::time::{Duration, Instant};

use holdoff::reqwest;
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest_middleware::ClientWithMiddleware;
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;

use super::load::Arrival;
use super::server::{PHASE, TENANT, WORK};
use crate::clock;

/// How a caller without Holdoff tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retries {
    /// As the README of reqwest-middleware does it: three retries, a second and up, full jitter.
    AsDocumented,
    /// From a tenth of a second up to a second, for as long as somebody waits: what impatient services set.
    Eager,
}

/// Who calls.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    Retry(ClientWithMiddleware),
    Holdoff(holdoff::Client),
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Served within its patience.
    Served,
    /// Told that it will not be served.
    Refused,
    /// The same without a request on the wire, by what an earlier answer said.
    HeldBack,
    /// No answer in time, or a broken one.
    Failed,
}

fn by_tenant(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(TENANT).map(HeaderValue::as_bytes)
}

impl Caller {
    pub(super) fn holdoff() -> anyhow::Result<Self> {
        // The servers know their callers by this field, so a refusal of one tenant must not hold back another.
        let client = holdoff::Client::builder().identify(by_tenant).build()?;
        Ok(Self::Holdoff(client))
    }

    pub(super) fn retrying(retries: Retries) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .retry(reqwest::retry::never())
            .build()?;
        let builder = ExponentialBackoff::builder();
        let policy = match retries {
            Retries::AsDocumented => builder.build_with_max_retries(3),
            // Its caller stops waiting long before the last of them.
            Retries::Eager => builder
                .retry_bounds(Duration::from_millis(100), Duration::from_secs(1))
                .build_with_max_retries(50),
        };
        let client = reqwest_middleware::ClientBuilder::new(client)
            .with(RetryTransientMiddleware::new_with_policy(policy))
            .build();
        Ok(Self::Retry(client))
    }

    /// Makes the call; what is served too late has failed.
    pub(super) async fn call(&self, url: &str, call: &Arrival) -> (End, Instant) {
        let limit = clock::now() + call.patience;
        let done = tokio::time::timeout_at(limit.into(), self.send(url, call)).await;
        let end = match done {
            Ok(Ok(end)) => end,
            Ok(Err(_)) | Err(_) => End::Failed,
        };
        (end, clock::now())
    }

    async fn send(&self, url: &str, call: &Arrival) -> anyhow::Result<End> {
        let tenant = format!("tenant-{}", call.tenant);
        let work = call.work.as_micros().to_string();
        let phase = call.phase.to_string();
        let response = match self {
            Self::Retry(client) => {
                let request = client
                    .post(url)
                    .timeout(call.patience)
                    .header(TENANT, tenant)
                    .header(WORK, work)
                    .header(PHASE, phase);
                request.body("{}").send().await?
            }
            Self::Holdoff(client) => {
                let request = client
                    .post(url)
                    .header(TENANT, tenant)
                    .header(WORK, work)
                    .header(PHASE, phase)
                    .tier(call.tier)
                    .task_class(super::CLASS)
                    .deadline(call.patience);
                match request.body("{}").send().await {
                    Ok(response) => response,
                    Err(error) if error.is_overloaded() && error.attempts() == 0 => return Ok(End::HeldBack),
                    Err(error) if error.is_overloaded() => return Ok(End::Refused),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let status = response.status();
        response.bytes().await?;
        Ok(match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => End::Refused,
            status if status.is_success() => End::Served,
            _ => End::Failed,
        })
    }
}
