//! `/v1/work`: the caller waits.

use holdoff_admission_tower::{Identity, Tiers};
use holdoff_contract::{Tenant, Tier};
use reqwest::Method;
use serde_json::json;

use crate::binary::{profile, start};
use crate::common::{Peer, send};

#[tokio::test]
async fn work_is_done_and_says_how_long_it_took() {
    let peer = Peer::start(json!({})).await;
    let answer = send(peer.work(30)).await;
    assert_eq!(answer.status, 200);
    let done = answer.json();
    assert_eq!(
        (done["class"].as_str(), done["tier"].as_str()),
        (Some("t"), Some("deferrable"))
    );
    assert!(done["service_ms"].as_u64().unwrap() >= 30, "{done}");
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn work_without_a_duration_takes_what_its_class_takes() {
    let peer = Peer::start(json!({})).await;
    let answer = send(peer.post("/v1/work", &json!({"class": "t", "payload": {"any": ["thing"]}}))).await;
    assert_eq!(answer.status, 200);
    let service = answer.json()["service_ms"].as_u64().unwrap();
    assert!((1..=200).contains(&service), "{service} ms for a class of 20 ms");
    peer.stop().await;
}

/// Processor time of a process so far, in ticks of 10 ms.
fn processor_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// On the program: other tests use the processor time of this one.
#[tokio::test]
async fn work_of_a_class_that_burns_uses_a_processor_and_that_of_others_does_not() {
    let file = profile("server: {burn: [t]}\nclasses: {t: {mean_ms: 200}, u: {mean_ms: 200}}\n");
    let path = file.path().display().to_string();
    let (child, url) = start(&["--profile", &path]).await;
    let pid = child.id().expect("it runs");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut spent = Vec::new();
    for class in ["t", "u"] {
        let before = processor_ticks(pid);
        let body = json!({"class": class, "duration_ms": 300});
        let answer = client.post(format!("{url}/v1/work")).json(&body).send().await;
        assert_eq!(answer.unwrap().status(), 200);
        spent.push(
            processor_ticks(pid)
                .zip(before)
                .map(|(after, before)| after - before),
        );
    }
    // Where there is no /proc, that it ends is all that is seen.
    if let [Some(burnt), Some(slept)] = spent[..] {
        assert!(burnt >= 15 && slept <= burnt / 2, "{burnt} and {slept} ticks");
    }
}

#[test]
fn a_class_that_is_to_burn_must_be_one_of_the_profile() {
    let profile = json!({"server": {"burn": ["nope"]}, "classes": {"t": {"mean_ms": 20}}});
    let error = holdoff_server::ServerConfig::from_json(&profile)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        r#"server.burn is "nope"; it must be a list of names that are under classes"#
    );
}

#[tokio::test]
async fn work_without_a_body_takes_its_class_from_the_head() {
    let peer = Peer::start(json!({})).await;
    let get = peer
        .request(Method::GET, "/v1/work")
        .header("overload-task-class", "t");
    assert_eq!(send(get).await.json()["class"], "t");
    assert_eq!(
        send(peer.request(Method::POST, "/v1/work")).await.json()["class"],
        "other"
    );
    let head = send(peer.request(Method::HEAD, "/v1/work")).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    peer.until_empty().await;
    peer.stop().await;
}

#[tokio::test]
async fn the_class_in_the_head_goes_before_the_one_in_the_body() {
    let peer = Peer::start(json!({})).await;
    let answer = send(peer.work(1).header("overload-task-class", "unheard-of")).await;
    assert_eq!(answer.status, 200);
    assert!(peer.metrics().await.contains(r#"task_class="other""#));
    peer.stop().await;
}

#[tokio::test]
async fn a_claimed_tier_is_lowered_to_the_callers_right() {
    let peer = Peer::start(json!({
        "identities": {"gold": {"tenant": "g", "tiers": ["critical", "deferrable"]}},
    }))
    .await;
    for (token, asked, used) in [
        (None, "critical", "non-sheddable"),
        (None, "deferrable", "deferrable"),
        (None, "CRITICAL", "deferrable"),
        (None, "gold", "deferrable"),
        (Some("gold"), "critical", "critical"),
        (Some("gold"), "non-sheddable", "deferrable"),
        (Some("wrong"), "critical", "non-sheddable"),
    ] {
        let mut request = peer.work(1).header("overload-tier", asked);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = send(request).await;
        assert_eq!(answer.json()["tier"], used, "{token:?} asks for {asked}");
        let named = matches!(asked, "critical" | "non-sheddable" | "deferrable");
        let told = if named {
            format!("v=1, tier={used}")
        } else {
            String::new()
        };
        assert_eq!(
            answer.header("overload-signal"),
            told,
            "{token:?} asks for {asked}"
        );
    }
    peer.stop().await;
}

#[tokio::test]
async fn a_profile_can_close_a_tier_to_a_tenant() {
    let peer = Peer::start(json!({
        "tenants": {"low": {"tiers": ["deferrable"]}},
        "identities": {"tok": {"tenant": "low", "tiers": ["critical", "deferrable"]}},
    }))
    .await;
    let answer = send(
        peer.work(1)
            .bearer_auth("tok")
            .header("overload-tier", "critical"),
    )
    .await;
    assert_eq!(answer.json()["tier"], "deferrable");
    peer.stop().await;
}

#[tokio::test]
async fn a_refusal_tells_the_tier_only_to_those_who_named_one_and_the_state_only_to_the_trusted() {
    let peer = Peer::start(json!({})).await;
    peer.fixtures.drain();
    let plain = send(peer.work(1)).await;
    assert_eq!(plain.code(), "draining");
    assert_eq!(plain.overload().tier, None);
    let named = send(peer.work(1).header("overload-tier", "critical")).await;
    assert_eq!(
        named.overload().tier,
        Some(Tier::NonSheddable),
        "the clamped tier is reported"
    );
    assert_eq!(named.overload().state, None);
    let tenant = Some(Tenant::new("in").unwrap());
    peer.fixtures
        .trust(
            Some("in"),
            Identity {
                tenant,
                tiers: Tiers::ALL,
                trusted: true,
            },
        )
        .unwrap();
    let trusted = send(peer.work(1).bearer_auth("in").header("overload-tier", "critical")).await;
    assert_eq!(trusted.overload().tier, Some(Tier::Critical));
    peer.stop().await;
}
