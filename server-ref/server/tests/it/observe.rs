//! What is written down about single requests, and who may look in.

use serde_json::{Value, json};

use crate::common::{Peer, send};

#[tokio::test]
async fn the_admin_page_is_off_by_default_and_shows_state_queues_and_callers_by_hash_where_it_is_on() {
    let closed = Peer::start(json!({})).await;
    assert_eq!(closed.get("/admin/admission").await.status, 404);
    closed.stop().await;

    let peer = Peer::start(json!({"queue": 0, "observe": {"admin": true},
        "identities": {"tok": {"tenant": "secret-tenant"}}}))
    .await;
    let held = peer.occupy().await;
    for _ in 0..3 {
        let request = peer.work(1).bearer_auth("tok").header("idempotency-key", "one");
        let answer = send(request.header("overload-deadline-ms", "60000")).await;
        assert!(answer.status == 503 || answer.status == 429);
    }
    peer.fixtures
        .force_state(Some(holdoff_contract::ServiceState::Congested));
    let page = peer.get("/admin/admission").await;
    assert!(!String::from_utf8_lossy(&page.body).contains("secret-tenant"));
    let page = page.json();
    assert_eq!(page["state"], "congested");
    assert_eq!(page["workers_busy"], 2);
    assert_eq!(page["tiers"][2]["tier"], "deferrable");
    assert_eq!(page["transitions"][0]["to"], "congested");
    let caller = &page["callers_by_hint_compliance"][0];
    assert_eq!(
        (caller["refused"].as_u64(), caller["throttled"].as_u64()),
        (Some(1), Some(2))
    );
    assert_eq!(caller["early"], 2);
    assert_eq!(caller["caller"].as_str().map(str::len), Some(16));
    let metrics = peer.metrics().await;
    assert!(
        metrics.contains(r#"overload_hint_outcomes_total{outcome="early"} 2"#),
        "{metrics}"
    );
    peer.fixtures.hold_workers(false);
    for done in held {
        assert_eq!(done.await.unwrap().status, 200);
    }
    peer.stop().await;
}

#[tokio::test]
async fn a_trace_and_a_tenant_log_hold_every_ending() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, logs) = (dir.path().join("trace.jsonl"), dir.path().join("logs"));
    let peer = Peer::start(json!({"queue": 0, "identities": {"tok": {"tenant": "team-a"}},
        "observe": {"trace": trace, "tenant_log": logs}}))
    .await;
    assert_eq!(send(peer.work(5).bearer_auth("tok")).await.status, 200);
    let held = peer.occupy().await;
    assert_eq!(
        send(peer.work(1).bearer_auth("tok")).await.code(),
        "concurrency_limit"
    );
    peer.fixtures.hold_workers(false);
    for done in held {
        done.await.unwrap();
    }
    peer.until_empty().await;
    peer.stop().await;
    let lines = read(&trace, 4).await;
    let first = &lines[0];
    assert_eq!(
        (first["decision"].as_str(), first["class"].as_str()),
        (Some("accept"), Some("t"))
    );
    assert_eq!(first["deadline_ms"], 5000.0);
    let time = |line: &Value, name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name} in {line}"));
    assert!(time(first, "finished_ms") >= time(first, "started_ms") + 5.0);
    assert!(time(first, "started_ms") >= time(first, "t_ms"));
    let refused: Vec<_> = lines.iter().filter(|line| line["decision"] == "reject").collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["code"], "concurrency_limit");
    assert_eq!(refused[0]["tenant"], first["tenant"], "one tenant, one hash");
    let log = std::fs::read_dir(&logs).unwrap().next().unwrap().unwrap().path();
    let logged = read(&log, 4).await;
    assert_eq!(logged[0]["tenant"], "team-a");
    assert_eq!(logged[0]["service_ms"].as_u64().map(|ms| ms >= 5), Some(true));
}

/// The lines of a file, once there are so many: the writer is a thread of its own.
async fn read(path: &std::path::Path, n: usize) -> Vec<Value> {
    for _ in 0..500 {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        if lines.len() >= n {
            return lines;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("fewer than {n} lines in {}", path.display());
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_named_and_the_server_does_not_start() {
    for key in ["trace", "tenant_log"] {
        let profile = json!({"observe": {key: "/proc/none/x"}});
        let mut config = holdoff_server::ServerConfig::from_json(&profile).unwrap();
        config.addr = "127.0.0.1:0".parse().unwrap();
        let error = holdoff_server::Server::bind(config)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("observe.{key}")) && error.contains("/proc/none/x"),
            "{error}"
        );
    }
    for (key, value) in [
        ("tenant_log_per_second", 0),
        ("tenant_log_retention_hours", 0),
        ("trace_max_mb", 0),
    ] {
        let error = holdoff_server::ServerConfig::from_json(&json!({"observe": {key: value}})).unwrap_err();
        assert!(
            error.to_string().contains(&format!("observe.{key} is 0")),
            "{error}"
        );
    }
}
