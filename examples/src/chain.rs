//! Three services in a row, each a process of its own: callers -> front -> middle -> leaf.
//!
//! Retries at every layer multiply: three attempts at each of three layers are 27 requests at the leaf for one call,
//! just when it can take none. Here every layer is allowed three attempts, and it is counted what the leaf gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use holdoff::axum::{ContextLayer, Problem};
use holdoff::{Client, Policy};
use holdoff_admission::Profile;
use holdoff_admission::profile::Class;
use holdoff_admission_tower::{Admission, AdmissionLayer, Gate};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

/// Workers of the leaf.
pub const WORKERS: u32 = 4;
/// Places in its queue.
pub const QUEUE: u32 = 16;
/// What one request takes at the leaf.
pub const WORK: Duration = Duration::from_millis(80);
/// Attempts that every layer is allowed.
pub const ATTEMPTS: u32 = 3;
/// Pause of those who ignore hints.
const PAUSE: Duration = Duration::from_millis(100);

/// How a chain is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Manner {
    /// Holdoff, as it comes: relays pass overload up.
    Default,
    /// Holdoff, and every relay opted in to retries.
    OptedIn,
    /// Every layer tries three times, 100 ms apart, and tells its caller 500.
    Naive,
}

impl Manner {
    /// The word on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::OptedIn => "opted-in",
            Self::Naive => "naive",
        }
    }
}

/// What the leaf counted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct LeafCount {
    /// Requests that came.
    pub requests: u64,
    /// Requests that were served.
    pub served: u64,
}

/// A policy with the attempts that every layer is allowed, scheduled ones included.
///
/// # Errors
/// Never, for these values.
pub fn policy() -> anyhow::Result<Policy> {
    Ok(Policy::builder()
        .max_attempts(ATTEMPTS)
        .max_attempts_scheduled(ATTEMPTS)
        .build()?)
}

#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    served: AtomicU64,
}

/// The leaf: bounded work behind admission, and its own count beside it.
///
/// # Errors
/// When the profile or the port cannot be used.
pub async fn leaf() -> anyhow::Result<()> {
    let mut profile = Profile {
        workers: WORKERS,
        queue: QUEUE,
        ..Profile::default()
    };
    let class = Class {
        mean_ms: WORK.as_secs_f64() * 1000.0,
        deadline_ms: 2000,
        ..Class::default()
    };
    profile.classes.insert("job".to_owned(), class);
    let admission = Admission::start(profile, None)?;
    let counters = Arc::new(Counters::default());
    let app = Router::new()
        .route("/job", get(work))
        .layer(AdmissionLayer::new(Gate::new(admission)))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&counters), count))
        .with_state(Arc::clone(&counters))
        .route("/count", get(counted).with_state(counters));
    serve(app).await
}

async fn work(State(counters): State<Arc<Counters>>) -> &'static str {
    tokio::time::sleep(WORK).await;
    counters.served.fetch_add(1, Ordering::Relaxed);
    "done"
}

async fn count(
    State(counters): State<Arc<Counters>>,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    counters.requests.fetch_add(1, Ordering::Relaxed);
    next.run(request).await
}

async fn counted(State(counters): State<Arc<Counters>>) -> Json<LeafCount> {
    Json(LeafCount {
        requests: counters.requests.load(Ordering::Relaxed),
        served: counters.served.load(Ordering::Relaxed),
    })
}

/// A service in the middle: all that it does is to ask the next one.
///
/// # Errors
/// When the client or the port cannot be used.
pub async fn relay(next: String, manner: Manner) -> anyhow::Result<()> {
    let url = format!("{next}/job");
    let app = if manner == Manner::Naive {
        let client = reqwest::Client::builder()
            .retry(reqwest::retry::never())
            .build()?;
        Router::new()
            .route("/job", get(naive))
            .with_state(Arc::new((client, url)))
    } else {
        let client = Client::builder().policy(policy()?).build()?;
        let mut context = ContextLayer::new().trust_all();
        if manner == Manner::OptedIn {
            context = context.with_retries();
        }
        Router::new()
            .route("/job", get(polite))
            .with_state(Arc::new((client, url)))
            .layer(context)
    };
    serve(app).await
}

/// The whole handler: the deadline goes along and overload comes back by themselves.
async fn polite(State(next): State<Arc<(Client, String)>>) -> Result<Response, Problem> {
    let answer = next.0.get(&next.1).send().await?;
    Ok((answer.status(), answer.text().await.unwrap_or_default()).into_response())
}

async fn naive(State(next): State<Arc<(reqwest::Client, String)>>) -> Response {
    for attempt in 1..=ATTEMPTS {
        match next.0.get(&next.1).send().await {
            Ok(answer) if answer.status().is_success() => {
                return answer.text().await.unwrap_or_default().into_response();
            }
            _ if attempt < ATTEMPTS => tokio::time::sleep(PAUSE).await,
            _ => {}
        }
    }
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// Serves on a free port, says where on stdout, and ends when stdin does: with the process that started it.
async fn serve(app: Router) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    say(&format!("http://{}", listener.local_addr()?));
    tokio::select! {
        served = axum::serve(listener, app) => served?,
        _ = async { tokio::io::stdin().read_u8().await } => {}
    }
    Ok(())
}

/// Three processes. Dropping it ends them.
pub struct Chain {
    /// The service that callers know.
    pub front: String,
    /// Between the two.
    pub middle: String,
    /// The one that works.
    pub leaf: String,
    _processes: [Child; 3],
}

impl Chain {
    /// Starts this program three times.
    ///
    /// # Errors
    /// When a process does not start.
    pub async fn start(manner: Manner) -> anyhow::Result<Self> {
        let (leaf, one) = spawn(&["leaf"]).await?;
        let (middle, two) = spawn(&["relay", &leaf, manner.word()]).await?;
        let (front, three) = spawn(&["relay", &middle, manner.word()]).await?;
        Ok(Self {
            front,
            middle,
            leaf,
            _processes: [one, two, three],
        })
    }

    /// What the leaf counted so far.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn count(&self) -> anyhow::Result<LeafCount> {
        let answer = reqwest::get(format!("{}/count", self.leaf)).await?;
        Ok(answer.error_for_status()?.json().await?)
    }

    /// Fills the leaf, and gives what each service answers then: from the leaf up.
    ///
    /// # Errors
    /// When one does not answer.
    pub async fn refusals(&self) -> anyhow::Result<Vec<String>> {
        let client = reqwest::Client::new();
        // Patient enough to be told a time; a place may have come free just then.
        let ask = async |base: &str| {
            let mut tries = 0..5;
            loop {
                let request = client.get(format!("{base}/job"));
                let answer = request.header("overload-deadline-ms", "10000").send().await?;
                if tries.next().is_none() || !answer.status().is_success() {
                    return Ok::<_, reqwest::Error>(answer);
                }
            }
        };
        let mut full = JoinSet::new();
        for _ in 0..2 * (WORKERS + QUEUE) {
            let (client, url) = (client.clone(), format!("{}/job", self.leaf));
            full.spawn(async move {
                loop {
                    let refused = client
                        .get(&url)
                        .send()
                        .await
                        .is_ok_and(|answer| answer.status() == 503);
                    tokio::time::sleep(if refused { WORK / 4 } else { Duration::ZERO }).await;
                }
            });
        }
        tokio::time::sleep(3 * WORK).await;
        let mut told = Vec::new();
        for (name, base) in [
            ("leaf", &self.leaf),
            ("middle", &self.middle),
            ("front", &self.front),
        ] {
            let answer = ask(base).await?;
            let lines = ["retry-after", "overload-signal"].map(|name| {
                let line = answer.headers().get(name).and_then(|line| line.to_str().ok());
                line.map_or(String::new(), |line| format!("  {name}: {line}"))
            });
            told.push(format!(
                "{name:<7} {}{}",
                answer.status().as_u16(),
                lines.concat()
            ));
        }
        full.shutdown().await;
        // What still waits there is gone before the storm.
        tokio::time::sleep(WORK * (1 + QUEUE / WORKERS)).await;
        Ok(told)
    }
}

async fn spawn(args: &[&str]) -> anyhow::Result<(String, Child)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(args)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {args:?}"))?;
    let stdout = child.stdout.take().context("its stdout is not there")?;
    let url = BufReader::new(stdout)
        .lines()
        .next_line()
        .await?
        .with_context(|| format!("{args:?} did not say where it listens"))?;
    Ok((url, child))
}

#[expect(clippy::print_stdout, reason = "how a process of the chain says where it is")]
fn say(text: &str) {
    println!("{text}");
}
