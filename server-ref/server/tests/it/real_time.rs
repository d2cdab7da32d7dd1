//! What is promised within a time. These tests run alone.

use std::time::Duration;

use holdoff_contract::{Applied, Code, Hint, Retry};
use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::common::{Peer, now, send};

/// Loopback and a scheduler with other things to do: the least slack that the adapter protocol judges with.
const SLACK: Duration = Duration::from_millis(250);

#[tokio::test]
async fn queued_work_is_answered_at_its_deadline_though_no_worker_is_free() {
    let peer = Peer::start(json!({"workers": 1})).await;
    let held = peer.occupy().await;
    let sent = now();
    let answer = send(peer.work(1).header("overload-deadline-ms", "500")).await;
    let took = now() - sent;
    assert_eq!(answer.code(), "deadline_expired", "{answer:?}");
    let overload = answer.overload();
    assert_eq!((overload.retry, overload.applied), (Retry::No, Applied::No));
    assert_ne!(answer.header("retry-after"), "");
    assert!(
        took >= Duration::from_millis(490) && took <= Duration::from_millis(500) + SLACK,
        "{took:?}"
    );
    peer.fixtures.hold_workers(false);
    for done in held {
        assert_eq!(done.await.unwrap().status, 200);
    }
    peer.stop().await;
}

#[tokio::test]
async fn running_work_is_answered_at_its_deadline_and_may_have_been_applied() {
    let peer = Peer::start(json!({})).await;
    let sent = now();
    let answer = send(peer.work(5000).header("overload-deadline-ms", "300")).await;
    let took = now() - sent;
    assert_eq!(answer.code(), "deadline_expired");
    assert_eq!(
        (answer.overload().retry, answer.overload().applied),
        (Retry::No, Applied::Maybe)
    );
    assert_eq!(answer.header("retry-after"), "", "SRV-10");
    assert!(
        took >= Duration::from_millis(290) && took <= Duration::from_millis(300) + SLACK,
        "{took:?}"
    );
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn health_and_metrics_answer_in_time_while_work_is_refused() {
    let peer = Peer::start(json!({"workers": 1, "queue": 1})).await;
    let held = peer.occupy().await;
    let flood: Vec<_> = (0..4)
        .map(|_| {
            let (client, url) = (peer.client.clone(), format!("{}/v1/work", peer.url));
            tokio::spawn(async move {
                let mut refused = 0_u32;
                loop {
                    let answer = client
                        .post(&url)
                        .json(&json!({"class": "t"}))
                        .timeout(Duration::from_millis(100));
                    refused += u32::from(answer.send().await.is_ok_and(|answer| answer.status() != 200));
                    if refused > 300 {
                        return refused;
                    }
                }
            })
        })
        .collect();
    for _ in 0..10 {
        for path in ["/healthz", "/metrics"] {
            let asked = now();
            let answer = send(peer.request(Method::GET, path)).await;
            let took = now() - asked;
            assert_eq!(answer.status, 200);
            assert!(took < Duration::from_millis(250), "{path} took {took:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for caller in flood {
        assert!(caller.await.unwrap() > 300);
    }
    peer.fixtures.hold_workers(false);
    drop(held);
    peer.stop().await;
}

/// Sends a head that promises a body that does not come, and returns the answer's first line and the time it took.
async fn half_a_request(peer: &Peer, fields: &str) -> (String, Duration) {
    let mut stream = tokio::net::TcpStream::connect(peer.url.trim_start_matches("http://"))
        .await
        .unwrap();
    let head =
        "POST /v1/work HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n";
    let sent = now();
    stream
        .write_all(format!("{head}{fields}\r\n{{").as_bytes())
        .await
        .unwrap();
    let mut answer = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer)
        .await
        .unwrap();
    let line = String::from_utf8_lossy(&answer)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    (line, now() - sent)
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up() {
    let peer = Peer::start(json!({"server": {"body_ms": 200}})).await;
    let (line, took) = half_a_request(&peer, "").await;
    assert!(line.starts_with("HTTP/1.1 408"), "{line}");
    assert!(
        took >= Duration::from_millis(195) && took <= Duration::from_millis(200) + SLACK,
        "{took:?}"
    );
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn a_body_that_keeps_a_place_waiting_is_given_up_sooner() {
    let peer = Peer::start(json!({"server": {"body_ms": 60_000}})).await;
    let (line, took) = half_a_request(&peer, "Overload-Task-Class: t\r\n").await;
    assert!(line.starts_with("HTTP/1.1 408"), "{line}");
    assert!(
        took >= Duration::from_millis(995) && took <= Duration::from_millis(1000) + SLACK,
        "{took:?}"
    );
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn a_stop_waits_for_accepted_work_no_longer_than_its_bound() {
    let peer = Peer::start(json!({"server": {"drain_ms": 300}})).await;
    let mut held = peer.occupy().await;
    let running = held.len();
    held.extend((0..8).map(|_| peer.spawn(peer.work(1))));
    peer.until("eight wait", |snapshot| snapshot.tickets as usize == running + 8)
        .await;
    let asked = now();
    peer.stop().await;
    let took = now() - asked;
    let most = Duration::from_millis(300 + 1000) + SLACK; // the bound, and a second for open connections
    assert!(took >= Duration::from_millis(295) && took <= most, "{took:?}");
    let mut windows = std::collections::BTreeSet::new();
    let all = held.len();
    for (place, cut_off) in held.into_iter().enumerate() {
        let overload = cut_off.await.expect("an answer").overload();
        let applied = if place < running {
            Applied::Maybe
        } else {
            Applied::No
        };
        let said = (overload.code.as_ref(), overload.retry, overload.applied);
        assert_eq!(said, (Some(&Code::Draining), Retry::Elsewhere, applied));
        let Hint::Window { delay, max } = overload.hint else {
            panic!("as at the door, with an end: {:?}", overload.hint);
        };
        assert!(delay >= Duration::from_millis(250) && max >= delay + Duration::from_millis(50));
        windows.insert(delay);
    }
    assert_eq!(windows.len(), all, "another one for each caller: {windows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_is_refused_at_once_and_its_bounds_hold() {
    let profile = json!({"workers": 10, "queue": 0, "classes": {"t": {"mean_ms": 50, "p95_ms": 60, "deadline_ms": 5000}}});
    let peer = Peer::start(profile).await;
    let sent: Vec<_> = (0..60)
        .map(|_| {
            let request = peer.work(50);
            tokio::spawn(async move {
                let asked = now();
                let answer = send(request).await;
                (answer, now() - asked)
            })
        })
        .collect();
    let (mut done, mut slowest) = (0, Duration::ZERO);
    for answer in sent {
        let (answer, took) = answer.await.unwrap();
        let busy = peer.admission.snapshot().busy;
        assert!(busy <= 10, "{busy} of 10 workers are busy");
        if answer.status == 200 {
            done += 1;
        } else {
            assert!(
                matches!(answer.code().as_str(), "concurrency_limit" | "retry_throttled"),
                "{answer:?}"
            );
            slowest = slowest.max(took);
        }
    }
    assert!((10..60).contains(&done), "{done} done");
    assert!(slowest < Duration::from_millis(250), "a refusal took {slowest:?}");
    peer.until_empty().await;
    peer.stop().await;
}
