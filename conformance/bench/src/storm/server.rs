//! The same workers behind two doors: tower's limits, and admission. A worker does one task at a time, and can stand
//! still, as a database that waits for a lock makes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::post;
use holdoff::Tenant;
use holdoff_admission::Profile;
use holdoff_admission::profile::Class;
use holdoff_admission_tower::{Admission, AdmissionLayer, Gate, Identity, RequestHead, Tiers};
use http::{HeaderMap, StatusCode};
use tokio::sync::{Semaphore, watch};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::timeout::error::Elapsed;
use tower::{BoxError, ServiceBuilder};

use super::load::MEAN_WORK;

/// Who asks; what an authenticating layer would find out.
pub(super) const TENANT: &str = "x-tenant";
/// How long the task takes, microseconds: both servers do the same work.
pub(super) const WORK: &str = "x-work-us";
/// The phase in which the call began.
pub(super) const PHASE: &str = "x-phase";

/// tower's own time limit: what its callers are patient for on average.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Phases that are counted apart.
pub(super) const PHASES: usize = 3;

/// What both servers have inside.
#[derive(Debug)]
pub(super) struct Workers {
    free: Semaphore,
    stalled: watch::Sender<bool>,
    /// Requests that came in, by phase.
    received: [AtomicU64; PHASES],
}

impl Workers {
    pub(super) fn new(workers: u32) -> Arc<Self> {
        Arc::new(Self {
            free: Semaphore::new(workers as usize),
            stalled: watch::Sender::new(false),
            received: Default::default(),
        })
    }

    pub(super) fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }

    pub(super) fn received(&self) -> [u64; PHASES] {
        [0, 1, 2].map(|phase: usize| self.received[phase].load(Ordering::Relaxed))
    }

    async fn work(&self, length: Duration) {
        let _worker = self.free.acquire().await;
        self.running().await;
        tokio::time::sleep(length).await;
        self.running().await;
    }

    async fn running(&self) {
        // It ends only with the workers, which are borrowed.
        let _ = self.stalled.subscribe().wait_for(|stalled| !stalled).await;
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

async fn work(State(workers): State<Arc<Workers>>, headers: HeaderMap) -> &'static str {
    let length = number(&headers, WORK).map_or(MEAN_WORK, Duration::from_micros);
    workers.work(length).await;
    "done"
}

/// Outside of every door: what comes in is counted, whatever becomes of it.
async fn count(State(workers): State<Arc<Workers>>, request: Request, next: Next) -> Response {
    let phase = number(request.headers(), PHASE).and_then(|phase| usize::try_from(phase).ok());
    if let Some(received) = phase.and_then(|phase| workers.received.get(phase)) {
        received.fetch_add(1, Ordering::Relaxed);
    }
    next.run(request).await
}

fn routes(workers: &Arc<Workers>) -> Router {
    Router::new()
        .route("/work", post(work))
        .with_state(Arc::clone(workers))
}

/// tower's limits, as axum's documentation puts them together.
pub(super) fn limited(workers: &Arc<Workers>, limit: usize) -> Router {
    let answer = |error: BoxError| async move {
        if error.is::<Elapsed>() {
            StatusCode::REQUEST_TIMEOUT
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    let door = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(answer))
        .load_shed()
        .layer(GlobalConcurrencyLimitLayer::new(limit))
        .timeout(TIMEOUT);
    routes(workers)
        .layer(door)
        .layer(from_fn_with_state(Arc::clone(workers), count))
}

/// Admission with its defaults: what it is told is the number of workers and how long a task takes.
pub(super) fn admitted(workers: &Arc<Workers>, count_of: u32) -> anyhow::Result<Router> {
    let class = Class {
        mean_ms: MEAN_WORK.as_secs_f64() * 1e3,
        p95_ms: Some(58.0),
        ..Class::default()
    };
    let profile = Profile {
        workers: count_of,
        classes: [(super::CLASS.to_owned(), class)].into(),
        ..Profile::default()
    };
    let gate = Gate::new(Admission::start(profile, None)?).identify(identify);
    Ok(routes(workers)
        .layer(AdmissionLayer::new(gate))
        .layer(from_fn_with_state(Arc::clone(workers), count)))
}

fn identify(head: RequestHead<'_>) -> Identity {
    let named = head.headers.get(TENANT).and_then(|value| value.to_str().ok());
    Identity {
        tenant: named.and_then(|name| Tenant::new(name).ok()),
        tiers: Tiers::ALL,
        trusted: false,
    }
}
