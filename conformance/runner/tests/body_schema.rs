//! The JSON Schema of the reject body says what the contract says.
#![expect(clippy::expect_used, reason = "a helper of a test that cannot go on says why")]

use serde_json::{Value, json};

fn valid(change: impl FnOnce(&mut Value)) -> bool {
    let schema: Value = serde_json::from_str(include_str!("../../contract/overload.schema.json"))
        .expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is a schema");
    let mut body = json!({
        "type": "urn:overload:v1:queue_full", "title": "Queue is full", "status": 503,
        "instance": "urn:uuid:0190a0a0-0000-7000-8000-000000000000", "contract_version": 1,
        "code": "queue_full", "retry": "after", "applied": "no", "retry_after_ms": 1740,
        "retry_after_max_ms": 2300, "tier": "deferrable"
    });
    change(&mut body);
    validator.is_valid(&body)
}

#[test]
fn the_contracts_own_example_and_unknown_members_are_valid() {
    assert!(valid(|_| {}));
    assert!(valid(|body| body["zz_future"] = json!({"a": 1})));
    assert!(valid(|body| body["code"] = json!("x_moon_phase")));
}

#[test]
fn a_body_that_asks_to_come_back_without_saying_when_is_not_valid() {
    assert!(!valid(|body| {
        body.as_object_mut().unwrap().remove("retry_after_ms");
        body.as_object_mut().unwrap().remove("retry_after_max_ms");
    }));
}

#[test]
fn status_code_and_permission_must_fit_each_other() {
    assert!(!valid(|body| body["status"] = json!(429)));
    assert!(!valid(|body| body["status"] = json!(500)));
    assert!(!valid(|body| body["status"] = json!(504)));
    assert!(!valid(|body| body["code"] = json!("rate_limited")));
    assert!(!valid(|body| body["code"] = json!("moon_phase")));
    assert!(!valid(|body| body["retry"] = json!("sometimes")));
    assert!(!valid(|body| body["hop"] = json!(17)));
    assert!(!valid(|body| body["retry_after_ms"] = json!(0)));
    assert!(!valid(|body| body["contract_version"] = json!(2)));
    assert!(!valid(|body| body["origin"] = json!("billing")));
}
