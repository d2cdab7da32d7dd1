//! An open load: calls arrive at a rate whether or not earlier ones are answered, which is what overload is. (A
//! closed load, with a fixed number of callers that wait for each other, slows down with the server and hides it.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdoff::{CallReport, Tier};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::tally::{CallRecord, End, LATE, Tally};

/// The task class of every call.
pub const CLASS: &str = "job";

/// Calls under way at once, over which arrivals are dropped and counted: the load generator must not be what
/// breaks.
const MAX_UNDER_WAY: usize = 20_000;

/// Who calls.
#[derive(Clone)]
pub enum Caller {
    /// Obeys what it is told.
    Holdoff(holdoff::Client),
    /// Retries a failure after a fixed pause, whatever it was told: what most clients do today.
    Deaf(Deaf),
}

/// A caller that ignores hints.
#[derive(Clone)]
pub struct Deaf {
    /// The client.
    pub client: reqwest::Client,
    /// Sends at most.
    pub attempts: u32,
    /// Pause between sends.
    pub pause: Duration,
}

/// A stream of calls.
#[derive(Clone)]
pub struct Load {
    /// Base URL of the server.
    pub base: String,
    /// Who calls.
    pub caller: Caller,
    /// Bearer token by which the server knows them.
    pub token: &'static str,
    /// Arrivals a second (Poisson).
    pub rate: f64,
    /// How long calls keep arriving.
    pub length: Duration,
    /// Shares of critical, non-sheddable and deferrable calls, as in DESIGN section 5.
    pub tiers: [f64; 3],
    /// Patience of the calls of each tier: uniform between the two.
    pub patience: [(Duration, Duration); 3],
    /// Same seed, same arrivals.
    pub seed: u64,
}

/// Figures to watch while a load runs.
#[derive(Debug, Default)]
pub struct Live {
    /// Calls that arrived.
    pub arrived: AtomicU64,
    /// Calls that were served in time.
    pub served: AtomicU64,
    /// Calls that were refused.
    pub refused: AtomicU64,
    /// Arrivals dropped by the load generator's own limit.
    pub dropped: AtomicU64,
}

/// Runs the load to its end, or until it is cancelled; calls under way are then given up.
pub async fn run(load: Load, live: Arc<Live>, stop: CancellationToken) -> Tally {
    let mut rng = StdRng::seed_from_u64(load.seed);
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut calls = JoinSet::new();
    let started = now();
    let (mut arrival, mut arrived) = (Duration::ZERO, 0_u64);
    let (mut behind, mut late) = (Duration::ZERO, 0_u64);
    loop {
        arrival += Duration::from_secs_f64(-(1.0 - rng.random::<f64>()).ln() / load.rate);
        if arrival >= load.length {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep_until((started + arrival).into()) => {}
            () = stop.cancelled() => break,
        }
        let lag = now().saturating_duration_since(started + arrival);
        behind = behind.max(lag);
        let mut in_time = lag <= LATE;
        arrived += 1;
        while calls.try_join_next().is_some() {}
        live.arrived.fetch_add(1, Ordering::Relaxed);
        in_time &= calls.len() < MAX_UNDER_WAY;
        late += u64::from(!in_time);
        if calls.len() >= MAX_UNDER_WAY {
            live.dropped.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let tier = pick(load.tiers, &mut rng);
        let (least, most) = load.patience[tier];
        let patience = least + (most - least).mul_f64(rng.random());
        let (load, live, tally) = (load.clone(), Arc::clone(&live), Arc::clone(&tally));
        calls.spawn(async move {
            let record = call(&load, started, tier, patience).await;
            match record.end {
                End::Served => live.served.fetch_add(1, Ordering::Relaxed),
                End::Refused => live.refused.fetch_add(1, Ordering::Relaxed),
                End::Failed => 0,
            };
            tally
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .calls
                .push(record);
        });
    }
    tokio::select! {
        () = async { while calls.join_next().await.is_some() {} } => {}
        () = stop.cancelled() => calls.shutdown().await,
    }
    let mut tally = std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
    tally.cut_off = arrived - tally.calls.len() as u64;
    tally.behind = behind;
    tally.late = late;
    tally
}

fn pick(shares: [f64; 3], rng: &mut StdRng) -> usize {
    let mut left = rng.random::<f64>() * shares.iter().sum::<f64>();
    for (index, share) in shares.iter().enumerate() {
        if left < *share {
            return index;
        }
        left -= share;
    }
    shares.len() - 1
}

async fn call(load: &Load, begin: Instant, tier: usize, patience: Duration) -> CallRecord {
    let started = now();
    let called = match &load.caller {
        Caller::Holdoff(client) => obedient(client, load, Tier::ALL[tier], patience).await,
        Caller::Deaf(client) => deaf(client, load, Tier::ALL[tier], patience).await,
    };
    let over = now();
    let (took, ended) = (over - started, over - begin);
    let end = if called.end == End::Served && took > patience {
        End::Failed
    } else {
        called.end
    };
    CallRecord {
        tier,
        end,
        attempts: called.attempts,
        early: called.early,
        took,
        ended,
        wait: called.wait,
    }
}

struct CallEnd {
    end: End,
    attempts: u32,
    early: u32,
    wait: Option<(Duration, Duration)>,
}

/// What the server says of a task that it ran.
#[derive(Deserialize)]
struct Done {
    waited_ms: u64,
    predicted_wait_ms: u64,
}

impl Done {
    fn wait(&self) -> (Duration, Duration) {
        (
            Duration::from_millis(self.predicted_wait_ms),
            Duration::from_millis(self.waited_ms),
        )
    }
}

/// All there is to obeying: tier, deadline, send.
async fn obedient(client: &holdoff::Client, load: &Load, tier: Tier, patience: Duration) -> CallEnd {
    let call = client
        .post(format!("{}/v1/work", load.base))
        .bearer_auth(load.token)
        .json(&json!({"class": CLASS, "payload": ""}))
        .tier(tier)
        .deadline(patience)
        .send()
        .await;
    // Early retries of these callers are counted by the client itself, over all calls.
    let ended = |end, attempts| CallEnd {
        end,
        attempts,
        early: 0,
        wait: None,
    };
    match call {
        Ok(response) => {
            let attempts = response
                .extensions()
                .get::<CallReport>()
                .map_or(1, |report| report.attempts);
            if !response.status().is_success() {
                return ended(End::Failed, attempts);
            }
            let wait = response.json::<Done>().await.ok().map(|done| done.wait());
            CallEnd {
                wait,
                ..ended(End::Served, attempts)
            }
        }
        Err(error) if error.is_overloaded() => ended(End::Refused, error.attempts()),
        Err(error) => ended(End::Failed, error.attempts()),
    }
}

/// The same patience, but as a time limit of its own; every refusal or failure is tried again after the pause.
async fn deaf(deaf: &Deaf, load: &Load, tier: Tier, patience: Duration) -> CallEnd {
    let mut ended = CallEnd {
        end: End::Failed,
        attempts: 0,
        early: 0,
        wait: None,
    };
    let until = now() + patience;
    let mut told = None;
    while ended.attempts < deaf.attempts {
        if ended.attempts > 0 {
            tokio::time::sleep(deaf.pause).await;
        }
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            break;
        }
        ended.attempts += 1;
        ended.early += u32::from(told.take().is_some_and(|not_before| now() < not_before));
        let sent = deaf
            .client
            .post(format!("{}/v1/work", load.base))
            .bearer_auth(load.token)
            .header("overload-tier", tier.as_str())
            .timeout(left)
            .json(&json!({"class": CLASS, "payload": ""}))
            .send()
            .await;
        let Ok(response) = sent else { continue };
        if response.status().is_success() {
            ended.end = End::Served;
            ended.wait = response.json::<Done>().await.ok().map(|done| done.wait());
            return ended;
        }
        let hint_ms = response
            .headers()
            .get("retry-after-ms")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        told = hint_ms.map(|ms| now() + Duration::from_millis(ms));
        // Read to the end, so that the connection is used again.
        let _ = response.bytes().await;
    }
    ended
}

/// The examples are a caller's own code: they read the clock here.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the examples read the clock"
)]
pub fn now() -> Instant {
    Instant::now()
}
