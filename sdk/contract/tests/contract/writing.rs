//! Section 2: the response as it stands on the wire.

use holdoff_contract::write::{self, Audience};
use holdoff_contract::{
    Applied, BodyMember, Code, Extension, Granularity, Hint, Overload, OverloadStatus, PolicyQuota, Retry,
    Scope, ServiceState, Tier,
};
use http::HeaderMap;
use serde_json::{Value, json};

use crate::wire::{fields, ms, text};

fn with_hint(code: Code, hint: Hint) -> Overload {
    Overload {
        hint,
        ..Overload::new(code)
    }
}

fn after(delay: u64) -> Hint {
    Hint::After {
        delay: ms(delay),
        granularity: Granularity::Milliseconds,
    }
}

fn body(encoded: &write::Encoded) -> Value {
    serde_json::from_slice(&encoded.body).unwrap()
}

#[test]
fn the_example_of_section_2_is_written_as_it_stands_there() {
    let hint = Hint::Window {
        delay: ms(1740),
        max: ms(2300),
    };
    let overload = Overload {
        tier: Some(Tier::Deferrable),
        ..with_hint(Code::QueueFull, hint)
    };
    let encoded = write::overload(&overload, Audience::Stranger);
    assert_eq!(encoded.status, 503);
    let lines = [
        ("content-type", "application/problem+json"),
        ("cache-control", "no-store"),
        ("retry-after", "2"),
        ("retry-after-ms", "1740"),
        (
            "overload-signal",
            "v=1, code=queue_full, retry=after, applied=no, after=1740, max=2300, tier=deferrable",
        ),
    ];
    assert_eq!(encoded.headers, fields(&lines));
    assert_eq!(
        std::str::from_utf8(&encoded.body),
        Ok(
            r#"{"type":"urn:overload:v1:queue_full","title":"Queue is full","status":503,"contract_version":1,"code":"queue_full","retry":"after","applied":"no","retry_after_ms":1740,"retry_after_max_ms":2300,"tier":"deferrable"}"#
        )
    );
}

#[test]
fn every_code_has_its_status_and_a_whole_response() {
    for code in Code::REGISTERED {
        let encoded = write::overload(&Overload::new(code.clone()), Audience::Stranger);
        let body = body(&encoded);
        assert_eq!(encoded.status.as_u16(), code.status().as_u16(), "{code}");
        assert_eq!(body["status"], encoded.status.as_u16());
        assert_eq!(body["type"], format!("urn:overload:v1:{code}"));
        assert_eq!(
            (&body["code"], &body["contract_version"]),
            (&json!(code.as_str()), &json!(1))
        );
        assert_eq!(
            text(&encoded.headers, "cache-control").as_deref(),
            Some("no-store")
        );
        let again = if *code == Code::DependencyTimeout {
            None
        } else {
            Some("1".to_owned())
        };
        assert_eq!(text(&encoded.headers, "retry-after"), again, "{code}");
    }
}

#[test]
fn retry_after_is_after_rounded_up() {
    for (delay, seconds) in [
        (1, 1),
        (50, 1),
        (1000, 1),
        (1001, 2),
        (2500, 3),
        (86_400_000, 86_400),
    ] {
        let encoded = write::overload(&with_hint(Code::QueueFull, after(delay)), Audience::Stranger);
        assert_eq!(text(&encoded.headers, "retry-after"), Some(seconds.to_string()));
        assert_eq!(text(&encoded.headers, "retry-after-ms"), Some(delay.to_string()));
    }
}

#[test]
fn hints_outside_the_limits_are_brought_inside() {
    let after_and_max = |hint| {
        let body = body(&write::overload(
            &with_hint(Code::QueueFull, hint),
            Audience::Stranger,
        ));
        (
            body["retry_after_ms"].as_u64(),
            body["retry_after_max_ms"].as_u64(),
        )
    };
    assert_eq!(after_and_max(after(0)), (Some(1), None));
    assert_eq!(after_and_max(after(90_000_000)), (Some(86_400_000), None));
    let window = |delay, max| Hint::Window {
        delay: ms(delay),
        max: ms(max),
    };
    assert_eq!(after_and_max(window(100, 99)), (Some(100), Some(100)));
    assert_eq!(after_and_max(window(100, 70_000)), (Some(100), Some(60_100)));
    assert_eq!(after_and_max(Hint::Absent), (Some(1000), None));
}

#[test]
fn applied_maybe_and_retry_no_invite_nobody_back_but_still_pace_new_work() {
    let overload = Overload {
        retry: Retry::No,
        applied: Applied::Maybe,
        ..with_hint(Code::DependencyOverloaded, after(700))
    };
    let encoded = write::overload(&overload, Audience::Stranger);
    assert_eq!(
        (
            text(&encoded.headers, "retry-after"),
            text(&encoded.headers, "retry-after-ms")
        ),
        (None, None)
    );
    assert_eq!(
        text(&encoded.headers, "overload-signal").as_deref(),
        Some("v=1, code=dependency_overloaded, retry=no, applied=maybe, after=700")
    );
    let refused = Overload {
        retry: Retry::No,
        ..with_hint(Code::QueueFull, after(700))
    };
    let encoded = write::overload(&refused, Audience::Stranger);
    assert_eq!(text(&encoded.headers, "retry-after").as_deref(), Some("1"));
}

#[test]
fn strangers_are_not_told_what_is_for_the_inside() {
    let overload = Overload {
        state: Some(ServiceState::Shedding),
        origin: Some("billing".into()),
        predicted_wait: Some(ms(1234)),
        hop: 1,
        extensions: vec![
            Extension {
                key: "tenant".into(),
                member: "\"acme\"".into(),
            },
            Extension {
                key: "zz".into(),
                member: "?0".into(),
            },
        ],
        ..with_hint(Code::DependencyOverloaded, after(700))
    };
    let trusted = write::overload(&overload, Audience::Trusted);
    let told = body(&trusted);
    assert_eq!(
        (&told["state"], &told["origin"]),
        (&json!("shedding"), &json!("billing"))
    );
    assert_eq!(told["predicted_wait_ms"], 1300);
    let signal = text(&trusted.headers, "overload-signal").unwrap();
    assert!(
        signal.ends_with("state=shedding, hop=1, tenant=\"acme\", zz=?0"),
        "{signal}"
    );
    let stranger = write::overload(&overload, Audience::Stranger);
    let all = format!("{:?}{}", stranger.headers, body(&stranger));
    for secret in ["shedding", "billing", "predicted", "1300", "acme"] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
}

#[test]
fn the_smallest_deadline_goes_out_with_its_code_in_two_digits() {
    let overload = Overload {
        min_deadline: Some(ms(1201)),
        ..Overload::new(Code::DeadlineUnattainable)
    };
    assert_eq!(
        body(&write::overload(&overload, Audience::Stranger))["min_deadline_ms"],
        1300
    );
    let other = Overload {
        min_deadline: Some(ms(1201)),
        ..Overload::new(Code::QueueFull)
    };
    assert_eq!(
        body(&write::overload(&other, Audience::Stranger)).get("min_deadline_ms"),
        None
    );
}

#[test]
fn a_quota_is_published_and_retry_after_is_not_earlier_than_its_end() {
    let quota = |name: &str, remaining, reset_seconds| PolicyQuota {
        name: name.into(),
        quota: 100,
        window_seconds: 60,
        remaining,
        reset_seconds,
    };
    let hint = Hint::Window {
        delay: ms(500),
        max: ms(900),
    };
    let quotas = vec![quota("left", 5, 99), quota("a \"b\"\r\n", 0, 7)];
    let overload = Overload {
        quotas,
        ..with_hint(Code::RateLimited, hint)
    };
    let encoded = write::overload(&overload, Audience::Stranger);
    let field = |name| text(&encoded.headers, name).unwrap();
    assert_eq!(field("ratelimit"), r#""a \"b\"__";r=0;t=7, "left";r=5;t=99"#);
    assert_eq!(
        field("ratelimit-policy"),
        r#""a \"b\"__";q=100;w=60, "left";q=100;w=60"#
    );
    assert_eq!(
        (field("retry-after"), field("retry-after-ms")),
        ("7".into(), "7000".into())
    );
    assert_eq!(body(&encoded)["retry_after_max_ms"], 7400);
    let read = crate::wire::read_back(&encoded).into_overload().unwrap();
    assert_eq!(read.quotas, [quota("a \"b\"__", 0, 7), quota("left", 5, 99)]);
}

#[test]
fn a_value_without_a_code_gets_one_that_suits_its_status() {
    for (status, code) in [
        (OverloadStatus::TooManyRequests, "rate_limited"),
        (OverloadStatus::ServiceUnavailable, "dependency_overloaded"),
        (OverloadStatus::GatewayTimeout, "dependency_timeout"),
    ] {
        let overload = Overload {
            status,
            code: None,
            ..Overload::new(Code::QueueFull)
        };
        let encoded = write::overload(&overload, Audience::Stranger);
        assert_eq!(
            (encoded.status.as_u16(), &body(&encoded)["code"]),
            (status.as_u16(), &json!(code))
        );
    }
}

#[test]
fn a_private_code_keeps_its_status_and_the_scope_is_told_where_it_is_wide() {
    let overload = Overload {
        scope: Scope::Service,
        ..Overload::new("x_mine".parse().unwrap())
    };
    let encoded = write::overload(&overload, Audience::Stranger);
    assert_eq!(
        (encoded.status.as_u16(), &body(&encoded)["scope"]),
        (503, &json!("service"))
    );
    assert!(
        text(&encoded.headers, "overload-signal")
            .unwrap()
            .contains("code=x_mine, ")
    );
}

#[test]
fn advice_replaces_the_signal_and_says_nothing_where_there_is_nothing() {
    let mut headers = HeaderMap::new();
    write::advice(&mut headers, false, false, None);
    assert!(headers.is_empty());
    write::advice(&mut headers, true, false, None);
    assert_eq!(
        text(&headers, "overload-signal").as_deref(),
        Some("v=1, outcome=defer")
    );
    write::advice(&mut headers, false, true, Some(ServiceState::Congested));
    assert_eq!(
        text(&headers, "overload-signal").as_deref(),
        Some("v=1, degraded, state=congested")
    );
    let tier = write::Advice {
        tier: Some(Tier::Deferrable),
        ..write::Advice::default()
    };
    write::advise(&mut headers, tier);
    assert_eq!(
        text(&headers, "overload-signal").as_deref(),
        Some("v=1, tier=deferrable")
    );
    assert_eq!(headers.len(), 1);
}

#[test]
fn what_others_added_goes_out_as_far_as_it_fits() {
    let names: Vec<String> = (0..20).map(|n| format!("zz{n}")).collect();
    let overload = Overload {
        detail: Some("\u{1}".repeat(5000)),
        origin: Some("é".repeat(5000)),
        hop: 1,
        extensions: names
            .iter()
            .map(|name| Extension {
                key: name.clone(),
                member: format!("\"{}\"", "a".repeat(60)),
            })
            .collect(),
        members: names
            .iter()
            .map(|name| BodyMember {
                name: name.clone(),
                json: format!("\"{}\"", "a".repeat(700)),
            })
            .collect(),
        ..with_hint(Code::QueueFull, after(700))
    };
    let encoded = write::overload(&overload, Audience::Trusted);
    let signal = text(&encoded.headers, "overload-signal").unwrap();
    assert!((450..=512).contains(&signal.len()), "{}", signal.len());
    assert!(
        (3300..=4096).contains(&encoded.body.len()),
        "{}",
        encoded.body.len()
    );
    let read = crate::wire::read_back(&encoded).into_overload().unwrap();
    assert_eq!(read.extensions, overload.extensions[..read.extensions.len()]);
    assert_eq!(read.members, overload.members[..read.members.len()]);
    assert!(read.extensions.len() >= 5 && read.members.len() >= 3);
    assert_eq!(
        (read.detail.unwrap().len(), read.origin.unwrap().len()),
        (1024 / 6, 64)
    );
}

#[test]
fn an_extension_cannot_smuggle_in_or_overwrite_a_key() {
    let extension = |key: &str, member: &str| Extension {
        key: key.into(),
        member: member.into(),
    };
    let member = |name: &str, json: &str| BodyMember {
        name: name.into(),
        json: json.into(),
    };
    let overload = Overload {
        extensions: vec![
            extension("zz", "?1, retry=after"),
            extension("retry", "after"),
            extension("zy=1, applied", "no"),
            extension("ZX", "1"),
            extension("zw", "1\r\nx: y"),
            extension("zv", "1"),
            extension("zv", "2"),
        ],
        members: vec![
            member("zz", "1,\"retry\":\"after\""),
            member("retry", "\"after\""),
            member("zv", "1"),
            member("zv", "2"),
        ],
        ..Overload::new(Code::DeadlineExpired)
    };
    let encoded = write::overload(&overload, Audience::Trusted);
    assert_eq!(
        text(&encoded.headers, "overload-signal").as_deref(),
        Some("v=1, code=deadline_expired, retry=no, applied=no, after=1000, zv=1")
    );
    let body = std::str::from_utf8(&encoded.body).unwrap();
    assert!(
        body.ends_with(r#""retry":"no","applied":"no","retry_after_ms":1000,"zv":1}"#),
        "{body}"
    );
}
