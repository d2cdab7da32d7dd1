//! The shipped alert rules and the board: they can be read, and every metric that they name is one that the server has.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Peer, send};

fn deploy(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(file)
}

fn yaml(file: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(deploy(file)).unwrap()).unwrap()
}

/// Our metrics in an expression.
fn names(expr: &str) -> BTreeSet<String> {
    expr.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("agent_") || word.starts_with("overload_"))
        .map(str::to_owned)
        .collect()
}

fn rules() -> Vec<Value> {
    let groups = yaml("prometheus/holdoff-rules.yaml");
    let rules = groups["groups"][0]["rules"].as_array().unwrap();
    rules.clone()
}

/// A scrape of a server on which everything has happened once.
async fn scrape() -> BTreeSet<String> {
    let peer = Peer::start(json!({"queue": 1})).await;
    assert_eq!(send(peer.work(1)).await.status, 200);
    let held = peer.occupy().await;
    let queued = send(peer.work(1).header("overload-deadline-ms", "150")).await;
    assert_eq!(queued.code(), "deadline_expired", "taken out of the queue");
    let queued = peer.spawn(peer.work(1));
    peer.until("one waits", |snapshot| {
        snapshot.tiers.iter().any(|tier| tier.queued == 1)
    })
    .await;
    assert_ne!(send(peer.work(1)).await.status, 200);
    peer.fixtures
        .force_state(Some(holdoff_contract::ServiceState::Congested));
    peer.fixtures.hold_workers(false);
    for done in held.into_iter().chain([queued]) {
        assert_eq!(done.await.unwrap().status, 200);
    }
    let page = peer.metrics().await;
    peer.stop().await;
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn every_metric_that_an_alert_or_a_panel_names_is_in_a_scrape() {
    let there = scrape().await;
    let board: Value =
        serde_json::from_str(&std::fs::read_to_string(deploy("grafana/holdoff-admission.json")).unwrap())
            .unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap().clone());
    let of_board: Vec<String> = targets
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect();
    let of_rules: Vec<String> = rules()
        .iter()
        .map(|rule| rule["expr"].as_str().unwrap().to_owned())
        .collect();
    assert!(of_board.len() >= 16 && of_rules.len() >= 4);
    let mut shown = BTreeSet::new();
    for expr in of_board.iter().chain(&of_rules) {
        let named = names(expr);
        assert!(!named.is_empty(), "{expr}");
        for name in named {
            assert!(
                there.contains(&name),
                "{name} of {expr} is not in a scrape: {there:#?}"
            );
            shown.insert(name);
        }
    }
    let base = |name: &String| {
        ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name)
            .to_owned()
    };
    let shown: BTreeSet<String> = shown.iter().map(base).collect();
    let dark: Vec<String> = there
        .iter()
        .map(base)
        .filter(|name| (name.starts_with("agent_") || name.starts_with("overload_")) && !shown.contains(name))
        .collect();
    assert!(dark.is_empty(), "on no panel and in no alert: {dark:?}");
}

#[test]
fn the_alerts_that_are_asked_for_are_there_with_their_time_and_their_words() {
    let rules = rules();
    let rule = |name: &str| {
        rules
            .iter()
            .find(|rule| rule["alert"] == name)
            .unwrap_or_else(|| panic!("no {name}"))
    };
    let shed = rule("HoldoffShedRate");
    assert_eq!(shed["for"], "5m");
    assert_eq!(
        names(shed["expr"].as_str().unwrap()),
        ["overload_shed_rate", "overload_shed_rate_alert_threshold"]
            .map(str::to_owned)
            .into()
    );
    for name in ["HoldoffOldestAge", "HoldoffStale", "HoldoffDeadlineMisses"] {
        let rule = rule(name);
        assert!(rule["for"].is_string() && rule["labels"]["severity"].is_string());
        assert!(rule["annotations"]["summary"].is_string() && rule["annotations"]["description"].is_string());
    }
}

#[test]
fn promtool_accepts_the_rules_where_it_is_installed() {
    let run = |args: &[&str], file: &str| Command::new("promtool").args(args).arg(deploy(file)).output();
    for (args, file) in [
        (&["check", "rules"][..], "prometheus/holdoff-rules.yaml"),
        (&["test", "rules"][..], "prometheus/holdoff-rules-test.yaml"),
    ] {
        match run(args, file) {
            Ok(output) => assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            ),
            // Not installed: the tests above read them instead.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
        }
    }
    assert!(yaml("prometheus/holdoff-rules-test.yaml")["tests"].is_array());
}
