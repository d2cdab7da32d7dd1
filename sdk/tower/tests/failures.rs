//! What is no refusal: failures of the transport, bad gateways, and what the error keeps of them.

mod support;

use std::error::Error as _;
use std::io::ErrorKind;
use std::time::Duration;

use holdoff_contract::{Applied, CalledAs, Code, Retry};
use holdoff_policy::StopReason;
use holdoff_tower::{CallOptions, CallReport, Error, Failure, OverloadLayer, PassUp, Refused};
use support::{Server, Step, answer, call, full, get, ms, now, post, refuse, window};

fn chain(error: &Error) -> Vec<String> {
    let mut lines = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        lines.push(cause.to_string());
        next = cause.source();
    }
    lines
}

const RELAY: PassUp = PassUp {
    called_as: CalledAs::OwnService,
    idempotent: true,
    side_effect: false,
};

#[tokio::test(start_paused = true)]
async fn a_reset_after_a_refusal_keeps_the_refusal_and_the_reset_as_causes() {
    let server = Server::with_end([Step::Answer(window(100, 200))], || {
        Step::Fail(ErrorKind::ConnectionReset)
    });
    let error = call(&OverloadLayer::new(), &server, get(CallOptions::new()))
        .await
        .unwrap_err();
    assert_eq!(error.why(), Some(StopReason::Transport));
    assert_eq!(
        error.overload().and_then(|overload| overload.code.clone()),
        Some(Code::QueueFull)
    );
    let refused = error.source().unwrap().downcast_ref::<Refused>().unwrap();
    assert_eq!(refused.overload().status.as_u16(), 503);
    let io = refused
        .source()
        .unwrap()
        .downcast_ref::<std::io::Error>()
        .unwrap();
    assert_eq!(io.kind(), ErrorKind::ConnectionReset);
    assert!(
        error
            .transport_error()
            .is_some_and(|error| error.is::<std::io::Error>())
    );
    assert_eq!(chain(&error).len(), 3, "{:?}", chain(&error));
}

#[tokio::test(start_paused = true)]
async fn a_post_is_sent_again_only_where_no_connection_was_made() {
    let server = Server::new([Step::Fail(ErrorKind::ConnectionRefused)]);
    assert!(
        call(&OverloadLayer::new(), &server, post("x", CallOptions::new()))
            .await
            .is_ok()
    );
    assert_eq!(server.seen().len(), 2);

    let server = Server::new([Step::Fail(ErrorKind::ConnectionReset)]);
    let error = call(&OverloadLayer::new(), &server, post("x", CallOptions::new()))
        .await
        .unwrap_err();
    assert_eq!((error.why(), error.attempts()), (Some(StopReason::Transport), 1));
    assert!(!error.is_overloaded());
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_bad_gateway_is_tried_again_and_in_the_end_handed_on() {
    let server = Server::with_end([], || Step::Answer(answer(502, &[], full("bad"))));
    let response = call(&OverloadLayer::new(), &server, get(CallOptions::new()))
        .await
        .unwrap();
    assert_eq!((response.status().as_u16(), server.seen().len()), (502, 3));

    let server = Server::with_end([], || Step::Answer(answer(502, &[], full("bad"))));
    let response = call(&OverloadLayer::new(), &server, post("x", CallOptions::new()))
        .await
        .unwrap();
    assert_eq!((response.status().as_u16(), server.seen().len()), (502, 1));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_limited_by_what_is_left_of_the_deadline() {
    let server = Server::with_end([], || Step::Hang);
    let began = now();
    let error = call(
        &OverloadLayer::new(),
        &server,
        get(CallOptions::new().deadline(ms(700))),
    )
    .await
    .unwrap_err();
    let took = now() - began;
    assert!((ms(700)..=ms(701)).contains(&took), "{took:?}");
    assert_eq!(
        (error.why(), error.attempts()),
        (Some(StopReason::DeadlineExceeded), 1)
    );
    assert!(error.is_timeout() && !error.is_overloaded());
    let up = error
        .for_caller(RELAY)
        .expect("a dependency that did not answer is passed up");
    assert_eq!(
        (up.code, up.retry, up.applied),
        (Some(Code::DependencyTimeout), Retry::No, Applied::Maybe)
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_deadline_a_slow_answer_is_waited_for() {
    let server = Server::new([Step::Late(Duration::from_secs(600), support::ok())]);
    assert!(
        call(&OverloadLayer::new(), &server, get(CallOptions::new()))
            .await
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_passed_up_aged_by_the_time_since_it_came() {
    let server = Server::new([Step::Answer(refuse(
        "v=1, code=queue_full, retry=after, applied=no, after=5000",
    ))]);
    let error = call(
        &OverloadLayer::new(),
        &server,
        get(CallOptions::new().deadline(ms(1000))),
    )
    .await
    .unwrap_err();
    tokio::time::sleep(ms(2000)).await;
    let up = error.for_caller(RELAY).unwrap();
    assert_eq!((up.code.as_ref(), up.hop), (Some(&Code::DependencyOverloaded), 1));
    let delay = match up.hint {
        holdoff_contract::Hint::After { delay, .. } | holdoff_contract::Hint::Window { delay, .. } => delay,
        holdoff_contract::Hint::Absent => panic!("the delay is passed up"),
    };
    assert!((ms(2999)..=ms(3000)).contains(&delay), "{delay:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_was_never_reached_is_not_overload_for_the_caller() {
    let server = Server::with_end([], || Step::Fail(ErrorKind::ConnectionRefused));
    let error = call(&OverloadLayer::new(), &server, get(CallOptions::new()))
        .await
        .unwrap_err();
    assert_eq!(error.for_caller(RELAY), None);
}

#[tokio::test(start_paused = true)]
async fn the_error_is_one_line_without_a_word_of_the_peer() {
    let body = "{\"contract_version\":1,\"code\":\"queue_full\",\"title\":\"a\\r\\nb\",\"detail\":\"\\u001b[31mred\\r\\n\",\
                \"retry\":\"no\",\"applied\":\"no\"}";
    let server = Server::new([Step::Answer(answer(
        503,
        &[("content-type", "application/problem+json")],
        full(body),
    ))]);
    let error = call(&OverloadLayer::new(), &server, get(CallOptions::new()))
        .await
        .unwrap_err();
    let lines = chain(&error);
    assert_eq!(
        lines[0],
        "gave up (retry_forbidden) after 1 attempt; refused with 503 queue_full"
    );
    for line in &lines {
        assert!(
            line.chars().all(|c| (' '..='~').contains(&c)) && !line.contains("red"),
            "{line:?}"
        );
    }
    let debug = format!("{error:?}");
    assert!(debug.chars().all(|c| (' '..='~').contains(&c)), "{debug:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_sending_again_cannot_help_ends_the_call_and_keeps_the_refusal() {
    let layer = OverloadLayer::builder().classify(|_| Failure::Final).build();
    let server = Server::new([
        Step::Answer(window(100, 200)),
        Step::Fail(ErrorKind::InvalidInput),
    ]);
    let error = call(&layer, &server, get(CallOptions::new())).await.unwrap_err();
    assert_eq!((error.why(), error.attempts()), (Some(StopReason::Transport), 2));
    assert!(error.waited() >= ms(100), "{:?}", error.waited());
    assert!(error.is_overloaded() && error.transport_error().is_some());
    assert_eq!(layer.counters().snapshot().gave_up, [(StopReason::Transport, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_transport_does_not_take_was_not_sent_and_its_error_is_one_line() {
    let layer = OverloadLayer::builder().classify(|_| Failure::Unsendable).build();
    let server = Server::new([Step::Fail(ErrorKind::InvalidInput)]);
    let error = call(&layer, &server, get(CallOptions::new())).await.unwrap_err();
    assert_eq!(error.to_string(), "the request could not be built: scripted");
    assert_eq!((error.why(), error.attempts()), (None, 0));
    assert_eq!(layer.counters().snapshot().gave_up, []);

    // A refusal that came before is not forgotten for it.
    let server = Server::new([
        Step::Answer(window(100, 200)),
        Step::Fail(ErrorKind::InvalidInput),
    ]);
    let error = call(&layer, &server, get(CallOptions::new())).await.unwrap_err();
    assert_eq!((error.why(), error.attempts()), (Some(StopReason::Transport), 2));
    assert!(error.is_overloaded() && !error.is_request());

    let error = Error::request("first\r\nsecond \u{202e}line");
    assert_eq!(
        error.to_string(),
        "the request could not be built: first\\r\\nsecond \\u{202e}line"
    );
}

#[tokio::test(start_paused = true)]
async fn a_response_tells_how_many_attempts_it_took() {
    let server = Server::new([Step::Answer(window(100, 200))]);
    let response = call(&OverloadLayer::new(), &server, get(CallOptions::new()))
        .await
        .unwrap();
    let report = response.extensions().get::<CallReport>().unwrap();
    assert_eq!(report.attempts, 2);
    assert!((ms(100)..=ms(201)).contains(&report.waited), "{report:?}");
}
