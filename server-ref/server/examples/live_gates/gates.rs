//! One function for each thing that must hold under load.

use std::time::{Duration, Instant};

use holdoff_contract::{ServiceState, Tier};
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::json;

use crate::Verdicts;
use crate::load::{Caller, Outcome, Peer, SERVICE_MS, WORKERS, anybody, capacity, explain, share};

/// Critical work asks for this share of the capacity, whatever the load: "at most half".
const CRITICAL: f64 = 0.4;
/// Longest look for the way back to normal.
const LOOK: Duration = Duration::from_secs(15);

/// Critical at [`CRITICAL`] of the capacity; of the rest a quarter is non-sheddable.
fn mixed(factor: f64) -> impl Fn(&mut StdRng) -> Caller {
    let critical = (CRITICAL / factor).min(1.0);
    move |rng| {
        let drawn: f64 = rng.random();
        let tier = if drawn < critical {
            Tier::Critical
        } else if drawn < critical + (1.0 - critical) / 4.0 {
            Tier::NonSheddable
        } else {
            Tier::Deferrable
        };
        anybody(rng, tier)
    }
}

pub(crate) async fn goodput(verdicts: &mut Verdicts, factor: f64, least: f64, time: Duration) {
    let peer = Peer::start(json!({})).await;
    let watch = peer.watch();
    let sent = peer.send(time, |_| factor * capacity(), mixed(factor)).await;
    let back = back_to_normal(&peer, Instant::now()).await;
    let outcomes = sent.all().await;
    let fullest = watch.end().await;
    explain(&outcomes);
    // Time that workers spent on work that came in time, of all the time that they had.
    let useful: Duration = outcomes
        .iter()
        .filter(|outcome| outcome.is_good())
        .map(|outcome| outcome.service)
        .sum();
    let had = time.as_secs_f64() * f64::from(WORKERS);
    verdicts.at_least(
        &format!("{factor}x: goodput of capacity"),
        useful.as_secs_f64() / had,
        least,
    );
    let accepted = peer.metric("agent_admission_total{decision=\"accept").await;
    let false_accepts = peer.metric("overload_false_accepts_total").await;
    verdicts.judge("", &format!("{accepted:.0}"), "accepted, > 0", accepted > 0.0);
    verdicts.at_most(
        &format!("{factor}x: false accepts"),
        false_accepts / accepted.max(1.0),
        0.03,
    );
    let critical = share(
        &outcomes,
        |one| one.caller.tier == Tier::Critical,
        Outcome::is_good,
    );
    verdicts.at_least(
        &format!("{factor}x: critical success at {CRITICAL} of capacity"),
        critical,
        0.995,
    );
    verdicts.at_most(&format!("{factor}x: fullest queue, of its bound"), fullest, 1.0);
    let (seen, reached) = match back {
        Some(took) => (
            format!("{:.2} s", took.as_secs_f64()),
            took <= Duration::from_secs(5),
        ),
        None => (format!("not in {} s", LOOK.as_secs()), false),
    };
    verdicts.judge(
        &format!("{factor}x: critical and non-sheddable back to normal"),
        &seen,
        "<= 5 s",
        reached,
    );
    peer.stop().await;
}

/// When service was normal again, from the end of the load: both tiers served at the speed of an idle server, for a second on end.
async fn back_to_normal(peer: &Peer, ended: Instant) -> Option<Duration> {
    let normal = Duration::from_millis(2 * SERVICE_MS + 50);
    let mut since = None;
    while ended.elapsed() < LOOK {
        let began = Instant::now();
        let ask = |tier| {
            let tenant = "prober".to_owned();
            peer.ask(Caller { tier, tenant })
        };
        let (critical, kept) = tokio::join!(ask(Tier::Critical), ask(Tier::NonSheddable));
        let served = [critical, kept]
            .iter()
            .all(|one| one.status == 200 && one.took <= normal);
        since = served.then(|| since.unwrap_or(began));
        if let Some(since) = since
            && since.elapsed() >= Duration::from_secs(1)
        {
            return Some(since.saturating_duration_since(ended));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
}

pub(crate) async fn calm(verdicts: &mut Verdicts, time: Duration) {
    let peer = Peer::start(json!({})).await;
    let outcomes = peer.load(time, |_| 0.8 * capacity(), mixed(0.8)).await;
    let refused = share(&outcomes, |_| true, |one| one.status != 200);
    verdicts.at_most("0.8x: refused", refused, 0.02);
    peer.stop().await;
}

/// One tenant sends 80 % of a 3x load and labels everything critical, as it may; the others send what they are.
pub(crate) async fn hog(verdicts: &mut Verdicts, time: Duration) {
    const HOG: &str = "hog";
    let peer = Peer::start(json!({})).await;
    let others = mixed(0.6);
    let caller = |rng: &mut StdRng| {
        if rng.random_bool(0.8) {
            let tenant = HOG.to_owned();
            return Caller {
                tier: Tier::Critical,
                tenant,
            };
        }
        others(rng)
    };
    let outcomes = peer.load(time, |_| 3.0 * capacity(), caller).await;
    let success = share(&outcomes, |one| one.caller.tenant != HOG, Outcome::is_good);
    let hogs = share(&outcomes, |one| one.caller.tenant == HOG, Outcome::is_good);
    explain(&outcomes);
    println!("         the hog's own success: {hogs:.4}");
    verdicts.at_least("3x, 80 % of it one tenant's: others' success", success, 0.90);
    peer.stop().await;
}

pub(crate) async fn frozen(verdicts: &mut Verdicts) {
    let peer = Peer::start(json!({})).await;
    // Half a load, so that there are places to be had.
    peer.load(Duration::from_secs(1), |_| 0.5 * capacity(), mixed(0.5))
        .await;
    peer.fixtures.freeze_controller(true);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let outcomes = peer
        .load(Duration::from_secs(2), |_| 2.0 * capacity(), mixed(2.0))
        .await;
    let deferrable: Vec<_> = outcomes
        .iter()
        .filter(|one| one.caller.tier == Tier::Deferrable)
        .collect();
    let admitted = deferrable.iter().filter(|one| one.status == 200).count();
    let seen = format!("{admitted} of {}", deferrable.len());
    verdicts.judge(
        "frozen for 0.5 s: deferrable work admitted",
        &seen,
        "0",
        admitted == 0 && !deferrable.is_empty(),
    );
    let critical = share(
        &outcomes,
        |one| one.caller.tier == Tier::Critical,
        Outcome::is_good,
    );
    verdicts.at_least("frozen: critical success within its budget", critical, 0.995);
    peer.fixtures.freeze_controller(false);
    let thawed = Instant::now();
    // Nothing is sent: it must come back by its own tick.
    while thawed.elapsed() < LOOK && !is_normal(&peer) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = thawed.elapsed();
    verdicts.judge(
        "thawed: normal again without traffic",
        &format!("{:.2} s", took.as_secs_f64()),
        "<= 15 s",
        is_normal(&peer),
    );
    let first = peer
        .ask(Caller {
            tier: Tier::Deferrable,
            tenant: "first".to_owned(),
        })
        .await;
    verdicts.judge(
        "thawed: the first deferrable request",
        &first.status.to_string(),
        "200",
        first.status == 200,
    );
    peer.stop().await;
}

fn is_normal(peer: &Peer) -> bool {
    let snapshot = peer.admission.snapshot();
    snapshot.state == ServiceState::Normal && snapshot.staleness < Duration::from_millis(500)
}

/// Load that swings 20 % round the capacity, a swing in twenty seconds: in half of one more piles up than the threshold allows.
pub(crate) async fn flips(verdicts: &mut Verdicts, time: Duration) {
    let peer =
        Peer::start(json!({"thresholds": {"enter_wait": 0.2, "exit_wait": 0.1, "shed_wait": 0.4}})).await;
    let rate = |at: f64| capacity() * (1.0 + 0.2 * (at / 20.0 * std::f64::consts::TAU).sin());
    peer.load(time, rate, mixed(1.0)).await;
    let flips = peer.metric("overload_transitions_total").await;
    let passed = flips > 0.0;
    verdicts.judge("", &format!("{flips:.0}"), "> 0, else it proves nothing", passed);
    verdicts.at_most(
        &format!("load 0.8x to 1.2x for {} s: changes of state", time.as_secs()),
        flips,
        4.0,
    );
    peer.stop().await;
}
