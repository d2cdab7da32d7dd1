//! The main job, as a function: a server, groups of callers, a load above what the server can do, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use holdoff::contract::ServiceState;
use holdoff_admission::Snapshot;
use holdoff_server::{Server, ServerConfig};
use tokio_util::sync::CancellationToken;

use crate::load::{self, CLASS, Caller, Deaf, Live, Load, now};
use crate::report::{Group, Service};
use crate::tally::Tally;
use crate::watch;

/// Mean time of a task: with the number of workers, the server's capacity.
pub const MEAN: Duration = Duration::from_millis(40);
/// How the server knows the two groups of callers: each is a tenant of its own.
const TOKENS: [&str; 2] = ["token-of-those-who-obey", "token-of-those-who-ignore"];
/// Longest wait for the server to be normal again after the last arrival: the longest patience, and the ramp.
const RECOVERY: Duration = Duration::from_secs(10);

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Callers {
    /// Half of the load from each kind.
    Both,
    /// All of it from callers that obey.
    Holdoff,
    /// All of it from callers that ignore hints.
    Deaf,
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How long calls keep arriving.
    pub length: Duration,
    /// Workers of the server: 8 of them do 200 tasks/s.
    pub workers: u32,
    /// Load as a multiple of the server's capacity.
    pub load: f64,
    /// Who calls.
    pub callers: Callers,
    /// Same seed, same arrivals and service times.
    pub seed: u64,
}

impl Plan {
    /// Calls that are to be expected of it.
    pub fn calls(&self) -> f64 {
        capacity(self) * self.load * self.length.as_secs_f64()
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Per group of callers.
    pub groups: Vec<Group>,
    /// The server's side.
    pub service: Service,
}

/// A server that is up, and callers that have not started.
pub struct Storm {
    plan: Plan,
    server: Server,
    callers: Vec<(&'static str, Caller)>,
    /// Figures to watch, per group of callers.
    pub live: Vec<Arc<Live>>,
}

impl Storm {
    /// Starts the server on a free port of loopback.
    ///
    /// # Errors
    /// When there is no port to listen on, or no client can be made.
    pub async fn prepare(plan: Plan) -> anyhow::Result<Self> {
        let server = Server::bind(config(&plan)?)
            .await
            .context("the server does not start")?;
        let callers = callers(plan.callers)?;
        let live = callers.iter().map(|_| Arc::default()).collect();
        Ok(Self {
            plan,
            server,
            callers,
            live,
        })
    }

    /// Where the server listens.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Tasks a second that the server can do.
    pub fn capacity(&self) -> f64 {
        capacity(&self.plan)
    }

    /// Runs to the end, or until it is stopped: then with the figures of what was finished. `show` is handed every
    /// reading of the server's gauges.
    ///
    /// # Errors
    /// When a part of it panicked.
    pub async fn run(
        self,
        stop: CancellationToken,
        show: impl FnMut(&Snapshot) + Send + 'static,
    ) -> anyhow::Result<Outcome> {
        let Self {
            plan,
            server,
            callers,
            live,
        } = self;
        let (url, admission) = (server.url(), server.admission().clone());
        let server_stop = CancellationToken::new();
        let serving = tokio::spawn(server.run(server_stop.clone().cancelled_owned()));
        let watching = CancellationToken::new();
        let watcher = tokio::spawn(watch::watch(admission.clone(), watching.clone(), show));

        let rate = capacity(&plan) * plan.load / callers.len() as f64;
        let loads: Vec<_> = callers
            .iter()
            .zip(live)
            .enumerate()
            .map(|(index, ((_, caller), live))| {
                let load = Load {
                    base: url.clone(),
                    caller: caller.clone(),
                    token: match caller {
                        Caller::Holdoff(_) => TOKENS[0],
                        Caller::Deaf(_) => TOKENS[1],
                    },
                    rate,
                    length: plan.length,
                    tiers: [0.1, 0.3, 0.6],
                    patience: [patience(1, 3), patience(2, 5), patience(2, 5)],
                    seed: plan.seed.wrapping_mul(31).wrapping_add(index as u64),
                };
                tokio::spawn(load::run(load, live, stop.clone()))
            })
            .collect();
        let begun = now();
        let last_arrival = begun + plan.length;
        let recovery = tokio::spawn({
            let (admission, stop) = (admission.clone(), stop.clone());
            async move {
                let normal = async {
                    tokio::time::sleep(plan.length).await;
                    watch::until_normal(&admission, last_arrival, RECOVERY).await
                };
                stop.run_until_cancelled(normal).await.flatten()
            }
        });
        let mut groups = Vec::new();
        for ((name, caller), load) in callers.iter().zip(loads) {
            groups.push(group(name, caller, load.await?));
        }
        // Stopped early, the load was shorter than planned.
        let length = plan.length.min(now() - begun);
        let mut recovered = recovery.await?;
        // Calls that came late, or came back, may have made it busy once more.
        let snapshot = admission.snapshot();
        if snapshot.state != ServiceState::Normal || snapshot.tickets > 0 {
            let normal = watch::until_normal(&admission, last_arrival, RECOVERY);
            recovered = stop.run_until_cancelled(normal).await.flatten();
        }
        watching.cancel();
        let watch = watcher.await?;
        let snapshot = admission.snapshot();
        let service = Service {
            capacity: capacity(&plan),
            length,
            watch,
            state: snapshot.state.to_string(),
            recovered,
            tickets: snapshot.tickets,
        };
        server_stop.cancel();
        serving.await?;
        Ok(Outcome { groups, service })
    }
}

fn capacity(plan: &Plan) -> f64 {
    f64::from(plan.workers) / MEAN.as_secs_f64()
}

fn config(plan: &Plan) -> anyhow::Result<ServerConfig> {
    let mean = MEAN.as_millis();
    let mut config = ServerConfig::from_yaml(&format!(
        "
workers: {}
hold_ms: 1000
ramp_ms: 1000
classes:
  {CLASS}: {{ mean_ms: {mean}, p95_ms: {}, deadline_ms: 1000 }}
identities:
  {}: {{ tenant: obeying, tiers: [critical, non-sheddable, deferrable] }}
  {}: {{ tenant: ignoring, tiers: [critical, non-sheddable, deferrable] }}
",
        plan.workers,
        mean * 3 / 2,
        TOKENS[0],
        TOKENS[1],
    ))?;
    config.addr = ([127, 0, 0, 1], 0).into();
    config.seed = Some(plan.seed);
    Ok(config)
}

fn callers(callers: Callers) -> anyhow::Result<Vec<(&'static str, Caller)>> {
    let ours = ("Holdoff", Caller::Holdoff(holdoff::Client::new()));
    // Four sends, 100 ms apart: a common default, and hints are not looked at.
    let client = reqwest::Client::builder()
        .retry(reqwest::retry::never())
        .build()?;
    let deaf = Deaf {
        client,
        attempts: 4,
        pause: Duration::from_millis(100),
    };
    let deaf = ("ignoring hints", Caller::Deaf(deaf));
    Ok(match callers {
        Callers::Both => vec![ours, deaf],
        Callers::Holdoff => vec![ours],
        Callers::Deaf => vec![deaf],
    })
}

fn patience(least: u64, most: u64) -> (Duration, Duration) {
    (Duration::from_secs(least), Duration::from_secs(most))
}

fn group(name: &'static str, caller: &Caller, tally: Tally) -> Group {
    let early = match caller {
        Caller::Holdoff(client) => client.counters().snapshot().early_retries_total,
        Caller::Deaf(_) => tally.calls.iter().map(|call| u64::from(call.early)).sum(),
    };
    Group { name, tally, early }
}
