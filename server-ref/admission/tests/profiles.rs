//! A profile that somebody else wrote loads, or says which key is wrong.

#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::time::Duration;

use holdoff_admission::{Controller, Profile};
use holdoff_contract::Tier;

const EXAMPLE: &str = include_str!("../../profiles/example.yaml");
const STATES: &str = include_str!("../../profiles/overload-states.yaml");

fn json(text: &str) -> Profile {
    serde_json::from_str(text).unwrap()
}

#[test]
fn every_profile_of_the_field_cases_loads_and_is_in_range() {
    let mut loaded = 0;
    for line in include_str!("profiles.jsonl").lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let profile: Profile = serde_json::from_value(row["profile"].clone())
            .unwrap_or_else(|err| panic!("{}: {err}", row["id"]));
        profile
            .validate()
            .unwrap_or_else(|err| panic!("{}: {err}", row["id"]));
        loaded += 1;
    }
    assert!(loaded >= 27, "only {loaded} profiles");
}

#[test]
fn an_empty_profile_is_the_default_one() {
    assert_eq!(json("{}"), Profile::default());
    assert_eq!(Profile::default().validate(), Ok(()));
}

#[test]
fn the_example_says_the_defaults_it_claims_to_say() {
    let example: Profile = serde_saphyr::from_str(EXAMPLE).unwrap();
    assert_eq!(example.validate(), Ok(()));
    let default = Profile::default();
    for tier in Tier::ALL {
        assert_eq!(example.queue_limit(*tier), default.queue_limit(*tier), "{tier}");
        assert_eq!(example.slots(*tier), default.slots(*tier), "{tier}");
        assert_eq!(example.weight(*tier), default.weight(*tier), "{tier}");
        assert_eq!(example.wait_bounds(*tier), default.wait_bounds(*tier), "{tier}");
    }
    assert_eq!(example.depths(), default.depths());
    assert_eq!(example.queue_work(), default.queue_work());
    assert_eq!(example.backlog_limit(), default.backlog_limit());
    let plain = |p: &Profile| {
        (
            p.workers,
            p.queue,
            p.queue_bytes,
            p.max_bytes,
            p.hold_ms,
            p.ramp_ms,
            p.max_deadline_ms,
            p.margin_ms,
        )
    };
    assert_eq!(plain(&example), plain(&default));
    // What it marks as an example.
    assert_eq!(example.reserved_workers(), 1);
    assert_eq!(example.classes["migration"].p95(), Duration::from_secs(30));
    assert_eq!(
        example.tenants["batch-team"].clamp(Tier::Critical),
        Tier::NonSheddable
    );
    assert_eq!(
        example.tenants["batch-team"].clamp(Tier::Deferrable),
        Tier::Deferrable
    );
}

#[test]
fn the_states_profile_loads_with_its_thresholds() {
    let states: Profile = serde_saphyr::from_str(STATES).unwrap();
    assert_eq!(states.validate(), Ok(()));
    assert_eq!(states.depths(), (8, 10, 4));
}

#[test]
fn a_misspelt_key_is_refused_by_name() {
    for (text, key) in [
        (r#"{"worker": 2}"#, "worker"),
        (r#"{"tiers": {"critcal": {}}}"#, "critcal"),
        (r#"{"classes": {"t": {"mean": 3}}}"#, "mean"),
        (r#"{"tenants": {"a": {"queued_work": 3}}}"#, "queued_work"),
    ] {
        let err = serde_json::from_str::<Profile>(text).unwrap_err().to_string();
        assert!(err.contains(key), "{err}");
    }
}

#[test]
fn a_value_out_of_range_names_key_value_and_limit() {
    for (text, key, value) in [
        (r#"{"workers": 0}"#, "workers", "0"),
        (r#"{"workers": 5000}"#, "workers", "5000"),
        (
            r#"{"workers": 2, "tiers": {"critical": {"reserved_workers": 2}}}"#,
            "tiers.critical.reserved_workers",
            "2",
        ),
        (
            r#"{"tiers": {"deferrable": {"reserved_workers": 1}}}"#,
            "tiers.deferrable.reserved_workers",
            "1",
        ),
        (
            r#"{"tiers": {"non-sheddable": {"queue": 100001}}}"#,
            "tiers.non-sheddable.queue",
            "100001",
        ),
        (r#"{"classes": {"t": {"mean_ms": 0}}}"#, "classes.t.mean_ms", "0"),
        (
            r#"{"classes": {"t": {"mean_ms": 100, "p95_ms": 1}}}"#,
            "classes.t.p95_ms",
            "1",
        ),
        (r#"{"tenants": {"a": {"active": 0}}}"#, "tenants.a.active", "0"),
        (
            r#"{"thresholds": {"enter_depth": 4, "exit_depth": 4}}"#,
            "thresholds.exit_depth",
            "4",
        ),
        (r#"{"hint_ceiling_ms": 10}"#, "hint_ceiling_ms", "10"),
        (r#"{"margin_share": -0.5}"#, "margin_share", "-0.5"),
    ] {
        let err = json(text).validate().unwrap_err();
        assert_eq!((err.key.as_str(), err.value.as_str()), (key, value), "{err}");
        assert!(err.limit.starts_with("in "), "{err}");
    }
    let bad = json(r#"{"classes": {"Bad Name": {}}}"#).validate().unwrap_err();
    assert_eq!(bad.value, "\"Bad Name\"");
}
#[test]
fn the_largest_numbers_are_refused_and_overflow_nothing() {
    for (text, key) in [
        (r#"{"queue": 4294967295}"#, "queue"),
        (
            r#"{"thresholds": {"enter_depth": 4294967295}}"#,
            "thresholds.enter_depth",
        ),
        (r#"{"thresholds": {"enter_depth": 0}}"#, "thresholds.enter_depth"),
        (r#"{"hold_ms": 18446744073709551615}"#, "hold_ms"),
        (r#"{"queue_work_ms": 18446744073709551615}"#, "queue_work_ms"),
        (r#"{"backlog": 4294967295}"#, "backlog"),
        (
            r#"{"tenants": {"a": {"queued_work_ms": 18446744073709551615}}}"#,
            "tenants.a.queued_work_ms",
        ),
        (r#"{"classes": {"t": {"mean_ms": 1e300}}}"#, "classes.t.mean_ms"),
        (
            r#"{"classes": {"t": {"deadline_ms": 18446744073709551615}}}"#,
            "classes.t.deadline_ms",
        ),
        (
            r#"{"tiers": {"critical": {"max_wait_ms": 18446744073709551615}}}"#,
            "tiers.critical.max_wait_ms",
        ),
    ] {
        let profile = json(text);
        assert_eq!(profile.validate().unwrap_err().key, key);
        // The accessors hold for a profile that nobody has checked, too.
        let depths = (profile.declared_depth(), profile.depths(), profile.queue_work());
        assert!(
            depths.0 > 0 && profile.other_class().mean() >= Duration::ZERO,
            "{depths:?}"
        );
    }
}

#[test]
fn the_controller_refuses_a_profile_out_of_range() {
    #[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
    let origin = std::time::Instant::now();
    let err = Controller::new(json(r#"{"workers": 0}"#), origin).unwrap_err();
    assert_eq!(err.key, "workers");
}

#[test]
fn a_name_that_does_not_fit_is_refused_by_its_key_and_the_limit_says_what_fits() {
    let long = "x".repeat(129);
    for (table, name, shown, limit) in [
        ("classes", "Upper", "Upper", "a name of 1 to 64 characters"),
        ("classes", "", "", "a name of 1 to 64 characters"),
        (
            "classes",
            "two\nlines",
            "two\\nlines",
            "a name of 1 to 64 characters",
        ),
        (
            "tenants",
            "z\u{fc}rich",
            "z\u{fc}rich",
            "a name of 1 to 128 printable ASCII characters",
        ),
        (
            "tenants",
            long.as_str(),
            &long[..64],
            "a name of 1 to 128 printable ASCII characters",
        ),
    ] {
        let profile: Profile = serde_json::from_value(serde_json::json!({ table: { name: {} } })).unwrap();
        let err = profile.validate().unwrap_err();
        assert_eq!(err.key, format!("{table}.{shown}"));
        assert!(err.limit.starts_with(limit), "{err}");
    }
}

#[test]
fn p95_and_the_depth_of_shedding_end_where_their_documentation_says() {
    let class = |p95: f64| {
        json(&format!(
            r#"{{"classes":{{"t":{{"mean_ms":50000000,"p95_ms":{p95}}}}}}}"#
        ))
        .validate()
    };
    assert_eq!(class(86_400_000.0), Ok(()));
    assert_eq!(class(86_400_001.0).unwrap_err().key, "classes.t.p95_ms");
    // Twice the mean where nothing is said, whatever that is.
    assert_eq!(
        json(r#"{"classes":{"t":{"mean_ms":86400000}}}"#).validate(),
        Ok(())
    );
    let shed = |depth: u32| json(&format!(r#"{{"thresholds":{{"shed_depth":{depth}}}}}"#)).validate();
    assert_eq!(shed(300_000), Ok(()));
    assert_eq!(shed(300_001).unwrap_err().key, "thresholds.shed_depth");
    assert_eq!(
        json(r#"{"thresholds":{"enter_depth":300000}}"#).validate(),
        Ok(())
    );
}
