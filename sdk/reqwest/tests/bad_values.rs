//! What is set wrong is told by name before anything is sent: the field, what was given and what is allowed.

mod support;

use std::error::Error as _;
use std::time::Duration;

use holdoff_contract::{IdempotencyKey, InvalidField, TaskClass, Tenant, Tier};
use holdoff_reqwest::{Client, Error, reqwest};
use support::{Server, ok};

#[tokio::test]
async fn a_bad_value_of_a_request_is_told_in_one_line_and_nothing_is_sent() {
    let server = Server::start(|_, _| ok()).await;
    let client = Client::new();
    let get = || client.get(server.url("/"));
    let long = "a".repeat(65);
    let ftp = format!("{}/x?key=secret", server.url("").replacen("http", "ftp", 1));
    let ftp_shown = format!("url {:?}", ftp.split('?').next().unwrap());
    for (call, said) in [
        (
            get().task_class("Not\r\nA class"),
            "task class \"Not\\r\\nA class\" is not allowed: it must fit [a-z][a-z0-9._-]* and be at most 64 bytes",
        ),
        (get().task_class(&long), "at most 64 bytes"),
        (get().tenant("t\r\nx: y"), "tenant \"t\\r\\nx: y\" is not allowed"),
        (get().idempotency_key(""), "idempotency key \"\" is not allowed"),
        (
            get().header("bad name", "x"),
            "a header name is not allowed: it must be",
        ),
        (
            get().header("x-key", "secret\n"),
            "header \"x-key\" is not allowed: its value must be visible ASCII",
        ),
        (
            get().bearer_auth("secret\n"),
            "header \"authorization\" is not allowed",
        ),
        (client.get("no url"), "url \"no url\" is not allowed: it must be"),
        (client.get("http://user:secret@:1/x"), "url \"http://***@:1/x\""),
        (client.get("mailto:a@b.example"), "url \"***@b.example\""),
        (client.get(&ftp), &*ftp_shown),
        (
            get().header("Overload-Tier", "king"),
            "Overload-Tier \"king\" is not allowed: it must be one of critical, non-sheddable, deferrable; \
             `tier` sets it",
        ),
        (get().header("overload-tenant", "t a"), "`tenant` sets it"),
        (get().header("Overload-Deadline-Ms", "5s"), "`deadline` sets it"),
        (
            get().header("Overload-Attempt", "2"),
            "header \"overload-attempt\" is not allowed",
        ),
        (
            get().header("Idempotency-Key", ""),
            "Idempotency-Key \"\" is not allowed",
        ),
        (
            get().header("Idempotency-Key", "a, b"),
            "Idempotency-Key \"a, b\" is not allowed",
        ),
    ] {
        let error = call.send().await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("the request could not be built: ") && text.contains(said),
            "{text}"
        );
        assert!(text.lines().count() == 1 && !text.contains("secret"), "{text}");
        assert!(error.is_request() && error.build_error().is_some(), "{error:?}");
        assert!(error.source().is_none(), "its text says it all: {error:?}");
        assert_eq!((error.why(), error.attempts()), (None, 0));
    }
    let mut request = reqwest::Request::new(http::Method::GET, ftp.parse().unwrap());
    *request.timeout_mut() = Some(Duration::from_secs(1));
    let error = client.execute(request).await.unwrap_err();
    assert!(
        error.is_request() && error.to_string().contains(&ftp_shown),
        "{error}"
    );
    assert!(error.build_error().unwrap().is::<InvalidField>());
    assert_eq!(server.seen().len(), 0);
    assert_eq!(client.counters().snapshot().gave_up, []);
}

#[test]
fn a_bad_value_of_a_client_is_told_in_one_line_when_it_is_built() {
    let one = "http://a.example";
    for (builder, said) in [
        (
            Client::builder().trusted("nope"),
            "origin \"nope\" is not allowed: it must be http:// or https:// with a host and at most a port",
        ),
        (
            Client::builder().trusted("http://a/b"),
            "origin \"http://a/b\" is not allowed",
        ),
        (
            Client::builder().trusted("https://user:secret@a"),
            "origin \"https://***@a\" is not allowed",
        ),
        (
            Client::builder().tenant(""),
            "tenant \"\" is not allowed: it must be 1 to 128 printable ASCII characters",
        ),
        (
            Client::builder().instances([one, one]),
            "instances: 1 different origins are given; it must be 2 to 16",
        ),
        (
            Client::builder().default_deadline(Duration::ZERO),
            "default_deadline \"0ns\" is not allowed: it must be 1 ms to 24 h",
        ),
        (
            Client::builder().default_deadline(Duration::MAX),
            "it must be 1 ms to 24 h",
        ),
        (
            Client::builder().http(reqwest::Client::builder().user_agent("a\nb")),
            "failed to parse header value",
        ),
    ] {
        let error: Error = builder.build().unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("the client could not be built: ") && text.contains(said),
            "{text}"
        );
        assert!(text.lines().count() == 1 && !text.contains("secret"), "{text}");
        assert!(error.is_request() && error.source().is_none(), "{error:?}");
    }
}

#[tokio::test]
async fn real_time_a_contract_field_that_is_set_by_hand_counts_as_if_its_method_had_set_it() {
    let server = Server::start(|_, _| ok()).await;
    let client = Client::new();
    let call = client
        .post(server.url("/"))
        .header("Overload-Tier", "deferrable")
        .header("overload-tier", "critical")
        .header("Overload-Task-Class", "lint")
        .header("Overload-Deadline-Ms", "5000")
        .header("Overload-Cost-Ms", "40")
        .header("Overload-Tenant", "\"t-a\"")
        .header("Idempotency-Key", "job-1");
    let (request, options) = call.build().unwrap();
    assert_eq!(options.tier, Some(Tier::Critical), "the last one");
    client.execute_with(request, options).await.unwrap();
    let seen = server.seen().remove(0);
    let field = |name| seen.field(name);
    assert_eq!(field("overload-tier"), Some("critical"));
    assert_eq!(field("overload-task-class"), Some("lint"));
    assert_eq!(field("overload-cost-ms"), Some("40"));
    assert!((4000..=5000).contains(&seen.number("overload-deadline-ms")));
    assert_eq!(field("idempotency-key"), Some("job-1"), "as it stands");
    assert_eq!(field("overload-tenant"), None, "sent to trusted origins only");
}

#[tokio::test]
async fn real_time_the_fields_of_a_request_that_is_passed_on_do_not_fail_it() {
    let server = Server::start(|_, _| ok()).await;
    let theirs = http::HeaderMap::from_iter(
        [("overload-tier", "king"), ("overload-attempt", "7"), ("x-a", "b")]
            .map(|(name, value)| (name.parse().unwrap(), http::HeaderValue::from_static(value))),
    );
    let call = Client::new().get(server.url("/")).headers(theirs);
    assert_eq!(call.send().await.unwrap().status(), 200);
    let seen = server.seen().remove(0);
    assert_eq!(seen.field("overload-tier"), None);
    assert_eq!(seen.field("overload-attempt"), Some("1"));
    assert_eq!(seen.field("x-a"), Some("b"));
}

#[tokio::test]
async fn real_time_values_that_are_made_when_they_are_needed_are_taken_as_they_are() {
    let server = Server::start(|_, _| ok()).await;
    let (id, class) = (7, "lint".to_owned());
    let client = Client::builder()
        .tenant(format!("t-{id}"))
        .trusted(server.url(""))
        .build()
        .unwrap();
    let call = client
        .get(server.url("/"))
        .idempotency_key(format!("order-{id}"))
        .task_class(&class);
    call.send().await.unwrap();
    let call = client
        .get(server.url("/"))
        .tenant(&class)
        .task_class(class.clone());
    call.send().await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].field("idempotency-key"), Some("\"order-7\""));
    assert_eq!(seen[0].field("overload-tenant"), Some("\"t-7\""));
    assert_eq!(seen[0].field("overload-task-class"), Some("lint"));
    assert_eq!(seen[1].field("overload-tenant"), Some("\"lint\""));
    // What has been checked already is taken, too.
    let call = client
        .get(server.url("/"))
        .idempotency_key(IdempotencyKey::try_from(&class).unwrap())
        .tenant(Tenant::try_from(class.clone()).unwrap())
        .task_class(TaskClass::try_from(class).unwrap());
    assert_eq!(call.send().await.unwrap().status(), 200);
}
