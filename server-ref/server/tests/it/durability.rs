//! What was acknowledged survives; a key is one operation. Over real sockets, with a server stopped and started over the
//! same data.

use std::path::Path;

use http::StatusCode;
use serde_json::{Value, json};

use crate::common::{Answer, Peer, assert_no_overload, send};

fn task(ms: u64) -> Value {
    json!({"class": "t", "duration_ms": ms})
}

async fn submit(peer: &Peer, body: &Value) -> Answer {
    send(
        peer.post("/v1/tasks", body)
            .header("overload-tier", "non-sheddable"),
    )
    .await
}

async fn until(peer: &Peer, location: &str, states: &[&str]) -> Value {
    for _ in 0..400 {
        let answer = peer.get(location).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let task = answer.json();
        if states.contains(&task["state"].as_str().unwrap()) {
            return task;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{location} never became one of {states:?}");
}

async fn start(data: &Path, more: Value) -> Peer {
    Peer::start_with(more, |config| config.data = Some(data.to_owned())).await
}

#[tokio::test]
async fn without_a_data_directory_a_non_sheddable_task_is_refused_as_bad_input_and_work_is_done() {
    let peer = Peer::start(json!({})).await;
    let answer = submit(&peer, &task(1)).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_no_overload(&answer);
    assert_eq!(answer.json()["field"], "Overload-Tier");
    assert!(
        answer.json()["detail"].as_str().unwrap().contains("--data"),
        "{answer:?}"
    );
    let waits = peer
        .post("/v1/work", &task(1))
        .header("overload-tier", "non-sheddable");
    assert_eq!(
        send(waits).await.status,
        200,
        "its caller waits: nothing is promised"
    );
    assert_eq!(
        send(peer.post("/v1/tasks", &task(1))).await.status,
        202,
        "deferrable"
    );
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn tasks_that_were_acknowledged_are_run_after_a_restart_and_those_that_ended_stay_ended() {
    let data = tempfile::tempdir().unwrap();
    let peer = start(data.path(), json!({"server": {"drain_ms": 0}})).await;
    let done = submit(&peer, &task(1)).await;
    let before = until(&peer, done.header("location"), &["done"]).await;
    peer.fixtures.hold_workers(true);
    let mut open = Vec::new();
    for _ in 0..4 {
        let answer = submit(&peer, &task(1)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        open.push(answer.header("location").to_owned());
    }
    until(&peer, &open[0], &["running"]).await;
    peer.stop().await;
    let peer = start(data.path(), json!({})).await;
    for location in &open {
        until(&peer, location, &["done"]).await;
    }
    assert_eq!(peer.get(done.header("location")).await.json(), before);
    peer.until_empty().await;
    peer.stop().await;
    let peer = start(data.path(), json!({})).await;
    assert_eq!(peer.admission.snapshot().tickets, 0, "an end is an end");
    assert_eq!(peer.get(&open[3]).await.json()["state"], "done");
    peer.stop().await;
}

#[tokio::test]
async fn a_stop_waits_for_the_end_of_a_task_to_be_kept() {
    let data = tempfile::tempdir().unwrap();
    let peer = start(data.path(), json!({})).await;
    let answer = submit(&peer, &task(100)).await;
    peer.stop().await;
    let peer = start(data.path(), json!({})).await;
    let kept = peer.get(answer.header("location")).await.json();
    assert_eq!(kept["state"], "done", "{kept}");
    peer.stop().await;
}

#[tokio::test]
async fn a_key_is_one_task_across_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let keyed = |peer: &Peer, body: &Value| {
        peer.post("/v1/tasks", body)
            .header("overload-tier", "non-sheddable")
            .header("idempotency-key", "\"k-1\"")
    };
    let peer = start(data.path(), json!({"server": {"drain_ms": 0}})).await;
    peer.fixtures.hold_workers(true);
    let together: Vec<_> = (0..8).map(|_| peer.spawn(keyed(&peer, &task(1)))).collect();
    let mut locations = std::collections::BTreeSet::new();
    for answer in together {
        let answer = answer.await.unwrap();
        assert_eq!(answer.status, 202, "{answer:?}");
        locations.insert(answer.header("location").to_owned());
    }
    assert_eq!(locations.len(), 1, "{locations:?}");
    peer.stop().await;
    let peer = start(data.path(), json!({})).await;
    let again = send(keyed(&peer, &task(1))).await;
    let location = locations.pop_first().unwrap();
    assert_eq!(
        (again.status.as_u16(), again.header("location")),
        (202, location.as_str())
    );
    assert_eq!(send(keyed(&peer, &task(2))).await.status, 422, "another payload");
    until(&peer, &location, &["done"]).await;
    peer.stop().await;
}

#[tokio::test]
async fn work_that_failed_is_a_dead_letter_of_its_owner_also_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let profile = json!({"identities": {"tok": {"tenant": "a"}}});
    let peer = start(data.path(), profile.clone()).await;
    peer.fixtures.panic_work(1);
    let mine = peer
        .post("/v1/tasks", &task(1))
        .header("overload-tier", "non-sheddable");
    let mine = send(mine.bearer_auth("tok")).await;
    until(&peer, mine.header("location"), &["failed"]).await;
    peer.stop().await;
    let peer = start(data.path(), profile).await;
    let list = send(
        peer.request(reqwest::Method::GET, "/v1/dead-letters")
            .bearer_auth("tok"),
    )
    .await;
    assert_eq!(list.json()["count"], 1, "{list:?}");
    let id = list.json()["tasks"][0]["id"].as_str().unwrap().to_owned();
    assert!(mine.header("location").ends_with(&id));
    assert_eq!(
        peer.get("/v1/dead-letters").await.json()["count"],
        0,
        "somebody else's"
    );
    peer.stop().await;
}

#[tokio::test]
async fn late_work_still_runs_unless_the_profile_says_that_it_is_of_no_use() {
    for (limits, state, dead) in [(json!({}), "done", 0), (json!({"late_ms": 1}), "expired", 2)] {
        let data = tempfile::tempdir().unwrap();
        let peer = start(data.path(), json!({"server": {"drain_ms": 0}})).await;
        peer.fixtures.hold_workers(true);
        let mut open = Vec::new();
        for _ in 0..2 {
            let request = peer
                .post("/v1/tasks", &task(1))
                .header("overload-tier", "non-sheddable");
            let answer = send(request.header("overload-deadline-ms", "250")).await;
            assert_eq!(answer.status, 202, "{answer:?}");
            open.push(answer.header("location").to_owned());
        }
        peer.stop().await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let peer = start(data.path(), json!({"server": limits})).await;
        for location in &open {
            until(&peer, location, &[state]).await;
        }
        assert_eq!(peer.get("/v1/dead-letters").await.json()["count"], dead);
        peer.until_empty().await;
        peer.stop().await;
    }
}

#[tokio::test]
async fn a_journal_in_use_or_broken_stops_the_start_with_the_file_and_is_left_alone() {
    let data = tempfile::tempdir().unwrap();
    let peer = start(data.path(), json!({})).await;
    let config = || holdoff_server::ServerConfig {
        addr: "127.0.0.1:0".parse().unwrap(),
        data: Some(data.path().to_owned()),
        ..holdoff_server::ServerConfig::default()
    };
    let error = holdoff_server::Server::bind(config())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tasks.redb") && error.contains("in use"),
        "{error}"
    );
    peer.stop().await;
    let file = data.path().join("tasks.redb");
    std::fs::write(&file, b"something else").unwrap();
    let error = holdoff_server::Server::bind(config())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tasks.redb") && error.contains("left as it is"),
        "{error}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"something else");
}

#[tokio::test]
async fn work_under_a_key_is_done_once_and_answered_to_everybody() {
    let peer = Peer::start(json!({})).await;
    peer.fixtures.hold_workers(true);
    let keyed = |key: &str, ms: u64| peer.work(ms).header("idempotency-key", format!("\"{key}\""));
    let together: Vec<_> = (0..4).map(|_| peer.spawn(keyed("k", 1))).collect();
    peer.until("one works", |snapshot| snapshot.busy == 1).await;
    assert_eq!(send(keyed("k", 2)).await.status, 422, "another payload");
    let other = send(
        peer.post("/v1/tasks", &task(1))
            .header("idempotency-key", "\"k\""),
    )
    .await;
    assert_eq!(other.status, 422, "another operation");
    peer.fixtures.hold_workers(false);
    let mut bodies = std::collections::BTreeSet::new();
    for answer in together {
        let answer = answer.await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        bodies.insert(answer.body.to_vec());
    }
    let later = send(keyed("k", 1)).await;
    bodies.insert(later.body.to_vec());
    assert_eq!(bodies.len(), 1, "one answer");
    let page = peer.metrics().await;
    assert!(
        page.contains("agent_task_start_delay_seconds_count 1"),
        "it ran once"
    );
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn work_that_got_no_answer_leaves_its_key_to_the_next_one() {
    let peer = Peer::start(json!({"workers": 1})).await;
    let keyed = || peer.work(1).header("idempotency-key", "\"k\"");
    peer.fixtures.panic_work(1);
    assert_eq!(send(keyed()).await.status, 500);
    assert_eq!(send(keyed()).await.status, 200);
    let other = || peer.work(1).header("idempotency-key", "\"o\"");
    peer.fixtures.hold_workers(true);
    let first = peer.spawn(other().header("overload-deadline-ms", "150"));
    peer.until("the first one works", |snapshot| snapshot.busy == 1)
        .await;
    let second = peer.spawn(other().header("overload-deadline-ms", "4000"));
    assert_eq!(first.await.unwrap().code(), "deadline_expired");
    peer.fixtures.hold_workers(false);
    assert_eq!(second.await.unwrap().status, 200, "it did the work itself");
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn a_tenant_with_too_many_keys_is_refused_new_ones_and_keeps_the_old_ones() {
    let limits = json!({"server": {"keys_per_tenant": 2, "keys": 3}, "identities": {"tok": {"tenant": "a"}}});
    let peer = Peer::start(limits).await;
    let keyed = |key: &str| peer.work(1).header("idempotency-key", format!("\"{key}\""));
    for key in ["1", "2"] {
        assert_eq!(send(keyed(key).bearer_auth("tok")).await.status, 200);
    }
    let refused = send(keyed("3").bearer_auth("tok")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "tenant_limit")
    );
    assert_eq!(send(keyed("1").bearer_auth("tok")).await.status, 200);
    assert_eq!(send(keyed("1")).await.status, 200, "another caller's");
    assert_eq!(send(keyed("2")).await.code(), "queue_full");
    peer.until_empty().await;
    peer.stop().await;
}
