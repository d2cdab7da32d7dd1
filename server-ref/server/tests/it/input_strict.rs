//! What a request says is taken as it is meant, or refused: nothing that it says is passed over in silence.

use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Answer, Peer, assert_no_overload, send};

/// A problem body that names field, value and limit.
fn assert_fault(answer: &Answer, status: u16, field: &str, words: &[&str]) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert_no_overload(answer);
    let problem = answer.json();
    assert_eq!(problem["field"], field, "{problem}");
    for member in ["value", "limit"] {
        assert!(problem[member].is_string(), "{problem}");
    }
    for word in words {
        assert!(
            problem["detail"].as_str().unwrap().contains(word),
            "{problem} should say {word}"
        );
    }
}

#[tokio::test]
async fn a_body_that_says_two_things_or_is_no_name_of_a_class_is_refused_by_field_value_and_limit() {
    let peer = Peer::start(json!({})).await;
    let long = format!(r#"{{"class":"{}"}}"#, "a".repeat(65));
    for (body, status, field, words) in [
        (r#"{"class":"t","class":"other"}"#, 422, "class", "there twice"),
        (
            r#"{"duration_ms":1,"payload":{"a":1,"a":2},"duration_ms":1}"#,
            422,
            "duration_ms",
            "there once",
        ),
        (r#"{"payload":1,"\u0070ayload":2}"#, 422, "payload", "there twice"),
        (r#"{"class":"Lint Me"}"#, 422, "class", "\"Lint Me\"; it must be"),
        (r#"{"class":""}"#, 422, "class", "[a-z][a-z0-9._-]*"),
        (r#"{"class":"9t"}"#, 422, "class", "1 to 64 characters"),
        (&long, 422, "class", "1 to 64 characters"),
        (r#"{"klass":"t"}"#, 422, "member", "class, payload, duration_ms"),
        (r#"{"klass":"t""#, 400, "body", "not JSON"),
        (r#"{"class":"t"} {}"#, 400, "body", "not JSON"),
    ] {
        let request = peer
            .request(Method::POST, "/v1/work")
            .header("content-type", "application/json");
        assert_fault(
            &send(request.body(body.to_owned())).await,
            status,
            field,
            &[words],
        );
    }
    // An unknown class with a proper name is work of the default class, whose own payload is nobody's business.
    let body = r#"{"class":"unheard-of","duration_ms":1,"payload":{"a":1,"a":2}}"#;
    let request = peer
        .request(Method::POST, "/v1/work")
        .header("content-type", "application/json");
    assert_eq!(send(request.body(body)).await.status, 200);
    let longest = json!({"class": "a".repeat(64), "duration_ms": 1});
    assert_eq!(send(peer.post("/v1/work", &longest)).await.status, 200);
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn a_body_that_is_declared_as_something_else_is_not_read_as_json() {
    let peer = Peer::start(json!({})).await;
    let post = |fields: &[(&str, &str)]| {
        let mut request = peer.request(Method::POST, "/v1/work");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        send(request.body(r#"{"class":"t","duration_ms":1}"#))
    };
    let json = ("content-type", "application/json");
    for (fields, status, field, words) in [
        (
            &[json, ("content-encoding", "gzip")][..],
            415,
            "Content-Encoding",
            &["\"gzip\"", "absent or identity"][..],
        ),
        (
            &[json, ("content-encoding", "identity, br")],
            415,
            "Content-Encoding",
            &["\"br\""],
        ),
        (
            &[
                json,
                ("content-encoding", "identity"),
                ("content-encoding", "gzip"),
            ],
            415,
            "Content-Encoding",
            &["gzip"],
        ),
        (
            &[("content-type", "application/json; charset=utf-16")],
            415,
            "Content-Type",
            &["charset=utf-16", "UTF-8"],
        ),
        (
            &[("content-type", "application/json; a=b; CharSet=\"latin1\"")],
            415,
            "Content-Type",
            &["latin1"],
        ),
        (
            &[json, ("content-type", "application/json")],
            400,
            "Content-Type",
            &["sent 2 times", "sent once"],
        ),
        (
            &[json, ("content-type", "text/plain")],
            400,
            "Content-Type",
            &["sent 2 times"],
        ),
        (
            &[("content-type", "text/json")],
            415,
            "Content-Type",
            &["application/json"],
        ),
        (
            &[],
            415,
            "Content-Type",
            &["Content-Type is absent; it must be application/json"],
        ),
    ] {
        assert_fault(&post(fields).await, status, field, words);
    }
    for fields in [
        &[("content-type", "Application/JSON;charset=UTF-8")][..],
        &[("content-type", "application/json; charset=\"utf-8\"")],
        &[("content-type", "application/json; profile=x")],
        &[json, ("content-encoding", "identity")],
    ] {
        assert_eq!(post(fields).await.status, 200, "{fields:?}");
    }
    peer.stop().await;
}

#[tokio::test]
async fn a_query_is_refused_where_work_would_be_done() {
    let peer = Peer::start(json!({})).await;
    for (method, path) in [
        (Method::GET, "/v1/work?class=5&duration_ms=-1"),
        (Method::HEAD, "/v1/work?x"),
        (Method::POST, "/v1/work?class=t"),
        (Method::POST, "/v1/tasks?class=t"),
    ] {
        let answer = send(peer.request(method.clone(), path)).await;
        if method == Method::HEAD {
            assert_eq!(answer.status, 422);
        } else {
            assert_fault(&answer, 422, "query", &["class=", "Overload-Task-Class"]);
        }
    }
    assert_eq!(peer.admission.snapshot().tickets, 0);
    let samples: u64 = peer
        .admission
        .snapshot()
        .classes
        .iter()
        .map(|class| class.samples)
        .sum();
    assert_eq!(samples, 0, "no work was done");
    peer.stop().await;
}

#[tokio::test]
async fn every_route_answers_what_it_has_not_in_the_same_form() {
    let peer = Peer::start(json!({"observe": {"admin": true}})).await;
    let ask = |method: Method, path: &str| send(peer.request(method, path));
    for (path, allowed) in [
        ("/metrics", "GET,HEAD"),
        ("/healthz", "GET,HEAD"),
        ("/admin/admission", "GET,HEAD"),
        ("/v1/tasks", "POST"),
        ("/fixtures/drain", "POST"),
    ] {
        let answer = ask(Method::DELETE, path).await;
        assert_fault(&answer, 405, "method", &["DELETE", "Allow"]);
        assert_eq!(answer.header("allow"), allowed, "{path}");
    }
    assert_fault(
        &ask(Method::GET, "/v2").await,
        404,
        "path",
        &["/v2", "/openapi.json"],
    );
    assert_fault(&ask(Method::GET, "/v1/tasks/%ff").await, 404, "task", &["%ff"]);
    assert_fault(&ask(Method::GET, "/v1/tasks/none").await, 404, "task", &["none"]);
    assert_fault(&ask(Method::POST, "/fixtures/%ff").await, 404, "path", &["%ff"]);
    let answer = send(peer.request(Method::POST, "/fixtures/drain").body("{")).await;
    assert_fault(&answer, 400, "body", &["not JSON"]);
    peer.stop().await;
}

#[tokio::test]
async fn a_metrics_listener_answers_in_that_form_too() {
    let config = holdoff_server::ServerConfig {
        addr: "127.0.0.1:0".parse().unwrap(),
        metrics_addr: Some("127.0.0.1:0".parse().unwrap()),
        ..holdoff_server::ServerConfig::default()
    };
    let server = holdoff_server::Server::bind(config).await.unwrap();
    let url = server.metrics_url();
    let running = tokio::spawn(server.run(std::future::pending()));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = send(client.post(&url)).await;
    assert_fault(&answer, 405, "method", &["POST"]);
    assert_eq!(answer.header("allow"), "GET,HEAD");
    running.abort();
}

#[tokio::test]
async fn a_body_that_breaks_off_is_named_as_such() {
    let peer = Peer::start(json!({})).await;
    let addr = peer.url.trim_start_matches("http://").to_owned();
    let mut stream = tokio::net::TcpStream::connect(&addr).await.unwrap();
    // A chunk whose length is no number: the rest cannot be found.
    let request = "POST /v1/work HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                   Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\nzz\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    for member in [r#""field":"body""#, r#""value":"broken off""#, r#""limit":"#] {
        assert!(answer.contains(member), "{answer}");
    }
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn a_key_that_comes_back_on_another_route_is_told_what_may_differ() {
    let peer = Peer::start(json!({})).await;
    let body = json!({"class": "t", "duration_ms": 1});
    let post = |path: &str| send(peer.post(path, &body).header("idempotency-key", "k1"));
    assert_eq!(post("/v1/work").await.status, 200);
    let other = post("/v1/tasks").await;
    assert_fault(
        &other,
        422,
        "Idempotency-Key",
        &["k1", "route, method, Overload-Task-Class and body"],
    );
    peer.stop().await;
}
