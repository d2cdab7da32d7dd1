//! What travels along a redirect, and what must not.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdoff_policy::StopReason;
use holdoff_reqwest::{Client, reqwest};
use support::{Reply, Server, answer, ms, now, ok, window};

fn redirect(status: &str, to: &str) -> Reply {
    Reply::Send(answer(status, &[("location", to)], ""))
}

fn trusting(server: &Server) -> Client {
    Client::builder()
        .tenant("acme")
        .trusted(server.url(""))
        .build()
        .unwrap()
}

#[tokio::test]
async fn real_time_the_tenant_stays_behind_when_a_redirect_leads_to_another_origin() {
    let second = Server::start(|_, _| ok()).await;
    let to = second.url("/there");
    let first = Server::start(move |_, _| redirect("307 Temporary Redirect", &to)).await;
    let call = trusting(&first)
        .put(first.url("/here"))
        .bearer_auth("secret")
        .header("x-a", "1")
        .body("payload");
    let response = call.send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.url().as_str(), second.url("/there"));

    let (here, there) = (&first.seen()[0], &second.seen()[0]);
    assert_eq!(here.field("overload-tenant"), Some("\"acme\""));
    assert_eq!(here.field("authorization"), Some("Bearer secret"));
    assert_eq!(
        (there.field("overload-tenant"), there.field("authorization")),
        (None, None)
    );
    assert_eq!((there.method.as_str(), there.field("x-a")), ("PUT", Some("1")));
    assert_eq!(there.body, b"payload");
}

#[tokio::test]
async fn real_time_the_tenant_stays_behind_even_when_the_other_origin_is_trusted_too() {
    let second = Server::start(|_, _| ok()).await;
    let to = second.url("/there");
    let first = Server::start(move |_, _| redirect("302 Found", &to)).await;
    let builder = Client::builder()
        .tenant("acme")
        .trusted(first.url(""))
        .trusted(second.url(""));
    assert_eq!(
        builder
            .build()
            .unwrap()
            .get(first.url("/here"))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    assert_eq!(second.seen()[0].field("overload-tenant"), None);
}

#[tokio::test]
async fn real_time_a_redirect_within_an_origin_takes_everything_along() {
    let server = Server::start(|number, _| {
        if number == 0 {
            redirect("302 Found", "/there")
        } else {
            ok()
        }
    })
    .await;
    assert_eq!(
        trusting(&server)
            .get(server.url("/here"))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    let seen = server.seen();
    assert_eq!((seen.len(), seen[1].path.as_str()), (2, "/there"));
    assert!(
        seen.iter()
            .all(|seen| seen.field("overload-tenant") == Some("\"acme\""))
    );
}

#[tokio::test]
async fn real_time_a_post_that_is_found_elsewhere_becomes_a_get() {
    for (status, method) in [
        ("302 Found", "GET"),
        ("303 See Other", "GET"),
        ("308 Permanent Redirect", "POST"),
    ] {
        let second = Server::start(|_, _| ok()).await;
        let to = second.url("/there");
        let first = Server::start(move |_, _| redirect(status, &to)).await;
        let response = Client::new()
            .post(first.url("/here"))
            .body("payload")
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200, "{status}");
        let there = &second.seen()[0];
        assert_eq!(there.method, method, "{status}");
        assert_eq!(
            there.body,
            if method == "GET" { &b""[..] } else { b"payload" },
            "{status}"
        );
    }
}

#[tokio::test]
async fn real_time_redirects_from_origin_to_origin_end() {
    let target = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let back = std::sync::Arc::clone(&target);
    let second = Server::start(move |_, _| redirect("302 Found", &back.lock().unwrap().clone())).await;
    let to = second.url("/there");
    let first = Server::start(move |_, _| redirect("302 Found", &to)).await;
    *target.lock().unwrap() = first.url("/here");
    let error = Client::new().get(first.url("/here")).send().await.unwrap_err();
    assert_eq!((error.why(), error.attempts()), (Some(StopReason::Transport), 1));
    assert_eq!(
        first.seen().len() + second.seen().len(),
        11,
        "the first and ten redirects"
    );

    let none = Client::builder().max_redirects(0).build().unwrap();
    assert_eq!(none.get(first.url("/here")).send().await.unwrap().status(), 302);
}

#[tokio::test]
async fn real_time_a_client_that_was_told_to_follow_nothing_follows_nothing() {
    let second = Server::start(|_, _| ok()).await;
    let to = second.url("/there");
    let first = Server::start(move |_, _| redirect("302 Found", &to)).await;
    let http = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    assert_eq!(
        Client::wrap(http)
            .get(first.url("/here"))
            .send()
            .await
            .unwrap()
            .status(),
        302
    );
    assert_eq!(second.seen().len(), 0);
}

#[tokio::test]
async fn real_time_a_hint_on_a_redirect_delays_nothing() {
    let server = Server::start(|number, _| {
        let fields = [("location", "/there"), ("retry-after", "5")];
        if number == 0 {
            Reply::Send(answer("302 Found", &fields, ""))
        } else {
            ok()
        }
    })
    .await;
    let began = now();
    assert_eq!(
        Client::new()
            .get(server.url("/here"))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    assert!(now() - began < ms(1000));
}

#[tokio::test]
async fn real_time_a_refusal_behind_a_redirect_is_obeyed() {
    let second = Server::start(|number, _| if number == 0 { window(200, 300) } else { ok() }).await;
    let to = second.url("/there");
    let first = Server::start(move |_, _| redirect("302 Found", &to)).await;
    assert_eq!(
        Client::new()
            .get(first.url("/here"))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    let seen = second.seen();
    let gap = seen[1].arrived - seen[0].answered.unwrap();
    assert!(gap >= ms(198), "{gap:?}");
}

#[tokio::test]
async fn real_time_what_an_attempt_says_goes_along_to_another_origin_and_the_hook_is_called_once() {
    let second = Server::start(|_, _| ok()).await;
    let to = second.url("/there");
    let first = Server::start(move |_, _| redirect("307 Temporary Redirect", &to)).await;
    for hooked in [false, true] {
        let called = Arc::new(AtomicUsize::new(0));
        let mut builder = Client::builder();
        if hooked {
            let called = Arc::clone(&called);
            builder = builder.before_send(move |fields, _| {
                let number = called.fetch_add(1, Ordering::Relaxed);
                fields.insert("x-hooked", number.into());
            });
        }
        let client = builder.build().unwrap();
        let call = client.get(first.url("/here")).deadline(ms(5000));
        let call = call.task_class("lint").idempotency_key("job-1");
        assert_eq!(call.send().await.unwrap().status(), 200);
        assert_eq!(called.load(Ordering::Relaxed), usize::from(hooked));

        let (here, there) = (first.seen().pop().unwrap(), second.seen().pop().unwrap());
        for name in [
            "overload-attempt",
            "overload-task-class",
            "overload-deadline-ms",
            "idempotency-key",
            "x-hooked",
        ] {
            assert_eq!(here.field(name), there.field(name), "{name}, hooked: {hooked}");
        }
        assert_eq!(there.field("overload-attempt"), Some("1"));
        assert_eq!(there.field("x-hooked").is_some(), hooked);
    }
}

#[tokio::test]
async fn real_time_the_deadline_binds_a_redirect_to_another_origin_too() {
    let second = Server::start(|_, _| Reply::Hang).await;
    let to = second.url("/there");
    let first = Server::start(move |_, _| redirect("307 Temporary Redirect", &to)).await;
    let begun = now();
    let call = Client::new().get(first.url("/here")).deadline(ms(400));
    let error = call.send().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(error.why(), Some(StopReason::DeadlineExceeded));
    let took = now() - begun;
    assert!(took >= ms(400) && took < ms(4000), "{took:?}");
    assert_eq!((first.seen().len(), second.seen().len()), (1, 1));
}
