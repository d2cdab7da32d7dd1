//! Rust clients under test, one by name: `holdoff-third-party-clients reqwest-retry | backon | tower-retry`.
//!
//! Each is used as its documentation shows. The protocol is conformance/contract/ADAPTER.md.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable as _};
use reqwest::{Method, Request, Response, StatusCode};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_retry::{RetryTransientMiddleware, policies::ExponentialBackoff};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tower::retry::Policy;
use tower::retry::backoff::{
    Backoff as _, ExponentialBackoff as TowerBackoff, ExponentialBackoffMaker, MakeBackoff as _,
};
use tower::retry::budget::{Budget as _, TpsBudget};
use tower::{ServiceBuilder, ServiceExt as _};

type BoxError = Box<dyn Error + Send + Sync>;

/// A client that calls share.
#[derive(Clone)]
enum Client {
    ReqwestRetry(ClientWithMiddleware),
    Backon(reqwest::Client),
    TowerRetry(reqwest::Client, Arc<TpsBudget>),
}

impl Client {
    fn new(name: &str) -> Self {
        match name {
            "backon" => Client::Backon(reqwest::Client::new()),
            "tower-retry" => Client::TowerRetry(reqwest::Client::new(), Arc::new(TpsBudget::default())),
            _ => {
                let policy = ExponentialBackoff::builder().build_with_max_retries(3);
                let retry = RetryTransientMiddleware::new_with_policy(policy);
                Client::ReqwestRetry(ClientBuilder::new(reqwest::Client::new()).with(retry).build())
            }
        }
    }

    async fn call(self, request: Request, deadline: Option<Duration>) -> Result<StatusCode, BoxError> {
        let response = match self {
            Client::ReqwestRetry(client) => client.execute(request).await?,
            Client::Backon(client) => {
                let once = || async {
                    let again = request.try_clone().ok_or("a stream cannot be sent again")?;
                    Ok::<Response, BoxError>(client.execute(again).await?.error_for_status()?)
                };
                let builder = ExponentialBuilder::default().with_total_delay(deadline);
                once.retry(builder).await?
            }
            Client::TowerRetry(client, budget) => {
                let backoff = ExponentialBackoffMaker::default().make_backoff();
                let service = ServiceBuilder::new()
                    .timeout(deadline.unwrap_or(Duration::MAX))
                    .retry(Attempts {
                        left: 3,
                        budget,
                        backoff,
                    })
                    .service(client);
                service.oneshot(request).await?
            }
        };
        let status = response.status();
        response.bytes().await?;
        Ok(status)
    }
}

/// tower brings the loop, the budget and the backoff; what to retry is its user's to say. This is the Policy of the docs
/// of `tower::retry::budget` with a limit of attempts, tower's own backoff, and 429 and 5xx as failures.
#[derive(Clone)]
struct Attempts {
    left: u32,
    budget: Arc<TpsBudget>,
    backoff: TowerBackoff,
}

impl<E> Policy<Request, Response, E> for Attempts {
    type Future = <TowerBackoff as tower::retry::backoff::Backoff>::Future;

    fn retry(&mut self, _: &mut Request, result: &mut Result<Response, E>) -> Option<Self::Future> {
        let status = result.as_ref().ok().map(Response::status);
        if status.is_some_and(|status| !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS) {
            self.budget.deposit();
            return None;
        }
        if self.left == 0 || !self.budget.withdraw() {
            return None;
        }
        self.left -= 1;
        Some(self.backoff.next_backoff())
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        request.try_clone()
    }
}

fn about(name: &str) -> (&'static str, &'static str, Vec<&'static str>) {
    match name {
        "backon" => (
            "1.6.0, reqwest 0.13.5",
            "(|| client.execute(request).error_for_status()).retry(ExponentialBuilder::default()); a call's time by with_total_delay",
            vec!["call_time"],
        ),
        "tower-retry" => (
            "0.5.3, reqwest 0.13.5",
            "ServiceBuilder: timeout, then retry with tower's TpsBudget::default() and ExponentialBackoffMaker::default(), 3 retries of 429 and 5xx, \
             around reqwest; a call's time by timeout",
            vec!["call_time"],
        ),
        _ => (
            "0.9.1, reqwest 0.13.5",
            "RetryTransientMiddleware::new_with_policy(ExponentialBackoff::builder().build_with_max_retries(3)); \
             no setting for a whole call's time",
            vec![],
        ),
    }
}

fn request(command: &Value) -> Result<Request, BoxError> {
    let asked = &command["request"];
    let method = Method::from_bytes(asked["method"].as_str().unwrap_or("GET").as_bytes())?;
    let mut request = Request::new(method, asked["url"].as_str().unwrap_or_default().parse()?);
    for (name, value) in asked["headers"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default().parse()?;
        request
            .headers_mut()
            .insert(reqwest::header::HeaderName::from_bytes(name.as_bytes())?, value);
    }
    if let Some(body) = asked["body"].as_str() {
        *request.body_mut() = Some(body.to_owned().into());
    }
    Ok(request)
}

async fn call(client: Client, command: Value) {
    let begun = Instant::now();
    let deadline = command["request"]["deadline_ms"]
        .as_u64()
        .map(Duration::from_millis);
    let ended = match request(&command) {
        Ok(request) => client.call(request, deadline).await,
        Err(error) => Err(error),
    };
    let mut result = match ended {
        Ok(status) => json!({"kind": "response", "status": status.as_u16()}),
        Err(error) => json!({"kind": "error", "why": "transport", "message": error.to_string()}),
    };
    result["elapsed_ms"] = json!(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
    println!("{}", json!({"id": command["id"], "result": result}));
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let name = std::env::args().nth(1).unwrap_or_default();
    if !matches!(name.as_str(), "reqwest-retry" | "backon" | "tower-retry") {
        return Err("say which client: reqwest-retry, backon or tower-retry".into());
    }
    let clients: Mutex<HashMap<String, Client>> = Mutex::default();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let command: Value = serde_json::from_str(&line)?;
        let id = &command["id"];
        let client = command["client"].as_str().unwrap_or_default().to_owned();
        let mut clients = clients.lock().map_err(|_| "a holder of the lock panicked")?;
        match command["cmd"].as_str().unwrap_or_default() {
            "hello" => {
                let (version, configuration, capabilities) = about(&name);
                let about = json!({"name": name, "version": version, "configuration": configuration});
                let hello = json!({"id": id, "protocol": 1, "role": "client", "implementation": about,
                    "contract_versions": [1], "capabilities": capabilities});
                println!("{hello}");
            }
            "configure" => {
                clients.insert(client, Client::new(&name));
                println!("{}", json!({"id": id, "ok": true}));
            }
            "call" => match clients.get(&client).cloned() {
                Some(client) => drop(tokio::spawn(call(client, command))),
                None => println!("{}", json!({"id": id, "error": "not configured"})),
            },
            "stop" => {
                println!("{}", json!({"id": id, "ok": true}));
                return Ok(());
            }
            _ => println!("{}", json!({"id": id, "error": "unknown_command"})),
        }
    }
    Ok(())
}
