//! What does obeying cost when nothing is wrong? Almost every call is answered at once, so that is the call to
//! measure: the same request through four clients to the same server, one call each in turn, over one kept connection
//! each. Plain reqwest (its retries off) is what the others are compared with.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use axum::Router;
use axum::routing::{get, post};
use holdoff::{Tier, reqwest};
use reqwest_middleware::ClientWithMiddleware;
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use serde::Serialize;
use serde_json::json;

use crate::clock;
use crate::host::{Host, one_thread};
use crate::stats::{Spread, paired_ratios, quantile_of};

/// The time limit of calls that have one.
const LIMIT: Duration = Duration::from_secs(5);

/// Calls that open the connections and warm the caches, per client.
const WARM_UP: usize = 200;

/// Calls whose allocations are counted, per client.
const COUNTED: usize = 200;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Pairs: each gives one ratio.
    pub rounds: usize,
    /// Calls of each client in a round.
    pub calls: usize,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A GET about which nothing is said.
    Get,
    /// A POST of 1 KiB of JSON with a time limit; through Holdoff with a deadline, a tier and a class.
    Post,
}

/// A client under measure.
#[derive(Debug)]
enum Client {
    Plain(reqwest::Client),
    Middleware(ClientWithMiddleware),
    Holdoff(holdoff::Client),
}

/// One client's figures, one entry a round.
#[derive(Clone, Debug, Serialize)]
pub struct ClientFigures {
    /// Which.
    pub name: &'static str,
    /// Median latency of a round, microseconds.
    pub p50_us: Spread,
    /// 99th percentile of a round, microseconds.
    pub p99_us: Spread,
    /// Processor time of the caller's thread a call, microseconds.
    pub cpu_us: Spread,
    /// Median latency through that of plain reqwest in the same round.
    pub p50_ratio: Spread,
    /// 99th percentile likewise.
    pub p99_ratio: Spread,
    /// Processor time likewise.
    pub cpu_ratio: Spread,
    /// Allocations of the caller's thread a call.
    pub allocations: f64,
}

/// All clients with one kind of request.
#[derive(Clone, Debug, Serialize)]
pub struct Calls {
    /// What was sent.
    pub shape: Shape,
    /// Rounds and calls a round of each client.
    pub rounds: usize,
    /// Calls of each client in a round.
    pub calls: usize,
    /// Per client, plain reqwest first.
    pub clients: Vec<ClientFigures>,
}

/// Names, in the order of `clients`.
pub const NAMES: [&str; 4] = [
    "reqwest, no retries",
    "reqwest, its own retries",
    "reqwest-middleware + reqwest-retry",
    "holdoff::Client",
];

fn clients() -> anyhow::Result<[Client; 4]> {
    let plain = || reqwest::Client::builder().retry(reqwest::retry::never());
    let own = reqwest::retry::for_host("127.0.0.1").classify_fn(|answer| match answer.status() {
        Some(status) if status.is_server_error() => answer.retryable(),
        _ => answer.success(),
    });
    let policy = ExponentialBackoff::builder().build_with_max_retries(3);
    let middleware = reqwest_middleware::ClientBuilder::new(plain().build()?)
        .with(RetryTransientMiddleware::new_with_policy(policy))
        .build();
    Ok([
        Client::Plain(plain().build()?),
        Client::Plain(reqwest::Client::builder().retry(own).build()?),
        Client::Middleware(middleware),
        Client::Holdoff(holdoff::Client::new()),
    ])
}

impl Client {
    /// One call, to the last byte of its answer.
    async fn call(&self, url: &str, shape: Shape, payload: &serde_json::Value) -> anyhow::Result<()> {
        let response = match (self, shape) {
            (Self::Plain(client), Shape::Get) => client.get(url).send().await?,
            (Self::Middleware(client), Shape::Get) => client.get(url).send().await?,
            (Self::Holdoff(client), Shape::Get) => client.get(url).send().await?,
            (Self::Plain(client), Shape::Post) => {
                client.post(url).timeout(LIMIT).json(payload).send().await?
            }
            (Self::Middleware(client), Shape::Post) => {
                client.post(url).timeout(LIMIT).json(payload).send().await?
            }
            (Self::Holdoff(client), Shape::Post) => {
                let call = client.post(url).deadline(LIMIT).json(payload);
                call.tier(Tier::Deferrable).task_class("job").send().await?
            }
        };
        let status = response.status();
        let body = response.bytes().await?;
        ensure!(
            status.is_success() && body == "ok",
            "the server answered {status} instead of 200 ok"
        );
        Ok(())
    }
}

/// Measures one kind of request.
///
/// # Errors
/// When a call fails: then there is nothing to compare.
pub fn measure(plan: Plan, shape: Shape) -> anyhow::Result<Calls> {
    let host = Host::start(|| {
        Ok(Router::new()
            .route("/", get(async || "ok"))
            .route("/", post(async |_body: axum::body::Bytes| "ok")))
    })?;
    let runtime = one_thread()?;
    let url = host.url();
    let payload = json!({"payload": "x".repeat(1000)});
    let clients = clients()?;
    runtime.block_on(async {
        for client in &clients {
            for _ in 0..WARM_UP {
                client.call(&url, shape, &payload).await?;
            }
        }
        Ok::<_, anyhow::Error>(())
    })?;
    let mut rounds = Rounds::default();
    for _ in 0..plan.rounds {
        runtime.block_on(round(&clients, plan.calls, &url, shape, &payload, &mut rounds))?;
    }
    let mut figures = Vec::new();
    for (index, client) in clients.iter().enumerate() {
        let mut failed = None;
        let counted = allocation_counter::measure(|| {
            failed = runtime
                .block_on(async {
                    for _ in 0..COUNTED {
                        client.call(&url, shape, &payload).await?;
                    }
                    Ok::<_, anyhow::Error>(())
                })
                .err();
        });
        if let Some(error) = failed {
            bail!("{}: {error}", NAMES[index]);
        }
        let allocations = counted.count_total as f64 / COUNTED as f64;
        figures.push(rounds.figures(index, allocations).context("no rounds")?);
    }
    Ok(Calls {
        shape,
        rounds: plan.rounds,
        calls: plan.calls,
        clients: figures,
    })
}

/// Per client, one entry a round.
#[derive(Debug, Default)]
struct Rounds {
    p50_us: [Vec<f64>; 4],
    p99_us: [Vec<f64>; 4],
    cpu_us: [Vec<f64>; 4],
}

impl Rounds {
    fn figures(&self, index: usize, allocations: f64) -> Option<ClientFigures> {
        let ratio = |of: &[Vec<f64>; 4]| Spread::of(&paired_ratios(&of[index], &of[0]));
        Some(ClientFigures {
            name: NAMES[index],
            p50_us: Spread::of(&self.p50_us[index])?,
            p99_us: Spread::of(&self.p99_us[index])?,
            cpu_us: Spread::of(&self.cpu_us[index])?,
            p50_ratio: ratio(&self.p50_us)?,
            p99_ratio: ratio(&self.p99_us)?,
            cpu_ratio: ratio(&self.cpu_us)?,
            allocations,
        })
    }
}

/// One call each in turn. Who begins changes, so that nobody always has the same one before it.
async fn round(
    clients: &[Client; 4],
    calls: usize,
    url: &str,
    shape: Shape,
    payload: &serde_json::Value,
    rounds: &mut Rounds,
) -> anyhow::Result<()> {
    let mut took: [Vec<f64>; 4] = Default::default();
    let mut cpu = [Duration::ZERO; 4];
    for turn in 0..calls {
        for step in 0..clients.len() {
            // 0 1 2 3, then 3 2 1 0 begun one further: each follows each.
            let step = if turn % 2 == 0 {
                step
            } else {
                clients.len() - 1 - step
            };
            let index = (turn / 2 + step) % clients.len();
            let cpu_before = clock::thread_cpu();
            let before = clock::now();
            clients[index]
                .call(url, shape, payload)
                .await
                .with_context(|| NAMES[index])?;
            let after = clock::now();
            cpu[index] += clock::thread_cpu() - cpu_before;
            took[index].push((after - before).as_secs_f64() * 1e6);
        }
    }
    for (index, took) in took.iter_mut().enumerate() {
        rounds.p50_us[index].extend(quantile_of(took, 0.5));
        rounds.p99_us[index].extend(quantile_of(took, 0.99));
        rounds.cpu_us[index].push(cpu[index].as_secs_f64() * 1e6 / calls as f64);
    }
    Ok(())
}
