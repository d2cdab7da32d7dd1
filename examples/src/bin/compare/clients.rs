//! The clients that are compared, each set up as its own documentation shows it, over the same reqwest.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use holdoff_backoff::{CallSpec, Outcome, Pacer, Replay, Safety, outcome_of};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, Method, Response, StatusCode};
use reqwest_middleware::ClientWithMiddleware;
use reqwest_retry::RetryTransientMiddleware;
use tower::ServiceExt;
use tower::retry::backoff::{Backoff as _, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff};
use tower::retry::budget::{Budget, TpsBudget};

/// How a call ended, as the program that made it can tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ended {
    /// With a 2xx.
    Answered,
    /// With this status, as a response or in an error that carries no more than it.
    Status(u16),
    /// With a typed refusal that says when to come back.
    Refused,
    /// With another error.
    Failed,
    /// Not at all within the caller's patience.
    Patience,
}

type Calling = Pin<Box<dyn Future<Output = Ended> + Send>>;
type Call = Arc<dyn Fn(Method, String, Duration) -> Calling + Send + Sync>;

/// One of them.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The package in Cargo.lock.
    pub(crate) package: &'static str,
    /// What it is shown as.
    pub(crate) name: &'static str,
    call: Call,
}

impl Caller {
    fn new<F>(
        package: &'static str,
        name: &'static str,
        call: impl Fn(Method, String, Duration) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        Self {
            package,
            name,
            call: Arc::new(move |method, url, patience| Box::pin(call(method, url, patience))),
        }
    }

    /// Makes one call, for as long as its caller has patience.
    pub(crate) async fn call(self, method: Method, url: String, patience: Duration) -> Ended {
        let call = (self.call)(method, url, patience);
        tokio::time::timeout(patience, call)
            .await
            .unwrap_or(Ended::Patience)
    }
}

/// All of them, new: no state is shared between two scenarios.
pub(crate) fn all() -> anyhow::Result<Vec<Caller>> {
    let mut callers = vec![
        reqwest_plain()?,
        reqwest_own()?,
        reqwest_retry()?,
        tower_retry()?,
        backon_plain()?,
        backon_hinted()?,
    ];
    #[cfg(feature = "backoff")]
    callers.extend([backoff_loops::plain()?, backoff_loops::hinted()?]);
    callers.extend([holdoff_client(), holdoff_bridge()?]);
    Ok(callers)
}

/// reqwest without retries.
fn http() -> reqwest::Result<Client> {
    Client::builder().retry(reqwest::retry::never()).build()
}

fn is_refusal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
    )
}

fn ended(status: StatusCode) -> Ended {
    if status.is_success() {
        Ended::Answered
    } else {
        Ended::Status(status.as_u16())
    }
}

fn of_reqwest(result: reqwest::Result<Response>) -> Ended {
    match result {
        Ok(response) => ended(response.status()),
        Err(error) => error.status().map_or(Ended::Failed, ended),
    }
}

/// As it is: repeats only what HTTP/2 servers say they never looked at.
fn reqwest_plain() -> anyhow::Result<Caller> {
    let client = Client::builder().build()?;
    Ok(Caller::new("reqwest", "reqwest", move |method, url, _| {
        let request = client.request(method, url);
        async move { of_reqwest(request.send().await) }
    }))
}

/// The example of `reqwest::retry::Builder::classify_fn`, with 429 beside 503.
fn reqwest_own() -> anyhow::Result<Caller> {
    let retry =
        reqwest::retry::for_host("127.0.0.1").classify_fn(|seen| match (seen.method(), seen.status()) {
            (&Method::GET, Some(status)) if is_refusal(status) => seen.retryable(),
            _ => seen.success(),
        });
    let client = Client::builder().retry(retry).build()?;
    Ok(Caller::new("reqwest", "reqwest::retry", move |method, url, _| {
        let request = client.request(method, url);
        async move { of_reqwest(request.send().await) }
    }))
}

/// The example of its README.
fn reqwest_retry() -> anyhow::Result<Caller> {
    let policy = reqwest_retry::policies::ExponentialBackoff::builder().build_with_max_retries(3);
    let client: ClientWithMiddleware = reqwest_middleware::ClientBuilder::new(http()?)
        .with(RetryTransientMiddleware::new_with_policy(policy))
        .build();
    Ok(Caller::new(
        "reqwest-retry",
        "reqwest-retry",
        move |method, url, _| {
            let request = client.request(method, url);
            async move {
                request
                    .send()
                    .await
                    .map_or(Ended::Failed, |response| ended(response.status()))
            }
        },
    ))
}

/// A policy of the parts that tower has: three attempts, its budget and its backoff, both with their defaults.
#[derive(Clone)]
struct Tower {
    left: usize,
    budget: Arc<TpsBudget>,
    backoff: ExponentialBackoff,
}

type Asked = (Method, String);

impl tower::retry::Policy<Asked, Response, reqwest::Error> for Tower {
    type Future = tokio::time::Sleep;

    fn retry(&mut self, _: &mut Asked, result: &mut reqwest::Result<Response>) -> Option<Self::Future> {
        match result {
            Ok(response) if is_refusal(response.status()) => {
                let granted = self.budget.withdraw();
                self.left = self.left.checked_sub(1).filter(|_| granted)?;
                Some(self.backoff.next_backoff())
            }
            _ => {
                self.budget.deposit();
                None
            }
        }
    }

    fn clone_request(&mut self, request: &Asked) -> Option<Asked> {
        Some(request.clone())
    }
}

fn tower_retry() -> anyhow::Result<Caller> {
    let client = http()?;
    let policy = Tower {
        left: 2,
        budget: Arc::new(TpsBudget::default()),
        backoff: ExponentialBackoffMaker::default().make_backoff(),
    };
    Ok(Caller::new("tower", "tower::retry", move |method, url, _| {
        let client = client.clone();
        let service = tower::service_fn(move |(method, url): Asked| client.request(method, url).send());
        let service = tower::retry::Retry::new(policy.clone(), service);
        async move { of_reqwest(service.oneshot((method, url)).await) }
    }))
}

/// A refusal as an error that keeps the head.
struct Head {
    status: Option<StatusCode>,
    headers: HeaderMap,
}

async fn fetch(client: Client, method: Method, url: String) -> Result<StatusCode, Head> {
    let response = client.request(method, url).send().await.map_err(|_| Head {
        status: None,
        headers: HeaderMap::new(),
    })?;
    if response.status().is_success() {
        return Ok(response.status());
    }
    Err(Head {
        status: Some(response.status()),
        headers: response.headers().clone(),
    })
}

fn of_head(result: Result<StatusCode, Head>) -> Ended {
    match result {
        Ok(status) => ended(status),
        Err(head) => head.status.map_or(Ended::Failed, ended),
    }
}

/// The example of its README.
fn backon_plain() -> anyhow::Result<Caller> {
    let client = http()?;
    Ok(Caller::new("backon", "backon", move |method, url, _| {
        let client = client.clone();
        async move {
            let fetch = || fetch(client.clone(), method.clone(), url.clone());
            of_head(fetch.retry(ExponentialBuilder::default()).await)
        }
    }))
}

/// The example of its documentation for `Retry-After`.
fn backon_hinted() -> anyhow::Result<Caller> {
    let client = http()?;
    Ok(Caller::new(
        "backon",
        "backon, its Retry-After example",
        move |method, url, _| {
            let client = client.clone();
            async move {
                let fetch = || fetch(client.clone(), method.clone(), url.clone());
                let adjust = |head: &Head, wait: Option<Duration>| match head.headers.get(RETRY_AFTER) {
                    Some(value) => {
                        let seconds = value.to_str().unwrap_or("0").parse().unwrap_or(0);
                        Some(Duration::from_secs(seconds))
                    }
                    None => wait,
                };
                of_head(fetch.retry(ExponentialBuilder::default()).adjust(adjust).await)
            }
        },
    ))
}

#[cfg(feature = "backoff")]
mod backoff_loops {
    //! `backoff`'s async loop with its default `ExponentialBackoff`.

    use holdoff_backoff::backoff::{Error, ExponentialBackoff, future};

    use super::{Caller, Duration, Head, RETRY_AFTER, fetch, http, of_head};

    pub(super) fn plain() -> anyhow::Result<Caller> {
        let client = http()?;
        Ok(Caller::new("backoff", "backoff", move |method, url, _| {
            let client = client.clone();
            async move {
                let fetch = || {
                    let fetch = fetch(client.clone(), method.clone(), url.clone());
                    async { fetch.await.map_err(Error::transient) }
                };
                of_head(future::retry(ExponentialBackoff::default(), fetch).await)
            }
        }))
    }

    /// With `Error::retry_after`, "useful for 429 errors", from an integer `Retry-After`.
    pub(super) fn hinted() -> anyhow::Result<Caller> {
        let client = http()?;
        Ok(Caller::new(
            "backoff",
            "backoff, Error::retry_after",
            move |method, url, _| {
                let client = client.clone();
                async move {
                    let fetch = || {
                        let fetch = fetch(client.clone(), method.clone(), url.clone());
                        async { fetch.await.map_err(transient) }
                    };
                    of_head(future::retry(ExponentialBackoff::default(), fetch).await)
                }
            },
        ))
    }

    fn transient(head: Head) -> Error<Head> {
        let value = head.headers.get(RETRY_AFTER);
        let seconds = value.and_then(|value| value.to_str().ok()?.parse().ok());
        match seconds {
            Some(seconds) => Error::retry_after(head, Duration::from_secs(seconds)),
            None => Error::transient(head),
        }
    }
}

fn holdoff_client() -> Caller {
    let client = holdoff::Client::new();
    Caller::new("holdoff", "holdoff", move |method, url, patience| {
        let request = client.request(method, url).deadline(patience);
        async move {
            match request.send().await {
                Ok(response) => ended(response.status()),
                Err(error) if error.retry_in().is_some() => Ended::Refused,
                Err(error) => match error.overload() {
                    Some(overload) => Ended::Status(overload.status.as_u16()),
                    None => Ended::Failed,
                },
            }
        }
    })
}

/// `backon`'s loop with our waits.
fn holdoff_bridge() -> anyhow::Result<Caller> {
    let client = http()?;
    let pacer = Pacer::new();
    Ok(Caller::new(
        "holdoff-backoff",
        "backon + holdoff-backoff",
        move |method, url, patience| {
            let client = client.clone();
            let safety = if method.is_idempotent() {
                Safety::Idempotent
            } else {
                Safety::Unsafe
            };
            let call = pacer.call(CallSpec {
                deadline: Some(patience),
                ..CallSpec::new(safety, Replay::Bytes)
            });
            async move {
                let attempt = || async {
                    if call.begin().is_err() {
                        return Err(Head {
                            status: None,
                            headers: HeaderMap::new(),
                        });
                    }
                    let result = fetch(client.clone(), method.clone(), url.clone()).await;
                    call.told(result, |head| match head.status {
                        Some(status) => outcome_of(status, &head.headers, None),
                        None => Outcome::Broken,
                    })
                };
                let ended = of_head(attempt.retry(call.clone()).await);
                match call.give_up() {
                    Some(give_up) if give_up.retry_in.is_some() => Ended::Refused,
                    _ => ended,
                }
            }
        },
    ))
}
