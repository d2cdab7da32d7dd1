//! What a call says about itself on the wire, attempt by attempt.

mod support;

use std::time::Duration;

use holdoff_contract::{Applied, Attempt, Code, Tier};
use holdoff_policy::{Incoming, StopReason};
use holdoff_tower::{CallOptions, Inbound, OverloadLayer};
use support::{Server, Step, call, get, ms, post, window};

fn refusals(times: usize) -> Server {
    Server::new((0..times).map(|_| Step::Answer(window(100, 200))))
}

#[tokio::test(start_paused = true)]
async fn the_deadline_shrinks_by_at_least_the_wait_and_attempts_count_up() {
    let server = refusals(4);
    let options = CallOptions::new()
        .deadline(ms(5000))
        .tier(Tier::NonSheddable)
        .task_class("lint".try_into().unwrap());
    assert!(call(&OverloadLayer::new(), &server, get(options)).await.is_ok());
    let seen = server.seen();
    assert_eq!(seen.len(), 5);
    assert_eq!(seen[0].number("overload-deadline-ms"), 5000);
    for (two, gap) in seen.windows(2).zip(server.gaps()) {
        let shrunk = two[0].number("overload-deadline-ms") - two[1].number("overload-deadline-ms");
        assert!(
            shrunk >= u64::try_from(gap.as_millis()).unwrap(),
            "{shrunk} against {gap:?}"
        );
    }
    let attempts: Vec<u64> = seen.iter().map(|seen| seen.number("overload-attempt")).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
    for seen in &seen {
        assert_eq!(seen.field("overload-tier"), Some("non-sheddable"));
        assert_eq!(seen.field("overload-task-class"), Some("lint"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_for_nothing_says_only_its_attempt() {
    let server = refusals(0);
    assert!(
        call(&OverloadLayer::new(), &server, get(CallOptions::new()))
            .await
            .is_ok()
    );
    let seen = &server.seen()[0];
    let names: Vec<&str> = seen.headers.keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["overload-attempt"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_in_the_callers_own_headers_goes_out_as_it_stands_on_each_attempt() {
    let server = refusals(2);
    let mut request = post("x", CallOptions::new());
    request
        .headers_mut()
        .insert("idempotency-key", "8e03978e-40d5".parse().unwrap());
    assert!(call(&OverloadLayer::new(), &server, request).await.is_ok());
    let seen = server.seen();
    assert_eq!(seen.len(), 3);
    assert!(
        seen.iter()
            .all(|seen| seen.field("idempotency-key") == Some("8e03978e-40d5"))
    );
}

#[tokio::test(start_paused = true)]
async fn fields_in_the_callers_own_headers_count_as_if_they_had_been_set() {
    let server = refusals(1);
    let mut request = get(CallOptions::new());
    for (name, value) in [
        ("overload-deadline-ms", "5000"),
        ("overload-tier", "critical"),
        ("overload-attempt", "9"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    assert!(call(&OverloadLayer::new(), &server, request).await.is_ok());
    let seen = server.seen();
    assert_eq!(seen[0].number("overload-deadline-ms"), 5000);
    assert!(seen[1].number("overload-deadline-ms") <= 4900);
    assert_eq!(seen[1].field("overload-tier"), Some("critical"));
    assert_eq!(seen[1].number("overload-attempt"), 2, "the attempt is ours");
}

#[tokio::test(start_paused = true)]
async fn the_tenant_goes_only_to_trusted_origins() {
    let layer = |origin: &str| {
        let builder = OverloadLayer::builder().tenant("acme".try_into().unwrap());
        builder.trusted(origin.parse().unwrap()).build()
    };
    for (origin, told) in [
        ("http://A.example:80", true),
        ("https://a.example", false),
        ("http://b.example", false),
    ] {
        let server = refusals(1);
        let mut request = get(CallOptions::new());
        // A header set by hand is no way round it.
        request
            .headers_mut()
            .insert("overload-tenant", "\"acme\"".parse().unwrap());
        assert!(call(&layer(origin), &server, request).await.is_ok());
        let seen = server.seen();
        assert_eq!(seen.len(), 2);
        assert!(
            seen.iter()
                .all(|seen| (seen.field("overload-tenant") == Some("\"acme\"")) == told),
            "{origin}"
        );
        assert!(
            seen.iter()
                .all(|seen| seen.field("overload-tenant").is_some() == told),
            "{origin}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_request_being_answered_bounds_tier_deadline_and_attempt() {
    let server = refusals(0);
    let incoming = Incoming {
        attempt: Attempt::saturating(3),
        retries: true,
        tier: Some(Tier::Deferrable),
        deadline: Some(ms(800)),
    };
    let options = CallOptions::new()
        .tier(Tier::Critical)
        .deadline(ms(5000))
        .incoming(incoming);
    assert!(call(&OverloadLayer::new(), &server, get(options)).await.is_ok());
    let seen = &server.seen()[0];
    assert_eq!(seen.field("overload-tier"), Some("deferrable"));
    assert_eq!(seen.number("overload-deadline-ms"), 800);
    assert_eq!(seen.number("overload-attempt"), 3);
}

#[test]
fn a_default_deadline_that_no_call_could_keep_or_say_is_refused() {
    for (deadline, given) in [
        (ms(0), "0ns"),
        (Duration::from_micros(999), "999µs"),
        (ms(86_400_001), "86400.001s"),
    ] {
        let error = OverloadLayer::builder().default_deadline(deadline).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("default_deadline {given:?} is not allowed: it must be 1 ms to 24 h")
        );
    }
    for deadline in [ms(1), ms(86_400_000)] {
        assert!(OverloadLayer::builder().default_deadline(deadline).is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_layer_has_as_default_is_said_where_the_call_is_silent() {
    let layer = OverloadLayer::builder()
        .default_deadline(ms(900))
        .unwrap()
        .default_tier(Tier::Deferrable)
        .build();
    let server = refusals(0);
    assert!(call(&layer, &server, get(CallOptions::new())).await.is_ok());
    assert!(
        call(
            &layer,
            &server,
            get(CallOptions::new().deadline(ms(50)).tier(Tier::Critical))
        )
        .await
        .is_ok()
    );
    let seen = server.seen();
    assert_eq!(
        (
            seen[0].number("overload-deadline-ms"),
            seen[0].field("overload-tier")
        ),
        (900, Some("deferrable"))
    );
    assert_eq!(
        (
            seen[1].number("overload-deadline-ms"),
            seen[1].field("overload-tier")
        ),
        (50, Some("critical"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_made_inside_the_scope_of_a_request_finds_it_by_itself() {
    let fields = holdoff_contract::RequestFields {
        deadline: Some(ms(2000)),
        tier: Some(Tier::Deferrable),
        attempt: Some(Attempt::saturating(3)),
        ..Default::default()
    };
    let inbound = Inbound::new(fields);
    inbound.mark_side_effect();
    let server = refusals(1);
    let work = async {
        tokio::time::sleep(ms(500)).await;
        let options = CallOptions::new().tier(Tier::Critical).deadline(ms(60_000));
        let ended = call(&OverloadLayer::new(), &server, get(options)).await;
        (ended, Inbound::current().is_some())
    };
    let (ended, known) = inbound.clone().scope(work).await;
    assert!(known && Inbound::current().is_none());
    let seen = &server.seen()[0];
    assert_eq!(seen.number("overload-deadline-ms"), 1490);
    assert_eq!(seen.field("overload-tier"), Some("deferrable"));
    assert_eq!(seen.number("overload-attempt"), 3);
    let error = ended.err().unwrap();
    assert_eq!(error.why(), Some(StopReason::UpstreamRetries));
    let up = error.for_caller(inbound.pass_up(true)).unwrap();
    assert_eq!((up.hop, up.applied), (1, Applied::Maybe));
    assert_eq!(inbound.time_left(), Some(ms(1500)));

    // What a call says itself wins.
    let own = Incoming {
        attempt: Attempt::FIRST,
        retries: true,
        tier: None,
        deadline: None,
    };
    let server = refusals(1);
    let layer = OverloadLayer::new();
    let retried = call(&layer, &server, get(CallOptions::new().incoming(own)));
    assert!(inbound.scope(retried).await.is_ok());
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_time_left_is_answered_for_without_a_call() {
    let fields = holdoff_contract::RequestFields {
        deadline: Some(ms(5)),
        ..Default::default()
    };
    let inbound = Inbound::new(fields);
    let server = refusals(0);
    let layer = OverloadLayer::new();
    let ended = inbound
        .clone()
        .scope(call(&layer, &server, get(CallOptions::new())))
        .await;
    let up = ended.err().unwrap().for_caller(inbound.pass_up(false)).unwrap();
    assert_eq!((up.code, up.applied), (Some(Code::DeadlineExpired), Applied::No));
    assert!(server.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_destination_refuses_in_words_of_its_own_and_another_does_not() {
    use holdoff_contract::vocabulary::{BodyMatch, Declaration, Delay, Literal, Refusal};

    let refusal = Refusal {
        code: "queue_full".into(),
        status: vec![529],
        applied: Some("no".into()),
        body: Some(BodyMatch {
            pointer: "/error".into(),
            value: Some(Literal::Text("busy".into())),
        }),
        delay: Some(Delay {
            header: Some("x-wait".into()),
            unit: "ms".into(),
            ..Delay::default()
        }),
        ..Refusal::default()
    };
    let declaration = Declaration {
        refusals: vec![refusal],
        ..Declaration::default()
    };
    let vocabulary = declaration.build().unwrap();
    let own = "http://a.example".parse().unwrap();
    let layer = OverloadLayer::builder().vocabulary_of(own, vocabulary).build();
    let busy = || {
        Step::Answer(support::answer(
            529,
            &[("x-wait", "400")],
            support::full(r#"{"error": "busy"}"#),
        ))
    };
    let server = Server::new([busy()]);
    let post = support::post("work", CallOptions::new());
    assert_eq!(call(&layer, &server, post).await.unwrap().status(), 200);
    let gap = server.gaps()[0];
    assert!((support::ms(400)..=support::ms(601)).contains(&gap), "{gap:?}");

    // The words of one are no words of another, and their body is handed on whole.
    let server = Server::new([busy()]);
    let mut request = get(CallOptions::new());
    *request.uri_mut() = "http://b.example/work".parse().unwrap();
    let answer = call(&layer, &server, request).await.unwrap();
    assert_eq!((answer.status().as_u16(), server.seen().len()), (529, 1));

    // An answer with that status that is no refusal is handed on whole, though it was looked into.
    let other = support::answer(529, &[], support::full(r#"{"error": "other"}"#));
    let server = Server::new([Step::Answer(other)]);
    let answer = call(&layer, &server, get(CallOptions::new())).await.unwrap();
    let body = http_body_util::BodyExt::collect(answer.into_body())
        .await
        .unwrap();
    assert_eq!(body.to_bytes(), r#"{"error": "other"}"#);
}
