//! Watching a server from inside while it is under load: its queues against their limits, its state over time.

use std::time::{Duration, Instant};

use holdoff::Tier;
use holdoff_admission::Snapshot;
use holdoff_admission_tower::Admission;
use tokio_util::sync::CancellationToken;

use crate::load::now;

/// How often the gauges are read.
const PERIOD: Duration = Duration::from_millis(20);

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Per tier: deepest queue seen, and its declared limit.
    pub depth: [(u32, u32); 3],
    /// The oldest age of a queued task that was seen.
    pub oldest: Duration,
    /// Times at which a queue was deeper than declared. Stays zero.
    pub over_limit: u64,
    /// Gauge readings taken.
    pub readings: u64,
}

/// Reads the gauges until stopped; each reading is handed to `show`.
pub async fn watch(admission: Admission, stop: CancellationToken, mut show: impl FnMut(&Snapshot)) -> Watch {
    let mut seen = Watch::default();
    let mut tick = tokio::time::interval(PERIOD);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => return seen,
        }
        let snapshot = admission.snapshot();
        seen.readings += 1;
        seen.oldest = seen.oldest.max(snapshot.oldest_age);
        for tier in &snapshot.tiers {
            let depth = &mut seen.depth[tier.tier.index()];
            *depth = (depth.0.max(tier.queued), tier.queue_limit);
            seen.over_limit += u64::from(tier.queued > tier.queue_limit);
        }
        show(&snapshot);
    }
}

/// How long after `from` the server was in state normal with nothing queued or running; `None` where it was not
/// within `most`.
pub async fn until_normal(admission: &Admission, from: Instant, most: Duration) -> Option<Duration> {
    loop {
        let snapshot = admission.snapshot();
        if snapshot.state == holdoff::contract::ServiceState::Normal && snapshot.tickets == 0 {
            return Some(now() - from);
        }
        if now() - from > most {
            return None;
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Name of the tier at this index.
pub fn tier_name(index: usize) -> &'static str {
    Tier::ALL[index].as_str()
}
