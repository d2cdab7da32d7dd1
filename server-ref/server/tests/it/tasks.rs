//! `/v1/tasks`: accepted work behind a `Location`.

use std::time::Duration;

use holdoff_contract::read::Advice;
use reqwest::Method;
use serde_json::{Value, json};

use crate::common::{Answer, Peer, assert_no_overload, send};

async fn submit(peer: &Peer, body: &Value) -> Answer {
    send(peer.post("/v1/tasks", body)).await
}

/// Polls until the task is in one of these states.
async fn until(peer: &Peer, location: &str, states: &[&str]) -> Answer {
    for _ in 0..400 {
        let answer = peer.get(location).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        if states.contains(&answer.json()["state"].as_str().unwrap()) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{location} never became one of {states:?}");
}

#[tokio::test]
async fn a_task_goes_through_queued_running_and_done() {
    let peer = Peer::start(json!({"workers": 1})).await;
    peer.fixtures.hold_workers(true);
    let task = json!({"class": "t", "duration_ms": 1});
    let (first, second) = (submit(&peer, &task).await, submit(&peer, &task).await);
    for accepted in [&first, &second] {
        assert_eq!(accepted.status, 202);
        assert!(
            accepted.header("location").starts_with("/v1/tasks/"),
            "{accepted:?}"
        );
        assert_ne!(accepted.header("retry-after"), "");
    }
    let running = until(&peer, first.header("location"), &["running"]).await;
    assert!(running.header("retry-after").parse::<u64>().unwrap() >= 1);
    let queued = until(&peer, second.header("location"), &["queued"]).await;
    assert!(queued.header("retry-after-ms").parse::<u64>().unwrap() >= 1);
    peer.fixtures.hold_workers(false);
    for accepted in [&first, &second] {
        let done = until(&peer, accepted.header("location"), &["done"]).await;
        assert_no_overload(&done);
        assert!(done.json()["service_ms"].as_u64().is_some());
    }
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn a_task_that_panics_has_failed_and_one_that_is_too_late_has_expired() {
    let peer = Peer::start(json!({"workers": 1})).await;
    peer.fixtures.panic_work(1);
    let failing = submit(&peer, &json!({"class": "t"})).await;
    until(&peer, failing.header("location"), &["failed"]).await;
    peer.fixtures.hold_workers(true);
    let body = json!({"class": "t", "duration_ms": 1});
    let running = send(
        peer.post("/v1/tasks", &body)
            .header("overload-deadline-ms", "200"),
    )
    .await;
    let queued = send(
        peer.post("/v1/tasks", &body)
            .header("overload-deadline-ms", "400"),
    )
    .await;
    for accepted in [&running, &queued] {
        let expired = until(&peer, accepted.header("location"), &["expired"]).await;
        assert_eq!(expired.json()["code"], "deadline_expired");
        assert_no_overload(&expired);
    }
    peer.fixtures.hold_workers(false);
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn a_task_nobody_knows_is_not_found() {
    let peer = Peer::start(json!({})).await;
    for id in ["00000000-0000-4000-8000-000000000000", "x", "%00", "..%2f"] {
        let answer = peer.get(&format!("/v1/tasks/{id}")).await;
        assert_eq!(answer.status, 404, "{id}");
        assert_no_overload(&answer);
    }
    peer.stop().await;
}

#[tokio::test]
async fn ended_tasks_are_kept_up_to_a_limit() {
    let peer = Peer::start(json!({"server": {"ended_tasks": 2}})).await;
    let mut locations = Vec::new();
    for _ in 0..4 {
        let accepted = submit(&peer, &json!({"class": "t", "duration_ms": 0})).await;
        let location = accepted.header("location").to_owned();
        until(&peer, &location, &["done"]).await;
        locations.push(location);
    }
    let mut known = Vec::new();
    for location in &locations {
        known.push(peer.get(location).await.status.as_u16());
    }
    assert_eq!(known, [404, 404, 200, 200]);
    peer.stop().await;
}

#[tokio::test]
async fn while_congested_a_task_is_deferred_and_runs_when_that_is_over() {
    let peer = Peer::start(json!({"hold_ms": 100, "ramp_ms": 100})).await;
    peer.fixtures
        .force_state(Some(holdoff_contract::ServiceState::Congested));
    let accepted = submit(&peer, &json!({"class": "t", "duration_ms": 1})).await;
    assert_eq!(accepted.status, 202);
    assert!(Advice::read(&accepted.headers).deferred, "{accepted:?}");
    assert_eq!(
        until(&peer, accepted.header("location"), &["queued"])
            .await
            .status,
        200
    );
    peer.fixtures.force_state(None);
    until(&peer, accepted.header("location"), &["done"]).await;
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn while_shedding_a_deferrable_task_is_refused_at_the_door() {
    let peer = Peer::start(json!({})).await;
    peer.fixtures
        .force_state(Some(holdoff_contract::ServiceState::Shedding));
    let refused = submit(&peer, &json!({"class": "t", "duration_ms": 1})).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(
        matches!(refused.code().as_str(), "tier_shed" | "tier_budget_exhausted"),
        "{refused:?}"
    );
    assert_eq!(refused.header("location"), "");
    peer.stop().await;
}

#[tokio::test]
async fn a_bad_task_is_refused_before_it_has_a_location() {
    let peer = Peer::start(json!({})).await;
    let answer = send(
        peer.request(Method::POST, "/v1/tasks")
            .header("content-type", "application/json")
            .body("{"),
    )
    .await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (400, ""));
    peer.stop().await;
}

#[tokio::test]
async fn a_repeated_key_is_one_task_and_another_payload_is_refused() {
    let peer = Peer::start(json!({"identities": {"tok": {"tenant": "a"}}})).await;
    peer.fixtures.hold_workers(true);
    let body = json!({"class": "t", "duration_ms": 1, "payload": "one"});
    let keyed = |body: &Value| peer.post("/v1/tasks", body).header("idempotency-key", "\"k-1\"");
    let together: Vec<_> = (0..5)
        .map(|_| peer.spawn(keyed(&body).header("overload-task-class", "t")))
        .collect();
    let mut locations = std::collections::BTreeSet::new();
    for answer in together {
        let answer = answer.await.unwrap();
        assert_eq!(answer.status, 202, "{answer:?}");
        locations.insert(answer.header("location").to_owned());
    }
    assert_eq!(locations.len(), 1, "one task: {locations:?}");
    peer.until("the others gave their places back", |snapshot| {
        snapshot.tickets == 1
    })
    .await;
    let other = send(keyed(&json!({"class": "t", "payload": "two"}))).await;
    assert_eq!(other.status, 422);
    assert_no_overload(&other);
    let somebody_else = send(keyed(&body).bearer_auth("tok")).await;
    assert!(
        !locations.contains(somebody_else.header("location")),
        "a key is its tenant's own"
    );
    peer.fixtures.hold_workers(false);
    let location = locations.pop_first().unwrap();
    until(&peer, &location, &["done"]).await;
    let after = send(keyed(&body).header("overload-task-class", "t")).await;
    assert_eq!(
        (after.header("location"), after.json()["state"].as_str()),
        (location.as_str(), Some("done"))
    );
    peer.until_empty().await;
    peer.stop().await;
}
