//! Several instances, several callers, a policy for one call, and forms: over real sockets, in real time.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use holdoff_contract::Tier;
use holdoff_policy::{CallerKey, Policy, StopReason};
use holdoff_reqwest::Client;
use support::{Server, ms, now, ok, refuse, window};

#[tokio::test]
async fn real_time_a_call_that_is_sent_elsewhere_asks_the_other_instance() {
    let first =
        Server::start(|_, _| refuse("v=1, code=draining, retry=elsewhere, applied=no, after=5000")).await;
    let second = Server::start(|_, _| ok()).await;
    let client = Client::builder()
        .instances([first.url(""), second.url("")])
        .build()
        .unwrap();
    let response = client.get(first.url("/work?x=1")).send().await.unwrap();
    assert_eq!(response.url().as_str(), second.url("/work?x=1"));
    assert_eq!((first.seen().len(), second.seen().len()), (1, 1));
    let gap = second.seen()[0].arrived - first.seen()[0].answered.unwrap();
    assert!((ms(48)..ms(1000)).contains(&gap), "{gap:?}");
}

#[tokio::test]
async fn a_bad_list_of_instances_is_told_when_the_client_is_built() {
    for (origins, said) in [
        (vec!["http://a.example"], "1 different origins"),
        (
            vec!["http://a.example", "a.example"],
            "\"a.example\" is not allowed",
        ),
    ] {
        let error = Client::builder().instances(origins).build().unwrap_err();
        assert!(error.is_request() && error.to_string().contains(said), "{error}");
    }
}

#[tokio::test]
async fn real_time_what_is_said_of_one_caller_does_not_hold_another() {
    let tenant = "v=1, code=tenant_limit, retry=no, applied=no, after=900, scope=tenant";
    let server = Server::start(move |number, _| if number == 0 { refuse(tenant) } else { ok() }).await;
    let client = Client::new();
    let get = |token: &str| {
        client
            .get(server.url("/work"))
            .bearer_auth(token)
            .deadline(ms(500))
    };
    assert_eq!(
        get("one").send().await.unwrap_err().why(),
        Some(StopReason::RetryForbidden)
    );
    let held = get("one").send().await.unwrap_err();
    assert_eq!((held.why(), held.attempts()), (Some(StopReason::HeldOff), 0));
    let mine = get("one").caller(CallerKey::new(7)).send().await.unwrap();
    let other = get("two").send().await.unwrap();
    let critical = get("one").tier(Tier::Critical).send().await.unwrap();
    assert!([mine, other, critical].iter().all(|one| one.status() == 200));
    assert_eq!(server.seen().len(), 4);
}

#[tokio::test]
async fn real_time_one_call_may_have_a_policy_of_its_own() {
    let server = Server::start(|_, _| window(900, 950)).await;
    let once = Policy::builder().max_attempts_scheduled(1).build().unwrap();
    let began = now();
    let call = Client::new().get(server.url("/work")).policy(once);
    assert_eq!(
        call.send().await.unwrap_err().why(),
        Some(StopReason::AttemptsExhausted)
    );
    assert!(now() - began < ms(500));
}

#[cfg(feature = "multipart")]
#[tokio::test]
async fn real_time_a_form_is_sent_once_and_its_refusal_comes_back_with_the_hint() {
    use holdoff_reqwest::reqwest::multipart::Form;

    let server = Server::start(|_, _| window(200, 300)).await;
    let form = Form::new().text("name", "main.rs").text("code", "fn main() {}");
    let call = Client::new().post(server.url("/work")).multipart(form);
    let error = call.send().await.unwrap_err();
    assert_eq!(error.why(), Some(StopReason::NotReplayable));
    assert!(error.retry_in().unwrap() > ms(100));
    let seen = server.seen();
    assert_eq!(seen.len(), 1);
    let kind = seen[0].field("content-type").unwrap();
    assert!(kind.starts_with("multipart/form-data; boundary="), "{kind}");
}
