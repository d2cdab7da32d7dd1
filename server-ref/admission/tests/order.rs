//! Each code has its condition, and where several refuse the first in the order of the test names it.

mod common;

use common::{Answer, World, ms, req, window};
use holdoff_admission::{Controller, Event};
use holdoff_contract::{Applied, Code, Retry, Scope, ServiceState, Tier};

const TWO: &str = r#"{"workers":2,"queue":4,"classes":{"t":{"mean_ms":20,"p95_ms":30,"deadline_ms":1000}},
    "tiers":{"critical":{"reserved_workers":0}}}"#;

/// Two workers busy for a long time with a class of its own.
fn both_busy(json: &str) -> World {
    let mut w = World::new(json);
    for name in ["long 1", "long 2"] {
        w.ask(name, req("long", 5_000)).key();
    }
    w
}

const LONG: &str = r#"{"workers":2,"queue":100,"tiers":{"critical":{"reserved_workers":0}},"classes":{
    "long":{"mean_ms":5000,"p95_ms":5500,"deadline_ms":60000},"t":{"mean_ms":20,"p95_ms":30,"deadline_ms":30000}}}"#;

#[test]
fn an_idle_server_starts_work_at_once_and_its_gauges_return_to_zero() {
    let mut w = World::new(TWO);
    assert!(matches!(w.ask("a", req("t", 20)), Answer::Accepted { wait, .. } if wait.is_zero()));
    assert_eq!((w.gauges().busy, w.gauges().tickets), (1, 1));
    w.advance(25);
    assert_eq!(w.done, [("a".to_owned(), 20)]);
    let g = w.gauges();
    assert_eq!((g.busy, g.tickets, g.estimated_work), (0, 0, ms(0)));
}

#[test]
fn beyond_workers_and_queue_the_code_is_queue_full() {
    let mut w = World::new(TWO);
    let codes: Vec<_> = (0..8)
        .map(|n| w.ask(&n.to_string(), req("t", 20)).code())
        .collect();
    assert_eq!(codes[..6], vec![None; 6]);
    assert_eq!(codes[6..], vec![Some(Code::QueueFull); 2]);
}

#[test]
fn payload_bytes_have_a_hard_cap_of_their_own() {
    let mut w = World::new(&LONG.replace("\"queue\":100", "\"queue\":100,\"queue_bytes\":1000"));
    for name in ["long 1", "long 2"] {
        w.ask(name, req("long", 5_000)).key();
    }
    let big = common::Req {
        bytes: 400,
        ..req("t", 20)
    };
    assert_eq!(w.ask("first", big).code(), None);
    assert_eq!(w.ask("second", big).code(), Some(Code::QueueFull));
    assert_eq!(w.gauges().queued_bytes, 400);
    // The last quarter is not deferrable's, the last eighth is critical's.
    assert_eq!(w.ask("critical", big.tier(Tier::Critical)).code(), None);
}

#[test]
fn without_a_queue_the_code_is_concurrency_limit_and_nothing_ever_waits() {
    let mut w = World::new(&TWO.replace("\"queue\":4", "\"queue\":0"));
    let codes: Vec<_> = (0..4)
        .map(|n| w.ask(&n.to_string(), req("t", 20)).code())
        .collect();
    let full = Some(Code::ConcurrencyLimit);
    assert_eq!(codes, [None, None, full.clone(), full]);
    w.advance(25);
    assert_eq!(w.ask("later", req("t", 20)).code(), None);
}

#[test]
fn a_draining_instance_sends_new_work_elsewhere_and_finishes_what_it_has() {
    let mut w = World::new(TWO);
    w.ask("before", req("t", 20)).key();
    w.c.drain();
    let answer = w.ask("after", req("t", 20).within(5));
    let overload = &answer.refusal().overload;
    assert_eq!(
        (overload.code.clone(), overload.retry),
        (Some(Code::Draining), Retry::Elsewhere)
    );
    w.advance(25);
    assert_eq!(w.done.len(), 1);
}

#[test]
fn stale_data_fails_closed_by_tier_and_ends_by_itself() {
    let mut w = both_busy(LONG);
    w.ticking = false;
    w.advance(501);
    let ask = |w: &mut World, tier| w.ask("x", req("t", 20).tier(tier)).code();
    assert_eq!(ask(&mut w, Tier::Deferrable), Some(Code::ControllerStale));
    assert_eq!(ask(&mut w, Tier::NonSheddable), None);
    assert_eq!(ask(&mut w, Tier::NonSheddable), Some(Code::ControllerStale));
    assert_eq!(ask(&mut w, Tier::Critical), None);
    w.ticking = true;
    w.advance(100);
    assert_eq!(ask(&mut w, Tier::Deferrable), None);
}

#[test]
fn a_tenant_at_its_queued_work_limit_gets_429_and_its_own_scope_and_others_are_admitted() {
    let json = LONG.replace(
        "\"queue\":100",
        "\"queue\":100,\"tenants\":{\"a\":{\"queued_work_ms\":100}}",
    );
    let mut w = both_busy(&json);
    let codes: Vec<_> = (0..7).map(|_| w.ask("a", req("t", 20).of("a")).code()).collect();
    assert_eq!(codes[..5], vec![None; 5]);
    assert_eq!(codes[5..], vec![Some(Code::TenantLimit); 2]);
    let answer = w.ask("a", req("t", 20).of("a"));
    let overload = &answer.refusal().overload;
    assert_eq!(
        (overload.status.as_u16(), overload.scope, overload.retry),
        (429, Scope::Tenant, Retry::After)
    );
    assert_eq!(w.ask("b", req("t", 20).of("b")).code(), None);
}

#[test]
fn a_tenants_long_task_that_its_limit_refuses_speaks_for_itself_while_a_short_one_still_fits() {
    let json = LONG.replace(
        "\"queue\":100",
        "\"queue\":100,\"tenants\":{\"a\":{\"queued_work_ms\":5100}}",
    );
    let mut w = both_busy(&json);
    w.ask("a short", req("t", 20).of("a")).key();
    w.ask("a long", req("long", 5_000).of("a")).key();
    let refused = w.ask("a long", req("long", 5_000).of("a"));
    let overload = &refused.refusal().overload;
    assert_eq!(
        (overload.code.clone(), overload.status.as_u16(), overload.scope),
        (Some(Code::TenantLimit), 429, Scope::Request)
    );
    w.ask("a short", req("t", 20).of("a")).key();
}

#[test]
fn critical_is_refused_only_when_its_own_budget_is_used() {
    let mut w = World::new(TWO);
    w.held = true;
    for n in 0..20 {
        let _ = w.ask(&format!("d{n}"), req("t", 20));
    }
    let json_limit = w.gauges().tiers[0].queue_limit;
    assert_eq!(json_limit, 1);
    let critical = req("t", 20).tier(Tier::Critical);
    assert_eq!(w.ask("c1", critical).code(), None);
    assert_eq!(w.ask("c2", critical).code(), Some(Code::TierBudgetExhausted));
}

#[test]
fn a_tier_with_no_slots_is_closed_on_an_idle_server_too() {
    let mut w = World::new(r#"{"workers":2,"tiers":{"deferrable":{"slots":0,"queue":0}}}"#);
    assert_eq!(
        w.ask("d", req("other", 20)).code(),
        Some(Code::TierBudgetExhausted)
    );
    assert_eq!(w.ask("c", req("other", 20).tier(Tier::Critical)).code(), None);
    assert_eq!(w.started, ["c"]);
}

#[test]
fn a_deadline_of_zero_is_expired_on_arrival_and_never_started() {
    let mut w = World::new(TWO);
    let answer = w.ask("x", req("t", 20).within(0));
    let overload = &answer.refusal().overload;
    assert_eq!(overload.code, Some(Code::DeadlineExpired));
    assert_eq!((overload.retry, overload.applied), (Retry::No, Applied::No));
    assert!(w.started.is_empty());
}

#[test]
fn two_long_tasks_and_an_empty_queue_refuse_a_short_deadline_and_say_which_would_do() {
    let mut w = both_busy(LONG);
    let answer = w.ask("short", req("t", 20).within(2_000));
    let overload = &answer.refusal().overload;
    assert_eq!(
        (overload.code.clone(), overload.retry),
        (Some(Code::DeadlineUnattainable), Retry::No)
    );
    let least = overload.min_deadline.unwrap();
    assert_eq!(least, ms(5_100));
    assert_eq!(
        w.ask("again", req("t", 20).within(least.as_millis() as u64))
            .code(),
        None
    );
    assert!(window(answer.refusal()).0 >= 50);
}

#[test]
fn the_least_deadline_is_admitted_on_resend_at_any_depth_and_the_one_below_is_not() {
    let json =
        r#"{"workers":2,"queue":100,"classes":{"t":{"mean_ms":100,"p95_ms":150,"deadline_ms":20000}}}"#;
    for depth in 0..30 {
        let mut w = World::new(json);
        for n in 0..depth {
            w.ask(&n.to_string(), req("t", 100)).key();
        }
        let answer = w.ask("probe", req("t", 100).within(10));
        let refusal = answer.refusal().overload.clone();
        assert_eq!(refusal.code, Some(Code::DeadlineUnattainable));
        let least = refusal.min_deadline.unwrap().as_millis() as u64;
        let below = w.ask("below", req("t", 100).within(least * 85 / 100));
        assert_eq!(
            below.code(),
            Some(Code::DeadlineUnattainable),
            "depth {depth}, {least}"
        );
        assert_eq!(
            w.ask("resend", req("t", 100).within(least)).code(),
            None,
            "depth {depth}, {least}"
        );
    }
}

#[test]
fn a_wait_over_the_bound_is_queue_age_exceeded_however_patient_the_caller() {
    let json =
        r#"{"workers":1,"queue":1000,"classes":{"t":{"mean_ms":100,"p95_ms":120,"deadline_ms":2000}}}"#;
    let mut w = World::new(json);
    for n in 0..10 {
        let _ = w.ask(&n.to_string(), req("t", 100));
        w.advance(100);
    }
    let codes: Vec<_> = (0..30)
        .map(|_| w.ask("x", req("t", 100).within(60_000)).code())
        .collect();
    let refused: Vec<_> = codes.iter().flatten().collect();
    assert!(
        !refused.is_empty() && refused.iter().all(|code| **code == Code::QueueAgeExceeded),
        "{codes:?}"
    );
}

#[test]
fn stalled_workers_are_noticed_at_the_door_and_not_by_timeouts() {
    let mut w = World::new(TWO);
    w.held = true;
    w.ask("1", req("t", 20)).key();
    w.ask("2", req("t", 20)).key();
    w.advance(3_000);
    let answer = w.ask("late", req("t", 20).within(10_000));
    assert_eq!(answer.code(), Some(Code::QueueAgeExceeded));
}

#[test]
fn the_first_in_the_order_names_the_code_and_the_largest_hint_goes_out() {
    // Full queue (general, short hint) and the tenant's own limit (a line grown long).
    let json = r#"{"workers":1,"queue":3,"classes":{"t":{"mean_ms":200,"p95_ms":250,"deadline_ms":30000}},
        "tenants":{"a":{"queued_work_ms":450}}}"#;
    let mut w = World::new(json);
    for _ in 0..3 {
        w.ask("a", req("t", 200).of("a")).key();
    }
    let limits: Vec<_> = (0..8).map(|_| w.ask("a", req("t", 200).of("a"))).collect();
    assert!(
        limits
            .iter()
            .all(|answer| answer.code() == Some(Code::TenantLimit)),
        "{limits:?}"
    );
    let own = limits[7].window().0;
    w.ask("b", req("t", 200).of("b")).key();
    let both = w.ask("a", req("t", 200).of("a"));
    assert_eq!(both.code(), Some(Code::QueueFull));
    assert!(both.window().0 >= own, "{:?} after {own}", both.window());
    let general = w.ask("c", req("t", 200).of("c"));
    assert_eq!(general.code(), Some(Code::QueueFull));
    assert!(general.window().0 < own);
}

#[test]
fn a_caller_that_cannot_hold_the_hint_gets_the_true_code_and_retry_no() {
    let mut w = World::new(TWO);
    for n in 0..6 {
        w.ask(&n.to_string(), req("t", 20)).key();
    }
    let answer = w.ask("impatient", req("t", 20).within(200));
    let overload = &answer.refusal().overload;
    assert_eq!(
        (overload.code.clone(), overload.retry),
        (Some(Code::QueueFull), Retry::No)
    );
    assert!(window(answer.refusal()).0 >= 250);
}

#[test]
fn the_same_condition_gives_the_same_code_twenty_times() {
    let mut w = both_busy(LONG);
    for _ in 0..20 {
        assert_eq!(
            w.ask("x", req("t", 20).within(500)).code(),
            Some(Code::DeadlineUnattainable)
        );
        w.advance(100);
    }
}

#[test]
fn a_pinned_state_gates_deferrable_work_only() {
    let mut w = World::new(TWO);
    w.c.force_state(w.now, Some(ServiceState::Shedding), &mut w.events);
    assert_eq!(w.ask("d", req("t", 20)).code(), Some(Code::TierShed));
    assert_eq!(
        w.ask("d", req("t", 20).deferrable_on_202()).code(),
        Some(Code::TierShed)
    );
    assert_eq!(w.ask("n", req("t", 20).tier(Tier::NonSheddable)).code(), None);
    assert_eq!(w.ask("c", req("t", 20).tier(Tier::Critical)).code(), None);
    w.c.force_state(w.now, Some(ServiceState::Normal), &mut w.events);
    assert_eq!(w.ask("d", req("t", 20)).code(), None);
}

#[test]
fn over_the_recovery_ramp_the_code_is_recovering() {
    let json = r#"{"workers":1,"queue":100,"classes":{"t":{"mean_ms":100,"p95_ms":120,"deadline_ms":2000}}}"#;
    let mut w = World::new(json);
    w.c.force_state(w.now, Some(ServiceState::Recovering), &mut w.events);
    w.ask("running", req("t", 100)).key();
    w.ask("first to wait", req("t", 100)).key();
    let answer = w.ask("over the ramp", req("t", 100));
    assert_eq!(answer.code(), Some(Code::Recovering));
    assert_eq!(w.ask("critical", req("t", 100).tier(Tier::Critical)).code(), None);
}

#[test]
fn work_that_an_empty_server_could_not_admit_is_a_validation_matter() {
    let json = r#"{"workers":2,"max_bytes":100,"classes":{"batch":{"mean_ms":2000,"p95_ms":3000,"deadline_ms":30000}},
        "tenants":{"a":{"queued_work_ms":200}}}"#;
    let mut w = World::new(json);
    let work = w.work(req("batch", 2_000).of("a"));
    let err = w.c.validate(&work).unwrap_err();
    assert_eq!((err.field, err.value.as_str()), ("charge_ms", "2000"));
    assert_eq!(err.limit, "at most 200 (the tenant's queued_work_ms)");
    let work = w.work(common::Req {
        bytes: 101,
        ..req("batch", 2_000)
    });
    assert_eq!(w.c.validate(&work).unwrap_err().field, "bytes");
    let work = w.work(req("batch", 2_000));
    assert_eq!(w.c.validate(&work), Ok(()));
}

#[test]
fn deadlines_default_by_class_and_are_cut_to_the_maximum() {
    let w = World::new(&TWO.replace("\"queue\":4", "\"queue\":4,\"max_deadline_ms\":5000"));
    let t = w.c.class(Some("t"));
    assert_eq!(w.c.deadline(t, None), ms(1_000));
    assert_eq!(w.c.deadline(t, Some(ms(400))), ms(400));
    assert_eq!(w.c.deadline(t, Some(ms(u64::MAX / 1_000_000))), ms(5_000));
    assert_eq!(w.c.class(Some("never-seen")), w.c.class(None));
}

#[test]
fn every_decision_is_told_once_with_its_code() {
    let mut w = World::new(TWO);
    for n in 0..8 {
        let _ = w.ask(&n.to_string(), req("t", 20));
    }
    let codes: Vec<_> = w
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Decided { code, .. } => Some(code.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(codes.len(), 8);
    assert_eq!(codes.iter().flatten().count(), 2);
    assert_eq!(Controller::TICK, ms(100));
}
