//! What does obeying cost when nothing is wrong? Almost every call is answered at once, so that is the call to
//! measure: the same request through six clients to the same server, one call each in turn, over one kept connection
//! each. Plain reqwest (its retries off) is what the others are compared with.
//!
//! What ran just before a call decides which of its code and data the processor still has at hand: that alone makes two
//! clients that are the same differ by some percent where the turns have a fixed order, so the order is drawn. And where
//! the clients take turns call by call, the code that they share (reqwest's) is warm for all of them, and what one has
//! for itself is cold each time, as it is in no program that uses one of them. So a turn is a block of calls; a block of
//! one shows the worst case. The server is a process of its own.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use holdoff::contract::field_name;
use holdoff::{Tier, reqwest};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use reqwest_middleware::ClientWithMiddleware;
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use serde::Serialize;
use serde_json::json;

use crate::child::Server;
use crate::clock;
use crate::host::one_thread;
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
    /// Calls that one client makes in a row before the next has its turn.
    pub block: usize,
    /// Draws the order of the turns.
    pub seed: u64,
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

impl Shape {
    /// Every kind of request.
    pub const ALL: [Self; 2] = [Self::Get, Self::Post];

    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
        }
    }
}

/// How many are compared.
const MANY: usize = 6;

/// Who is compared, in the order of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// reqwest, its retries off.
    Plain,
    /// reqwest, retrying by itself.
    OwnRetries,
    /// reqwest-middleware with reqwest-retry.
    ReqwestRetry,
    /// Ours.
    Holdoff,
    /// reqwest, its retries off, saying what ours says: the part of the cost that the contract's request fields are.
    ByHand,
    /// reqwest, its retries off, with a time limit. The POST has one for everybody: there it is the first client once
    /// more, and shows how far two that are the same differ.
    Limited,
}

/// Everybody, plain reqwest first.
pub const CONTESTANTS: [Contestant; MANY] = [
    Contestant::Plain,
    Contestant::OwnRetries,
    Contestant::ReqwestRetry,
    Contestant::Holdoff,
    Contestant::ByHand,
    Contestant::Limited,
];

impl Contestant {
    /// As the reports call it.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::OwnRetries => "own-retries",
            Self::ReqwestRetry => "reqwest-retry",
            Self::Holdoff => "holdoff",
            Self::ByHand => "by-hand",
            Self::Limited => "limited",
        }
    }

    fn client(self) -> anyhow::Result<Client> {
        let plain = || reqwest::Client::builder().retry(reqwest::retry::never());
        Ok(match self {
            Self::Plain => Client::Plain(plain().build()?),
            Self::OwnRetries => {
                let own = reqwest::retry::for_host("127.0.0.1").classify_fn(|answer| match answer.status() {
                    Some(status) if status.is_server_error() => answer.retryable(),
                    _ => answer.success(),
                });
                Client::Plain(reqwest::Client::builder().retry(own).build()?)
            }
            Self::ReqwestRetry => {
                let policy = ExponentialBackoff::builder().build_with_max_retries(3);
                let stack = reqwest_middleware::ClientBuilder::new(plain().build()?)
                    .with(RetryTransientMiddleware::new_with_policy(policy));
                Client::Middleware(stack.build())
            }
            Self::Holdoff => Client::Holdoff(holdoff::Client::new()),
            Self::ByHand => Client::ByHand(plain().build()?),
            Self::Limited => Client::Limited(plain().build()?),
        })
    }
}

/// Makes calls and nothing else, for a tool that counts what this process does.
///
/// # Errors
/// For unknown words, and when a call fails.
pub fn make(client: &str, shape: &str, calls: usize, url: &str) -> anyhow::Result<()> {
    let find = CONTESTANTS.into_iter().find(|known| known.word() == client);
    let contestant = find.with_context(|| format!("no client is called {client:?}"))?;
    let find = Shape::ALL.into_iter().find(|known| known.word() == shape);
    let shape = find.with_context(|| format!("no request is called {shape:?}"))?;
    let client = contestant.client()?;
    let payload = payload();
    one_thread()?.block_on(async {
        for _ in 0..calls {
            client.call(url, shape, &payload).await?;
        }
        Ok(())
    })
}

fn payload() -> serde_json::Value {
    json!({"payload": "x".repeat(1000)})
}

/// A client under measure.
#[derive(Debug)]
enum Client {
    Plain(reqwest::Client),
    Middleware(ClientWithMiddleware),
    Holdoff(holdoff::Client),
    ByHand(reqwest::Client),
    Limited(reqwest::Client),
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
    /// Calls in a row.
    pub block: usize,
    /// Per client, plain reqwest first.
    pub clients: Vec<ClientFigures>,
}

/// Names, in the order of `clients`.
pub const NAMES: [&str; MANY] = [
    "reqwest, no retries",
    "reqwest, its own retries",
    "reqwest-middleware + reqwest-retry",
    "holdoff::Client",
    "reqwest, no retries, with Holdoff's fields set by hand",
    "reqwest, no retries, with a time limit",
];

impl Client {
    /// One call, to the last byte of its answer.
    async fn call(&self, url: &str, shape: Shape, payload: &serde_json::Value) -> anyhow::Result<()> {
        let response = match (self, shape) {
            (Self::Plain(client), Shape::Get) => client.get(url).send().await?,
            (Self::Middleware(client), Shape::Get) => client.get(url).send().await?,
            (Self::Holdoff(client), Shape::Get) => client.get(url).send().await?,
            (Self::ByHand(client), Shape::Get) => {
                let call = client.get(url);
                call.header(field_name::OVERLOAD_ATTEMPT, 1).send().await?
            }
            (Self::Limited(client), Shape::Get) => client.get(url).timeout(LIMIT).send().await?,
            (Self::Plain(client) | Self::Limited(client), Shape::Post) => {
                client.post(url).timeout(LIMIT).json(payload).send().await?
            }
            (Self::Middleware(client), Shape::Post) => {
                client.post(url).timeout(LIMIT).json(payload).send().await?
            }
            (Self::Holdoff(client), Shape::Post) => {
                let call = client.post(url).deadline(LIMIT).json(payload);
                call.tier(Tier::Deferrable).task_class("job").send().await?
            }
            (Self::ByHand(client), Shape::Post) => {
                let call = client.post(url).timeout(LIMIT).json(payload);
                let limit = u32::try_from(LIMIT.as_millis())?;
                call.header(field_name::OVERLOAD_DEADLINE_MS, limit)
                    .header(field_name::OVERLOAD_TIER, Tier::Deferrable.as_str())
                    .header(field_name::OVERLOAD_TASK_CLASS, "job")
                    .header(field_name::OVERLOAD_ATTEMPT, 1)
                    .send()
                    .await?
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
    let server = Server::start()?;
    let runtime = one_thread()?;
    let url = server.url();
    let payload = payload();
    let clients: Vec<_> = CONTESTANTS
        .into_iter()
        .map(Contestant::client)
        .collect::<Result<_, _>>()?;
    let mut order = StdRng::seed_from_u64(plan.seed);
    runtime.block_on(async {
        for client in &clients {
            for _ in 0..WARM_UP {
                client.call(url, shape, &payload).await?;
            }
        }
        Ok::<_, anyhow::Error>(())
    })?;
    let mut rounds = Rounds::default();
    for _ in 0..plan.rounds {
        let request = (url, shape, &payload);
        runtime.block_on(round(&clients, plan, request, &mut order, &mut rounds))?;
    }
    let mut figures = Vec::new();
    for (index, client) in clients.iter().enumerate() {
        let mut failed = None;
        let counted = allocation_counter::measure(|| {
            failed = runtime
                .block_on(async {
                    for _ in 0..COUNTED {
                        client.call(url, shape, &payload).await?;
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
        block: plan.block,
        clients: figures,
    })
}

/// Per client, one entry a round.
#[derive(Debug, Default)]
struct Rounds {
    p50_us: [Vec<f64>; MANY],
    p99_us: [Vec<f64>; MANY],
    cpu_us: [Vec<f64>; MANY],
}

impl Rounds {
    fn figures(&self, index: usize, allocations: f64) -> Option<ClientFigures> {
        let ratio = |of: &[Vec<f64>; MANY]| Spread::of(&paired_ratios(&of[index], &of[0]));
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

/// One block each in turn, in an order that is drawn each time.
async fn round(
    clients: &[Client],
    plan: Plan,
    (url, shape, payload): (&str, Shape, &serde_json::Value),
    order: &mut StdRng,
    rounds: &mut Rounds,
) -> anyhow::Result<()> {
    let mut took: [Vec<f64>; MANY] = Default::default();
    let mut cpu = [Duration::ZERO; MANY];
    let mut turn: [usize; MANY] = std::array::from_fn(|index| index);
    let mut left = plan.calls;
    while left > 0 {
        let block = plan.block.clamp(1, left);
        left -= block;
        turn.shuffle(order);
        for index in turn {
            let cpu_before = clock::thread_cpu();
            for _ in 0..block {
                let before = clock::now();
                clients[index]
                    .call(url, shape, payload)
                    .await
                    .with_context(|| NAMES[index])?;
                took[index].push((clock::now() - before).as_secs_f64() * 1e6);
            }
            cpu[index] += clock::thread_cpu() - cpu_before;
        }
    }
    for (index, took) in took.iter_mut().enumerate() {
        rounds.p50_us[index].extend(quantile_of(took, 0.5));
        rounds.p99_us[index].extend(quantile_of(took, 0.99));
        rounds.cpu_us[index].push(cpu[index].as_secs_f64() * 1e6 / plan.calls as f64);
    }
    Ok(())
}
