//! The fixtures of the adapter protocol, by their names and over HTTP.

use reqwest::Method;
use serde_json::json;

use crate::common::{Peer, send};

async fn set(peer: &Peer, name: &str, members: serde_json::Value) {
    let answer = send(peer.post(&format!("/fixtures/{name}"), &members)).await;
    assert_eq!(answer.status, 200, "{name}: {answer:?}");
}

#[tokio::test]
async fn a_forced_reject_is_sent_to_the_next_requests_exactly_as_told() {
    let peer = Peer::start(json!({})).await;
    set(
        &peer,
        "force_reject",
        json!({"code": "queue_full", "after_ms": 1500, "max_ms": 1900, "count": 2}),
    )
    .await;
    let mut greased = 0;
    for _ in 0..2 {
        let answer = send(peer.work(1)).await;
        assert_eq!(answer.status, 503);
        assert_eq!(
            (answer.header("retry-after"), answer.header("retry-after-ms")),
            ("2", "1500")
        );
        let signal = "v=1, code=queue_full, retry=after, applied=no, after=1500, max=1900";
        let (told, grease) = answer
            .header("overload-signal")
            .split_once(", grease-")
            .map_or((answer.header("overload-signal"), None), |(told, grease)| {
                (told, Some(grease))
            });
        assert_eq!(told, signal);
        greased += usize::from(grease.is_some());
        assert_eq!(answer.json()["retry_after_ms"], 1500);
    }
    assert_eq!(
        greased, 1,
        "some refusals of a test build carry an unknown key (VER-05)"
    );
    assert_eq!(send(peer.work(1)).await.status, 200, "two were told, not three");
    peer.stop().await;
}

#[tokio::test]
async fn every_code_of_the_registry_can_be_forced_with_its_status() {
    let peer = Peer::start(json!({})).await;
    for code in holdoff_contract::Code::REGISTERED {
        let members =
            json!({"code": code.as_str(), "after_ms": 200, "max_ms": 300, "id": "7", "cmd": "fixture"});
        peer.fixtures.apply("force_reject", &members).unwrap();
        let answer = send(peer.work(1)).await;
        assert_eq!(answer.status.as_u16(), code.status().as_u16(), "{code}");
        assert_eq!(answer.code(), code.as_str());
    }
    peer.stop().await;
}

#[tokio::test]
async fn drain_refuses_new_work_and_finishes_the_old() {
    let peer = Peer::start(json!({})).await;
    let held = peer.occupy().await;
    set(&peer, "drain", json!({})).await;
    let refused = send(peer.work(1)).await;
    assert_eq!(refused.code(), "draining");
    set(&peer, "hold_workers", json!({"on": false})).await;
    for done in held {
        assert_eq!(done.await.unwrap().status, 200);
    }
    peer.stop().await;
}

#[tokio::test]
async fn a_frozen_controller_is_stale_and_recovers_by_itself() {
    let peer = Peer::start(json!({})).await;
    set(&peer, "freeze_controller", json!({"on": true})).await;
    peer.until("its data is old", |snapshot| snapshot.staleness.as_millis() > 600)
        .await;
    assert_eq!(send(peer.work(1)).await.code(), "controller_stale");
    set(&peer, "freeze_controller", json!({"on": false})).await;
    peer.until("its data is fresh", |snapshot| {
        snapshot.staleness.as_millis() < 200
    })
    .await;
    assert_eq!(send(peer.work(1)).await.status, 200);
    peer.stop().await;
}

#[tokio::test]
async fn degraded_successes_say_so() {
    let peer = Peer::start(json!({})).await;
    set(&peer, "degraded", json!({})).await;
    let answer = send(peer.work(1)).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("overload-signal")),
        (200, "v=1, degraded")
    );
    set(&peer, "degraded", json!({"on": false})).await;
    assert_eq!(send(peer.work(1)).await.header("overload-signal"), "");
    peer.stop().await;
}

#[tokio::test]
async fn trust_gives_a_token_or_everybody_rights() {
    let peer = Peer::start(json!({})).await;
    set(
        &peer,
        "trust",
        json!({"identity": "tok", "tiers": ["critical"], "tenant": "a"}),
    )
    .await;
    set(&peer, "force_state", json!({"state": "congested"})).await;
    let mine = peer
        .work(1)
        .bearer_auth("tok")
        .header("overload-tier", "critical");
    assert_eq!(send(mine).await.json()["tier"], "critical");
    set(
        &peer,
        "trust",
        json!({"identity": null, "tiers": ["critical", "deferrable"]}),
    )
    .await;
    let anybody = peer.work(1).header("overload-tier", "critical");
    assert_eq!(send(anybody).await.json()["tier"], "critical");
    peer.stop().await;
}

#[tokio::test]
async fn identities_made_by_fixtures_are_bounded_too() {
    let peer = Peer::start(json!({})).await;
    let most = holdoff_server::config::MAX_IDENTITIES;
    let trust = |i: usize| {
        peer.fixtures
            .apply("trust", &json!({"identity": format!("tok-{i}"), "tenant": "a"}))
    };
    for i in 0..most {
        trust(i).unwrap();
    }
    assert!(trust(most).unwrap_err().to_string().contains("4096"));
    assert_eq!(trust(0), Ok(()), "a known one can still be changed");
    peer.stop().await;
}

#[tokio::test]
async fn a_fixture_that_cannot_be_set_is_named() {
    let peer = Peer::start(json!({})).await;
    for (name, members, words) in [
        ("explode", json!({}), "explode"),
        ("force_state", json!({"state": "panic"}), "panic"),
        ("force_reject", json!({"after_ms": 1}), "code is missing"),
        ("force_reject", json!({"code": "Bad!"}), "Bad!"),
        (
            "hold_workers",
            json!({"on": "yes"}),
            "on is \"yes\"; it must be true or false",
        ),
        (
            "panic_work",
            json!({"count": -1}),
            "count is -1; it must be a whole number in 0..=4294967295",
        ),
        (
            "trust",
            json!({"tiers": ["low"]}),
            "tiers is [\"low\"]; it must be a list of critical",
        ),
        ("drain", json!([1]), "the body must be a JSON object"),
    ] {
        let answer = send(peer.post(&format!("/fixtures/{name}"), &members)).await;
        assert_eq!(answer.status, 422, "{name}");
        assert!(
            answer.json()["detail"].as_str().unwrap().contains(words),
            "{name}: {answer:?}"
        );
    }
    peer.stop().await;
}

#[tokio::test]
async fn without_the_switch_there_are_no_fixtures() {
    let config = holdoff_server::ServerConfig {
        addr: "127.0.0.1:0".parse().unwrap(),
        ..holdoff_server::ServerConfig::default()
    };
    let server = holdoff_server::Server::bind(config).await.unwrap();
    assert!(server.fixtures().is_none());
    let url = server.url();
    let running = tokio::spawn(server.run(std::future::pending()));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client
        .request(Method::POST, format!("{url}/fixtures/drain"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 404);
    running.abort();
}
