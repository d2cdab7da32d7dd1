//! Bad input: a typed answer that names what is wrong, and never a code of the contract.

use holdoff_admission_tower::DRAIN_BYTES;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Peer, assert_no_overload, send};

#[tokio::test]
async fn each_mistake_in_a_task_is_named_overloaded_or_not() {
    let peer = Peer::start(json!({"queue": 0})).await;
    for overloaded in [false, true] {
        let held = if overloaded {
            peer.occupy().await
        } else {
            Vec::new()
        };
        for (body, status, words) in [
            ("{", 400, "not JSON"),
            ("", 400, "not JSON"),
            ("\u{0}", 400, "not JSON"),
            ("[1]", 422, "an array"),
            (r#"{"duration_ms": -1}"#, 422, "duration_ms is -1"),
            (r#"{"duration_ms": 1e99}"#, 422, "duration_ms"),
            (r#"{"duration_ms": "5"}"#, 422, "from 0 to 600000"),
            (r#"{"duration_ms": 600001}"#, 422, "600001"),
            (r#"{"class": 7}"#, 422, "class is 7"),
            (r#"{"klass": "t"}"#, 422, "klass"),
        ] {
            let request = peer
                .request(Method::POST, "/v1/work")
                .header("content-type", "application/json");
            let answer = send(request.body(body)).await;
            assert_eq!(answer.status, status, "{body:?} {answer:?}");
            assert_eq!(answer.header("content-type"), "application/problem+json");
            assert!(
                answer.json()["detail"].as_str().unwrap().contains(words),
                "{body:?} {answer:?}"
            );
            assert_no_overload(&answer);
        }
        peer.fixtures.hold_workers(false);
        for done in held {
            assert_eq!(done.await.unwrap().status, 200);
        }
    }
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn a_mistake_found_while_it_holds_a_place_gives_the_place_back() {
    let peer = Peer::start(json!({})).await;
    let request = peer
        .request(Method::POST, "/v1/work")
        .header("content-type", "application/json");
    let answer = send(request.header("overload-task-class", "t").body("{")).await;
    assert_eq!(answer.status, 400);
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn media_type_size_route_and_method_have_their_own_answers() {
    let peer = Peer::start(json!({"server": {"max_body_bytes": 1000}})).await;
    let text = peer
        .request(Method::POST, "/v1/work")
        .header("content-type", "text/plain")
        .body("{}");
    let large = peer.post("/v1/work", &json!({"payload": "x".repeat(2000)}));
    for (request, status, words) in [
        (text, 415, "application/json"),
        (large, 413, "at most 1000 bytes"),
        (peer.request(Method::GET, "/v2"), 404, ""),
        (peer.request(Method::DELETE, "/v1/work"), 405, "DELETE"),
    ] {
        let answer = send(request).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(
            answer.json()["detail"].as_str().unwrap().contains(words),
            "{answer:?}"
        );
        assert_no_overload(&answer);
    }
    peer.stop().await;
}

#[tokio::test]
async fn a_head_beyond_the_limit_is_refused_without_ending_the_server() {
    let peer = Peer::start(json!({})).await;
    let answer = send(peer.work(1).header("x-large", "x".repeat(60_000))).await;
    assert_eq!(answer.status, 431);
    assert_eq!(send(peer.work(1)).await.status, 200);
    peer.stop().await;
}

#[tokio::test]
async fn malformed_contract_fields_are_as_if_absent() {
    let peer = Peer::start(json!({})).await;
    for (name, value) in [
        ("overload-deadline-ms", "abc"),
        ("overload-deadline-ms", "-1"),
        ("overload-deadline-ms", "100, 200"),
        ("overload-deadline-ms", "999999999999999"),
        ("overload-attempt", "x"),
        ("overload-cost-ms", "-1"),
        // In range or not, what a caller says of its cost is held to what was measured, and its patience to the longest deadline.
        ("overload-cost-ms", "0"),
        ("overload-cost-ms", "1000000000"),
        ("overload-cost-ms", "1e9"),
        ("overload-deadline-ms", "1000000000000000"),
        ("overload-deadline-ms", "1e15"),
        ("overload-task-class", "No Class!"),
        ("overload-tenant", "unquoted"),
    ] {
        let answer = send(peer.work(1).header(name, value)).await;
        assert_eq!(answer.status, 200, "{name}: {value}");
    }
    // One byte too long is no key, so the same bytes again are another operation; the longest key is one.
    for (length, same) in [(256, false), (255, true)] {
        let submit = || peer.post("/v1/tasks", &json!({"class": "t", "duration_ms": 1}));
        let key = "k".repeat(length);
        let first = send(submit().header("idempotency-key", &key)).await;
        let second = send(submit().header("idempotency-key", &key)).await;
        assert_eq!((first.status.as_u16(), second.status.as_u16()), (202, 202));
        assert_eq!(
            first.header("location") == second.header("location"),
            same,
            "{length} bytes"
        );
    }
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn a_refusal_is_readable_while_the_client_is_still_sending() {
    let peer = Peer::start(json!({})).await;
    peer.fixtures.drain();
    let mut stream = tokio::net::TcpStream::connect(peer.url.trim_start_matches("http://"))
        .await
        .unwrap();
    let head = format!(
        "POST /v1/work HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nOverload-Task-Class: t\r\n\
         Content-Length: {}\r\n\r\n",
        DRAIN_BYTES
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // Half of it, and then nothing: the answer must not wait for the rest.
    stream.write_all(&vec![b' '; DRAIN_BYTES / 2]).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("code=draining"),
        "{answer}"
    );
    assert!(answer.trim_end().ends_with('}'), "the whole body came: {answer}");
    peer.stop().await;
}
