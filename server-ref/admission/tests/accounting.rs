//! What is charged is released, once, whatever ends the work (ADM-15); no bound is passed on the way (ADM-01).

#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

mod common;

use std::time::{Duration, Instant};

use holdoff_admission::{Controller, DeadlineOf, Decision, Ending, Profile, Step, Ticket, Work};
use holdoff_contract::{ServiceState, Tier};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Admit {
        tenant: u8,
        class: u8,
        tier: u8,
        deadline: u16,
        cost: Option<u16>,
        bytes: u16,
        may_defer: bool,
    },
    Finish {
        which: u8,
        how: u8,
    },
    Pass {
        ms: u16,
        tick: bool,
    },
    Force {
        state: u8,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let admit = (
        0_u8..6,
        0_u8..3,
        0_u8..3,
        0_u16..4_000,
        proptest::option::of(any::<u16>()),
        0_u16..600,
        any::<bool>(),
    )
        .prop_map(
            |(tenant, class, tier, deadline, cost, bytes, may_defer)| Op::Admit {
                tenant,
                class,
                tier,
                deadline,
                cost,
                bytes,
                may_defer,
            },
        );
    let op = prop_oneof![
        6 => admit,
        4 => (any::<u8>(), 0_u8..4).prop_map(|(which, how)| Op::Finish { which, how }),
        2 => (0_u16..700, any::<bool>()).prop_map(|(ms, tick)| Op::Pass { ms, tick }),
        1 => (0_u8..6).prop_map(|state| Op::Force { state }),
    ];
    proptest::collection::vec(op, 0..400)
}

const PROFILE: &str = r#"{"workers":3,"queue":8,"queue_bytes":3000,"max_bytes":1000,"backlog":4,"backlog_age_ms":1000,
    "hold_ms":200,"ramp_ms":200,"tiers":{"critical":{"reserved_workers":1,"queue":3},"non-sheddable":{"queue":4}},
    "classes":{"short":{"mean_ms":10,"p95_ms":20,"deadline_ms":1000},"long":{"mean_ms":300,"p95_ms":500,"deadline_ms":4000}},
    "tenants":{"t1":{"active":1},"t2":{"queued_work_ms":600},"t3":{"active":2,"queued_work_ms":900}}}"#;

/// The adapter's side: which tickets it holds.
struct Harness {
    c: Controller,
    now: Instant,
    profile: Profile,
    held: Vec<(Ticket, bool)>,
}

impl Harness {
    fn settle(&mut self) -> Result<(), TestCaseError> {
        let mut steps = 0;
        while let Some(step) = self.c.next_step(self.now, &mut ()) {
            steps += 1;
            prop_assert!(steps < 1_000, "next_step does not end");
            match step {
                Step::Start(key) => {
                    let entry = self.held.iter_mut().find(|(ticket, _)| ticket.key() == key);
                    let entry = entry.ok_or_else(|| TestCaseError::fail("started what is not held"))?;
                    prop_assert!(!entry.1, "started twice");
                    entry.1 = true;
                }
                Step::Refuse(key, _) => {
                    let at = self
                        .held
                        .iter()
                        .position(|(ticket, running)| ticket.key() == key && !running);
                    let at = at.ok_or_else(|| TestCaseError::fail("refused what does not wait"))?;
                    let (spent, _) = self.held.swap_remove(at);
                    let before = self.c.snapshot(self.now);
                    self.c.finish(self.now, spent, Ending::Cancelled, &mut ());
                    prop_assert_eq!(
                        before,
                        self.c.snapshot(self.now),
                        "a spent ticket released something"
                    );
                }
            }
        }
        self.check()
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let g = self.c.snapshot(self.now);
        prop_assert_eq!(g.tickets as usize, self.held.len());
        prop_assert_eq!(
            g.busy as usize,
            self.held.iter().filter(|(_, running)| *running).count()
        );
        prop_assert!(g.busy <= self.profile.workers);
        let queued: u32 = g.tiers.iter().map(|tier| tier.queued).sum();
        prop_assert_eq!(queued + g.backlog + g.busy, g.tickets);
        prop_assert!(queued + g.backlog <= self.profile.declared_depth());
        for tier in &g.tiers {
            prop_assert!(tier.queued <= tier.queue_limit, "{:?}", tier);
        }
        prop_assert!(g.backlog <= self.profile.backlog_limit());
        prop_assert!(g.queued_bytes <= self.profile.queue_bytes);
        let others: u32 = g.tiers[1..].iter().map(|tier| tier.running).sum();
        prop_assert!(others <= self.profile.workers);
        Ok(())
    }

    #[expect(clippy::needless_pass_by_value, reason = "an operation is done once")]
    fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Admit {
                tenant,
                class,
                tier,
                deadline,
                cost,
                bytes,
                may_defer,
            } => {
                let class = self
                    .c
                    .class([Some("short"), Some("long"), None][usize::from(class)]);
                let name = format!("t{tenant}");
                let work = Work {
                    tenant: self.c.tenant((tenant > 0).then_some(name.as_str())),
                    class,
                    tier: Tier::ALL[usize::from(tier)],
                    deadline: self.now + Duration::from_millis(u64::from(deadline)),
                    deadline_of: DeadlineOf::Caller,
                    cost: cost.map(|ms| Duration::from_millis(u64::from(ms))),
                    bytes: u64::from(bytes),
                    may_defer,
                };
                match self.c.admit(self.now, work, &mut ()) {
                    Decision::Accept { ticket, .. } | Decision::Defer { ticket, .. } => {
                        self.held.push((ticket, false));
                    }
                    Decision::Reject(_) => {}
                }
            }
            Op::Finish { which, how } => {
                if self.held.is_empty() {
                    return Ok(());
                }
                let (ticket, _) = self.held.swap_remove(usize::from(which) % self.held.len());
                let service = Duration::from_millis(u64::from(which));
                let ending = [
                    Ending::Completed { service },
                    Ending::Failed { service },
                    Ending::TimedOut { service },
                    Ending::Cancelled,
                ][usize::from(how)];
                self.c.finish(self.now, ticket, ending, &mut ());
            }
            Op::Pass { ms, tick } => {
                self.now += Duration::from_millis(u64::from(ms));
                if tick {
                    self.c.tick(self.now, &mut ());
                }
            }
            Op::Force { state } => {
                let state = ServiceState::ALL.get(usize::from(state)).copied();
                self.c.force_state(self.now, state, &mut ());
            }
        }
        self.settle()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn gauges_return_to_zero_and_no_bound_is_passed_whatever_happens(ops in ops()) {
        let now = common::origin();
        let profile = common::profile(PROFILE);
        let c = Controller::new(profile.clone(), now).unwrap();
        let mut h = Harness { c, now, profile, held: Vec::new() };
        for op in ops {
            h.apply(op)?;
        }
        while !h.held.is_empty() {
            h.apply(Op::Finish { which: 0, how: 3 })?;
        }
        let g = h.c.snapshot(h.now);
        prop_assert_eq!((g.tickets, g.busy, g.backlog, g.queued_bytes), (0, 0, 0, 0));
        prop_assert_eq!(g.estimated_work, Duration::ZERO);
        prop_assert_eq!(g.oldest_age, Duration::ZERO);
        prop_assert_eq!(h.c.next_expiry(), None);
        for tier in &g.tiers {
            prop_assert_eq!((tier.queued, tier.running, tier.queued_work), (0, 0, Duration::ZERO));
        }
    }
}

#[test]
fn a_ticket_releases_what_it_was_charged_however_the_estimate_moved_meanwhile() {
    let mut w =
        common::World::new(r#"{"workers":2,"classes":{"t":{"mean_ms":20,"p95_ms":60,"deadline_ms":60000}}}"#);
    w.held = true;
    let keys: Vec<_> = (0..40).map(|_| w.ask("x", common::req("t", 20)).key()).collect();
    for (n, key) in keys.into_iter().enumerate() {
        let service = common::ms(if n % 2 == 0 { 500 } else { 1 });
        w.end(key, Ending::Completed { service });
        w.held = true;
    }
    let g = w.gauges();
    assert_eq!((g.estimated_work, g.tickets), (Duration::ZERO, 0));
}

#[test]
fn the_key_of_a_spent_ticket_is_never_given_again() {
    let mut w = common::World::new(r#"{"workers":1}"#);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..500 {
        let key = w.ask("x", common::req("other", 10)).key();
        assert!(seen.insert(key), "{key} twice");
        w.end(key, Ending::Cancelled);
    }
}
