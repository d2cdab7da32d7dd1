//! An open load: calls arrive at a rate whether or not earlier ones are answered, which is what overload is. (A
//! closed load, with a fixed number of callers that wait for each other, slows down with the server and hides it.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdoff::Tier;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::tally::{CallRecord, End, Tally};

/// Calls under way at once, over which arrivals are dropped and counted: the load generator must not be what
/// breaks.
const MAX_UNDER_WAY: usize = 20_000;

/// Who calls.
#[derive(Clone)]
pub enum Caller {
    /// Obeys what it is told.
    Holdoff(holdoff::Client),
    /// Retries a failure after a fixed pause, whatever it was told: what most clients do today.
    Deaf {
        /// The client.
        client: reqwest::Client,
        /// Sends at most.
        attempts: u32,
        /// Pause between sends.
        pause: Duration,
    },
}

/// A stream of calls.
#[derive(Clone)]
pub struct Load {
    /// Base URL of the server.
    pub base: String,
    /// Who calls.
    pub caller: Caller,
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
    let mut arrival = Duration::ZERO;
    loop {
        arrival += Duration::from_secs_f64(-(1.0 - rng.random::<f64>()).ln() / load.rate);
        if arrival >= load.length {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep_until((started + arrival).into()) => {}
            () = stop.cancelled() => break,
        }
        while calls.try_join_next().is_some() {}
        live.arrived.fetch_add(1, Ordering::Relaxed);
        if calls.len() >= MAX_UNDER_WAY {
            live.dropped.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let tier = pick(load.tiers, &mut rng);
        let (least, most) = load.patience[tier];
        let patience = least + (most - least).mul_f64(rng.random());
        let (load, live, tally) = (load.clone(), Arc::clone(&live), Arc::clone(&tally));
        calls.spawn(async move {
            let record = call(&load, tier, patience).await;
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
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *tally)
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

async fn call(load: &Load, tier: usize, patience: Duration) -> CallRecord {
    let started = now();
    let (end, attempts, wait) = match &load.caller {
        Caller::Holdoff(client) => obedient(client, &load.base, Tier::ALL[tier], patience).await,
        Caller::Deaf {
            client,
            attempts,
            pause,
        } => {
            let deaf = deaf(client, &load.base, Tier::ALL[tier], patience, *attempts, *pause);
            deaf.await
        }
    };
    let took = now() - started;
    let end = if end == End::Served && took > patience {
        End::Failed
    } else {
        end
    };
    CallRecord {
        tier,
        end,
        attempts,
        took,
        wait,
    }
}

type CallEnd = (End, u32, Option<(Duration, Duration)>);

async fn obedient(client: &holdoff::Client, base: &str, tier: Tier, patience: Duration) -> CallEnd {
    let _ = (client, base, tier, patience);
    unimplemented!("quickstart")
}

/// The same deadline, but as a time limit of its own; every refusal or failure is tried again after the pause.
async fn deaf(
    client: &reqwest::Client,
    base: &str,
    tier: Tier,
    patience: Duration,
    attempts: u32,
    pause: Duration,
) -> CallEnd {
    let _ = (client, base, tier, patience, attempts, pause);
    unimplemented!("quickstart")
}

/// The examples are a caller's own code: they read the clock here.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the examples read the clock"
)]
pub fn now() -> Instant {
    Instant::now()
}
