//! A decision that allocates grows a process exactly when it is busiest. Once the tables have their size, admitting,
//! starting and finishing take nothing from the heap.

mod common;

use std::time::Duration;

use holdoff_admission::{Controller, DeadlineOf, Decision, Ending, Step, Work};
use holdoff_contract::Tier;

#[test]
fn admitting_starting_and_finishing_allocate_nothing_once_warm() {
    let now = common::origin();
    let mut c = Controller::new(common::profile(r#"{"workers":4}"#), now).unwrap();
    let names: Vec<String> = (0..10).map(|n| format!("tenant {n}")).collect();
    let mut held = Vec::with_capacity(64);
    let mut at = now;
    let mut round = |c: &mut Controller| {
        // Each tenant's critical share is its own again after a while.
        at += Duration::from_secs(2);
        c.tick(at, &mut ());
        let now = at;
        for n in 0..40 {
            let tenant = c.tenant(Some(&names[n % 10]));
            let class = c.class(None);
            let deadline = now + Duration::from_secs(60);
            let tier = Tier::ALL[n % 3];
            let work = Work {
                tenant,
                class,
                tier,
                deadline,
                deadline_of: DeadlineOf::Caller,
                cost: None,
                bytes: 10,
                may_defer: false,
            };
            if let Decision::Accept { ticket, .. } = c.admit(now, work, &mut ()) {
                held.push(ticket);
            }
            while let Some(step) = c.next_step(now, &mut ()) {
                assert!(matches!(step, Step::Start(_)));
            }
        }
        let admitted = held.len();
        for ticket in held.drain(..) {
            c.finish(
                now,
                ticket,
                Ending::Completed {
                    service: Duration::from_millis(50),
                },
                &mut (),
            );
            while c.next_step(now, &mut ()).is_some() {}
        }
        admitted
    };
    for _ in 0..20 {
        round(&mut c);
    }
    let mut admitted = 0;
    let info = allocation_counter::measure(|| admitted = round(&mut c));
    assert!(admitted > 30, "{admitted}");
    assert_eq!(info.count_total, 0);
}

#[test]
fn a_task_that_waits_takes_at_most_128_bytes_of_the_controller() {
    let now = common::origin();
    let mut c = Controller::new(
        common::profile(
            r#"{"workers":1,"queue":10000,"tiers":{"deferrable":{"min_wait_ms":600000,"max_wait_ms":600000}},
                "classes":{"t":{"mean_ms":1,"p95_ms":1,"deadline_ms":3600000}}}"#,
        ),
        now,
    )
    .unwrap();
    let class = c.class(Some("t"));
    let ask = |c: &mut Controller| {
        let work = Work {
            tenant: c.tenant(None),
            class,
            tier: Tier::Deferrable,
            deadline: now + Duration::from_secs(3_600),
            deadline_of: DeadlineOf::Caller,
            cost: None,
            bytes: 0,
            may_defer: false,
        };
        let decision = c.admit(now, work, &mut ());
        while c.next_step(now, &mut ()).is_some() {}
        decision
    };
    // Tables grow by doubling: measured where they are full, one worker's task included.
    let mut tickets = Vec::with_capacity(8_192);
    let info = allocation_counter::measure(|| {
        for _ in 0..8_192 {
            if let Decision::Accept { ticket, .. } = ask(&mut c) {
                tickets.push(ticket);
            }
        }
    });
    let bytes = info.bytes_current;
    assert_eq!(tickets.len(), 8_192);
    assert!(bytes <= 128 * 8_192, "{} bytes a task", bytes / 8_192);
}

#[test]
fn an_idle_tenant_takes_at_most_256_bytes_of_the_controller_with_its_name() {
    let now = common::origin();
    let mut c = Controller::new(common::profile(r#"{"workers":4}"#), now).unwrap();
    let pass = |c: &mut Controller, name: &str| {
        for tier in Tier::ALL {
            let work = Work {
                tenant: c.tenant(Some(name)),
                class: c.class(None),
                tier: *tier,
                deadline: now + Duration::from_secs(60),
                deadline_of: DeadlineOf::Caller,
                cost: None,
                bytes: 0,
                may_defer: false,
            };
            let Decision::Accept { ticket, .. } = c.admit(now, work, &mut ()) else {
                panic!("an idle server refused");
            };
            while c.next_step(now, &mut ()).is_some() {}
            c.finish(now, ticket, Ending::Cancelled, &mut ());
        }
    };
    pass(&mut c, "first");
    let names: Vec<String> = (0..10_000).map(|n| format!("tenant {n:04}")).collect();
    // As many as have a slot of their own, each of which asked for one task of each tier; the rest adds nothing.
    let (named, rest) = names.split_at(1_023);
    let some = allocation_counter::measure(|| named.iter().for_each(|name| pass(&mut c, name)));
    let bytes = some.bytes_current / 1_023;
    assert!((100..=256).contains(&bytes), "{bytes} bytes a tenant");
    let others = allocation_counter::measure(|| rest.iter().for_each(|name| pass(&mut c, name)));
    assert!(others.bytes_current < 1_024, "{} bytes", others.bytes_current);
}
