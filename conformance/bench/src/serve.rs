//! What does admission cost a server that has work for everybody, and what does a refusal cost it? The handler does
//! nothing, so that everything is seen: with real work behind it each ratio only comes closer to 1. The server has one
//! thread, which the load keeps busy; servers take turns, a fraction of a second each.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::error_handling::HandleErrorLayer;
use axum::routing::{get, post};
use axum::{Json, Router};
use holdoff_admission::Profile;
use holdoff_admission::profile::Class;
use holdoff_admission_tower::{Admission, AdmissionLayer, Ask, Gate, Permit};
use http::StatusCode;
use serde::Serialize;
use tower::{BoxError, ServiceBuilder};

use crate::clock;
use crate::host::{Host, one_thread};
use crate::stats::{Spread, paired_ratios};
use crate::wire::{Answers, ClosedLoad};

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds: each gives one ratio of each server.
    pub rounds: usize,
    /// How long one server is loaded in a round.
    pub length: Duration,
    /// Connections that are kept busy.
    pub connections: usize,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A GET about which nothing is said.
    Get,
    /// The same with the fields that our client sends: deadline, tier, class, attempt.
    GetWithFields,
    /// A POST of 4 KiB of JSON, which the handler parses.
    Post,
    /// A GET with the fields whose handler computes for 100 microseconds: about the least that is worth protecting.
    Work,
}

/// What the handler of [`Shape::Work`] computes for.
const COMPUTED: Duration = Duration::from_micros(100);

/// One server's figures.
#[derive(Clone, Debug, Serialize)]
pub struct ServerFigures {
    /// Which.
    pub name: &'static str,
    /// Answers a second.
    pub rate: Spread,
    /// Processor time of the server a request, microseconds.
    pub cpu_us: Spread,
    /// Share of the time in which the server's thread was busy: near 1 where it is what limits.
    pub busy: Spread,
    /// Rate through that of the first in the same round.
    pub rate_ratio: Spread,
    /// The first's processor time a request through this one's: what the rate's ratio is without disturbance.
    pub cpu_ratio: Spread,
}

/// Servers, or ways through one server, side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Rates {
    /// What was asked.
    pub shape: Shape,
    /// Rounds.
    pub rounds: usize,
    /// Seconds a round of each.
    pub seconds: f64,
    /// Connections.
    pub connections: usize,
    /// The first is what the others are compared with.
    pub servers: Vec<ServerFigures>,
}

/// The server that the others are compared with.
pub const BARE: &str = "axum";
/// With tower's limits.
const LIMITED: &str = "axum + load_shed + concurrency_limit";
/// With our layer.
pub const OURS: &str = "axum + AdmissionLayer";
/// Refusals of our layer.
pub const REFUSED: &str = "refused";

fn routes() -> Router {
    let parse = async |Json(value): Json<serde_json::Value>| {
        value["payload"].as_str().map_or(0, str::len).to_string()
    };
    Router::new()
        .route("/", get(async || "ok"))
        .route("/", post(parse))
        .route("/work", get(compute))
}

/// Keeps its thread busy, as parsing, rendering or encoding does.
async fn compute() -> &'static str {
    let begun = clock::thread_cpu();
    while clock::thread_cpu() - begun < COMPUTED {
        std::hint::spin_loop();
    }
    "ok"
}

/// What our client says of a request.
pub(crate) const FIELDS: [(&str, &str); 4] = [
    ("overload-deadline-ms", "5000"),
    ("overload-tier", "deferrable"),
    ("overload-task-class", "job"),
    ("overload-attempt", "1"),
];

fn request(shape: Shape) -> Vec<u8> {
    let fields: String = match shape {
        Shape::Get => String::new(),
        Shape::GetWithFields | Shape::Post | Shape::Work => FIELDS
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .concat(),
    };
    match shape {
        Shape::Get | Shape::GetWithFields | Shape::Work => {
            let path = if shape == Shape::Work { "/work" } else { "/" };
            format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: */*\r\n{fields}\r\n").into_bytes()
        }
        Shape::Post => {
            let body = format!(r#"{{"payload":"{}"}}"#, "x".repeat(4 << 10));
            let length = body.len();
            format!(
                "POST / HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: */*\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{fields}\r\n{body}"
            )
            .into_bytes()
        }
    }
}

/// Room for every connection, and none to wait in where all workers are taken.
fn admission(connections: usize) -> anyhow::Result<Admission> {
    let profile = Profile {
        workers: u32::try_from(connections)? * 2,
        queue: 0,
        classes: [(
            "job".to_owned(),
            Class {
                mean_ms: 1.0,
                ..Class::default()
            },
        )]
        .into(),
        ..Profile::default()
    };
    Ok(Admission::start(profile, None)?)
}

/// What was read off one server in its turns.
#[derive(Debug, Default)]
struct Readings {
    rate: Vec<f64>,
    cpu_us: Vec<f64>,
    busy: Vec<f64>,
}

impl Readings {
    async fn take(
        &mut self,
        host: &Host,
        load: &mut ClosedLoad,
        length: Duration,
    ) -> anyhow::Result<Answers> {
        let (cpu, begun) = (host.cpu().await?, clock::now());
        let answers = load.run(length).await?;
        let took = (clock::now() - begun).as_secs_f64();
        let cpu = (host.cpu().await? - cpu).as_secs_f64();
        let all = answers.served + answers.refused + answers.other;
        ensure!(all > 0, "no answer in {length:?}");
        self.rate.push(all as f64 / took);
        self.cpu_us.push(cpu * 1e6 / all as f64);
        self.busy.push(cpu / took);
        Ok(answers)
    }

    fn figures(&self, name: &'static str, first: &Self) -> Option<ServerFigures> {
        Some(ServerFigures {
            name,
            rate: Spread::of(&self.rate)?,
            cpu_us: Spread::of(&self.cpu_us)?,
            busy: Spread::of(&self.busy)?,
            rate_ratio: Spread::of(&paired_ratios(&self.rate, &first.rate))?,
            cpu_ratio: Spread::of(&paired_ratios(&first.cpu_us, &self.cpu_us))?,
        })
    }
}

fn rates(plan: Plan, shape: Shape, readings: &[(&'static str, Readings)]) -> anyhow::Result<Rates> {
    let (_, first) = readings.first().context("no servers")?;
    let servers = readings
        .iter()
        .map(|(name, readings)| readings.figures(name, first).context("no rounds"))
        .collect::<anyhow::Result<_>>()?;
    Ok(Rates {
        shape,
        rounds: plan.rounds,
        seconds: plan.length.as_secs_f64(),
        connections: plan.connections,
        servers,
    })
}

/// tower's limits around the routes.
fn limited(connections: usize) -> Router {
    let limits = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(async |_: BoxError| {
            StatusCode::SERVICE_UNAVAILABLE
        }))
        .load_shed()
        .concurrency_limit(connections * 2);
    routes().layer(limits)
}

/// Our layer around the routes.
fn admitted(connections: usize) -> anyhow::Result<Router> {
    let gate = Gate::new(admission(connections)?);
    Ok(routes().layer(AdmissionLayer::new(gate)))
}

/// Bare axum, axum with tower's limits, axum with our layer, within the current runtime.
pub(crate) fn routers(connections: usize) -> anyhow::Result<Vec<(&'static str, Router)>> {
    Ok(vec![
        (BARE, routes()),
        (LIMITED, limited(connections)),
        (OURS, admitted(connections)?),
    ])
}

/// Bare axum, axum with tower's limits, axum with our layer: all of them serve everything.
///
/// # Errors
/// When a request is not served.
pub fn throughput(plan: Plan, shape: Shape) -> anyhow::Result<Rates> {
    let Plan { connections, .. } = plan;
    let hosts = [
        (BARE, Host::start(|| Ok(routes()))?),
        (LIMITED, Host::start(move || Ok(limited(connections)))?),
        (OURS, Host::start(move || admitted(connections))?),
    ];
    let readings = one_thread()?.block_on(async {
        let mut contest = Vec::new();
        for (name, host) in &hosts {
            let mut load = ClosedLoad::connect(host.addr, connections, request(shape)).await?;
            load.run(plan.length).await?;
            contest.push((*name, host, load, Readings::default()));
        }
        for round in 0..plan.rounds {
            for step in 0..contest.len() {
                let turn = (round + step) % contest.len();
                let (name, host, load, readings) = &mut contest[turn];
                let answers = readings.take(host, load, plan.length).await?;
                ensure!(
                    answers.refused + answers.other == 0,
                    "{name} did not serve everything: {answers:?}"
                );
            }
        }
        let readings = contest.into_iter().map(|(name, _, _, readings)| (name, readings));
        Ok::<Vec<_>, anyhow::Error>(readings.collect())
    })?;
    rates(plan, shape, &readings)
}

/// The same requests to the same server, served in one turn and refused in the next, while all its workers are held.
///
/// # Errors
/// When a request is refused that should be served, or the other way round.
pub fn refusals(plan: Plan, shape: Shape) -> anyhow::Result<Rates> {
    let Plan { connections, .. } = plan;
    let shared = Arc::new(OnceLock::new());
    let host = Host::start({
        let shared = Arc::clone(&shared);
        move || {
            let admission = shared.get_or_init(|| admission(connections));
            let admission = admission.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
            Ok(routes().layer(AdmissionLayer::new(Gate::new(admission.clone()))))
        }
    })?;
    let Some(Ok(admission)) = shared.get() else {
        anyhow::bail!("the server has no admission");
    };
    let readings = one_thread()?.block_on(async {
        let mut load = ClosedLoad::connect(host.addr, connections, request(shape)).await?;
        load.run(plan.length).await?;
        let (mut served, mut refused) = (Readings::default(), Readings::default());
        for _ in 0..plan.rounds {
            let answers = served.take(&host, &mut load, plan.length).await?;
            ensure!(
                answers.refused + answers.other == 0,
                "not everything was served: {answers:?}"
            );
            let held = hold_all(admission).await?;
            let answers = refused.take(&host, &mut load, plan.length).await?;
            drop(held);
            ensure!(
                answers.served + answers.other == 0,
                "not everything was refused: {answers:?}"
            );
        }
        Ok::<_, anyhow::Error>([("served", served), (REFUSED, refused)])
    })?;
    rates(plan, shape, &readings)
}

/// Takes every worker.
async fn hold_all(admission: &Admission) -> anyhow::Result<Vec<Permit>> {
    let mut held = Vec::new();
    for _ in 0..admission.profile().workers {
        // With a long deadline: what is held is work like any other.
        let ask = Ask {
            deadline: Some(Duration::from_secs(600)),
            ..Ask::default()
        };
        held.push(admission.enter(&ask).await?);
    }
    Ok(held)
}
