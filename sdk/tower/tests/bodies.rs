//! Bodies both ways: requests sent again byte for byte or not at all, refusals that drip or never end.

#![allow(clippy::expect_used, reason = "test code")]

mod support;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use holdoff_policy::StopReason;
use holdoff_tower::{CallOptions, Once, OverloadLayer};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use support::{Body, Server, Step, answer, call, drip, full, get, ms, now, post, refuse, window};
use tower::{Layer, Service, ServiceExt, service_fn};

const PROBLEM: (&str, &str) = ("content-type", "application/problem+json");

#[tokio::test(start_paused = true)]
async fn a_body_in_memory_is_sent_again_byte_for_byte() {
    let server = Server::new([Step::Answer(window(100, 200)), Step::Answer(window(100, 200))]);
    assert!(
        call(
            &OverloadLayer::new(),
            &server,
            post("{\"work\":1}", CallOptions::new())
        )
        .await
        .is_ok()
    );
    let bodies: Vec<Bytes> = server.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies, ["{\"work\":1}"; 3]);
}

/// A server for bodies of one kind; answers 200, unless told to refuse, and keeps the bodies.
fn refuser<B>(
    bodies: &Arc<Mutex<Vec<Bytes>>>,
) -> impl Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + use<B>
where
    B: http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let bodies = Arc::clone(bodies);
    service_fn(move |request: Request<B>| {
        let bodies = Arc::clone(&bodies);
        async move {
            let Ok(body) = request.into_body().collect().await;
            bodies
                .lock()
                .expect("no test holds it while it fails")
                .push(body.to_bytes());
            Ok(window(100, 200))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_sent_once() {
    let bodies = Arc::default();
    let layer = OverloadLayer::new();
    let request = Request::new(Once::new(Full::new(Bytes::from_static(b"stream"))));
    let error = layer.layer(refuser(&bodies)).oneshot(request).await.unwrap_err();
    assert_eq!(
        (error.why(), error.attempts()),
        (Some(StopReason::NotReplayable), 1)
    );
    assert!(error.is_overloaded());
    assert_eq!(*bodies.lock().unwrap(), ["stream"]);
}

#[tokio::test(start_paused = true)]
async fn a_post_that_may_have_been_applied_is_not_sent_again_without_a_key() {
    let maybe = || {
        Step::Answer(refuse(
            "v=1, code=queue_full, retry=after, applied=maybe, after=100, max=200",
        ))
    };
    let server = Server::new([maybe()]);
    let error = call(&OverloadLayer::new(), &server, post("x", CallOptions::new()))
        .await
        .unwrap_err();
    assert_eq!(error.why(), Some(StopReason::NotSafe));
    assert_eq!(server.seen().len(), 1);

    let server = Server::new([maybe()]);
    let keyed = CallOptions::new().idempotency_key("job-1".try_into().unwrap());
    assert!(
        call(&OverloadLayer::new(), &server, post("x", keyed))
            .await
            .is_ok()
    );
    let keys: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| seen.field("idempotency-key").map(str::to_owned))
        .collect();
    assert_eq!(keys.len(), 2);
    assert!(keys[0].is_some() && keys[0] == keys[1], "{keys:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hint_in_the_body_is_read_and_obeyed() {
    let body = "{\"contract_version\":1,\"code\":\"queue_full\",\"retry\":\"after\",\"applied\":\"no\",\
                \"retry_after_ms\":1500,\"retry_after_max_ms\":1600}";
    let server = Server::new([Step::Answer(answer(503, &[PROBLEM], full(body)))]);
    assert!(
        call(&OverloadLayer::new(), &server, post("x", CallOptions::new()))
            .await
            .is_ok()
    );
    let gap = server.gaps()[0];
    assert!((ms(1500)..=ms(1601)).contains(&gap), "{gap:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_drips_holds_the_call_for_a_second_at_most_and_the_head_counts_alone() {
    let server = Server::new([Step::Answer(answer(
        503,
        &[PROBLEM, ("retry-after-ms", "3000")],
        drip(b" ", ms(90)),
    ))]);
    let began = now();
    let error = call(
        &OverloadLayer::new(),
        &server,
        get(CallOptions::new().deadline(ms(2900))),
    )
    .await
    .unwrap_err();
    let took = now() - began;
    assert_eq!(error.why(), Some(StopReason::DeadlineBeforeHint));
    assert!(took <= ms(1001 + 101), "{took:?}");
    assert_eq!(
        error.retry_in().map(|left| left <= ms(2000)),
        Some(true),
        "aged by the reading: {error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_body_is_read_no_further_than_64_kib() {
    // 1000 bytes each 5 ms: 64 KiB are there after a third of a second, long before time is up.
    let fields = [PROBLEM, ("retry-after", "600")];
    let server = Server::new([Step::Answer(answer(503, &fields, drip(&[b' '; 1000], ms(5))))]);
    let began = now();
    let error = call(&OverloadLayer::new(), &server, get(CallOptions::new()))
        .await
        .unwrap_err();
    let took = now() - began;
    assert_eq!(error.why(), Some(StopReason::HintTooLong));
    assert!((ms(300)..ms(500)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_wait_counts_from_the_head_and_not_from_the_end_of_a_slow_body() {
    let slow = drip(b" ", ms(90));
    let fields = [
        PROBLEM,
        (
            "overload-signal",
            "v=1, code=queue_full, retry=after, applied=no, after=2000, max=2100",
        ),
    ];
    let server = Server::new([Step::Answer(answer(503, &fields, slow))]);
    assert!(
        call(&OverloadLayer::new(), &server, get(CallOptions::new()))
            .await
            .is_ok()
    );
    let gap = server.gaps()[0];
    assert!((ms(2000)..=ms(2101)).contains(&gap), "{gap:?}");
}

#[tokio::test(start_paused = true)]
async fn an_endless_body_that_nobody_wants_delays_nothing_past_its_bound() {
    // 64 KiB come at once and then it drips: over neither by length nor by time.
    let server = Server::new([Step::Answer(answer(
        503,
        &[("retry-after-ms", "200")],
        drip(&[0; 1000], ms(5)),
    ))]);
    assert!(
        call(&OverloadLayer::new(), &server, get(CallOptions::new()))
            .await
            .is_ok()
    );
    let gap = server.gaps()[0];
    assert!((ms(200)..=ms(301)).contains(&gap), "{gap:?}");
}

#[tokio::test(start_paused = true)]
async fn a_plain_504_that_was_looked_into_is_handed_on_whole() {
    for body in [
        full("{\"title\":\"gateway\"}"),
        drip_then("{\"title\":", "\"gateway\"}", ms(1500)),
    ] {
        let server = Server::new([Step::Answer(answer(504, &[PROBLEM], body))]);
        // A POST is not sent again after a 504, so it is handed on.
        let response = call(&OverloadLayer::new(), &server, post("x", CallOptions::new()))
            .await
            .unwrap();
        assert_eq!(response.status(), 504);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(bytes, "{\"title\":\"gateway\"}");
    }
}

/// Two chunks with a pause between them that is longer than a refusal is read for.
fn drip_then(first: &'static str, second: &'static str, pause: Duration) -> Body {
    let chunks = futures_util::stream::unfold(0, move |at| async move {
        let chunk = match at {
            0 => first,
            1 => {
                tokio::time::sleep(pause).await;
                second
            }
            _ => return None,
        };
        Some((
            Ok(http_body::Frame::data(Bytes::from_static(chunk.as_bytes()))),
            at + 1,
        ))
    });
    http_body_util::StreamBody::new(chunks).boxed_unsync()
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_refusal_is_read_so_that_its_connection_is_free() {
    // Counts how much of each body was taken.
    #[derive(Default)]
    struct Taken(Mutex<usize>);
    let taken: Arc<Taken> = Arc::default();
    let body = {
        let taken = Arc::clone(&taken);
        let chunks = futures_util::stream::iter((0..10).map(move |_| {
            *taken.0.lock().unwrap() += 100;
            Ok(http_body::Frame::data(Bytes::from_static(&[b'x'; 100])))
        }));
        http_body_util::StreamBody::new(chunks).boxed_unsync()
    };
    let server = Server::new([Step::Answer(answer(503, &[("retry-after-ms", "100")], body))]);
    assert!(
        call(&OverloadLayer::new(), &server, get(CallOptions::new()))
            .await
            .is_ok()
    );
    assert_eq!(*taken.0.lock().unwrap(), 1000);
}

#[tokio::test(start_paused = true)]
async fn a_service_is_polled_ready_before_each_attempt_and_not_kept_ready_while_the_call_waits() {
    let permits = Arc::new(tokio::sync::Semaphore::new(1));
    // Holds a permit from `poll_ready` to `call`, as tower's own limit does.
    #[derive(Clone)]
    struct Limited {
        inner: Server,
        permits: Arc<tokio::sync::Semaphore>,
        held: Held,
    }
    struct Held(Option<tokio::sync::OwnedSemaphorePermit>);
    impl Clone for Held {
        fn clone(&self) -> Self {
            Self(None)
        }
    }
    impl Service<Request<Full<Bytes>>> for Limited {
        type Response = Response<Body>;
        type Error = std::io::Error;
        type Future = <Server as Service<Request<Full<Bytes>>>>::Future;
        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            if self.held.0.is_none() {
                match Arc::clone(&self.permits).try_acquire_owned() {
                    Ok(permit) => self.held.0 = Some(permit),
                    Err(_) => {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
            }
            self.inner.poll_ready(cx)
        }
        fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
            assert!(self.held.0.take().is_some(), "called without a permit");
            self.inner.call(request)
        }
    }
    let server = Server::new([Step::Answer(window(1000, 1100))]);
    let limited = Limited {
        inner: server.clone(),
        permits: Arc::clone(&permits),
        held: Held(None),
    };
    let call = tokio::spawn(
        OverloadLayer::new()
            .layer(limited)
            .oneshot(get(CallOptions::new())),
    );
    tokio::time::sleep(ms(500)).await;
    assert_eq!(server.seen().len(), 1, "it waits for its retry");
    assert_eq!(
        permits.available_permits(),
        1,
        "and holds no permit while it does"
    );
    assert_eq!(call.await.unwrap().unwrap().status(), 200);
    assert_eq!(server.seen().len(), 2);
}
