//! What one refusal means for other calls, and where a call goes that is sent elsewhere. Paused time over a server in
//! memory.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use holdoff_contract::{Tenant, Tier};
use holdoff_policy::{CallerKey, Incoming, Policy, StopReason};
use holdoff_tower::{CallOptions, InstanceList, OverloadLayer};
use http::header::HOST;
use http::{HeaderValue, Request, Uri};
use http_body_util::Full;
use support::{Server, Step, call, get, ms, now, refuse, window};

fn scoped(scope: &str) -> Step {
    Step::Answer(refuse(&format!(
        "v=1, code=queue_full, retry=after, applied=no, after=1000, max=1300, scope={scope}"
    )))
}

fn elsewhere(after_ms: u64) -> Step {
    Step::Answer(refuse(&format!(
        "v=1, code=draining, retry=elsewhere, applied=no, after={after_ms}, max={}",
        after_ms + 300
    )))
}

fn to(uri: &str, options: CallOptions) -> Request<Full<Bytes>> {
    let mut request = get(options);
    *request.uri_mut() = uri.parse().unwrap();
    request
}

fn with_token(token: &'static str) -> Request<Full<Bytes>> {
    let mut request = get(CallOptions::new());
    let token = HeaderValue::from_static(token);
    request.headers_mut().insert("authorization", token);
    request
}

/// Sends a call that is refused with this, and leaves it waiting.
async fn refused(layer: &OverloadLayer, server: &Server, request: Request<Full<Bytes>>) {
    let waiting = call(layer, server, request);
    assert!(tokio::time::timeout(ms(1), waiting).await.is_err(), "it waits");
}

/// How long a call takes.
async fn takes(layer: &OverloadLayer, server: &Server, request: Request<Full<Bytes>>) -> Duration {
    let began = now();
    call(layer, server, request).await.unwrap();
    now() - began
}

#[tokio::test(start_paused = true)]
async fn a_held_off_call_says_when_it_can_go_and_then_goes() {
    let layer = OverloadLayer::new();
    let day = "v=1, code=queue_full, retry=after, applied=no, after=86400000, scope=service";
    let server = Server::new([Step::Answer(refuse(day))]);
    let told = call(&layer, &server, get(CallOptions::new())).await.unwrap_err();
    assert_eq!(
        (told.why(), told.retry_in()),
        (Some(StopReason::HintTooLong), Some(ms(86_400_000)))
    );
    let hurried = || get(CallOptions::new().deadline(ms(1000)));
    let held = call(&layer, &server, hurried()).await.unwrap_err();
    assert_eq!(
        held.to_string(),
        "gave up (held_off) after 0 attempts; refused with 503 queue_full, may come back in 30000 ms"
    );
    tokio::time::sleep(held.retry_in().unwrap()).await;
    assert!(call(&layer, &server, hurried()).await.is_ok());
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_the_service_holds_its_neighbours_spread_and_no_other_authority() {
    let layer = OverloadLayer::new();
    let server = Server::new([scoped("service")]);
    refused(&layer, &server, get(CallOptions::new())).await;
    let held = (0..50).map(|_| takes(&layer, &server, get(CallOptions::new())));
    let other = takes(&layer, &server, to("http://b.example/work", CallOptions::new()));
    let critical = takes(&layer, &server, get(CallOptions::new().tier(Tier::Critical)));
    let (mut held, other, critical) = tokio::join!(join_all(held), other, critical);
    assert_eq!((other, critical), (ms(0), ms(0)));
    assert!(
        held.iter().all(|wait| (ms(999)..=ms(1301)).contains(wait)),
        "{held:?}"
    );
    held.sort();
    for from in &held {
        let slot = held
            .iter()
            .filter(|wait| (*from..*from + ms(10)).contains(wait))
            .count();
        assert!(slot <= 10, "{slot} of 50 within 10 ms of {from:?}");
    }
    assert_eq!(layer.counters().snapshot().early_retries_total, 0);
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_fails_at_once_with_the_refusal_and_nothing_sent() {
    let layer = OverloadLayer::new();
    let server = Server::new([scoped("service")]);
    refused(&layer, &server, get(CallOptions::new())).await;
    let relayed = Incoming {
        attempt: holdoff_contract::Attempt::saturating(1),
        retries: false,
        tier: None,
        deadline: None,
    };
    for options in [
        CallOptions::new().deadline(ms(500)),
        CallOptions::new().incoming(relayed),
    ] {
        let began = now();
        let error = call(&layer, &server, get(options)).await.unwrap_err();
        assert_eq!(now() - began, ms(0));
        assert_eq!((error.why(), error.attempts()), (Some(StopReason::HeldOff), 0));
        assert!(error.is_overloaded());
        let left = error.retry_in().unwrap();
        assert!((ms(990)..=ms(1000)).contains(&left), "{left:?}");
        let up = error
            .for_caller(holdoff_tower::PassUp {
                called_as: holdoff_contract::CalledAs::OwnService,
                idempotent: false,
                side_effect: false,
            })
            .unwrap();
        assert_eq!(up.applied, holdoff_contract::Applied::No);
    }
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_one_caller_holds_that_tenant_or_credential_only() {
    // By the credential.
    let layer = OverloadLayer::new();
    let server = Server::new([scoped("tenant")]);
    refused(&layer, &server, with_token("Bearer one")).await;
    assert_eq!(takes(&layer, &server, with_token("Bearer two")).await, ms(0));
    assert_eq!(takes(&layer, &server, get(CallOptions::new())).await, ms(0));
    assert!(takes(&layer, &server, with_token("Bearer one")).await >= ms(990));

    // By the tenant, where it is said.
    let trusted = "http://a.example".parse().unwrap();
    let layer = OverloadLayer::builder().trusted(trusted).build();
    let server = Server::new([scoped("tenant")]);
    let of = |tenant| get(CallOptions::new().tenant(Tenant::new(tenant).unwrap()));
    refused(&layer, &server, of("a")).await;
    assert_eq!(takes(&layer, &server, of("b")).await, ms(0));
    assert!(takes(&layer, &server, of("a")).await >= ms(990));

    // Where the server is not told the tenant, it cannot have meant it.
    let layer = OverloadLayer::new();
    let server = Server::new([scoped("tenant")]);
    refused(&layer, &server, of("a")).await;
    assert!(takes(&layer, &server, of("b")).await >= ms(990));

    // By what the caller says itself.
    let layer = OverloadLayer::new();
    let server = Server::new([scoped("tenant")]);
    let of = |key| get(CallOptions::new().caller(CallerKey::new(key)));
    refused(&layer, &server, of(1)).await;
    assert_eq!(takes(&layer, &server, of(2)).await, ms(0));
    assert!(takes(&layer, &server, of(1)).await >= ms(990));
}

#[tokio::test(start_paused = true)]
async fn a_held_call_that_is_dropped_gives_its_place_back() {
    let policy = Policy::builder().max_waiting(1).build().unwrap();
    let layer = OverloadLayer::builder().policy(policy).build();
    let server = Server::new([scoped("service")]);
    refused(&layer, &server, get(CallOptions::new())).await;
    for _ in 0..3 {
        refused(&layer, &server, get(CallOptions::new())).await;
    }
    let held = call(&layer, &server, get(CallOptions::new()));
    let late = async {
        tokio::time::sleep(ms(1)).await;
        call(&layer, &server, get(CallOptions::new())).await
    };
    let (held, late) = tokio::join!(held, late);
    assert_eq!(held.unwrap().status(), 200);
    assert_eq!(late.unwrap_err().why(), Some(StopReason::TooManyWaiting));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_dropped_calls_leave_every_waiting_place_free() {
    let policy = Policy::builder().max_waiting(10_000).build().unwrap();
    let layer = OverloadLayer::builder().policy(policy).build();
    let server = Server::with_end([], || {
        let signal = "v=1, code=queue_full, retry=after, applied=no, after=20000, max=30000";
        Step::Answer(refuse(signal))
    });
    for _ in 0..2 {
        let waiting = join_all((0..10_000).map(|_| call(&layer, &server, get(CallOptions::new()))));
        assert!(tokio::time::timeout(ms(100), waiting).await.is_err());
    }
    let counts = layer.counters().snapshot();
    assert_eq!(
        (counts.attempts_total, counts.waits_total),
        (20_000, 20_000),
        "all of the second ten thousand found a place"
    );
    assert_eq!(counts.gave_up, [(StopReason::Cancelled, 20_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_sent_elsewhere_asks_another_instance_and_tells_the_tenant_only_whom_it_may() {
    let origins = ["http://a.example", "http://b.example:81"];
    let instances = InstanceList::new(origins.map(|origin| origin.parse().unwrap())).unwrap();
    let layer = OverloadLayer::builder()
        .instances(instances)
        .trusted(origins[1].parse().unwrap())
        .tenant(Tenant::new("acme").unwrap())
        .build();
    let server = Server::new([elsewhere(2000), elsewhere(5000)]);
    let mut request = to("http://a.example/work?x=1", CallOptions::new());
    let host = HeaderValue::from_static("a.example");
    request.headers_mut().insert(HOST, host);
    assert_eq!(call(&layer, &server, request).await.unwrap().status(), 200);

    let seen = server.seen();
    let uris: Vec<Uri> = seen.iter().map(|one| one.uri.clone()).collect();
    assert_eq!(
        uris,
        [
            "http://a.example/work?x=1",
            "http://b.example:81/work?x=1",
            "http://a.example/work?x=1"
        ]
    );
    let tenants: Vec<Option<&str>> = seen.iter().map(|one| one.field("overload-tenant")).collect();
    assert_eq!(tenants, [None, Some("\"acme\""), None]);
    let hosts: Vec<Option<&str>> = seen.iter().map(|one| one.field("host")).collect();
    assert_eq!(hosts, [Some("a.example"), None, Some("a.example")]);
    assert!(
        (ms(50)..=ms(101)).contains(&server.gaps()[0]),
        "{:?}",
        server.gaps()
    );
    let back = seen[2].at - seen[0].at;
    assert!(
        (ms(2000)..=ms(2301)).contains(&back),
        "the first's own hint: {back:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_call_may_have_a_policy_of_its_own() {
    let layer = OverloadLayer::new();
    let once = Arc::new(
        Policy::builder()
            .max_attempts(1)
            .max_attempts_scheduled(1)
            .build()
            .unwrap(),
    );
    let server = Server::new([Step::Answer(window(100, 200)), Step::Answer(window(100, 200))]);
    let error = call(&layer, &server, get(CallOptions::new().policy(once)))
        .await
        .unwrap_err();
    assert_eq!(error.why(), Some(StopReason::AttemptsExhausted));
    assert_eq!(
        call(&layer, &server, get(CallOptions::new()))
            .await
            .unwrap()
            .status(),
        200
    );
}

#[test]
fn held_calls_are_counted_and_none_is_counted_as_waiting_once_all_are_over() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let layer = OverloadLayer::new();
            let server = Server::new([scoped("service")]);
            refused(&layer, &server, get(CallOptions::new())).await;
            refused(&layer, &server, get(CallOptions::new())).await;
            let held = (0..5).map(|_| takes(&layer, &server, get(CallOptions::new())));
            join_all(held).await;
        });
    });
    let (mut held_back, mut waiting) = (0, None);
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        match (key.key().name(), value) {
            ("holdoff_held_back_total", DebugValue::Counter(count)) => held_back = count,
            ("holdoff_waiting_calls", DebugValue::Gauge(level)) => waiting = Some(level.into_inner()),
            _ => {}
        }
    }
    assert_eq!((held_back, waiting), (6, Some(0.0)));
}
