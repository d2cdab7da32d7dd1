//! Every worked example of CONTRACT sections 4 and 5, from the response to what a call then does. What is read from it
//! is checked by the contract crate; here are `action` and the window.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

mod common;

use std::time::{Duration, UNIX_EPOCH};

use common::*;
use holdoff_contract::read::{Compat, Head, ReadOptions, Reading};
use holdoff_policy::{Action, CallSpec, Policy, Safety};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::Value;

fn read(vector: &Value) -> Reading {
    let mut headers = HeaderMap::new();
    for field in vector["headers"].as_array().unwrap() {
        let name: HeaderName = field[0].as_str().unwrap().parse().unwrap();
        headers.append(name, HeaderValue::from_str(field[1].as_str().unwrap()).unwrap());
    }
    let compat = if vector["cfg"]["compat"] == false {
        Compat::Off
    } else {
        Compat::On
    };
    let now = UNIX_EPOCH + Duration::from_secs(vector["now"].as_u64().unwrap());
    let status = StatusCode::from_u16(u16::try_from(vector["status"].as_u64().unwrap()).unwrap()).unwrap();
    Head::read(status, &headers, &ReadOptions { now, compat })
        .finish(vector["body"].as_str().map(str::as_bytes))
}

/// What a call does after this response: the action and M, in the words of the vectors.
fn act(vector: &Value, defaults: &Value, seed: u64) -> (&'static str, Option<Duration>) {
    let Reading::Overload(overload, _) = read(vector) else {
        panic!("not an overload: {}", vector["id"])
    };
    let setting = |name: &str| {
        if vector["cfg"][name].is_null() {
            &defaults[name]
        } else {
            &vector["cfg"][name]
        }
    };
    let cap = ms(setting("cap_ms").as_u64().unwrap());
    let mut world = World::seeded(Policy::builder().hint_cap(cap).build().unwrap(), seed);
    let idempotent = setting("idempotent").as_bool().unwrap();
    let spec = CallSpec {
        safety: if idempotent {
            Safety::Idempotent
        } else {
            Safety::Unsafe
        },
        deadline: setting("deadline_ms").as_u64().map(ms),
        ..get()
    };
    let mut call = world.call(spec);
    let _ = world.send(&mut call);
    let window = world.policy.window(overload.hint, 1);
    let delay = overload.hint.delay_or_zero();
    world.tell(&mut call, refused(*overload));
    match world.next(&mut call) {
        Action::WaitUntil(until) => {
            let wait = until - world.now;
            assert!(
                wait >= delay && window.lo <= wait && wait <= window.hi,
                "{}: {wait:?}",
                vector["id"]
            );
            (if delay.is_zero() { "backoff" } else { "wait_hint" }, window.max)
        }
        Action::Finish(_) => ("stop", window.max),
        Action::Send(_) => panic!("sent at once: {}", vector["id"]),
    }
}

#[test]
fn all_107_hint_vectors_are_acted_on_as_the_contract_says() {
    let file: Value =
        serde_json::from_str(include_str!("../../../conformance/contract/hint-vectors.json")).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 107);
    let (mut actions, mut windows) = (0, 0);
    for vector in vectors {
        let expect = &vector["expect"];
        if expect["overload"] == false {
            assert_eq!(read(vector), Reading::NotOverload, "{}", vector["id"]);
            assert!(expect["action"].is_null());
            continue;
        }
        for seed in 0..20 {
            let (action, max) = act(vector, &file["defaults"], seed);
            if let Some(expected) = expect["action"].as_str() {
                assert_eq!(action, expected, "{}", vector["id"]);
                actions += u32::from(seed == 0);
            }
            if let Some(expected) = expect["max_delay_ms"].as_u64() {
                assert_eq!(max, Some(ms(expected)), "{}", vector["id"]);
                windows += u32::from(seed == 0);
            }
        }
    }
    assert_eq!((actions, windows), (102, 9), "an expectation was lost on the way");
}
