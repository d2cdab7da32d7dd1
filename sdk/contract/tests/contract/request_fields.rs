//! Section 3: what is read, what counts as absent, and what is written.

use holdoff_contract::{Attempt, IdempotencyKey, RequestFields, TaskClass, Tenant, Tier, limits};
use http::HeaderMap;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::wire::{fields, ms, text};

fn one(name: &str, value: &str) -> RequestFields {
    RequestFields::read(&fields(&[(name, value)]))
}

#[test]
fn a_deadline_is_one_whole_number_or_absent() {
    assert_eq!(one("overload-deadline-ms", "0").deadline, Some(ms(0)));
    assert_eq!(one("overload-deadline-ms", " 1500;x=1 ").deadline, Some(ms(1500)));
    assert_eq!(
        one("overload-deadline-ms", "999999999999999").deadline,
        Some(limits::MAX_DEADLINE)
    );
    for bad in [
        "abc",
        "-1",
        "1.5",
        "100, 200",
        "",
        "\"100\"",
        "+5",
        "9999999999999999",
    ] {
        assert_eq!(one("overload-deadline-ms", bad).deadline, None, "{bad}");
    }
    let twice = fields(&[("overload-deadline-ms", "100"), ("overload-deadline-ms", "100")]);
    assert_eq!(RequestFields::read(&twice).deadline, None);
}

#[test]
fn a_tier_is_a_token_of_three_or_absent() {
    assert_eq!(one("overload-tier", "critical").tier, Some(Tier::Critical));
    for bad in ["CRITICAL", "gold", "\"critical\"", "critical, deferrable", ""] {
        assert_eq!(one("overload-tier", bad).tier, None, "{bad}");
    }
}

#[test]
fn attempt_and_cost_are_clamped_and_their_malformed_values_absent() {
    assert_eq!(
        one("overload-attempt", "999999999").attempt.map(Attempt::get),
        Some(255)
    );
    assert_eq!(one("overload-attempt", "3").attempt.map(Attempt::get), Some(3));
    assert_eq!(
        one("overload-cost-ms", "999999999").cost,
        Some(limits::MAX_DEADLINE)
    );
    for bad in ["-1", "x", "1.5"] {
        assert_eq!(one("overload-attempt", bad).attempt, None, "{bad}");
        assert_eq!(one("overload-cost-ms", bad).cost, None, "{bad}");
    }
    assert_eq!(one("overload-attempt", "0").attempt, None);
}

#[test]
fn a_key_may_be_quoted_or_bare_but_not_two() {
    let key = |value: &str| {
        one("idempotency-key", value)
            .idempotency_key
            .map(|key| key.as_str().to_owned())
    };
    assert_eq!(key("\"a\\\"b c\"").as_deref(), Some("a\"b c"));
    assert_eq!(
        key("8e03978e-40d5-43dd-bc93-6894a57f9324").as_deref(),
        Some("8e03978e-40d5-43dd-bc93-6894a57f9324")
    );
    assert_eq!(key("k;v=1").as_deref(), Some("k;v=1"));
    for bad in [
        "",
        "\"\"",
        "\"a",
        "\"a\"b",
        "a, b",
        "\"a\", \"b\"",
        "é",
        &"k".repeat(256),
    ] {
        assert_eq!(key(bad), None, "{bad}");
    }
}

#[test]
fn a_tenant_is_a_string_and_a_class_a_token() {
    assert_eq!(
        one("overload-tenant", "\"acme inc\"").tenant.unwrap().as_str(),
        "acme inc"
    );
    assert_eq!(one("overload-tenant", "acme").tenant, None);
    assert_eq!(
        one("overload-task-class", "lint.fast-1")
            .task_class
            .unwrap()
            .as_str(),
        "lint.fast-1"
    );
    assert_eq!(one("overload-task-class", "Lint").task_class, None);
    assert_eq!(one("overload-task-class", "a/b").task_class, None);
}

#[test]
fn writing_rounds_a_deadline_down_and_removes_what_is_not_said() {
    let mut headers = fields(&[
        ("overload-deadline-ms", "1"),
        ("overload-deadline-ms", "2"),
        ("overload-tier", "critical"),
        ("overload-tenant", "\"other\""),
        ("x-kept", "yes"),
    ]);
    let said = RequestFields {
        deadline: Some(std::time::Duration::from_micros(4_999_999)),
        idempotency_key: Some(IdempotencyKey::new("a\"\\b").unwrap()),
        ..RequestFields::default()
    };
    said.write(&mut headers);
    assert_eq!(text(&headers, "overload-deadline-ms").as_deref(), Some("4999"));
    assert_eq!(
        text(&headers, "idempotency-key").as_deref(),
        Some("\"a\\\"\\\\b\"")
    );
    assert_eq!(headers.len(), 3);
    assert_eq!(text(&headers, "x-kept").as_deref(), Some("yes"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_a_caller_says_is_what_a_server_reads(
        deadline in option::of(0..=86_400_000_u64), cost in option::of(0..=86_400_000_u64),
        tier in option::of(select(Tier::ALL)), attempt in option::of(1..=255_u32),
        class in option::of("[a-z][a-z0-9._-]{0,63}"), tenant in option::of("[ -~]{1,128}"),
        key in option::of("[ -~]{1,255}"),
    ) {
        let said = RequestFields {
            deadline: deadline.map(ms),
            tier,
            task_class: class.map(|class| TaskClass::new(class).unwrap()),
            tenant: tenant.map(|tenant| Tenant::new(tenant).unwrap()),
            attempt: attempt.map(Attempt::saturating),
            cost: cost.map(ms),
            idempotency_key: key.map(|key| IdempotencyKey::new(key).unwrap()),
        };
        let mut headers = HeaderMap::new();
        said.write(&mut headers);
        prop_assert_eq!(RequestFields::read(&headers), said);
    }
}
