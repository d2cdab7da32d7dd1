//! A decision that allocates grows a process exactly when it is busiest. Once the tables have their size, admitting,
//! starting and finishing take nothing from the heap.

mod common;

use std::time::Duration;

use holdoff_admission::{Controller, Decision, Ending, Step, Work};
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
