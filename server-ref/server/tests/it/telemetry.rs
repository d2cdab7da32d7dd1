//! What a scrape shows, and what it must not show.

use serde_json::json;

use crate::common::{Peer, send};

/// The series of a scrape, without their values.
fn series(page: &str) -> Vec<&str> {
    let lines = page
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .filter_map(|line| line.rsplit_once(' ').map(|(series, _)| series))
        .collect()
}

#[tokio::test]
async fn the_six_names_are_there_and_the_labels_are_from_closed_sets() {
    let peer = Peer::start(json!({"identities": {"tok": {"tenant": "secret-tenant"}}})).await;
    assert_eq!(send(peer.work(1).bearer_auth("tok")).await.status, 200);
    assert_eq!(
        send(peer.work(1).header("overload-deadline-ms", "0"))
            .await
            .status,
        503
    );
    peer.until_empty().await;
    let page = peer.metrics().await;
    for line in [
        r#"agent_admission_total{decision="accept",task_class="t",tenant_tier="deferrable"} 1"#,
        r#"agent_admission_total{decision="deadline_expired",task_class="t",tenant_tier="deferrable"} 1"#,
        "agent_queue_estimated_work_seconds 0",
        "agent_queue_oldest_age_seconds 0",
        "agent_task_start_delay_seconds_count 1",
        r#"agent_service_seconds_count{task_class="t"} 1"#,
        r#"agent_deadline_miss_total{stage="door"} 1"#,
        r#"overload_state{state="normal"} 1"#,
        r#"overload_state{state="shedding"} 0"#,
        r#"overload_queue_depth{tier="critical"} 0"#,
        r#"overload_queue_limit{tier="deferrable"} 256"#,
        "overload_workers 2",
        "overload_workers_busy 0",
        "overload_prediction_error_seconds_count 1",
        "overload_shed_rate ",
    ] {
        assert!(
            page.lines().any(|found| found.starts_with(line)),
            "{line} is missing in\n{page}"
        );
    }
    assert!(!page.contains("secret-tenant"), "{page}");
    peer.stop().await;
}

#[tokio::test]
async fn callers_and_classes_without_end_add_no_series() {
    let peer = Peer::start(json!({"anonymous": {"trusted": true}})).await;
    let ask = |i: u32| {
        let request = peer.work(0).header("overload-tenant", format!("\"tenant-{i}\""));
        send(request.header("overload-task-class", format!("class-{i}")))
    };
    ask(0).await;
    peer.until_empty().await;
    let before = series(&peer.metrics().await).len();
    for i in 1..300 {
        ask(i).await;
    }
    peer.until_empty().await;
    let page = peer.metrics().await;
    assert_eq!(series(&page).len(), before, "{page}");
    assert!(!page.contains("tenant-") && !page.contains("class-"), "{page}");
    peer.stop().await;
}

#[tokio::test]
async fn a_change_of_state_is_counted() {
    let peer = Peer::start(json!({})).await;
    peer.fixtures
        .force_state(Some(holdoff_contract::ServiceState::Shedding));
    let page = peer.metrics().await;
    assert!(page.contains(r#"overload_state{state="shedding"} 1"#), "{page}");
    assert!(
        page.contains(r#"overload_transitions_total{from="normal",to="shedding"} 1"#),
        "{page}"
    );
    peer.stop().await;
}

#[tokio::test]
async fn two_servers_in_one_process_keep_their_figures_apart() {
    let (one, two) = (Peer::start(json!({})).await, Peer::start(json!({})).await);
    assert_eq!(send(one.work(1)).await.status, 200);
    let accepted = |n| {
        format!(r#"agent_admission_total{{decision="accept",task_class="t",tenant_tier="deferrable"}} {n}"#)
    };
    assert!(one.metrics().await.contains(&accepted(1)));
    assert!(two.metrics().await.contains(&accepted(0)));
    one.stop().await;
    two.stop().await;
}
