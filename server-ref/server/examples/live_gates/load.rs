//! A server and an open load on it: requests come when they come, whether the ones before are answered or not.

use std::time::{Duration, Instant};

use holdoff_admission_tower::Admission;
use holdoff_contract::Tier;
use holdoff_server::{Fixtures, Server, ServerConfig};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

/// Tasks that run at once.
pub(crate) const WORKERS: u32 = 16;
/// Time that each takes, by sleep.
pub(crate) const SERVICE_MS: u64 = 100;
/// Time that each caller has.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);
/// Most requests on their way: what a 10x load has in a second. Beyond it a request is not sent, and the run does not count.
const MOST: usize = 8_192;

/// Requests that the workers can do in a second.
pub(crate) fn capacity() -> f64 {
    f64::from(WORKERS) * 1e3 / SERVICE_MS as f64
}

/// A server in this process, with its fixtures.
pub(crate) struct Peer {
    pub(crate) url: String,
    pub(crate) admission: Admission,
    pub(crate) fixtures: Fixtures,
    client: reqwest::Client,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

/// A request to be.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) tier: Tier,
    pub(crate) tenant: String,
}

/// What became of one.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) caller: Caller,
    pub(crate) status: u16,
    /// The code of a refusal, else empty.
    pub(crate) code: String,
    pub(crate) took: Duration,
    /// Time that a worker spent on it.
    pub(crate) service: Duration,
}

impl Outcome {
    /// Done, and in time.
    pub(crate) fn is_good(&self) -> bool {
        self.status == 200 && self.took <= DEADLINE
    }
}

impl Peer {
    pub(crate) async fn start(more: Value) -> Self {
        let mut profile = json!({
            "workers": WORKERS,
            "classes": {"t": {"mean_ms": SERVICE_MS, "p95_ms": SERVICE_MS + 10, "deadline_ms": DEADLINE.as_millis() as u64}},
            "anonymous": {"trusted": true, "tiers": ["critical", "non-sheddable", "deferrable"]},
        });
        for (key, value) in more.as_object().unwrap() {
            profile[key] = value.clone();
        }
        let mut config = ServerConfig::from_json(&profile).unwrap();
        config.addr = "127.0.0.1:0".parse().unwrap();
        config.fixtures = true;
        let server = Server::bind(config).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let (url, admission) = (server.url(), server.admission().clone());
        let fixtures = server.fixtures().unwrap().clone();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self {
            url,
            admission,
            fixtures,
            client,
            stop,
            running,
        }
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        self.running.await.unwrap();
    }

    /// One request, to its end.
    pub(crate) fn ask(&self, caller: Caller) -> impl Future<Output = Outcome> + Send + use<> {
        let request = self
            .client
            .post(format!("{}/v1/work", self.url))
            .header("overload-task-class", "t")
            .header("overload-tier", caller.tier.as_str())
            .header("overload-tenant", format!("{:?}", caller.tenant))
            .header("overload-deadline-ms", DEADLINE.as_millis().to_string())
            .json(&json!({"duration_ms": SERVICE_MS}));
        async move {
            let began = Instant::now();
            let mut outcome = Outcome {
                caller,
                status: 0,
                code: String::new(),
                took: Duration::ZERO,
                service: Duration::ZERO,
            };
            // A broken connection is a status of 0, which is no success of anybody.
            if let Ok(response) = request.send().await {
                let status = response.status().as_u16();
                if let Ok(body) = response.json::<Value>().await {
                    outcome.status = status;
                    outcome.code = body["code"].as_str().unwrap_or_default().to_owned();
                    outcome.service = Duration::from_millis(body["service_ms"].as_u64().unwrap_or(0));
                }
            }
            outcome.took = began.elapsed();
            outcome
        }
    }

    /// One number of the metrics page: the sum over the series whose name and labels begin so.
    pub(crate) async fn metric(&self, prefix: &str) -> f64 {
        let url = format!("{}/metrics", self.url);
        let page = self.client.get(url).send().await.unwrap().text().await.unwrap();
        let lines = page.lines().filter(|line| line.starts_with(prefix));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Requests come as a Poisson process of `rate(seconds since the start)` a second; waits for all of the answers.
    pub(crate) async fn load(
        &self,
        time: Duration,
        rate: impl Fn(f64) -> f64,
        caller: impl Fn(&mut StdRng) -> Caller,
    ) -> Vec<Outcome> {
        self.send(time, rate, caller).await.all().await
    }

    /// The same, up to the last request and not to its answer.
    pub(crate) async fn send(
        &self,
        time: Duration,
        rate: impl Fn(f64) -> f64,
        caller: impl Fn(&mut StdRng) -> Caller,
    ) -> Sent {
        let mut rng = StdRng::seed_from_u64(7);
        let (began, mut due) = (Instant::now(), 0.0);
        let (mut sent, mut outcomes) = (JoinSet::new(), Vec::new());
        while due < time.as_secs_f64() {
            let at = began + Duration::from_secs_f64(due);
            // The timer's grain is a millisecond: what is due is sent, late or not, so that the rate holds.
            tokio::time::sleep_until(at.into()).await;
            while let Some(done) = sent.try_join_next() {
                outcomes.push(done.unwrap());
            }
            if sent.len() >= MOST {
                // No verdict on the server: its callers could not be played.
                eprintln!(
                    "live_gates: {MOST} requests wait for an answer; this machine is too busy to make the load"
                );
                std::process::exit(2);
            }
            sent.spawn(self.ask(caller(&mut rng)));
            due += -(1.0 - rng.random::<f64>()).ln() / rate(due);
        }
        Sent { sent, outcomes }
    }

    /// Watches the queues until it is dropped; the answer is the greatest share of a bound that was seen.
    pub(crate) fn watch(&self) -> Watch {
        let admission = self.admission.clone();
        let (stop, mut stopped) = oneshot::channel::<()>();
        let watching = tokio::spawn(async move {
            let mut over = 0.0_f64;
            while stopped.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
                for tier in admission.snapshot().tiers {
                    over = over.max(f64::from(tier.queued) / f64::from(tier.queue_limit.max(1)));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            over
        });
        Watch { stop, watching }
    }
}

/// See [`Peer::send`].
pub(crate) struct Sent {
    sent: JoinSet<Outcome>,
    outcomes: Vec<Outcome>,
}

impl Sent {
    /// What became of all of them.
    pub(crate) async fn all(mut self) -> Vec<Outcome> {
        while let Some(done) = self.sent.join_next().await {
            self.outcomes.push(done.unwrap());
        }
        self.outcomes
    }
}

/// See [`Peer::watch`].
pub(crate) struct Watch {
    stop: oneshot::Sender<()>,
    watching: JoinHandle<f64>,
}

impl Watch {
    pub(crate) async fn end(self) -> f64 {
        let _ = self.stop.send(());
        self.watching.await.unwrap()
    }
}

/// A share of those that fit.
pub(crate) fn share(
    outcomes: &[Outcome],
    of: impl Fn(&Outcome) -> bool,
    good: impl Fn(&Outcome) -> bool,
) -> f64 {
    let all: Vec<_> = outcomes.iter().filter(|outcome| of(outcome)).collect();
    all.iter().filter(|outcome| good(outcome)).count() as f64 / (all.len() as f64).max(1.0)
}

/// A caller of this tier, of one of fifty tenants.
pub(crate) fn anybody(rng: &mut StdRng, tier: Tier) -> Caller {
    let tenant = format!("tenant-{}", rng.random_range(0..50));
    Caller { tier, tenant }
}

/// Says what became of each tier's requests, for whoever wants to know why a goal was missed.
pub(crate) fn explain(outcomes: &[Outcome]) {
    for tier in Tier::ALL {
        let mut counts = std::collections::BTreeMap::new();
        for one in outcomes.iter().filter(|one| one.caller.tier == *tier) {
            let what = match (one.status, one.is_good()) {
                (200, true) => "in time",
                (200, false) => "late",
                (0, _) => "broken connection",
                _ => one.code.as_str(),
            };
            *counts.entry(what).or_insert(0_u32) += 1;
        }
        println!("         {tier}: {counts:?}");
    }
}
