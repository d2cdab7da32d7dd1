//! What goes along: a handler's calls know the request that they are made for.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use axum::routing::any;
use axum::{Extension, Router};
use holdoff_axum::{CalledAs, ContextLayer, Inbound, Problem, Trust};
use holdoff_contract::Tier;
use holdoff_tower::CallOptions;
use http::{HeaderMap, Method, StatusCode};

use support::{Dependency, Step, ask, ms, request};

const FIELDS: &[(&str, &str)] = &[
    ("overload-deadline-ms", "1000"),
    ("overload-tier", "critical"),
    ("overload-attempt", "2"),
    ("overload-tenant", "\"acme\""),
];

/// One call of the dependency, after 200 ms.
fn app(layer: ContextLayer, dependency: &Dependency) -> Router {
    let dependency = dependency.clone();
    let handler = move |headers: HeaderMap| async move {
        tokio::time::sleep(ms(200)).await;
        dependency.get().await?;
        let tenant = headers
            .get("overload-tenant")
            .map_or("", |line| line.to_str().unwrap());
        Ok::<_, Problem>(format!("\"{}\"", tenant.trim_matches('"')))
    };
    Router::new().route("/", any(handler)).layer(layer)
}

#[tokio::test(start_paused = true)]
async fn deadline_tier_and_attempt_go_along_by_themselves() {
    let dependency = Dependency::new([]);
    let answer = ask(
        app(ContextLayer::new().trust_all(), &dependency),
        request(Method::GET, FIELDS),
    )
    .await;
    assert_eq!(answer.status, 200);
    // What came, less what has passed, less the reserve.
    assert_eq!(
        dependency.field(0, "overload-deadline-ms").as_deref(),
        Some("790")
    );
    assert_eq!(dependency.field(0, "overload-tier").as_deref(), Some("critical"));
    assert_eq!(dependency.field(0, "overload-attempt").as_deref(), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn a_strangers_critical_is_a_claim_and_its_tenant_is_dropped() {
    let dependency = Dependency::new([]);
    let answer = ask(
        app(ContextLayer::new(), &dependency),
        request(Method::GET, FIELDS),
    )
    .await;
    assert_eq!(
        dependency.field(0, "overload-tier").as_deref(),
        Some("non-sheddable")
    );
    assert_eq!(
        dependency.field(0, "overload-tenant").as_deref(),
        Some("\"the-relay\"")
    );
    assert_eq!(answer.body, "", "a handler that copies headers must not see it");
}

#[tokio::test(start_paused = true)]
async fn a_trusted_hops_tenant_goes_along_where_its_name_is_used() {
    for (called_as, told) in [
        (CalledAs::CallersTenant, "\"acme\""),
        (CalledAs::OwnService, "\"the-relay\""),
    ] {
        let dependency = Dependency::new([]);
        let layer = ContextLayer::new().trust_all().called_as(called_as);
        let answer = ask(app(layer, &dependency), request(Method::GET, FIELDS)).await;
        assert_eq!(dependency.field(0, "overload-tenant").as_deref(), Some(told));
        assert_eq!(answer.body, "acme");
    }
}

#[tokio::test(start_paused = true)]
async fn trust_is_decided_per_request() {
    let layer = || {
        ContextLayer::new()
            .called_as(CalledAs::CallersTenant)
            .trust_by(|parts| match parts.headers.contains_key("x-verified") {
                true => Trust::Trusted,
                false => Trust::Stranger,
            })
    };
    let dependency = Dependency::new([]);
    ask(app(layer(), &dependency), request(Method::GET, FIELDS)).await;
    let mut known = request(Method::GET, FIELDS);
    known.headers_mut().insert("x-verified", "1".parse().unwrap());
    ask(app(layer(), &dependency), known).await;
    let told = |attempt| dependency.field(attempt, "overload-tenant").unwrap();
    assert_eq!((told(0), told(1)), ("\"the-relay\"".into(), "\"acme\"".into()));
}

#[tokio::test(start_paused = true)]
async fn a_call_may_lower_its_tier_and_never_raise_it() {
    let highest = ContextLayer::new().trust_all().highest_tier(Tier::Deferrable);
    let dependency = Dependency::new([]);
    ask(app(highest, &dependency), request(Method::GET, FIELDS)).await;
    assert_eq!(
        dependency.field(0, "overload-tier").as_deref(),
        Some("deferrable")
    );

    let asked = dependency.clone();
    let handler = move || async move {
        asked
            .call(Method::GET, CallOptions::new().tier(Tier::Critical))
            .await
            .map_err(Problem::from)
            .map(|status| status.to_string())
    };
    let app = Router::new()
        .route("/", any(handler))
        .layer(ContextLayer::new().trust_all());
    ask(app, request(Method::GET, &[("overload-tier", "non-sheddable")])).await;
    assert_eq!(
        dependency.field(1, "overload-tier").as_deref(),
        Some("non-sheddable")
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_time_is_over_is_answered_before_the_handler() {
    let dependency = Dependency::new([]);
    let answer = ask(
        app(ContextLayer::new(), &dependency),
        request(Method::POST, &[("overload-deadline-ms", "0")]),
    )
    .await;
    assert_eq!(
        (answer.status, answer.body["code"].as_str()),
        (503, Some("deadline_expired"))
    );
    assert_eq!(
        (
            answer.body["applied"].as_str(),
            answer.body["retry"].as_str(),
            answer.body.get("hop")
        ),
        (Some("no"), Some("no"), None)
    );
    assert_eq!(dependency.seen().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dependency_is_not_called_when_no_time_is_left_for_it() {
    let dependency = Dependency::new([]);
    let answer = ask(
        app(ContextLayer::new(), &dependency),
        request(Method::GET, &[("overload-deadline-ms", "205")]),
    )
    .await;
    assert_eq!(answer.body["code"], "deadline_expired");
    assert_eq!(dependency.seen().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_retried_unless_this_layer_opted_in_and_its_caller_does_not_retry() {
    const REFUSE: &str = "v=1, code=queue_full, retry=after, applied=no, after=100, max=150";
    for (layer, attempt, sends) in [
        (ContextLayer::new(), "1", 1),
        (ContextLayer::new().with_retries(), "1", 2),
        (ContextLayer::new().with_retries(), "2", 1),
    ] {
        let dependency = Dependency::new([Step::Refuse(503, REFUSE)]);
        let answer = ask(
            app(layer, &dependency),
            request(Method::GET, &[("overload-attempt", attempt)]),
        )
        .await;
        assert_eq!(dependency.seen().len(), sends, "{answer:?}");
        assert_eq!(answer.status, if sends == 2 { 200 } else { 503 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_spawned_task_has_the_context_that_it_is_handed() {
    let dependency = Dependency::new([]);
    let called = dependency.clone();
    let handler = move |Extension(inbound): Extension<Inbound>| async move {
        let (lost, kept) = (called.clone(), called);
        let _ = tokio::spawn(async move { lost.get().await }).await;
        let _ = tokio::spawn(inbound.scope(async move { kept.get().await })).await;
        StatusCode::OK
    };
    let app = Router::new().route("/", any(handler)).layer(ContextLayer::new());
    ask(app, request(Method::GET, FIELDS)).await;
    assert_eq!(dependency.field(0, "overload-deadline-ms"), None);
    assert_eq!(
        dependency.field(1, "overload-deadline-ms").as_deref(),
        Some("990")
    );
}

#[tokio::test(start_paused = true)]
async fn outside_of_a_request_calls_know_of_none() {
    let dependency = Dependency::new([]);
    assert!(dependency.get().await.is_ok());
    assert!(Inbound::current().is_none());
    assert_eq!(dependency.field(0, "overload-deadline-ms"), None);
    assert_eq!(dependency.field(0, "overload-attempt").as_deref(), Some("1"));
}
