//! Rows of the collection of faults that others met (field-cases.jsonl) that need nothing but the controller, in virtual time; each
//! test names its row.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::collections::HashSet;

use common::{World, ms, origin, profile, req};
use holdoff_admission::{Controller, Decision, Ending, Event, Step, Work};
use holdoff_contract::{ServiceState, Tier};

#[test]
fn fc_rec_06_a_trickle_of_unrelated_faults_does_not_keep_recovery_from_its_end() {
    let mut w = World::new(
        r#"{"workers":2,"hold_ms":1000,"ramp_ms":1000,"classes":{"t":{"mean_ms":5,"p95_ms":8,"deadline_ms":1000}}}"#,
    );
    for n in 0..600 {
        w.ask(&format!("burst {n}"), req("t", 5));
        if n % 40 == 0 {
            w.advance(10);
        }
    }
    w.advance(100);
    assert_ne!(w.gauges().state, ServiceState::Normal, "there is an overload");
    // Over for callers: from here on 200 a second come, half of what two workers do.
    let (mut invalid, mut normal_at) = (0, None);
    for n in 1..=1_000_u64 {
        w.advance(5);
        match n % 400 {
            // One in four hundred takes longer than its caller waits, one in four hundred cannot be admitted at all.
            100 => drop(w.ask("late", req("t", 60).within(40))),
            300 => {
                let mut work = w.work(req("t", 5));
                work.bytes = u64::MAX;
                invalid += u32::from(w.c.validate(&work).is_err());
            }
            _ => drop(w.ask("task", req("t", 5))),
        }
        if normal_at.is_none() && w.gauges().state == ServiceState::Normal {
            normal_at = Some(n * 5);
        }
    }
    let missed = |event: &&Event| matches!(event, Event::Finished { late: true, .. });
    let refused_late = w.refused.iter().filter(|(name, ..)| name == "late").count();
    let late = w.events.iter().filter(missed).count() + refused_late;
    assert!(invalid >= 2 && late >= 1, "there were faults: {invalid}, {late}");
    assert!(normal_at.is_some_and(|at| at <= 5_000), "normal at {normal_at:?}");
    assert_eq!(w.gauges().state, ServiceState::Normal, "and it stays so");
}

#[test]
fn fc_sec_02_a_million_tenants_take_a_bounded_table_and_an_honest_one_is_served() {
    let now = origin();
    let mut c = Controller::new(
        profile(r#"{"workers":4,"queue":64,"classes":{"t":{"mean_ms":5,"p95_ms":8,"deadline_ms":1000}}}"#),
        now,
    )
    .unwrap();
    let class = c.class(Some("t"));
    let mut events = Vec::new();
    let mut at = now;
    let mut ask = |c: &mut Controller, tenant: &str, at| {
        let work = Work {
            tenant: c.tenant(Some(tenant)),
            class,
            tier: Tier::Deferrable,
            deadline: at + ms(1000),
            deadline_of: holdoff_admission::DeadlineOf::Caller,
            cost: None,
            bytes: 0,
            may_defer: false,
        };
        let tenant = work.tenant;
        events.clear();
        let admitted = match c.admit(at, work, &mut events) {
            Decision::Accept { ticket, .. } | Decision::Defer { ticket, .. } => {
                let started = c.next_step(at, &mut events);
                assert!(matches!(started, Some(Step::Start(_))), "{started:?}");
                let service = ms(5);
                c.finish(at, ticket, Ending::Completed { service }, &mut events);
                true
            }
            Decision::Reject(_) => false,
        };
        (tenant, admitted)
    };
    let (mut slots, mut honest) = (HashSet::new(), 0);
    let measured = allocation_counter::measure(|| {
        for n in 0..1_000_000_u32 {
            let (slot, _) = ask(&mut c, &format!("made up {n}"), at);
            slots.insert(slot);
            if n % 1_000 == 0 {
                at += Controller::TICK;
                c.tick(at, &mut Vec::new());
                honest += u32::from(ask(&mut c, "honest", at).1);
            }
        }
    });
    assert!(slots.len() <= 1_024 + 64 + 1, "{} tenants", slots.len());
    assert_eq!(honest, 1_000, "an honest tenant is admitted each time");
    assert!(
        measured.bytes_current < 1 << 20 && measured.bytes_max < 100 << 20,
        "{measured:?}"
    );
}
