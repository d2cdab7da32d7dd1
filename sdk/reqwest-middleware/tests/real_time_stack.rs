//! The middleware in a stack, over real sockets.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdoff_contract::{Code, IdempotencyKey, Tier};
use holdoff_policy::{Policy, StopReason};
use holdoff_reqwest_middleware::{
    CallOptions, CallReport, OverloadLayer, OverloadMiddleware, overload_error,
};
use holdoff_testkit::{Record, Script, overloaded, plain, served};
use holdoff_tower::InstanceList;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer};

/// For calls that must not hang: far beyond any of them.
const LONG: Duration = Duration::from_secs(20);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn start(script: Script) -> (MockServer, Record) {
    let server = MockServer::start().await;
    let record = script.record();
    Mock::given(any()).respond_with(script).mount(&server).await;
    (server, record)
}

fn refused_once() -> Script {
    Script::new([overloaded(Code::QueueFull).after(ms(150)).max(ms(250))]).then(served())
}

fn http() -> reqwest::Client {
    reqwest::Client::builder()
        .retry(reqwest::retry::never())
        .build()
        .unwrap()
}

fn client(overload: &OverloadMiddleware) -> ClientWithMiddleware {
    ClientBuilder::new(http()).with(overload.clone()).build()
}

/// Counts what passes, and fails if it is told to.
#[derive(Clone, Default)]
struct Counting {
    passed: Arc<AtomicU32>,
    fails: bool,
}

#[async_trait::async_trait]
impl Middleware for Counting {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        self.passed.fetch_add(1, Ordering::Relaxed);
        if self.fails {
            return Err(reqwest_middleware::Error::Middleware(anyhow::anyhow!("no key")));
        }
        next.run(request, extensions).await
    }
}

#[tokio::test]
async fn a_refused_call_comes_back_in_its_window_with_less_time_and_the_same_bytes() {
    let (server, record) = start(refused_once()).await;
    let overload = OverloadMiddleware::new();
    let options = CallOptions::new()
        .deadline(LONG)
        .tier(Tier::Deferrable)
        .idempotency_key(IdempotencyKey::try_from("job-1").unwrap());
    let url = format!("{}/work?x=1", server.uri());
    let request = client(&overload).post(&url).body("work").with_extension(options);
    let response = request.send().await.unwrap();
    assert_eq!(response.url().as_str(), url);
    let report = *response.extensions().get::<CallReport>().unwrap();
    assert_eq!(report.attempts, 2);
    assert!(report.waited >= ms(150), "{report:?}");
    assert_eq!(response.text().await.unwrap(), "served");
    record.assert_attempts(2);
    record.assert_never_early();
    record.assert_deadline_shrinks();
    record.assert_same_key();
    record.assert_same_body();
    assert_eq!(record.all()[1].fields.tier, Some(Tier::Deferrable));
    let counts = overload.counters().snapshot();
    assert_eq!((counts.retries_total, counts.early_retries_total), (1, 0));
}

#[tokio::test]
async fn middleware_inside_sees_each_attempt_and_outside_one_call() {
    let (server, record) = start(refused_once()).await;
    let (outside, inside) = (Counting::default(), Counting::default());
    let client = ClientBuilder::new(http())
        .with(outside.clone())
        .with(OverloadMiddleware::new())
        .with(inside.clone())
        .build();
    client.get(server.uri()).timeout(LONG).send().await.unwrap();
    record.assert_attempts(2);
    // The request's timeout is the deadline of the call.
    record.assert_deadline_shrinks();
    assert_eq!(outside.passed.load(Ordering::Relaxed), 1);
    assert_eq!(inside.passed.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_refusal_that_stops_is_a_typed_error_in_the_stacks_own() {
    let (server, record) = start(Script::new([overloaded(Code::QueueFull).no_retry()])).await;
    let error = client(&OverloadMiddleware::new())
        .get(server.uri())
        .send()
        .await
        .unwrap_err();
    let stopped = overload_error(&error).unwrap();
    assert_eq!(stopped.why(), Some(StopReason::RetryForbidden));
    assert_eq!(stopped.overload().unwrap().code, Some(Code::QueueFull));
    record.assert_attempts(1);
}

#[tokio::test]
async fn a_stream_is_sent_once_and_its_refusal_comes_back() {
    let (server, record) = start(refused_once()).await;
    let chunks = futures_util::stream::iter([Ok::<_, std::io::Error>("work")]);
    let error = client(&OverloadMiddleware::new())
        .put(server.uri())
        .body(reqwest::Body::wrap_stream(chunks))
        .send()
        .await
        .unwrap_err();
    assert_eq!(
        overload_error(&error).unwrap().why(),
        Some(StopReason::NotReplayable)
    );
    record.assert_attempts(1);
    assert_eq!(record.all()[0].body, b"work");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again_and_told_with_reqwests_own_error() {
    // Bound and closed again: nobody listens there.
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let error = client(&OverloadMiddleware::new())
        .post(format!("http://{address}/"))
        .body("work")
        .send()
        .await
        .unwrap_err();
    let stopped = overload_error(&error).unwrap();
    assert_eq!(
        (stopped.why(), stopped.attempts()),
        (Some(StopReason::Transport), 3)
    );
    let inner = stopped.transport_error().unwrap();
    let inner: &reqwest_middleware::Error = inner.downcast_ref().unwrap();
    assert!(inner.is_connect(), "{inner:?}");
}

#[tokio::test]
async fn another_middleware_that_fails_is_not_tried_again() {
    let (server, record) = start(Script::new([served()])).await;
    let failing = Counting {
        fails: true,
        ..Counting::default()
    };
    let client = ClientBuilder::new(http())
        .with(OverloadMiddleware::new())
        .with(failing.clone())
        .build();
    let error = client.get(server.uri()).send().await.unwrap_err();
    assert_eq!(overload_error(&error).unwrap().attempts(), 1);
    assert_eq!(failing.passed.load(Ordering::Relaxed), 1);
    record.assert_attempts(0);
}

#[tokio::test]
async fn a_slow_answer_ends_with_the_deadline_of_the_call() {
    let (server, record) = start(Script::new([served().slow(LONG)])).await;
    let error = client(&OverloadMiddleware::new())
        .get(server.uri())
        .with_extension(CallOptions::new().deadline(ms(200)))
        .send()
        .await
        .unwrap_err();
    let stopped = overload_error(&error).unwrap();
    assert_eq!(stopped.why(), Some(StopReason::DeadlineExceeded));
    assert!(stopped.is_timeout());
    record.assert_attempts(1);
}

#[tokio::test]
async fn a_waiting_call_that_is_dropped_sends_nothing_more() {
    let (server, record) = start(refused_once()).await;
    let overload = OverloadMiddleware::new();
    let call = client(&overload).get(server.uri()).send();
    tokio::time::timeout(ms(80), call).await.unwrap_err();
    tokio::time::sleep(ms(300)).await;
    record.assert_attempts(1);
    assert_eq!(
        overload.counters().snapshot().gave_up,
        [(StopReason::Cancelled, 1)]
    );
}

#[tokio::test]
async fn what_is_no_refusal_passes_as_it_is() {
    let (server, record) = start(Script::new([plain(500).retry_after(1).body("broken")])).await;
    let response = client(&OverloadMiddleware::new())
        .get(server.uri())
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 500);
    assert_eq!(response.text().await.unwrap(), "broken");
    record.assert_attempts(1);
}

#[tokio::test]
async fn settings_are_those_of_the_layer_and_the_tenant_is_sent_nowhere_all_the_same() {
    let (server, record) = start(refused_once()).await;
    let policy = Policy::builder().max_attempts_scheduled(1).build().unwrap();
    let settings = OverloadLayer::builder()
        .policy(policy)
        .default_tier(Tier::Critical)
        .tenant("acme".try_into().unwrap())
        .trusted(server.uri().parse().unwrap());
    let overload = OverloadMiddleware::over(settings);
    let error = client(&overload).get(server.uri()).send().await.unwrap_err();
    let why = overload_error(&error).unwrap().why();
    assert_eq!(why, Some(StopReason::AttemptsExhausted));
    assert_eq!(record.attempts(), 1);
    let sent = server.received_requests().await.unwrap();
    assert_eq!(sent[0].headers["overload-tier"], "critical");
    assert!(!sent[0].headers.contains_key("overload-tenant"));
}

#[tokio::test]
async fn a_call_that_is_sent_elsewhere_asks_the_other_instance() {
    let draining = Script::new([overloaded(Code::Draining)]);
    let ((one, _), (two, record)) = (start(draining).await, start(Script::new([served()])).await);
    let origins = [&one, &two].map(|server| server.uri().parse().unwrap());
    let list = InstanceList::new(origins.to_vec()).unwrap();
    let overload = OverloadMiddleware::over(OverloadLayer::builder().instances(list));
    let response = client(&overload).get(one.uri()).send().await.unwrap();
    assert_eq!((response.status().as_u16(), record.attempts()), (200, 1));
}
