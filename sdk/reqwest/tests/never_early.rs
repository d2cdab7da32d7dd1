//! The promise that all else rests on: over a thousand retries on real sockets, judged by the server's clock, none
//! comes before the hint and none after its window.

mod support;

use std::collections::HashMap;
use std::time::Duration;

use holdoff_reqwest::Client;
use support::{Seen, Server, ms, ok, window};

const CALLERS: u64 = 50;
const CALLS_EACH: u64 = 20;
/// The policy's floor: no retry leaves sooner, and no window is narrower.
const FLOOR: Duration = Duration::from_millis(50);
/// What a busy machine may add to a wait (ADAPTER.md: at least 250 ms).
const SLACK: Duration = Duration::from_millis(250);

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

    let mut calls: HashMap<String, Vec<Seen>> = HashMap::new();
    for seen in server.seen() {
        calls.entry(seen.path.clone()).or_default().push(seen);
    }
    assert_eq!(calls.len() as u64, CALLERS * CALLS_EACH);
    let mut early = Vec::new();
    let mut late = Vec::new();
    let mut tenths = [0_u32; 10];
    for (path, sends) in &calls {
        assert_eq!(sends.len(), 2, "{path}");
        let gap = sends[1].arrived - sends[0].answered.unwrap();
        let (after, max) = hint(path);
        let low = ms(after).max(FLOOR);
        let high = ms(max).max(low + FLOOR);
        if gap < ms(after) {
            early.push((path, gap));
        }
        if gap > high + SLACK {
            late.push((path, gap));
        }
        let at = (gap.saturating_sub(low).as_secs_f64() / (high - low).as_secs_f64() * 10.0) as usize;
        tenths[at.min(9)] += 1;
    }
    assert!(early.is_empty(), "{early:?}");
    assert!(late.is_empty(), "{late:?}");
    let most = CALLERS * CALLS_EACH / 3;
    assert!(
        tenths.iter().all(|count| u64::from(*count) <= most),
        "waits are drawn, not fixed: {tenths:?}"
    );

    let counts = client.counters().snapshot();
    assert_eq!(
        (counts.retries_total, counts.early_retries_total),
        (CALLERS * CALLS_EACH, 0)
    );
    assert_eq!(counts.gave_up, []);
}
