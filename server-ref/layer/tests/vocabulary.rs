//! Refusals in a service's own words, read by callers who know nothing else (CLI-26).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use holdoff_admission::Profile;
use holdoff_admission_tower::{Admission, AdmissionLayer, Ask, Gate, Permit};
use holdoff_contract::read::{Compat, ReadOptions};
use holdoff_contract::vocabulary::{
    BodyMatch, Declaration, Delay, HeaderMatch, Literal, Refusal, Vocabulary,
};
use holdoff_contract::{Applied, Code, Hint, Overload};
use holdoff_tower::{CallOptions, OverloadLayer};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceExt, service_fn};

/// What this service said for years, for one code.
fn words() -> Vocabulary {
    let busy = Refusal {
        code: "concurrency_limit".into(),
        status: vec![503],
        header: Some(HeaderMatch {
            name: "x-error".into(),
            value: Some("busy".into()),
        }),
        body: Some(BodyMatch {
            pointer: "/error/type".into(),
            value: Some(Literal::Text("busy".into())),
        }),
        delay: Some(Delay {
            pointer: Some("/error/wait_ms".into()),
            unit: "ms".into(),
            ..Delay::default()
        }),
        applied: Some("no".into()),
        ..Refusal::default()
    };
    let declaration = Declaration {
        refusals: vec![busy],
        ..Declaration::default()
    };
    declaration.build().unwrap()
}

/// One worker that is taken, and no queue: the next one is refused with `concurrency_limit`.
async fn full() -> (Admission, Permit) {
    let profile = Profile {
        workers: 1,
        queue: 0,
        ..Profile::default()
    };
    let admission = Admission::start(profile, None).unwrap();
    let permit = admission.enter(&Ask::default()).await.unwrap();
    (admission, permit)
}

async fn ok(_: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::default())
}

/// An answer of the service behind this gate.
async fn ask(gate: Gate, request: Request<Full<Bytes>>) -> Response<Bytes> {
    let mut service = AdmissionLayer::new(gate).layer(service_fn(ok));
    let (parts, body) = service.call(request).await.unwrap().into_parts();
    Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}

fn post() -> Request<Full<Bytes>> {
    Request::post("http://service/work")
        .body(Full::default())
        .unwrap()
}

/// The same answer without anything of the contract, as an old proxy or a caller before the contract knows it.
fn stripped(response: Response<Bytes>) -> Response<Bytes> {
    let (mut parts, body) = response.into_parts();
    for name in ["overload-signal", "retry-after", "retry-after-ms", "content-type"] {
        parts.headers.remove(name);
    }
    let all: serde_json::Value = serde_json::from_slice(&body).unwrap();
    Response::from_parts(
        parts,
        serde_json::json!({"error": all["error"]}).to_string().into(),
    )
}

fn read(vocabulary: &Vocabulary, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Overload {
    let options = ReadOptions {
        now: SystemTime::UNIX_EPOCH,
        compat: Compat::Off,
    };
    let reading = vocabulary.head(status, headers, &options).finish(Some(body));
    reading.into_overload().expect("an overload")
}

fn delay(hint: &Hint) -> Duration {
    match hint {
        Hint::After { delay, .. } | Hint::Window { delay, .. } => *delay,
        Hint::Absent => panic!("no hint"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_the_contract_and_the_services_own_words_and_both_read_the_same() {
    let (admission, _permit) = full().await;
    let response = ask(Gate::new(admission).vocabulary(words()), post()).await;
    assert_eq!(
        (response.status(), &response.headers()["x-error"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"busy".parse().unwrap())
    );
    let by_contract = read(
        &Vocabulary::NONE,
        response.status(),
        response.headers(),
        response.body(),
    );
    let response = stripped(response);
    let by_words = read(&words(), response.status(), response.headers(), response.body());
    for overload in [&by_contract, &by_words] {
        assert_eq!(
            (&overload.code, overload.applied),
            (&Some(Code::ConcurrencyLimit), Applied::No)
        );
    }
    assert_eq!(delay(&by_contract.hint), delay(&by_words.hint));
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_the_same_vocabulary_obeys_a_refusal_that_lost_the_contracts_fields() {
    let (admission, _permit) = full().await;
    let gate = Gate::new(admission).vocabulary(words());
    let service = service_fn(move |request: Request<Full<Bytes>>| {
        let gate = gate.clone();
        async move { Ok::<_, Infallible>(stripped(ask(gate, request).await).map(Full::new)) }
    });
    let client = OverloadLayer::builder()
        .vocabulary(words())
        .compat(Compat::Off)
        .build()
        .layer(service);
    let mut request = post();
    // Less time than the least hint: the call stops at once, and shows what it was told.
    request
        .extensions_mut()
        .insert(CallOptions::new().deadline(Duration::from_millis(40)));
    let error = client.oneshot(request).await.unwrap_err();
    let overload = error.overload().expect("what the server said");
    assert_eq!(
        (&overload.code, overload.applied),
        (&Some(Code::ConcurrencyLimit), Applied::No)
    );
}

#[tokio::test(start_paused = true)]
async fn a_code_without_words_of_its_own_and_a_gate_without_a_vocabulary_say_the_contract_alone() {
    let (admission, _permit) = full().await;
    let plain = ask(Gate::new(admission.clone()), post()).await;
    assert!(
        !plain.headers().contains_key("x-error") && !plain.body().windows(7).any(|part| part == b"wait_ms")
    );
    admission.drain();
    let draining = ask(Gate::new(admission).vocabulary(words()), post()).await;
    assert!(!draining.headers().contains_key("x-error"));
    let overload = read(
        &Vocabulary::NONE,
        draining.status(),
        draining.headers(),
        draining.body(),
    );
    assert_eq!(overload.code, Some(Code::Draining));
}
