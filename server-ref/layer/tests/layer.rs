//! The layer and the bare handle over in-memory services, in paused time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use holdoff_admission::profile::{Class, TenantLimits};
use holdoff_admission::{Profile, Snapshot};
use holdoff_admission_tower::{
    Admission, AdmissionLayer, Ask, Denied, Gate, GuardBody, Identity, Overrun, RequestHead, Tiers,
};
use holdoff_contract::{Code, TaskClass, Tier};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceExt, service_fn};

/// One worker, one class `t` of 100 ms with 5 s to spare.
fn profile() -> Profile {
    let mut profile = Profile {
        workers: 1,
        ..Profile::default()
    };
    profile.classes.insert(
        "t".into(),
        Class {
            mean_ms: 100.0,
            deadline_ms: 5_000,
            ..Class::default()
        },
    );
    profile
}

fn admission(profile: Profile) -> Admission {
    Admission::start(profile, None).expect("a usable profile")
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path)
        .header("overload-task-class", "t")
        .body(Full::default())
        .unwrap()
}

fn class_t() -> Ask {
    Ask {
        class: Some(TaskClass::new("t").unwrap()),
        ..Ask::default()
    }
}

#[track_caller]
fn assert_empty(snapshot: &Snapshot) {
    assert_eq!((snapshot.tickets, snapshot.busy), (0, 0), "{snapshot:?}");
    assert!(
        snapshot.estimated_work.is_zero() && snapshot.oldest_age.is_zero(),
        "{snapshot:?}"
    );
}

fn code<B>(response: &Response<B>) -> String {
    let signal = response
        .headers()
        .get("overload-signal")
        .map_or("", |value| value.to_str().unwrap());
    let code = signal.split(", ").find_map(|member| member.strip_prefix("code="));
    code.unwrap_or_default().to_owned()
}

/// A body that tells how often it was polled and never ends.
struct Endless(Arc<AtomicU32>);

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 1024])))))
    }
}

#[tokio::test(start_paused = true)]
async fn the_permit_is_held_until_the_response_body_has_ended() {
    let admission = admission(profile());
    let layer = AdmissionLayer::new(Gate::new(admission.clone()));
    let mut service = layer.layer(service_fn(|_: Request<Full<Bytes>>| async move {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"done"))))
    }));
    let response = service.call(get("/")).await.unwrap();
    assert_eq!(admission.snapshot().busy, 1, "the body is still to be sent");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "done");
    assert_empty(&admission.snapshot());
    let dropped = service.call(get("/")).await.unwrap();
    assert_eq!(admission.snapshot().busy, 1);
    drop(dropped);
    assert_empty(&admission.snapshot());
}

#[tokio::test(start_paused = true)]
async fn a_panic_a_failure_and_a_drop_each_give_the_place_back() {
    let admission = admission(profile());
    let layer = AdmissionLayer::new(Gate::new(admission.clone()));
    let service = layer.layer(service_fn(|request: Request<Full<Bytes>>| async move {
        match request.uri().path() {
            "/panic" => panic!("on purpose"),
            "/fail" => Err("on purpose"),
            _ => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(Response::new(Full::<Bytes>::default()))
            }
        }
    }));
    let panicked = tokio::spawn(service.clone().oneshot(get("/panic"))).await;
    assert!(panicked.is_err_and(|error| error.is_panic()));
    assert_empty(&admission.snapshot());
    assert!(service.clone().oneshot(get("/fail")).await.is_err());
    assert_empty(&admission.snapshot());
    let cut = tokio::time::timeout(Duration::from_millis(10), service.clone().oneshot(get("/slow"))).await;
    assert!(cut.is_err());
    assert_empty(&admission.snapshot());
    let response = service.oneshot(get("/slow")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_empty(&admission.snapshot());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_queued_starts_nothing() {
    let admission = admission(profile());
    let started = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&started);
    let service = AdmissionLayer::new(Gate::new(admission.clone())).layer(service_fn(
        move |_: Request<Full<Bytes>>| {
            count.fetch_add(1, Ordering::Relaxed);
            async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
            }
        },
    ));
    let mut first = service.clone();
    let running = tokio::spawn(first.call(get("/")));
    let mut second = service.clone();
    let queued = second.call(get("/"));
    assert_eq!(
        admission.snapshot().tickets,
        2,
        "decided in call, before anything is polled"
    );
    drop(queued);
    assert_eq!(admission.snapshot().tickets, 1);
    running.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(started.load(Ordering::Relaxed), 1);
    assert_empty(&admission.snapshot());
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_cut_at_the_callers_deadline_unless_it_is_non_sheddable() {
    let admission = admission(profile());
    let slow = service_fn(|_: Request<Full<Bytes>>| async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let service = AdmissionLayer::new(Gate::new(admission.clone())).layer(slow);
    let ask = |tier: &str| {
        let mut request = get("/");
        request
            .headers_mut()
            .insert("overload-deadline-ms", "1000".parse().unwrap());
        request
            .headers_mut()
            .insert("overload-tier", tier.parse().unwrap());
        request
    };
    let cut = service.clone().oneshot(ask("deferrable")).await.unwrap();
    assert_eq!(
        (cut.status(), code(&cut).as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "deadline_expired")
    );
    let signal = cut.headers()["overload-signal"].to_str().unwrap();
    assert!(
        signal.contains("applied=maybe") && signal.contains("retry=no"),
        "{signal}"
    );
    assert!(!cut.headers().contains_key("retry-after"), "SRV-10");
    assert_empty(&admission.snapshot());
    let late = service.oneshot(ask("non-sheddable")).await.unwrap();
    assert_eq!(late.status(), StatusCode::OK);
    let whole = AdmissionLayer::new(Gate::new(admission.clone()))
        .overrun(Overrun::Finish)
        .layer(slow);
    let late = whole.oneshot(ask("deferrable")).await.unwrap();
    assert_eq!(
        late.status(),
        StatusCode::OK,
        "this one must not be dropped half done"
    );
    assert_empty(&admission.snapshot());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_reads_no_more_than_the_bounded_part_of_the_body() {
    let admission = admission(profile());
    admission.drain();
    let service = AdmissionLayer::new(Gate::new(admission.clone())).layer(service_fn(
        |_: Request<Endless>| async move { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) },
    ));
    let polled = Arc::new(AtomicU32::new(0));
    let request = Request::post("/").body(Endless(Arc::clone(&polled))).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    assert_eq!(code(&response), "draining");
    assert_eq!(polled.load(Ordering::Relaxed), 0, "the answer waits for no body");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(polled.load(Ordering::Relaxed), 64, "64 KiB in pieces of 1 KiB");
    let expects = Request::post("/").header("expect", "100-continue");
    let polled = Arc::new(AtomicU32::new(0));
    let _ = service
        .oneshot(expects.body(Endless(Arc::clone(&polled))).unwrap())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        polled.load(Ordering::Relaxed),
        0,
        "reading would invite what nobody wants"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_head_has_no_body() {
    let admission = admission(profile());
    admission.drain();
    let service =
        AdmissionLayer::new(Gate::new(admission)).layer(service_fn(|_: Request<Full<Bytes>>| async move {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }));
    let mut head = get("/");
    *head.method_mut() = Method::HEAD;
    let answer = service.clone().oneshot(head).await.unwrap();
    assert_eq!(code(&answer), "draining");
    assert!(answer.into_body().is_end_stream());
    let body = service
        .oneshot(get("/"))
        .await
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    assert!(body.starts_with(b"{"), "{body:?}");
}

#[tokio::test(start_paused = true)]
async fn the_layer_is_ready_whatever_the_inner_service_says() {
    #[derive(Clone)]
    struct NotYet(u32);
    impl Service<Request<Full<Bytes>>> for NotYet {
        type Response = Response<Full<Bytes>>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;
        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            match self.0.checked_sub(1) {
                None => Poll::Ready(Ok(())),
                Some(left) => {
                    self.0 = left;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        }
        fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
            assert_eq!(self.0, 0, "called before it was ready");
            std::future::ready(Ok(Response::new(Full::default())))
        }
    }
    let admission = admission(profile());
    let mut service = AdmissionLayer::new(Gate::new(admission)).layer(NotYet(3));
    let ready = std::future::poll_fn(|cx| Poll::Ready(service.poll_ready(cx).is_ready())).await;
    assert!(ready);
    assert_eq!(service.call(get("/")).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn five_hundred_calls_without_an_await_between_are_all_admitted() {
    let mut wide = Profile {
        workers: 4,
        queue: 1000,
        ..profile()
    };
    wide.classes.insert(
        "t".into(),
        Class {
            mean_ms: 1.0,
            p95_ms: Some(2.0),
            ..Class::default()
        },
    );
    let admission = admission(wide);
    let mut service = AdmissionLayer::new(Gate::new(admission.clone())).layer(service_fn(
        |_: Request<Full<Bytes>>| async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        },
    ));
    let sent: Vec<_> = (0..500).map(|_| tokio::spawn(service.call(get("/")))).collect();
    for answer in sent {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{}", code(&answer));
    }
    assert_empty(&admission.snapshot());
}

#[tokio::test(start_paused = true)]
async fn classes_can_come_from_the_route_and_rights_from_an_extension() {
    let mut profile = profile();
    profile.tenants.insert(
        "small".into(),
        TenantLimits {
            queued_work_ms: Some(10),
            ..TenantLimits::default()
        },
    );
    let gate = Gate::new(admission(profile)).identify(|head: RequestHead<'_>| {
        head.extensions
            .get::<Identity>()
            .cloned()
            .unwrap_or(Identity::ANONYMOUS)
    });
    let layer = AdmissionLayer::new(gate)
        .classify(|head: RequestHead<'_>, _| TaskClass::new(head.uri.path().trim_start_matches('/')).ok());
    let service = layer.layer(service_fn(|_: Request<Full<Bytes>>| async move {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    }));
    let mut request = Request::get("/t").body(Full::default()).unwrap();
    let tenant = Some(holdoff_contract::Tenant::new("small").unwrap());
    request.extensions_mut().insert(Identity {
        tenant,
        tiers: Tiers::ALL,
        trusted: false,
    });
    let answer = service.oneshot(request).await.unwrap();
    assert_eq!(
        answer.status(),
        StatusCode::UNPROCESSABLE_ENTITY,
        "100 ms of work, 10 ms of budget (ADM-26)"
    );
    assert_eq!(code(&answer), "");
}

#[tokio::test(start_paused = true)]
async fn a_bare_worker_waits_for_its_turn_and_expires_without_one() {
    let admission = admission(profile());
    let permit = admission.enter(&class_t()).await.expect("an idle worker");
    let waiting = tokio::spawn(admission.enter(&class_t()));
    let impatient = admission.enter(&Ask {
        deadline: Some(Duration::from_millis(400)),
        ..class_t()
    });
    let Err(Denied::Overload(refused)) = impatient.await else {
        panic!("no worker in time")
    };
    let code = refused.overload.code.expect("ours have a code");
    assert!(
        matches!(code, Code::DeadlineExpired | Code::DeadlineUnattainable),
        "{code}"
    );
    permit.completed();
    waiting.await.unwrap().expect("its turn").completed();
    assert_empty(&admission.snapshot());
}

#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "blocks the runtime as a burst of work does"
)]
async fn real_time_a_runtime_that_was_busy_does_not_make_the_controllers_data_stale() {
    let admission = admission(profile());
    let place = admission.knock(&class_t()).expect("an idle worker");
    std::thread::sleep(Duration::from_millis(800)); // the time keeper cannot run, and 500 ms is stale
    let second = admission.knock(&class_t());
    assert!(second.is_ok(), "{second:?}");
    drop((place, second));
    assert_empty(&admission.snapshot());
}

#[tokio::test(start_paused = true)]
async fn the_time_keeper_ends_with_the_last_handle() {
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let admission = admission(profile());
    let place = admission.knock(&class_t()).expect("an idle worker");
    drop(admission);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(metrics.num_alive_tasks(), before + 1, "a place still needs it");
    drop(place);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(metrics.num_alive_tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_mixed_endings_leave_every_gauge_at_zero() {
    let mut wide = Profile {
        workers: 8,
        queue: 5000,
        ..profile()
    };
    wide.classes.insert(
        "t".into(),
        Class {
            mean_ms: 2.0,
            ..Class::default()
        },
    );
    let admission = admission(wide);
    let mut tasks = Vec::new();
    for i in 0..1000_u64 {
        let tier = Tier::ALL[(i % 3) as usize];
        let deadline = (i % 7 == 0).then_some(Duration::from_millis(i % 50));
        let entering = admission.enter(&Ask {
            tier,
            deadline,
            ..class_t()
        });
        tasks.push(tokio::spawn(async move {
            let Ok(permit) = entering.await else { return };
            match i % 6 {
                0 => permit.completed(),
                1 => permit.failed(),
                2 => permit.timed_out(),
                3 => drop(permit),
                4 => drop(permit.run(async { panic!("on purpose") }).await),
                _ => drop(permit.run(tokio::time::sleep(Duration::from_millis(i % 5))).await),
            }
        }));
        if i % 11 == 0 {
            tasks.swap_remove(0).abort();
        }
        if i % 20 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for task in tasks {
        let _ = task.await; // some panicked on purpose
    }
    assert_empty(&admission.snapshot());
}

#[test]
fn a_guarded_body_keeps_the_size_of_the_inner_one() {
    fn is_body<B: Body<Data = Bytes>>() {}
    is_body::<GuardBody<Full<Bytes>>>();
}
