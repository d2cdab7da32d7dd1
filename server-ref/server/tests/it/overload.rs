//! What is refused, by which code, and what the answer says.

use holdoff_contract::{Applied, Hint, Retry};
use reqwest::Method;
use serde_json::json;

use crate::common::{Peer, assert_no_overload, send};

#[tokio::test]
async fn a_full_queue_answers_by_the_contract_and_its_bound_holds() {
    let peer = Peer::start(json!({"queue": 3})).await;
    let held = peer.occupy().await;
    let queued: Vec<_> = (0..3).map(|_| peer.spawn(peer.work(1))).collect();
    peer.until("three wait", |snapshot| {
        snapshot.tiers.iter().map(|tier| tier.queued).sum::<u32>() == 3
    })
    .await;
    for _ in 0..10 {
        let answer = send(peer.work(1)).await;
        let overload = answer.overload();
        assert!(
            matches!(answer.code().as_str(), "queue_full" | "retry_throttled"),
            "{answer:?}"
        );
        assert_eq!((overload.retry, overload.applied), (Retry::After, Applied::No));
        assert!(matches!(overload.hint, Hint::Window { .. }), "{overload:?}");
        assert!(overload.instance.is_some());
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let after = overload.hint.delay_or_zero().as_millis();
        assert_eq!(answer.header("retry-after"), after.div_ceil(1000).to_string());
        assert_eq!(answer.header("retry-after-ms"), after.to_string());
        let waiting: u32 = peer
            .admission
            .snapshot()
            .tiers
            .iter()
            .map(|tier| tier.queued)
            .sum();
        assert_eq!(waiting, 3, "the bound holds");
    }
    peer.fixtures.hold_workers(false);
    for done in held.into_iter().chain(queued) {
        assert_eq!(done.await.unwrap().status, 200, "what was accepted is done");
    }
    peer.until_empty().await;
    assert_eq!(
        send(peer.work(1)).await.status,
        200,
        "a drained queue admits again (ADM-11)"
    );
    peer.stop().await;
}

#[tokio::test]
async fn without_a_queue_the_code_is_concurrency_limit() {
    let peer = Peer::start(json!({"queue": 0})).await;
    let held = peer.occupy().await;
    assert_eq!(send(peer.work(1)).await.code(), "concurrency_limit");
    peer.fixtures.hold_workers(false);
    for done in held {
        assert_eq!(done.await.unwrap().status, 200);
    }
    peer.stop().await;
}

#[tokio::test]
async fn a_tenant_at_its_limit_is_told_so_and_others_are_not_held_up() {
    let peer = Peer::start(json!({
        "tenants": {"a": {"active": 1, "queued_work_ms": 50}},
        "identities": {"tok-a": {"tenant": "a"}, "tok-b": {"tenant": "b"}},
    }))
    .await;
    peer.fixtures.hold_workers(true);
    let mut accepted = vec![peer.spawn(peer.work(1).bearer_auth("tok-a"))];
    peer.until("a runs", |snapshot| snapshot.busy == 1).await;
    let mut refused = None;
    for _ in 0..6 {
        let before = peer.admission.snapshot().tickets;
        let sent = peer.spawn(peer.work(1).bearer_auth("tok-a"));
        loop {
            if sent.is_finished() || peer.admission.snapshot().tickets > before {
                break;
            }
            tokio::task::yield_now().await;
        }
        if sent.is_finished() {
            refused = Some(sent.await.unwrap());
            break;
        }
        accepted.push(sent);
    }
    let refused = refused.expect("a tenant's queued work is bounded");
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "tenant_limit"),
        "{refused:?}"
    );
    let busy = peer.admission.snapshot().busy;
    let other = peer.spawn(peer.work(1).bearer_auth("tok-b"));
    peer.until("b runs beside a", |snapshot| snapshot.busy == busy + 1)
        .await;
    peer.fixtures.hold_workers(false);
    assert_eq!(other.await.unwrap().status, 200);
    for done in accepted {
        assert_eq!(done.await.unwrap().status, 200);
    }
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn a_tenant_cannot_be_claimed_by_a_stranger() {
    let peer = Peer::start(json!({
        "workers": 1,
        "tenants": {"t-a": {"active": 1, "queued_work_ms": 100}, "victim": {"active": 1, "queued_work_ms": 100}},
        "identities": {"tok": {"tenant": "t-a", "tiers": ["deferrable"]}, "v": {"tenant": "victim"}},
    }))
    .await;
    peer.fixtures.hold_workers(true);
    let spoof = || {
        let request = peer
            .work(1)
            .bearer_auth("tok")
            .header("overload-tenant", "\"victim\"");
        peer.spawn(request.header("overload-tier", "critical"))
    };
    let sent: Vec<_> = (0..12).map(|_| spoof()).collect();
    peer.until("some of a wait", |snapshot| snapshot.tickets >= 2)
        .await;
    let victim = peer.spawn(peer.work(1).bearer_auth("v"));
    peer.fixtures.hold_workers(false);
    assert_eq!(
        victim.await.unwrap().status,
        200,
        "the victim's budget is untouched"
    );
    for answer in sent {
        let answer = answer.await.unwrap();
        if answer.status != 200 {
            assert!(
                matches!(answer.code().as_str(), "tenant_limit" | "retry_throttled"),
                "{answer:?}"
            );
            assert_eq!(answer.overload().tier, Some(holdoff_contract::Tier::Deferrable));
        }
    }
    peer.stop().await;
}

#[tokio::test]
async fn a_deadline_of_zero_has_expired_and_nothing_is_started() {
    let peer = Peer::start(json!({})).await;
    for _ in 0..3 {
        let answer = send(peer.work(1).header("overload-deadline-ms", "0")).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (503, "deadline_expired")
        );
        let overload = answer.overload();
        assert_eq!((overload.retry, overload.applied), (Retry::No, Applied::No));
        assert_ne!(
            answer.header("retry-after"),
            "",
            "applied=no always has it (SRV-10)"
        );
    }
    assert_eq!(
        peer.admission
            .snapshot()
            .classes
            .iter()
            .map(|class| class.samples)
            .sum::<u64>(),
        0
    );
    peer.stop().await;
}

#[tokio::test]
async fn an_unattainable_deadline_says_which_one_would_do() {
    let peer =
        Peer::start(json!({"classes": {"slow": {"mean_ms": 400, "p95_ms": 600, "deadline_ms": 5000}}})).await;
    let ask = |deadline: u64| {
        let request = peer.post("/v1/work", &json!({"class": "slow", "duration_ms": 1}));
        request.header("overload-deadline-ms", deadline.to_string())
    };
    let answer = send(ask(100)).await;
    assert_eq!(answer.code(), "deadline_unattainable");
    assert_eq!(answer.status, 503);
    let least = answer.json()["min_deadline_ms"]
        .as_u64()
        .expect("min_deadline_ms");
    // A worker is idle, so the class's fast quarter is what must fit (DESIGN section 4, no lock-out).
    assert!((200..=620).contains(&least), "{least}");
    assert_eq!(
        send(ask(least)).await.status,
        200,
        "the deadline it named is admitted (SRV-19)"
    );
    peer.stop().await;
}

#[tokio::test]
async fn a_refusal_of_head_has_the_same_head_and_no_body() {
    let peer = Peer::start(json!({})).await;
    peer.fixtures.drain();
    let get = peer.get("/v1/work").await;
    let head = send(peer.request(Method::HEAD, "/v1/work")).await;
    assert_eq!((head.status, head.body.len()), (get.status, 0));
    for field in ["content-type", "cache-control"] {
        assert_eq!(head.header(field), get.header(field));
    }
    assert!(
        head.header("overload-signal")
            .contains("code=draining, retry=elsewhere"),
        "{head:?}"
    );
    peer.stop().await;
}

#[tokio::test]
async fn what_an_empty_server_could_not_admit_is_a_validation_error() {
    let peer = Peer::start(json!({
        "classes": {"batch": {"mean_ms": 2000, "p95_ms": 3000, "deadline_ms": 30000}},
        "tenants": {"a": {"queued_work_ms": 200}},
        "identities": {"tok": {"tenant": "a"}},
    }))
    .await;
    let request = peer.post("/v1/work", &json!({"class": "batch", "duration_ms": 2000}));
    let answer = send(request.bearer_auth("tok")).await;
    assert_eq!(answer.status, 422);
    assert_no_overload(&answer);
    assert!(
        answer.json()["detail"].as_str().unwrap().contains("at most 200"),
        "{answer:?}"
    );
    peer.stop().await;
}

#[tokio::test]
async fn deadlines_of_other_stacks_count_where_they_are_switched_on() {
    for (on, status) in [(false, 200), (true, 503)] {
        let peer = Peer::start(json!({"server": {"foreign_deadlines": on}})).await;
        let answer = send(peer.work(1).header("grpc-timeout", "0m")).await;
        assert_eq!(answer.status, status, "{answer:?}");
        peer.stop().await;
    }
}
