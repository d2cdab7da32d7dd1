//! Figures that the server must reach: refusing takes no memory.

use serde_json::json;

use crate::common::{Answer, Peer, send};

/// Resident memory of this process, KiB.
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn refused(answer: &Answer) -> bool {
    matches!(answer.status.as_u16(), 429 | 503)
}

/// Refuses `n` requests, each with a key and a caller of its own, and gives the growth of memory after the first tenth.
async fn grown_kib(n: u32) -> Option<i64> {
    let peer = Peer::start(json!({"queue": 0, "anonymous": {"trusted": true}})).await;
    let held = peer.occupy().await;
    let mut after_warm_up = None;
    for round in 0..10 {
        let each = n / 10 / 8;
        let loops: Vec<_> = (0..8)
            .map(|lane| {
                let (client, url) = (peer.client.clone(), format!("{}/v1/work", peer.url));
                tokio::spawn(async move {
                    for i in 0..each {
                        let id = (round * 8 + lane) * each + i;
                        let request = client
                            .post(&url)
                            .header("overload-task-class", "t")
                            .header("overload-tenant", format!("\"tenant-{id}\""))
                            .header("idempotency-key", format!("key-{id}"));
                        assert!(refused(&send(request.json(&json!({}))).await));
                    }
                })
            })
            .collect();
        for each in loops {
            each.await.unwrap();
        }
        // The histograms' samples are folded by a scrape, as they are by the server's own upkeep.
        peer.metrics().await;
        after_warm_up = after_warm_up.or_else(|| resident_kib().filter(|_| round >= 1));
    }
    let grown = resident_kib()? as i64 - after_warm_up? as i64;
    peer.fixtures.hold_workers(false);
    for done in held {
        done.await.unwrap();
    }
    peer.stop().await;
    Some(grown)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_flat_over_ten_thousand_rejects_of_made_up_callers() {
    if let Some(grown) = grown_kib(10_000).await {
        assert!(grown < 8 * 1024, "{grown} KiB more");
    }
}

/// The whole proof: `cargo test --release -p holdoff-server --test it a_million -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes long; the smoke is the test above"]
async fn memory_stays_flat_over_a_million_rejects() {
    let grown = grown_kib(1_000_000).await.expect("/proc/self/status");
    println!("{grown} KiB more after the first two tenths of a million rejects");
    assert!(grown < 8 * 1024, "{grown} KiB more");
}
