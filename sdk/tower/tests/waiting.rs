//! When the next attempt leaves, and when none does. Paused time over a server in memory.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use holdoff_contract::{Attempt, Tier};
use holdoff_policy::{Incoming, Policy, StopReason};
use holdoff_tower::{CallOptions, OverloadLayer};
use http::Request;
use http_body_util::Full;
use support::{Server, Step, answer, call, empty, get, ms, now, refuse, window};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, ServiceExt};

#[tokio::test(start_paused = true)]
async fn each_wait_lies_in_the_window_and_the_waits_differ() {
    let layer = OverloadLayer::builder().rng_seed(7).build();
    let server = Server::new((0..11).map(|_| Step::Answer(window(200, 300))));
    let response = call(&layer, &server, get(CallOptions::new())).await.unwrap();
    assert_eq!(response.status(), 200);

    let gaps = server.gaps();
    assert_eq!(gaps.len(), 11);
    // The timer may be one millisecond late.
    assert!(
        gaps.iter().all(|gap| (ms(200)..=ms(301)).contains(gap)),
        "{gaps:?}"
    );
    let spread = *gaps.iter().max().unwrap() - *gaps.iter().min().unwrap();
    assert!(spread > ms(50), "{gaps:?}");
    let counts = layer.counters().snapshot();
    assert_eq!(
        (
            counts.attempts_total,
            counts.retries_total,
            counts.early_retries_total
        ),
        (12, 11, 0)
    );
    assert_eq!((counts.waits_total, counts.hints_honoured_total), (11, 11));
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_draws_the_same_waits() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let layer = OverloadLayer::builder().rng_seed(42).build();
        let server = Server::new((0..5).map(|_| Step::Answer(window(100, 2000))));
        call(&layer, &server, get(CallOptions::new())).await.unwrap();
        runs.push(server.gaps());
    }
    assert_eq!(runs[0].len(), 5);
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test(start_paused = true)]
async fn a_hint_past_the_deadline_stops_at_once_and_says_what_is_left_of_it() {
    let layer = OverloadLayer::new();
    let server = Server::new([Step::Answer(window(5000, 6000))]);
    let began = now();
    let error = call(&layer, &server, get(CallOptions::new().deadline(ms(3000))))
        .await
        .unwrap_err();
    assert_eq!(now() - began, Duration::ZERO);
    assert_eq!(error.why(), Some(StopReason::DeadlineBeforeHint));
    assert_eq!(error.retry_in(), Some(ms(5000)));
    assert!(error.is_overloaded() && error.is_timeout());
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hint_over_the_cap_stops_at_once() {
    let layer = OverloadLayer::new();
    let server = Server::new([Step::Answer(answer(503, &[("retry-after", "121")], empty()))]);
    let error = call(&layer, &server, get(CallOptions::new())).await.unwrap_err();
    assert_eq!(error.why(), Some(StopReason::HintTooLong));
    assert_eq!(error.retry_in(), Some(ms(121_000)));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_ten_second_deadline_ends_at_ten_seconds_when_the_retry_is_never_answered() {
    let layer = OverloadLayer::new();
    let server = Server::new([Step::Answer(window(1000, 1200)), Step::Hang]);
    let began = now();
    let error = call(&layer, &server, get(CallOptions::new().deadline(ms(10_000))))
        .await
        .unwrap_err();
    let took = now() - began;
    assert!((ms(10_000)..=ms(10_001)).contains(&took), "{took:?}");
    assert_eq!(error.why(), Some(StopReason::DeadlineExceeded));
    assert_eq!(error.attempts(), 2);
    assert!(error.is_overloaded(), "the refusal stays known: {error}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_when_no_time_is_left() {
    let layer = OverloadLayer::new();
    let server = Server::new([]);
    let error = call(&layer, &server, get(CallOptions::new().deadline(Duration::ZERO)))
        .await
        .unwrap_err();
    assert_eq!(
        (error.why(), error.attempts()),
        (Some(StopReason::DeadlineExceeded), 0)
    );
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn retry_no_is_final() {
    let layer = OverloadLayer::new();
    let server = Server::new([Step::Answer(refuse(
        "v=1, code=deadline_unattainable, retry=no, applied=no",
    ))]);
    let error = call(&layer, &server, get(CallOptions::new())).await.unwrap_err();
    assert_eq!(error.why(), Some(StopReason::RetryForbidden));
    assert_eq!(server.seen().len(), 1);
    let gave_up = layer.counters().snapshot().gave_up;
    assert_eq!(gave_up, [(StopReason::RetryForbidden, 1)]);
}

#[tokio::test(start_paused = true)]
async fn attempts_end_without_windows_after_three_and_with_windows_after_twelve() {
    let bare = || Step::Answer(answer(503, &[], empty()));
    let windows = || Step::Answer(window(100, 200));
    for (end, sends) in [(bare as fn() -> Step, 3), (windows, 12)] {
        let server = Server::with_end([], end);
        let error = call(&OverloadLayer::new(), &server, get(CallOptions::new()))
            .await
            .unwrap_err();
        assert_eq!(
            (error.why(), error.attempts()),
            (Some(StopReason::AttemptsExhausted), sends)
        );
        assert_eq!(server.seen().len(), sends as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_it_waits_gives_its_place_and_its_charge_back() {
    let policy = Policy::builder()
        .max_waiting(1)
        .budget_capacity(14)
        .build()
        .unwrap();
    let layer = OverloadLayer::builder().policy(policy).build();
    // Without a hint a retry costs 14, all there is: each call can wait only if the one before gave its charge back.
    let server = Server::with_end([], || Step::Answer(answer(503, &[], empty())));
    for _ in 0..5 {
        let waiting = call(&layer, &server, get(CallOptions::new()));
        assert!(
            tokio::time::timeout(ms(10), waiting).await.is_err(),
            "it waits, and is dropped"
        );
    }
    assert_eq!(server.seen().len(), 5, "no retry left");
    let counts = layer.counters().snapshot();
    assert_eq!((counts.waits_total, counts.retries_total), (5, 0));
    assert_eq!(counts.gave_up, [(StopReason::Cancelled, 5)]);
}

#[tokio::test(start_paused = true)]
async fn one_waits_and_the_next_is_told_that_too_many_do() {
    let policy = Policy::builder().max_waiting(1).build().unwrap();
    let layer = OverloadLayer::builder().policy(policy).build();
    let server = Server::new([Step::Answer(window(1000, 1100)), Step::Answer(window(1000, 1100))]);
    let first = tokio::spawn({
        let (layer, server) = (layer.clone(), server.clone());
        async move {
            call(&layer, &server, get(CallOptions::new()))
                .await
                .map(|response| response.status())
        }
    });
    tokio::time::sleep(ms(10)).await;
    let error = call(&layer, &server, get(CallOptions::new())).await.unwrap_err();
    assert_eq!(error.why(), Some(StopReason::TooManyWaiting));
    assert_eq!(first.await.unwrap().unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_relay_leaves_retries_to_its_caller_unless_it_opts_in() {
    let incoming = |retries| Incoming {
        attempt: Attempt::FIRST,
        retries,
        tier: None,
        deadline: None,
    };
    let server = Server::new([Step::Answer(window(100, 200))]);
    let request = get(CallOptions::new().incoming(incoming(false)));
    let error = call(&OverloadLayer::new(), &server, request).await.unwrap_err();
    assert_eq!(
        (error.why(), error.attempts()),
        (Some(StopReason::UpstreamRetries), 1)
    );

    let server = Server::new([Step::Answer(window(100, 200))]);
    let request = get(CallOptions::new().incoming(incoming(true)));
    assert!(call(&OverloadLayer::new(), &server, request).await.is_ok());
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn destinations_do_not_share_what_one_of_them_said() {
    let policy = Policy::builder().max_waiting(1).build().unwrap();
    let layer = OverloadLayer::builder().policy(policy).build();
    let server = Server::new([Step::Answer(window(1000, 1100)), Step::Answer(window(100, 200))]);
    let first = tokio::spawn({
        let (layer, server) = (layer.clone(), server.clone());
        async move {
            call(&layer, &server, get(CallOptions::new()))
                .await
                .map(|response| response.status())
        }
    });
    tokio::time::sleep(ms(10)).await;
    let mut request = get(CallOptions::new().tier(Tier::Critical));
    *request.uri_mut() = "http://b.example/work".parse().unwrap();
    assert!(
        call(&layer, &server, request).await.is_ok(),
        "the one place among the waiting is a.example's"
    );
    assert_eq!(first.await.unwrap().unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn hints_on_anything_but_a_refusal_are_not_looked_at() {
    for status in [200, 202, 301, 404, 500] {
        let fields = [
            ("retry-after", "60"),
            (
                "overload-signal",
                "v=1, code=queue_full, retry=after, applied=no, after=60000",
            ),
        ];
        let server = Server::new([Step::Answer(answer(status, &fields, empty()))]);
        let response = call(&OverloadLayer::new(), &server, get(CallOptions::new()))
            .await
            .unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(server.seen().len(), 1);
    }
}

/// What a server that refuses every request after 100 ms saw.
#[derive(Default)]
struct Crowd {
    in_flight: u32,
    most: u32,
    requests: u32,
    /// Calls that were refused and have not come back yet.
    waiting: u32,
    first_tries_past_five_waiting: u32,
}

#[tokio::test(start_paused = true)]
async fn a_limiter_inside_the_layer_counts_attempts_and_calls_that_wait_hold_no_permit() {
    // FC-CON-05
    let crowd = Arc::new(Mutex::new(Crowd::default()));
    let seen = Arc::clone(&crowd);
    let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
        let seen = Arc::clone(&seen);
        async move {
            {
                let mut crowd = seen.lock().unwrap();
                crowd.requests += 1;
                crowd.in_flight += 1;
                crowd.most = crowd.most.max(crowd.in_flight);
                if request.headers()["overload-attempt"] == "1" {
                    crowd.first_tries_past_five_waiting += u32::from(crowd.waiting >= 5);
                } else {
                    crowd.waiting -= 1;
                }
            }
            tokio::time::sleep(ms(100)).await;
            let mut crowd = seen.lock().unwrap();
            crowd.in_flight -= 1;
            crowd.waiting += 1;
            Ok::<_, std::io::Error>(window(50, 150))
        }
    });
    let layer = OverloadLayer::builder().rng_seed(5).build();
    let stack = layer.layer(ConcurrencyLimit::new(service, 5));
    let calls = (0..50).map(|_| stack.clone().oneshot(get(CallOptions::new())));
    for result in join_all(calls).await {
        assert_eq!(result.unwrap_err().why(), Some(StopReason::AttemptsExhausted));
    }
    let crowd = crowd.lock().unwrap();
    assert_eq!(
        (crowd.most, crowd.in_flight),
        (5, 0),
        "never more than five at once"
    );
    assert_eq!(crowd.requests, 600, "twelve sends a call");
    assert_eq!(
        crowd.first_tries_past_five_waiting, 45,
        "all but the first five go while others wait"
    );
    assert_eq!(layer.counters().snapshot().early_retries_total, 0);
}

#[tokio::test(start_paused = true)]
async fn malformed_hints_are_counted_and_harm_nothing() {
    let layer = OverloadLayer::new();
    let server = Server::new([Step::Answer(answer(503, &[("retry-after", "soon")], empty()))]);
    assert!(call(&layer, &server, get(CallOptions::new())).await.is_ok());
    assert_eq!(layer.counters().snapshot().hints_malformed_total, 1);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_over_a_day_counts_as_a_day_also_beyond_the_clock() {
    for deadline in [
        Duration::MAX,
        Duration::from_secs(u64::MAX / 4),
        Duration::from_secs(3_000_000_000),
    ] {
        let server = Server::new([Step::Answer(window(100, 200))]);
        let response = call(
            &OverloadLayer::new(),
            &server,
            get(CallOptions::new().deadline(deadline)),
        )
        .await;
        assert_eq!(response.unwrap().status(), 200, "{deadline:?}");
        let seen = server.seen();
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].number("overload-deadline-ms"), 86_400_000);
        assert!(seen[1].number("overload-deadline-ms") < 86_400_000);
    }
}
