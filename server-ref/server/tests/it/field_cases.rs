//! Rows of the collection of faults that others met (field-cases.jsonl) which need this server's sockets and scrape; each test
//! names its row.

use std::collections::BTreeSet;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::Peer;

/// The series of a scrape, without their values.
fn series(page: &str) -> BTreeSet<String> {
    let lines = page
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .filter_map(|line| line.rsplit_once(' ').map(|(series, _)| series.to_owned()))
        .collect()
}

/// Sends one task and reads its whole answer, which leaves the connection open and idle.
async fn one_task(stream: &mut TcpStream) -> String {
    let body = r#"{"class":"t","duration_ms":5}"#;
    let request = format!(
        "POST /v1/work HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let mut part = [0; 1024];
    while !answer.ends_with(b"}") {
        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "closed: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&part[..read]);
    }
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn fc_con_07_connections_that_are_open_and_idle_hold_no_place() {
    let peer = Peer::start(json!({
        "workers": 4, "queue": 0, "classes": {"t": {"mean_ms": 5, "p95_ms": 10, "deadline_ms": 1000}},
    }))
    .await;
    let addr = peer.url.trim_start_matches("http://").to_owned();
    let mut open = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(&addr).await.unwrap();
        let answer = one_task(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        open.push(stream);
    }
    peer.until_empty().await;
    let page = peer.metrics().await;
    for gauge in [
        "agent_queue_estimated_work_seconds 0",
        "overload_workers_busy 0",
        "overload_tickets 0",
    ] {
        assert!(page.lines().any(|line| line == gauge), "{gauge}\n{page}");
    }
    let mut fresh = TcpStream::connect(&addr).await.unwrap();
    assert!(one_task(&mut fresh).await.starts_with("HTTP/1.1 200"));
    // They were open all the time.
    for stream in &mut open {
        assert!(one_task(stream).await.starts_with("HTTP/1.1 200"));
    }
    drop((open, fresh));
    peer.stop().await;
}

/// Requests written at once.
const BATCH: usize = 50;

/// The scrape after one refused request of each of so many tenants.
async fn after_refusals_of(tenants: usize) -> String {
    let peer = Peer::start(json!({"queue": 0, "anonymous": {"trusted": true}})).await;
    let held = peer.occupy().await;
    // Heads alone, many in a packet: ten thousand requests are to take a second, not a minute.
    let mut stream = TcpStream::connect(peer.url.trim_start_matches("http://"))
        .await
        .unwrap();
    for first in (0..tenants).step_by(BATCH) {
        let batch = first..tenants.min(first + BATCH);
        let heads: String = batch
            .clone()
            .map(|tenant| {
                format!(
                    "HEAD /v1/work HTTP/1.1\r\nHost: x\r\nOverload-Task-Class: t\r\n\
                     Overload-Tenant: \"tenant-{tenant}\"\r\n\r\n"
                )
            })
            .collect();
        stream.write_all(heads.as_bytes()).await.unwrap();
        let (mut answers, mut part) = (String::new(), [0; 4096]);
        while answers.matches("\r\n\r\n").count() < batch.len() {
            let read = stream.read(&mut part).await.unwrap();
            assert!(read > 0, "closed after {answers}");
            answers.push_str(std::str::from_utf8(&part[..read]).unwrap());
        }
        let refused = answers.matches("HTTP/1.1 503").count() + answers.matches("HTTP/1.1 429").count();
        assert_eq!(refused, batch.len(), "{answers}");
    }
    let page = peer.metrics().await;
    peer.fixtures.hold_workers(false);
    for done in held {
        // Done, or its caller's time was over meanwhile.
        done.await.unwrap();
    }
    peer.stop().await;
    page
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fc_met_01_ten_thousand_tenants_have_the_series_of_ten() {
    let (few, many) = (after_refusals_of(10).await, after_refusals_of(10_000).await);
    assert_eq!(series(&few), series(&many));
    let refused: u64 = many
        .lines()
        .filter(|line| line.starts_with("agent_admission_total{") && !line.contains(r#"decision="accept""#))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum();
    assert_eq!(refused, 10_000, "each was counted");
    let labels: BTreeSet<&str> = many
        .lines()
        .filter_map(|line| line.strip_prefix("agent_admission_total{"))
        .flat_map(|labels| labels.split(','))
        .filter_map(|label| label.split_once('=').map(|(name, _)| name))
        .collect();
    assert_eq!(labels, BTreeSet::from(["decision", "task_class", "tenant_tier"]));
    assert!(!many.contains("tenant-"), "a tenant is in the scrape");
}

#[tokio::test]
async fn every_series_of_a_closed_set_is_there_at_zero_before_the_first_request() {
    let peer = Peer::start(json!({})).await;
    let page = peer.metrics().await;
    for line in [
        r#"agent_admission_total{decision="accept",task_class="t",tenant_tier="deferrable"} 0"#,
        r#"agent_admission_total{decision="queue_full",task_class="other",tenant_tier="critical"} 0"#,
        r#"overload_transitions_total{from="normal",to="congested"} 0"#,
        r#"overload_transitions_total{from="recovering",to="shedding"} 0"#,
        r#"overload_queue_refused_total{code="evicted",tier="deferrable"} 0"#,
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    peer.stop().await;
    // Beyond a number of classes the product is too large for a scrape, and series come with their first event.
    let classes: serde_json::Map<_, _> = (0..64).map(|n| (format!("c{n}"), json!({}))).collect();
    let wide = Peer::start(json!({"classes": classes})).await;
    let page = wide.metrics().await;
    assert!(!page.contains("agent_admission_total{") && page.contains("overload_transitions_total{"));
    wide.stop().await;
}
