//! Whatever ends a piece of work gives back what it was charged, once (ADM-15).

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::common::{Peer, send};

/// Room for all that a test sends; what is deferred runs soon after.
fn wide() -> serde_json::Value {
    json!({"workers": 8, "queue": 2000, "hold_ms": 100, "ramp_ms": 100})
}

#[tokio::test]
async fn a_client_that_goes_away_while_running_or_queued_leaves_nothing_behind() {
    let peer = Peer::start(json!({"workers": 1})).await;
    let addr = peer.url.trim_start_matches("http://").to_owned();
    let body = r#"{"class":"t","duration_ms":60000}"#;
    let request = format!(
        "POST /v1/work HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nOverload-Deadline-Ms: 60000\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = tokio::net::TcpStream::connect(&addr).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        streams.push(stream);
    }
    peer.until("one runs and two wait", |snapshot| {
        snapshot.tickets == 3 && snapshot.busy == 1
    })
    .await;
    // The queued ones first: nothing of theirs may start.
    streams.truncate(1);
    peer.until("the queued are gone", |snapshot| snapshot.tickets == 1)
        .await;
    drop(streams);
    peer.until_empty().await;
    assert_eq!(
        peer.admission
            .snapshot()
            .classes
            .iter()
            .map(|class| class.samples)
            .sum::<u64>(),
        0
    );
    assert_eq!(send(peer.work(1)).await.status, 200);
    peer.stop().await;
}

#[tokio::test]
async fn work_that_panics_is_answered_and_gives_its_place_back() {
    let peer = Peer::start(json!({})).await;
    peer.fixtures.panic_work(1);
    let answer = send(peer.work(1)).await;
    assert_eq!(answer.status, 500);
    crate::common::assert_no_overload(&answer);
    peer.until_empty().await;
    assert_eq!(send(peer.work(1)).await.status, 200);
    peer.stop().await;
}

#[tokio::test]
async fn a_thousand_mixed_endings_leave_every_gauge_at_zero() {
    let peer = Peer::start(wide()).await;
    let mut sent = Vec::new();
    for i in 0..1000_u64 {
        if i % 100 == 7 {
            peer.fixtures.panic_work(1);
        }
        let request = match i % 5 {
            0 => peer.work(1).header("overload-deadline-ms", "40"),
            1 => peer.work(3).timeout(Duration::from_millis(i % 12 + 1)),
            2 => peer.work(2),
            3 => peer.post("/v1/tasks", &json!({"class": "t", "duration_ms": 1})),
            _ => peer.work(1).body("{").header("overload-task-class", "t"),
        };
        sent.push(tokio::spawn(request.send()));
        if i % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let mut by_kind = std::collections::BTreeMap::new();
    for answer in sent {
        let kind = answer
            .await
            .unwrap()
            .map_or(0, |response| response.status().as_u16());
        *by_kind.entry(kind).or_insert(0_u32) += 1;
    }
    peer.until_empty().await;
    assert!(
        by_kind.contains_key(&200) && by_kind.contains_key(&400),
        "the mix is one: {by_kind:?}"
    );
    assert_eq!(send(peer.work(1)).await.status, 200);
    peer.stop().await;
}
