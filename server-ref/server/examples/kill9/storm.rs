//! Load, kill, start again, look: shared by the command and its short smoke in the tests.
//!
//! Two things are judged from outside. *Lost*: a task that was answered 202 is not there after a restart, or does not end, or
//! was seen done and is not done any more. *Undone*: a task is reported done, and either says itself that it took less than it
//! was asked to take, or no life of the server between its send and that look was long enough for it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const CALLERS: u64 = 32;
/// Work takes up to this long, the lives of the server up to twice as long: much of it is interrupted, some again.
const LONGEST_MS: u64 = 200;
const PROFILE: &str = "
workers: 128
classes: { t: { mean_ms: 50, p95_ms: 200, deadline_ms: 600000 } }
tiers: { critical: { reserved_workers: 0 }, non-sheddable: { queue: 2000 } }
server: { ended_tasks: 1000000, keys_per_tenant: 1000000 }
";

/// A task that was answered 202.
#[derive(Clone, Debug)]
struct Promise {
    sent: Instant,
    takes: Duration,
    done: bool,
}

type Promises = Arc<Mutex<HashMap<String, Promise>>>;

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) cycles: u64,
    pub(crate) acknowledged: usize,
    pub(crate) refused: u64,
    pub(crate) interrupted: usize,
    pub(crate) lost: Vec<String>,
    pub(crate) undone: Vec<String>,
}

impl Report {
    pub(crate) fn holds(&self) -> bool {
        self.acknowledged > 0 && self.interrupted > 0 && self.lost.is_empty() && self.undone.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills: {} acknowledged, {} refused, {} open at a kill; lost {}, reported done and not done {}",
            self.cycles,
            self.acknowledged,
            self.refused,
            self.interrupted,
            self.lost.len(),
            self.undone.len(),
        )?;
        for line in self.lost.iter().chain(&self.undone).take(10) {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

struct Storm {
    promises: Promises,
    /// When each life of the server began to listen, and when it was killed.
    lives: Vec<(Instant, Instant)>,
    refused: Arc<std::sync::atomic::AtomicU64>,
    report: Report,
}

/// Runs so many cycles of the program that `program(profile, data)` makes, then lets it finish.
pub(crate) async fn run(
    cycles: u64,
    seed: u64,
    program: impl Fn(&str, &str) -> Command,
    mut tell: impl FnMut(u64, usize),
) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let (profile, data) = (dir.path().join("profile.yaml"), dir.path().join("data"));
    std::fs::write(&profile, PROFILE).unwrap();
    let (profile, data) = (profile.to_str().unwrap(), data.to_str().unwrap());
    let mut rng = StdRng::seed_from_u64(seed);
    let mut storm = Storm {
        promises: Promises::default(),
        lives: Vec::new(),
        refused: Arc::default(),
        report: Report::default(),
    };
    for cycle in 1..=cycles {
        let (mut child, url) = start(program(profile, data)).await;
        let began = Instant::now();
        storm.look(&url, &mut rng, began).await;
        let load: Vec<_> = (0..CALLERS)
            .map(|caller| storm.caller(&url, StdRng::seed_from_u64(seed ^ (cycle << 8) ^ caller)))
            .collect();
        let life = rng.random_range(5..2 * LONGEST_MS);
        tokio::time::sleep(Duration::from_millis(life)).await;
        child.kill().await.unwrap();
        storm.lives.push((began, Instant::now()));
        // Each ends by itself at its first error.
        for caller in load {
            caller.await.unwrap();
        }
        let open = |promises: &Promises| {
            promises
                .lock()
                .unwrap()
                .values()
                .filter(|task| !task.done)
                .count()
        };
        storm.report.interrupted += open(&storm.promises);
        storm.report.cycles = cycle;
        tell(cycle, storm.promises.lock().unwrap().len());
    }
    let (mut child, url) = start(program(profile, data)).await;
    storm.finish(&url).await;
    child.kill().await.unwrap();
    storm.report.acknowledged = storm.promises.lock().unwrap().len();
    storm.report.refused = storm.refused.load(std::sync::atomic::Ordering::Relaxed);
    storm.report
}

async fn start(mut program: Command) -> (Child, String) {
    let mut child = program
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines
        .next_line()
        .await
        .unwrap()
        .expect("it starts over the same data");
    let url = line
        .strip_prefix("listening on ")
        .expect("it says where")
        .to_owned();
    (child, url)
}

fn client() -> reqwest::Client {
    let time = Duration::from_secs(20);
    reqwest::Client::builder()
        .no_proxy()
        .timeout(time)
        .build()
        .unwrap()
}

impl Storm {
    /// Sends tasks one after another until the server is gone.
    fn caller(&self, url: &str, mut rng: StdRng) -> tokio::task::JoinHandle<()> {
        let (promises, refused) = (Arc::clone(&self.promises), Arc::clone(&self.refused));
        let url = format!("{url}/v1/tasks");
        let client = client();
        tokio::spawn(async move {
            loop {
                let ms = rng.random_range(0..=LONGEST_MS);
                let (sent, takes) = (Instant::now(), Duration::from_millis(ms));
                let body = json!({"class": "t", "duration_ms": ms});
                let mut request = client
                    .post(&url)
                    .header("overload-tier", "non-sheddable")
                    .json(&body);
                if rng.random_bool(0.3) {
                    request = request.header("idempotency-key", format!("\"{:x}\"", rng.random::<u64>()));
                }
                let Ok(response) = request.send().await else {
                    return;
                };
                if response.status() != 202 {
                    refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
                // The head is the acknowledgement, even if the server dies before the body has arrived.
                let location = response.headers()["location"].to_str().unwrap().to_owned();
                let done = false;
                promises
                    .lock()
                    .unwrap()
                    .insert(location, Promise { sent, takes, done });
            }
        })
    }

    /// Looks at what is open, and at some of what was seen done.
    async fn look(&mut self, url: &str, rng: &mut StdRng, began: Instant) {
        let look_at: Vec<String> = {
            let promises = self.promises.lock().unwrap();
            let share = (50.0 / promises.len().max(50) as f64).min(1.0);
            let chosen = promises
                .iter()
                .filter(|(_, task)| !task.done || rng.random_bool(share));
            chosen.map(|(location, _)| location.clone()).collect()
        };
        self.judge(url, look_at, began).await;
    }

    /// Looks at each of them; gives those that have not ended.
    async fn judge(&mut self, url: &str, locations: Vec<String>, began: Instant) -> Vec<String> {
        let client = client();
        let mut open = Vec::new();
        for chunk in locations.chunks(64) {
            let looks = chunk.iter().map(|location| look(&client, url, location));
            for (location, seen) in chunk.iter().zip(futures_util::future::join_all(looks).await) {
                let promise = self.promises.lock().unwrap()[location].clone();
                match seen {
                    Ok(task) if task["state"] == "done" => {
                        let service = Duration::from_millis(task["service_ms"].as_u64().unwrap_or(0));
                        let lives = self.lives.iter().copied().chain([(began, Instant::now())]);
                        let longest = lives
                            .map(|(from, to)| to.saturating_duration_since(from.max(promise.sent)))
                            .max();
                        if service < promise.takes || longest.is_none_or(|longest| longest < promise.takes) {
                            self.report.undone.push(format!(
                                "{location}: {promise:?}, longest life {longest:?}: {task}"
                            ));
                        }
                        self.promises.lock().unwrap().get_mut(location).unwrap().done = true;
                    }
                    Ok(task)
                        if !promise.done && (task["state"] == "queued" || task["state"] == "running") =>
                    {
                        open.push(location.clone());
                    }
                    // Gone, evicted, failed, or not done any more.
                    other => self
                        .report
                        .lost
                        .push(format!("{location}: {promise:?}: {other:?}")),
                }
            }
        }
        open
    }

    /// Waits until everything that was promised is done.
    async fn finish(&mut self, url: &str) {
        let began = Instant::now();
        let all: HashSet<String> = self.promises.lock().unwrap().keys().cloned().collect();
        let mut open: Vec<String> = all.into_iter().collect();
        while !open.is_empty() && began.elapsed() < Duration::from_secs(120) {
            open = self.judge(url, open, began).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let stuck = open
            .into_iter()
            .map(|location| format!("{location}: has not ended"));
        self.report.lost.extend(stuck);
    }
}

async fn look(client: &reqwest::Client, url: &str, location: &str) -> Result<Value, String> {
    let response = client
        .get(format!("{url}{location}"))
        .send()
        .await
        .map_err(|error| error.to_string())?;
    if response.status() != 200 {
        return Err(response.status().to_string());
    }
    response.json().await.map_err(|error| error.to_string())
}
