//! The client over real sockets, in real time.

mod support;

use std::time::Duration;

use holdoff_contract::{Applied, Code, Tier};
use holdoff_policy::StopReason;
use holdoff_reqwest::{Client, Progress, WrappedClientTrusted, reqwest};
use holdoff_testkit::{Script, overloaded, served};
use support::{Reply, Server, answer, ms, now, ok, refuse, window};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer};

/// For calls that must not hang: far beyond any of them.
const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn real_time_a_refused_call_comes_back_in_its_window_and_is_served() {
    let script = Script::new([overloaded(Code::QueueFull).after(ms(200)).max(ms(300))]).then(served());
    let (record, server) = (script.record(), MockServer::start().await);
    Mock::given(any()).respond_with(script).mount(&server).await;
    let url = format!("{}/work", server.uri());
    let response = Client::new().get(&url).deadline(LONG).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.url().as_str(), url);
    assert_eq!(response.content_length(), Some(6));
    assert_eq!(response.text().await.unwrap(), "served");
    record.assert_attempts(2);
    record.assert_never_early();
    record.assert_deadline_shrinks();
    let attempts = record.all().into_iter().map(|sent| sent.fields.attempt);
    assert_eq!(
        attempts.map(|attempt| attempt.unwrap().get()).collect::<Vec<_>>(),
        [1, 2]
    );
}

#[tokio::test]
async fn real_time_two_hundred_refusals_use_one_connection() {
    // A body that is not there with its head: the connection is free again only for who reads it to its end.
    let body = "busy ".repeat(10_000);
    let server = Server::start(move |_, _| {
        let fields = [("overload-signal", "v=1, code=tier_shed, retry=no, applied=no")];
        Reply::Send(answer("503 Service Unavailable", &fields, &body))
    })
    .await;
    let client = Client::new();
    for _ in 0..200 {
        let error = client.get(server.url("/work")).send().await.unwrap_err();
        assert_eq!(error.why(), Some(StopReason::RetryForbidden));
    }
    assert_eq!((server.seen().len(), server.connections()), (200, 1));
}

/// A connection that a wait would keep, or a refusal left unread would spoil, shows as one more.
#[tokio::test]
async fn real_time_a_thousand_refusals_use_one_connection_for_each_caller_at_a_time() {
    const CALLERS: usize = 50;
    // Two refusals in a window, then the answer: 500 calls are refused 1,000 times.
    let server = Server::start(|_, seen| {
        if seen.number("overload-attempt") <= 2 {
            window(1, 60)
        } else {
            ok()
        }
    })
    .await;
    let client = Client::new();
    let callers = (0..CALLERS).map(|_| {
        let (client, url) = (client.clone(), server.url("/work"));
        tokio::spawn(async move {
            for _ in 0..10 {
                let response = client.get(&url).send().await.unwrap();
                assert_eq!(response.text().await.unwrap(), "done");
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert_eq!(server.seen().len(), 1_500);
    assert!(server.connections() <= CALLERS, "{}", server.connections());
}

#[tokio::test]
async fn real_time_a_hint_over_the_cap_stops_at_once_and_is_reported_whole() {
    let server =
        Server::start(|_, _| Reply::Send(answer("503 Service Unavailable", &[("retry-after", "600")], "")))
            .await;
    let began = now();
    let error = Client::new().get(server.url("/work")).send().await.unwrap_err();
    assert!(now() - began < ms(500));
    assert_eq!(error.why(), Some(StopReason::HintTooLong));
    let retry_in = error.retry_in().unwrap();
    assert!(retry_in > ms(599_000) && retry_in <= ms(600_000), "{retry_in:?}");
}

#[tokio::test]
async fn real_time_a_post_that_may_have_been_applied_is_sent_once_and_a_keyed_one_again() {
    let maybe = "v=1, code=dependency_overloaded, retry=after, applied=maybe, after=50, max=100";
    let server = Server::start(move |_, _| refuse(maybe)).await;
    let error = Client::new()
        .post(server.url("/work"))
        .body("x")
        .send()
        .await
        .unwrap_err();
    assert_eq!((error.why(), server.seen().len()), (Some(StopReason::NotSafe), 1));
    assert_eq!(error.overload().unwrap().code, Some(Code::DependencyOverloaded));

    let refusal = overloaded(Code::DependencyOverloaded).applied(Applied::Maybe);
    let script = Script::new([refusal.after(ms(50)).max(ms(100))]).then(served());
    let (record, server) = (script.record(), MockServer::start().await);
    Mock::given(any()).respond_with(script).mount(&server).await;
    let call = Client::new()
        .post(server.uri())
        .json(&["lint"])
        .idempotency_key("job-1")
        .deadline(LONG);
    assert_eq!(call.send().await.unwrap().status(), 200);
    record.assert_attempts(2);
    record.assert_same_key();
    record.assert_same_body();
    let sent = record.all().remove(1);
    assert_eq!(sent.body, b"[\"lint\"]");
    assert_eq!(sent.headers["content-type"], "application/json");
    assert_eq!(sent.headers["idempotency-key"], "\"job-1\"");
}

#[tokio::test]
async fn real_time_headers_query_and_tier_are_the_same_on_each_attempt() {
    let server = Server::start(|number, _| if number == 0 { window(50, 100) } else { ok() }).await;
    let call = Client::new()
        .put(server.url("/work"))
        .query(&[("a", "b c")])
        .header("x-a", "1")
        .bearer_auth("token")
        .tier(Tier::Critical)
        .task_class("lint")
        .body("payload");
    assert_eq!(call.send().await.unwrap().status(), 200);
    for seen in server.seen() {
        assert_eq!((seen.method.as_str(), seen.path.as_str()), ("PUT", "/work?a=b+c"));
        assert_eq!(seen.field("x-a"), Some("1"));
        assert_eq!(seen.field("authorization"), Some("Bearer token"));
        assert_eq!(seen.field("overload-tier"), Some("critical"));
        assert_eq!(seen.field("overload-task-class"), Some("lint"));
        assert_eq!(seen.body, b"payload");
    }
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn real_time_a_streaming_body_is_sent_once() {
    let server = Server::start(|_, _| window(50, 100)).await;
    let chunks = futures_util::stream::iter(["st", "ream"].map(Ok::<_, std::io::Error>));
    let body = reqwest::Body::wrap_stream(chunks);
    let error = Client::new()
        .put(server.url("/work"))
        .body(body)
        .send()
        .await
        .unwrap_err();
    assert_eq!(
        (error.why(), server.seen().len()),
        (Some(StopReason::NotReplayable), 1)
    );
}

#[tokio::test]
async fn real_time_a_refusal_that_drips_for_ever_holds_a_call_for_a_second_at_most() {
    let head = "HTTP/1.1 503 Service Unavailable\r\ntransfer-encoding: chunked\r\n\
                content-type: application/problem+json\r\nretry-after: 600\r\n\r\n";
    let server = Server::start(move |_, _| Reply::Drip(head.to_owned())).await;
    let began = now();
    let error = Client::new().get(server.url("/work")).send().await.unwrap_err();
    let took = now() - began;
    assert!(took < ms(1600), "{took:?}");
    assert_eq!(error.why(), Some(StopReason::HintTooLong));
}

#[tokio::test]
async fn real_time_a_refusal_that_drips_for_ever_cannot_hold_a_call_past_its_deadline() {
    // Looked into, since it may say more than its head; and one that is only got rid of before a wait.
    for kind in ["application/problem+json", "text/plain"] {
        let head = format!(
            "HTTP/1.1 503 Service Unavailable\r\ntransfer-encoding: chunked\r\ncontent-type: {kind}\r\n\
             retry-after-ms: 50\r\n\r\n"
        );
        let server = Server::start(move |_, _| Reply::Drip(head.clone())).await;
        let began = now();
        let call = Client::new().get(server.url("/work")).deadline(ms(200));
        let error = call.send().await.unwrap_err();
        let took = now() - began;
        // Without the deadline the body alone would have been given a second.
        assert!(took < ms(900), "{kind}: {took:?}");
        assert!(error.is_overloaded(), "{kind}: {error}");
    }
}

#[tokio::test]
async fn real_time_a_deadline_ends_an_answer_that_never_comes() {
    let server = Server::start(|number, _| {
        if number == 0 {
            window(100, 150)
        } else {
            Reply::Hang
        }
    })
    .await;
    let began = now();
    let error = Client::new()
        .get(server.url("/work"))
        .timeout(ms(600))
        .send()
        .await
        .unwrap_err();
    let took = now() - began;
    assert!(took >= ms(600) && took < ms(1100), "{took:?}");
    assert_eq!(
        (error.why(), error.attempts()),
        (Some(StopReason::DeadlineExceeded), 2)
    );
    assert!(error.is_overloaded());
}

#[tokio::test]
async fn real_time_a_deadline_also_ends_a_response_body_that_never_comes() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\npart";
    let server = Server::start(move |_, _| Reply::Send(head.to_owned())).await;
    let began = now();
    let response = Client::new()
        .get(server.url("/work"))
        .deadline(ms(500))
        .send()
        .await
        .unwrap();
    let error = response.text().await.unwrap_err();
    let took = now() - began;
    assert!(error.is_timeout(), "{error:?}");
    assert!(took >= ms(500) && took < ms(1000), "{took:?}");
}

#[tokio::test]
async fn real_time_a_call_dropped_while_it_waits_sends_nothing_more() {
    let server = Server::start(|_, _| window(300, 400)).await;
    let client = Client::new();
    let progress = Progress::new();
    let call = client.get(server.url("/work")).progress(&progress).send();
    assert!(tokio::time::timeout(ms(150), call).await.is_err());
    tokio::time::sleep(ms(500)).await;
    assert_eq!((server.seen().len(), progress.attempts()), (1, 1));
    assert_eq!(client.counters().snapshot().gave_up, [(StopReason::Cancelled, 1)]);
}

#[tokio::test]
async fn real_time_a_refused_connection_is_tried_again_even_for_a_post() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let error = Client::new()
        .post(format!("http://{closed}/"))
        .body("x")
        .send()
        .await
        .unwrap_err();
    assert_eq!((error.why(), error.attempts()), (Some(StopReason::Transport), 3));
    assert!(
        error
            .transport_error()
            .unwrap()
            .downcast_ref::<reqwest::Error>()
            .unwrap()
            .is_connect()
    );
    assert!(!error.is_overloaded() && !error.is_request());
}

#[tokio::test]
async fn real_time_a_connection_closed_without_an_answer_is_tried_again_only_where_that_is_safe() {
    let server = Server::start(|_, _| Reply::Close).await;
    let client = Client::new();
    let error = client
        .post(server.url("/work"))
        .body("x")
        .send()
        .await
        .unwrap_err();
    assert_eq!(
        (error.why(), error.attempts(), server.seen().len()),
        (Some(StopReason::Transport), 1, 1)
    );
    let error = client.get(server.url("/work")).send().await.unwrap_err();
    assert_eq!(
        (error.why(), error.attempts(), server.seen().len()),
        (Some(StopReason::Transport), 3, 4)
    );
}

#[tokio::test]
async fn real_time_hints_before_the_final_answer_are_not_looked_at() {
    let text = "HTTP/1.1 103 Early Hints\r\nretry-after: 60\r\noverload-signal: v=1, code=queue_full, retry=no\r\n\r\n\
                HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let server = Server::start(move |_, _| Reply::Send(text.to_owned())).await;
    assert_eq!(
        Client::new()
            .get(server.url("/work"))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn real_time_an_accepted_and_deferred_call_stays_a_response() {
    let server = Server::start(|_, _| {
        let fields = [
            ("overload-signal", "v=1, outcome=defer"),
            ("location", "/v1/tasks/1"),
            ("retry-after", "5"),
        ];
        Reply::Send(answer("202 Accepted", &fields, ""))
    })
    .await;
    let response = Client::new().post(server.url("/work")).send().await.unwrap();
    assert_eq!(response.status(), 202);
    assert!(holdoff_contract::read::Advice::read(response.headers()).deferred);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn real_time_the_error_goes_through_anyhow_and_back() {
    async fn outer(url: String) -> anyhow::Result<String> {
        Ok(Client::new().get(url).send().await?.text().await?)
    }
    let server = Server::start(|_, _| refuse("v=1, code=tier_shed, retry=no, applied=no")).await;
    let error = outer(server.url("/work")).await.unwrap_err();
    assert!(
        error
            .downcast_ref::<holdoff_reqwest::Error>()
            .is_some_and(holdoff_reqwest::Error::is_overloaded)
    );
}

#[tokio::test]
async fn real_time_a_wrapped_client_keeps_its_own_settings() {
    let server = Server::start(|number, _| if number == 0 { window(50, 100) } else { ok() }).await;
    let http = reqwest::Client::builder()
        .user_agent("mine/1")
        .retry(reqwest::retry::never())
        .build()
        .unwrap();
    assert_eq!(
        Client::wrap(http.clone())
            .get(server.url("/work"))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.field("user-agent") == Some("mine/1")));

    let error = Client::builder().trusted(server.url("")).wrap(http).unwrap_err();
    assert!(error.build_error().unwrap().is::<WrappedClientTrusted>());
}

#[tokio::test]
async fn real_time_a_reqwest_request_can_be_executed_and_its_timeout_is_the_calls_deadline() {
    let server = Server::start(|_, _| window(5000, 6000)).await;
    let mut request = reqwest::Request::new(http::Method::GET, server.url("/work").parse().unwrap());
    *request.timeout_mut() = Some(ms(2000));
    let error = Client::new().execute(request).await.unwrap_err();
    assert_eq!(error.why(), Some(StopReason::DeadlineBeforeHint));
    assert!((1900..=2000).contains(&server.seen()[0].number("overload-deadline-ms")));
}

#[tokio::test]
async fn real_time_a_deadline_over_a_day_counts_as_a_day_also_beyond_the_clock() {
    let server = Server::start(|_, _| ok()).await;
    for deadline in [
        Duration::MAX,
        Duration::from_secs(3_000_000_000),
        Duration::from_secs(172_800),
    ] {
        let response = Client::new()
            .get(server.url("/work"))
            .deadline(deadline)
            .send()
            .await
            .unwrap();
        assert_eq!(response.text().await.unwrap(), "done");
        let said = server.seen().pop().unwrap().number("overload-deadline-ms");
        assert!((86_399_000..=86_400_000).contains(&said), "{said}");
    }
}
