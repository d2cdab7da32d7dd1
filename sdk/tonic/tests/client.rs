//! The client layer over answers in memory, in paused time.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod support;

use std::time::Duration;

use holdoff_contract::write::Audience;
use holdoff_contract::{Applied, Code, Hint, IdempotencyKey, Overload, Retry, Tier};
use holdoff_policy::{Safety, StopReason};
use holdoff_tonic::{CallOptions, ClientLayer, Inbound, StatusExt, status};
use http::HeaderMap;
use http_body::Frame;
use support::{Answer, Seen, Text, client, framed, head, message, ms, play, say, send, served, windowed};
use tonic::body::Body;
use tower::Layer;

fn refused(overload: &Overload) -> Answer {
    status(overload, Audience::Stranger).into_http()
}

fn gap(seen: &[Seen], k: usize) -> Duration {
    seen[k].at - seen[k - 1].at
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_waited_out_inside_its_window_and_the_same_bytes_are_sent_again() {
    let refusal = windowed(Code::QueueFull, 1740, 2300);
    let (transport, seen) = play(vec![refused(&refusal), refused(&refusal), served("hi")], true);
    let options = CallOptions::new().deadline(ms(9000)).tier(Tier::Deferrable);
    assert_eq!(say(client(transport), options).await.unwrap(), "hi");

    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    for k in 1..3 {
        assert!(
            (ms(1740)..=ms(2351)).contains(&gap(&seen, k)),
            "{:?}",
            gap(&seen, k)
        );
        assert_eq!(seen[k].body, message("hello"));
    }
    let said = |name: &str| {
        seen.iter()
            .map(|seen| seen.field(name).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(said("overload-attempt"), ["1", "2", "3"]);
    assert_eq!(said("overload-tier"), ["deferrable"; 3]);
    for (ms, timeout) in said("overload-deadline-ms").iter().zip(said("grpc-timeout")) {
        let micros: u64 = timeout.strip_suffix('u').unwrap().parse().unwrap();
        assert_eq!(micros / 1000, ms.parse::<u64>().unwrap());
    }
    assert_eq!(seen[0].field("grpc-timeout"), "9000000u");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_in_trailers_behind_a_head_counts_as_one_in_the_head() {
    let refusal = status(&windowed(Code::QueueFull, 300, 400), Audience::Stranger);
    let mut trailers = HeaderMap::new();
    refusal.add_header(&mut trailers).unwrap();
    let answers = vec![framed(vec![Frame::trailers(trailers)]), served("hi")];
    let (transport, seen) = play(answers, true);
    assert_eq!(say(client(transport), CallOptions::new()).await.unwrap(), "hi");
    let gap = gap(&seen.lock().unwrap(), 1);
    assert!((ms(300)..=ms(451)).contains(&gap), "{gap:?}");
}

#[tokio::test(start_paused = true)]
async fn trailers_with_another_status_reach_the_caller_as_they_are() {
    let mut trailers = HeaderMap::new();
    tonic::Status::not_found("nobody")
        .add_header(&mut trailers)
        .unwrap();
    let (transport, seen) = play(vec![framed(vec![Frame::trailers(trailers)])], true);
    let status = say(client(transport), CallOptions::new()).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (tonic::Code::NotFound, "nobody")
    );
    assert!(!status.is_overloaded() && status.call_error().is_none());
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn resource_exhausted_without_a_word_is_not_sent_again() {
    let (transport, seen) = play(vec![tonic::Status::resource_exhausted("quota").into_http()], true);
    let options = CallOptions::new().safety(Safety::Idempotent);
    let status = say(client(transport), options).await.unwrap_err();
    assert_eq!(seen.lock().unwrap().len(), 1);
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    let error = status.call_error().unwrap();
    assert_eq!(error.why(), Some(StopReason::RetryForbidden));
    assert_eq!(status.overload().unwrap().retry, Retry::No);
}

#[tokio::test(start_paused = true)]
async fn unavailable_without_a_word_is_sent_again_only_where_that_is_safe() {
    let bare = || tonic::Status::unavailable("gone").into_http();
    let (transport, seen) = play(vec![bare()], true);
    let status = say(client(transport), CallOptions::new()).await.unwrap_err();
    assert_eq!(status.call_error().unwrap().why(), Some(StopReason::NotSafe));
    assert_eq!(status.overload().unwrap().applied, Applied::Maybe);
    assert_eq!(seen.lock().unwrap().len(), 1);

    let keyed = CallOptions::new().idempotency_key(IdempotencyKey::new("k-1").unwrap());
    for options in [CallOptions::new().safety(Safety::Idempotent), keyed] {
        let (transport, seen) = play(vec![bare(), served("hi")], true);
        assert_eq!(say(client(transport), options).await.unwrap(), "hi");
        let seen = seen.lock().unwrap();
        assert!(gap(&seen, 1) >= ms(500), "own backoff: {:?}", gap(&seen, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_speaks_no_grpc_is_heard() {
    for status in [429, 502, 503, 504] {
        let proxy = head(
            status,
            &[("retry-after", "2"), ("content-type", "text/html")],
            Body::empty(),
        );
        let (transport, seen) = play(vec![proxy, served("hi")], true);
        let options = CallOptions::new().safety(Safety::Idempotent);
        assert_eq!(say(client(transport), options).await.unwrap(), "hi", "{status}");
        let gap = gap(&seen.lock().unwrap(), 1);
        assert!((ms(2000)..=ms(3001)).contains(&gap), "{status}: {gap:?}");
    }
    let (transport, _) = play(vec![head(502, &[], Body::empty())], true);
    let status = say(client(transport), CallOptions::new()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn details_that_are_no_base64_cost_themselves_and_stop_nobody() {
    let lines = [
        ("grpc-status", "14"),
        ("grpc-status-details-bin", "!!! not base64 !!!"),
        ("content-type", "application/grpc"),
    ];
    let (transport, _) = play(vec![head(200, &lines, Body::empty())], true);
    let status = say(client(transport), CallOptions::new()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);

    let lines = [("grpc-status", "5"), lines[1], lines[2]];
    let (transport, _) = play(vec![head(200, &lines, Body::empty())], true);
    let status = say(client(transport), CallOptions::new()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);

    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "5".parse().unwrap());
    trailers.insert("grpc-status-details-bin", "%".parse().unwrap());
    let answer = framed(vec![Frame::data(message("part")), Frame::trailers(trailers)]);
    let (transport, _) = play(vec![answer], true);
    let status = say(client(transport), CallOptions::new()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_the_deadline_cannot_hold_ends_the_call_with_the_refusal() {
    let (transport, seen) = play(vec![refused(&windowed(Code::TenantLimit, 5000, 6000))], true);
    let mut request = tonic::Request::new(Text::default());
    // tonic's own way of saying a deadline.
    request.set_timeout(ms(1000));
    let status = send(client(transport), request).await.unwrap_err();
    assert_eq!(seen.lock().unwrap()[0].field("overload-deadline-ms"), "1000");
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    let error = status.call_error().unwrap();
    assert_eq!(error.why(), Some(StopReason::DeadlineBeforeHint));
    let retry_in = error.retry_in().unwrap();
    assert!((ms(5000)..=ms(6000)).contains(&retry_in), "{retry_in:?}");
    assert_eq!(status.overload().unwrap().code, Some(Code::TenantLimit));
}

#[tokio::test(start_paused = true)]
async fn a_request_longer_than_the_limit_is_sent_once() {
    let (transport, seen) = play(vec![refused(&windowed(Code::QueueFull, 100, 200))], true);
    let layer = ClientLayer::new().replay_limit(8);
    let request = tonic::Request::new(Text {
        value: "nine bytes".to_owned(),
    });
    let status = send(layer.layer(transport), request).await.unwrap_err();
    assert_eq!(
        status.call_error().unwrap().why(),
        Some(StopReason::NotReplayable)
    );
    assert_eq!(seen.lock().unwrap()[0].body, message("nine bytes"));
    assert!(matches!(status.overload().unwrap().hint, Hint::Window { .. }));
}

#[tokio::test(start_paused = true)]
async fn the_head_of_a_conversation_is_not_held_back() {
    // Neither side says anything until the other has: only the head can come first.
    let silent =
        http_body_util::StreamBody::new(futures_util::stream::pending::<Result<Frame<_>, tonic::Status>>());
    let answer = head(200, &[("content-type", "application/grpc")], Body::new(silent));
    let (transport, _) = play(vec![answer], false);
    let mut grpc = tonic::client::Grpc::new(client(transport));
    grpc.ready().await.unwrap();
    let started = tokio::time::Instant::now();
    let requests = futures_util::stream::pending::<Text>();
    let codec = tonic_prost::ProstCodec::<Text, Text>::default();
    let path = http::uri::PathAndQuery::from_static(support::PATH);
    let answer = grpc.streaming(tonic::Request::new(requests), path, codec).await;
    assert!(answer.is_ok());
    assert_eq!(started.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_waits_for_its_next_message_is_sent_once_and_in_order() {
    let (transport, seen) = play(vec![refused(&windowed(Code::QueueFull, 100, 200))], true);
    let mut grpc = tonic::client::Grpc::new(client(transport));
    grpc.ready().await.unwrap();
    let text = |value: &str| Text {
        value: value.to_owned(),
    };
    let requests = futures_util::stream::unfold(0, move |n| async move {
        let value = ["a", "b", "c"].get(n)?;
        tokio::time::sleep(ms(10)).await;
        Some((text(value), n + 1))
    });
    let codec = tonic_prost::ProstCodec::<Text, Text>::default();
    let path = http::uri::PathAndQuery::from_static(support::PATH);
    let answer = grpc
        .client_streaming(tonic::Request::new(requests), path, codec)
        .await;
    let status = answer.unwrap_err();
    assert_eq!(
        status.call_error().unwrap().why(),
        Some(StopReason::NotReplayable)
    );
    let sent = [message("a"), message("b"), message("c")].concat();
    assert_eq!(seen.lock().unwrap()[0].body, sent);
}

#[tokio::test(start_paused = true)]
async fn a_call_made_for_a_request_carries_its_deadline_tier_and_attempt_and_is_not_retried() {
    let fields = holdoff_contract::RequestFields {
        deadline: Some(ms(2000)),
        tier: Some(Tier::Deferrable),
        attempt: Some(holdoff_contract::Attempt::saturating(2)),
        ..Default::default()
    };
    let (transport, seen) = play(vec![refused(&windowed(Code::QueueFull, 100, 200))], true);
    let call = async {
        tokio::time::sleep(ms(500)).await;
        say(client(transport), CallOptions::new().tier(Tier::Critical)).await
    };
    let status = Inbound::new(fields).scope(call).await.unwrap_err();
    assert_eq!(
        status.call_error().unwrap().why(),
        Some(StopReason::UpstreamRetries)
    );
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].field("overload-attempt"), "2");
    assert_eq!(seen[0].field("overload-tier"), "deferrable");
    assert_eq!(seen[0].field("overload-deadline-ms"), "1490");
}

#[tokio::test(start_paused = true)]
async fn two_channels_are_two_destinations_and_an_origin_is_told_the_tenant_only_where_it_is_trusted() {
    let tenant = holdoff_contract::Tenant::new("acme").unwrap();
    let trusted: holdoff_tonic::Origin = "http://10.0.0.1:50051".parse().unwrap();
    let other: holdoff_tonic::Origin = "http://10.0.0.2:50051".parse().unwrap();
    let builder = holdoff_tonic::OverloadLayer::builder()
        .tenant(tenant)
        .trusted(trusted.clone());
    let layer = ClientLayer::with(builder);
    let (transport, seen) = play(vec![served("a"), served("b"), served("c")], true);
    let request = || tonic::Request::new(Text::default());
    for service in [
        layer.layer_to(&trusted, transport.clone()),
        layer.layer_to(&other, transport.clone()),
        layer.layer(transport),
    ] {
        send(service, request()).await.unwrap();
    }
    let tenants: Vec<_> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|seen| seen.field("overload-tenant").to_owned())
        .collect();
    assert_eq!(tenants, ["\"acme\"", "", ""]);
    assert!(seen.lock().unwrap().iter().all(|seen| seen.uri == support::PATH));

    // One retry empties this budget; the other channel has its own.
    let policy = holdoff_policy::Policy::builder()
        .budget_capacity(14)
        .build()
        .unwrap();
    let layer = ClientLayer::with(holdoff_tonic::OverloadLayer::builder().policy(policy));
    let bare = || tonic::Status::unavailable("").into_http();
    let (transport, seen) = play(vec![bare(), bare(), bare(), served("x")], true);
    let (one, two) = (layer.layer(transport.clone()), layer.layer(transport));
    let safe = || {
        let mut request = request();
        request
            .extensions_mut()
            .insert(CallOptions::new().safety(Safety::Idempotent).deadline(ms(3000)));
        request
    };
    let stopped = send(one, safe()).await.unwrap_err();
    assert_eq!(
        stopped.call_error().unwrap().why(),
        Some(StopReason::BudgetExhausted)
    );
    assert_eq!(send(two, safe()).await.unwrap(), "x");
    assert_eq!(seen.lock().unwrap().len(), 4);
}
