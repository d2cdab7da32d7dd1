//! The promise that all else rests on: over a thousand retries on real sockets, judged by the server's clock, none
//! comes before the hint and none after its window.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdoff_reqwest::Client;
use support::{Seen, Server, ms, now, ok, window};

const CALLERS: u64 = 50;
const CALLS_EACH: u64 = 20;
/// The policy's floor: no retry leaves sooner, and no window is narrower.
const FLOOR: Duration = Duration::from_millis(50);
/// The least that a machine may add to a wait (ADAPTER.md).
const LEAST_SLACK: Duration = Duration::from_millis(250);

/// How late this runtime's timers are while the test runs: what the machine adds to each wait, whoever waits.
struct Probe {
    late: Arc<Mutex<Vec<Duration>>>,
    running: tokio::task::JoinHandle<()>,
}

impl Probe {
    fn start() -> Self {
        let late: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let running = tokio::spawn({
            let late = Arc::clone(&late);
            async move {
                loop {
                    let until = now() + ms(5);
                    tokio::time::sleep_until(until.into()).await;
                    late.lock().unwrap().push(now() - until);
                }
            }
        });
        Self { late, running }
    }

    /// Four times the 99th percentile, by ADAPTER.md.
    fn slack(self) -> Duration {
        self.running.abort();
        let mut late = self.late.lock().unwrap();
        late.sort_unstable();
        let p99 = late.get(late.len() * 99 / 100).copied().unwrap_or_default();
        (p99 * 4).max(LEAST_SLACK)
    }
}

/// The hint that the server gives to this call: D from 20 to 200 ms, and a window of 60 ms.
fn hint(path: &str) -> (u64, u64) {
    let number: u64 = path
        .rsplit('/')
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let after = 20 + number * 37 % 181;
    (after, after + 60)
}

/// One thread runs client and server, so nothing of the client runs between the server's write and the reading of
/// its clock: "never early" is exact, without a tolerance.
#[tokio::test]
async fn real_time_a_thousand_retries_keep_to_their_windows() {
    let server = Server::start(|_, seen| {
        let (after, max) = hint(&seen.path);
        if seen.field("overload-attempt") == Some("1") {
            window(after, max)
        } else {
            ok()
        }
    })
    .await;
    let client = Client::new();
    let probe = Probe::start();
    let callers = (0..CALLERS).map(|caller| {
        let (client, base) = (client.clone(), server.url("/c"));
        tokio::spawn(async move {
            for call in 0..CALLS_EACH {
                let url = format!("{base}/{}", caller * CALLS_EACH + call);
                let response = client
                    .get(url)
                    .deadline(Duration::from_secs(30))
                    .send()
                    .await
                    .unwrap();
                assert_eq!(response.text().await.unwrap(), "done");
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }

    let slack = probe.slack();

    let mut calls: HashMap<String, Vec<Seen>> = HashMap::new();
    for seen in server.seen() {
        calls.entry(seen.path.clone()).or_default().push(seen);
    }
    assert_eq!(calls.len() as u64, CALLERS * CALLS_EACH);
    let mut early = Vec::new();
    let mut late = Vec::new();
    // Where in its window each came: 0 is its start, 1000 its end.
    let mut places = Vec::new();
    for (path, sends) in &calls {
        assert_eq!(sends.len(), 2, "{path}");
        let gap = sends[1].arrived - sends[0].answered.unwrap();
        let (after, max) = hint(path);
        let low = ms(after).max(FLOOR);
        let high = ms(max).max(low + FLOOR);
        if gap < low {
            early.push((path, gap));
        }
        if gap > high + slack {
            late.push((path, gap));
        }
        places.push(gap.saturating_sub(low).as_micros() * 1000 / (high - low).as_micros());
    }
    assert!(early.is_empty(), "{early:?}");
    assert!(late.is_empty(), "slack {slack:?}: {late:?}");
    places.sort_unstable();
    let (tenth, ninth) = (places[places.len() / 10], places[places.len() * 9 / 10]);
    // A uniform draw puts 800 between the two, a fixed one next to nothing; what the machine adds only widens it.
    assert!(
        ninth - tenth > 500,
        "waits are drawn, not fixed: {tenth} to {ninth}"
    );

    let counts = client.counters().snapshot();
    assert_eq!(
        (counts.retries_total, counts.early_retries_total),
        (CALLERS * CALLS_EACH, 0)
    );
    assert_eq!(counts.gave_up, []);
}
