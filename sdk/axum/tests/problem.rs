//! What comes back: a failed call becomes the answer that CONTRACT section 6 asks for.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use axum::Router;
use axum::routing::any;
use holdoff_axum::{CalledAs, ContextLayer, Inbound, Problem};
use holdoff_contract::{Code, Granularity, Hint, Overload};
use holdoff_tower::CallOptions;
use http::Method;

use support::{Answer, Dependency, Step, ask, ms, request};

const REFUSE: &str = "v=1, code=queue_full, retry=after, applied=no, after=2000, max=2600, scope=service, \
state=shedding, zz=7";

/// Calls `dependency` by `method` and answers half a second later.
async fn one(step: Step, method: Method, layer: ContextLayer) -> Answer {
    let dependency = Dependency::new([step]);
    let handler = move |asked: Method| async move {
        let result = dependency.call(asked, CallOptions::new()).await;
        tokio::time::sleep(ms(500)).await;
        result.map(|_| "served").map_err(Problem::from)
    };
    let app = Router::new().route("/", any(handler)).layer(layer);
    ask(app, request(method, &[("overload-deadline-ms", "3000")])).await
}

#[tokio::test(start_paused = true)]
async fn a_refusal_goes_up_aged_one_hop_further_and_for_this_request_only() {
    let answer = one(Step::Refuse(503, REFUSE), Method::GET, ContextLayer::new()).await;
    assert_eq!(answer.status, 503);
    assert_eq!(
        answer.signal(),
        "v=1, code=dependency_overloaded, retry=after, applied=no, after=1500, max=2100, hop=1, zz=7"
    );
    assert_eq!(answer.headers["retry-after"], "2");
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert_eq!(
        (&answer.body["hop"], &answer.body["retry_after_ms"]),
        (&1.into(), &1500.into())
    );
    let trusted = one(
        Step::Refuse(503, REFUSE),
        Method::GET,
        ContextLayer::new().trust_all(),
    )
    .await;
    assert!(
        trusted.signal().contains("state=shedding"),
        "{}",
        trusted.signal()
    );
}

#[tokio::test(start_paused = true)]
async fn a_429_stays_one_where_it_was_the_callers_own_limit() {
    const LIMIT: &str = "v=1, code=tenant_limit, retry=after, applied=no, after=1500";
    let own = one(Step::Refuse(429, LIMIT), Method::GET, ContextLayer::new()).await;
    assert_eq!(
        (own.status, own.body["code"].as_str()),
        (503, Some("dependency_overloaded"))
    );
    let layer = ContextLayer::new().called_as(CalledAs::CallersTenant);
    let tenants = one(Step::Refuse(429, LIMIT), Method::GET, layer).await;
    assert_eq!(
        (tenants.status, tenants.body["code"].as_str()),
        (429, Some("tenant_limit"))
    );
    let dependency = Dependency::new([Step::Refuse(429, LIMIT)]);
    let impatient = CallOptions::new().deadline(ms(100));
    let error = dependency.call(Method::GET, impatient).await.unwrap_err();
    let problem = Problem::from(error).called_as(CalledAs::CallersTenant);
    assert_eq!(problem.overload().unwrap().code, Some(Code::TenantLimit));
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_504_and_must_not_be_repeated() {
    for step in [Step::Hang, Step::Broken] {
        let answer = one(step, Method::POST, ContextLayer::new()).await;
        let said = ["code", "retry", "applied"].map(|name| answer.body[name].as_str().unwrap());
        assert_eq!(
            (answer.status, said),
            (504, ["dependency_timeout", "no", "maybe"])
        );
        assert!(!answer.headers.contains_key("retry-after"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_overload_carries_no_field_of_the_contract() {
    let answer = one(Step::Unreachable, Method::POST, ContextLayer::new()).await;
    assert_eq!(answer.status, 502);
    assert_eq!(
        (
            answer.signal(),
            answer.body.get("code"),
            answer.headers.get("retry-after")
        ),
        ("", None, None)
    );
    assert_eq!(answer.body["title"], "Bad Gateway");
}

/// POST to one dependency, then to another that refuses.
async fn two_steps(first: Step, options: CallOptions) -> Answer {
    let dependency = Dependency::new([first, Step::Refuse(503, REFUSE)]);
    let handler = move || async move {
        let _ = dependency.call(Method::POST, options).await;
        dependency.get().await.map(|_| "served").map_err(Problem::from)
    };
    let app = Router::new().route("/", any(handler)).layer(ContextLayer::new());
    ask(app, request(Method::POST, &[])).await
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_call_may_have_changed_is_known_without_a_word() {
    let nothing = CallOptions::new();
    for (first, options, applied) in [
        (Step::Bare(200), nothing.clone(), "maybe"),
        (Step::Bare(500), nothing.clone(), "maybe"),
        (Step::Broken, nothing.clone(), "maybe"),
        (Step::Bare(200), nothing.clone().reads_only(), "no"),
        (Step::Bare(404), nothing.clone(), "no"),
        (Step::Refuse(503, REFUSE), nothing, "no"),
    ] {
        let answer = two_steps(first, options).await;
        let retry = if applied == "no" { "after" } else { "no" };
        assert_eq!(
            (answer.body["applied"].as_str(), answer.body["retry"].as_str()),
            (Some(applied), Some(retry))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_say_that_something_was_done_and_a_get_may_still_come_back() {
    let dependency = Dependency::new([Step::Refuse(503, REFUSE)]);
    let handler = move || async move {
        Inbound::current().unwrap().mark_side_effect();
        dependency.get().await.map(|_| "served").map_err(Problem::from)
    };
    let app = Router::new().route("/", any(handler)).layer(ContextLayer::new());
    let answer = ask(app, request(Method::GET, &[])).await;
    assert_eq!(
        (answer.body["applied"].as_str(), answer.body["retry"].as_str()),
        (Some("maybe"), Some("after"))
    );
}

#[tokio::test(start_paused = true)]
async fn of_several_failures_the_overload_is_told_with_the_strictest_values() {
    let soft = "v=1, code=queue_full, retry=after, applied=no, after=500, max=4000";
    let hard = "v=1, code=queue_full, retry=no, applied=no, after=3000";
    let dependency = Dependency::new([
        Step::Unreachable,
        Step::Refuse(503, soft),
        Step::Refuse(503, hard),
    ]);
    let handler = move || async move {
        let mut failed = Vec::new();
        for _ in 0..3 {
            failed.extend(dependency.call(Method::POST, CallOptions::new()).await.err());
        }
        Problem::combine(failed).map_or(Ok("served"), Err)
    };
    // One attempt each: the first is not retried, since this is a relay.
    let app = Router::new().route("/", any(handler)).layer(ContextLayer::new());
    let answer = ask(app, request(Method::POST, &[])).await;
    assert_eq!(
        answer.signal(),
        "v=1, code=dependency_overloaded, retry=no, applied=no, after=3000, max=4000, hop=1"
    );
    assert!(Problem::combine(Vec::<Overload>::new()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_its_own_has_no_hop_and_the_larger_of_two_hints() {
    let hint = |delay| Hint::After {
        delay: ms(delay),
        granularity: Granularity::Milliseconds,
    };
    let handler = move || async move {
        let overload = Overload {
            hint: hint(300),
            ..Overload::new(Code::ConcurrencyLimit)
        };
        Err::<(), _>(Problem::from(overload).own_hint(hint(700)))
    };
    let app = Router::new().route("/", any(handler)).layer(ContextLayer::new());
    let answer = ask(app, request(Method::POST, &[])).await;
    assert_eq!(
        answer.signal(),
        "v=1, code=concurrency_limit, retry=after, applied=no, after=700"
    );
}

#[tokio::test(start_paused = true)]
async fn after_own_retries_the_caller_is_told_not_to() {
    let dependency = Dependency::new([
        Step::Refuse(
            503,
            "v=1, code=queue_full, retry=after, applied=no, after=100, max=150",
        ),
        Step::Refuse(503, "v=1, code=queue_full, retry=after, applied=no, after=90000"),
    ]);
    let handler = move || async move { dependency.get().await.map(|_| "served").map_err(Problem::from) };
    let app = Router::new()
        .route("/", any(handler))
        .layer(ContextLayer::new().with_retries());
    let answer = ask(app, request(Method::GET, &[("overload-deadline-ms", "5000")])).await;
    assert_eq!(
        answer.signal(),
        "v=1, code=dependency_overloaded, retry=no, applied=no, after=90000, hop=1"
    );
}

#[tokio::test(start_paused = true)]
async fn no_answer_after_a_refusal_is_no_answer() {
    let dependency = Dependency::new([
        Step::Refuse(
            503,
            "v=1, code=queue_full, retry=after, applied=no, after=100, max=150",
        ),
        Step::Hang,
    ]);
    let handler = move || async move { dependency.get().await.map(|_| "served").map_err(Problem::from) };
    let app = Router::new()
        .route("/", any(handler))
        .layer(ContextLayer::new().with_retries());
    let answer = ask(app, request(Method::GET, &[("overload-deadline-ms", "1000")])).await;
    assert_eq!(
        (answer.status, answer.body["applied"].as_str()),
        (504, Some("maybe"))
    );
}

#[tokio::test(start_paused = true)]
async fn several_failures_age_until_they_are_answered() {
    let dependency = Dependency::new([Step::Refuse(503, REFUSE), Step::Refuse(503, REFUSE)]);
    let handler = move || async move {
        let failed = [dependency.get().await.err(), dependency.get().await.err()];
        let problem = Problem::combine(failed.into_iter().flatten()).unwrap();
        tokio::time::sleep(ms(1200)).await;
        Err::<(), _>(problem.retried())
    };
    let app = Router::new().route("/", any(handler)).layer(ContextLayer::new());
    let answer = ask(app, request(Method::GET, &[])).await;
    assert_eq!(
        answer.signal(),
        "v=1, code=dependency_overloaded, retry=no, applied=no, after=800, max=1400, hop=1, zz=7"
    );
}
