//! Every worked example of sections 4 and 5, read by this crate. What the caller then does (`action`, and a window
//! that it makes for itself) is the policy crate's to check.

use std::time::{Duration, UNIX_EPOCH};

use holdoff_contract::Hint;
use holdoff_contract::read::{Compat, Head, ReadOptions, Reading};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    #[serde(rename = "about")]
    _about: String,
    defaults: Defaults,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    #[serde(rename = "cap_ms")]
    _cap_ms: u64,
    #[serde(rename = "deadline_ms")]
    _deadline_ms: u64,
    #[serde(rename = "idempotent")]
    _idempotent: bool,
    max_hint_ms: u128,
    compat: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    id: String,
    req: Vec<String>,
    status: u16,
    headers: Vec<(String, String)>,
    body: Option<String>,
    #[serde(default)]
    cfg: Config,
    now: u64,
    expect: Expect,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    compat: Option<bool>,
    #[serde(rename = "idempotent")]
    _idempotent: Option<bool>,
    #[serde(rename = "deadline_ms")]
    _deadline_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    overload: bool,
    /// A member that is there and null expects that there is no delay.
    #[serde(default, deserialize_with = "there")]
    min_delay_ms: Option<Option<u128>>,
    max_delay_ms: Option<u128>,
    retry: Option<String>,
    applied: Option<String>,
    code: Option<String>,
    #[serde(rename = "action")]
    _action: Option<String>,
}

fn there<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u128>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

fn reading(vector: &Vector, defaults: &Defaults) -> Reading {
    let mut headers = HeaderMap::new();
    for (name, value) in &vector.headers {
        headers.append(
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    let compat = if vector.cfg.compat.unwrap_or(defaults.compat) {
        Compat::On
    } else {
        Compat::Off
    };
    let options = ReadOptions {
        now: UNIX_EPOCH + Duration::from_secs(vector.now),
        compat,
    };
    let head = Head::read(StatusCode::from_u16(vector.status).unwrap(), &headers, &options);
    let body = vector.body.as_ref().filter(|_| head.wants_body());
    head.finish(body.map(String::as_bytes))
}

/// What is wrong, empty where nothing is.
fn faults(vector: &Vector, defaults: &Defaults) -> Vec<String> {
    let expect = &vector.expect;
    let overload = match reading(vector, defaults) {
        Reading::NotOverload if expect.overload => return vec!["not an overload".into()],
        Reading::NotOverload => return Vec::new(),
        Reading::Overload(_, _) if !expect.overload => return vec!["an overload".into()],
        Reading::Overload(overload, _) => overload,
    };
    let mut faults = Vec::new();
    let mut check = |what: &str, good: bool| {
        if !good {
            faults.push(format!("{what}: {overload:?}"));
        }
    };
    let delay = match overload.hint {
        Hint::Absent => None,
        Hint::After { delay, .. } | Hint::Window { delay, .. } => Some(delay.as_millis()),
    };
    if let Some(expected) = expect.min_delay_ms {
        check("min_delay_ms", delay == expected);
    }
    if let (Some(expected), Hint::Window { max, .. }) = (expect.max_delay_ms, overload.hint) {
        check("max_delay_ms", max.as_millis() == expected);
    }
    if let Some(expected) = &expect.retry {
        check("retry", overload.retry.as_str() == expected);
    }
    if let Some(expected) = &expect.applied {
        check("applied", overload.applied.as_str() == expected);
    }
    if let Some(expected) = &expect.code {
        check(
            "code",
            overload
                .code
                .as_ref()
                .is_some_and(|code| code.as_str() == expected),
        );
    }
    faults
}

fn file() -> File {
    serde_json::from_str(include_str!("../../../../conformance/contract/hint-vectors.json")).unwrap()
}

#[test]
fn all_107_hint_vectors_are_read_as_the_contract_says() {
    let file = file();
    assert_eq!(file.schema, "overload-hint-vectors/1");
    assert_eq!(file.vectors.len(), 107);
    assert_eq!(
        file.defaults.max_hint_ms,
        holdoff_contract::limits::MAX_HINT.as_millis()
    );
    let mut report = String::new();
    for vector in &file.vectors {
        for fault in faults(vector, &file.defaults) {
            report += &format!("{} ({}): {fault}\n", vector.id, vector.req.join(", "));
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

/// Which vectors have a window that was received, so that the test above cannot quietly skip one.
#[test]
fn the_vectors_with_a_window_are_the_ones_that_send_a_valid_max() {
    let file = file();
    let windows: Vec<&str> = file
        .vectors
        .iter()
        .filter(|vector| {
            let overload = reading(vector, &file.defaults).into_overload();
            overload.is_some_and(|overload| matches!(overload.hint, Hint::Window { .. }))
        })
        .map(|vector| vector.id.as_str())
        .collect();
    assert_eq!(
        windows,
        ["sig-max", "sig-max-equal-after", "sig-max-huge", "body-max"]
    );
}
