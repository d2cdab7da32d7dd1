//! A controller whose tick has stopped knows nothing of its load any more: it must not go on admitting by what it knew.

mod common;

use common::{Answer, World, req};
use holdoff_contract::{Code, ServiceState, Tier};

const PROFILE: &str = r#"{"workers":2,"queue":100,"hold_ms":500,"ramp_ms":500,
    "classes":{"t":{"mean_ms":20,"p95_ms":30,"deadline_ms":60000},"long":{"mean_ms":5000,"p95_ms":6000,"deadline_ms":60000}},
    "tiers":{"critical":{"reserved_workers":0,"queue":5},"non-sheddable":{"queue":50}}}"#;

#[test]
fn with_its_tick_frozen_a_flood_gets_the_fixed_budgets_and_nothing_more_and_thawed_it_is_normal_without_traffic()
 {
    let mut w = World::new(PROFILE);
    w.advance(200);
    for name in ["long 1", "long 2"] {
        w.ask(name, req("long", 5_000)).key();
    }
    for _ in 0..3 {
        w.ask("n", req("t", 20).tier(Tier::NonSheddable)).key();
    }
    w.advance(100);
    w.ticking = false;
    w.held = true;
    w.advance(501);
    let mut admitted = [0_u32; 3];
    let mut stale = 0;
    for _ in 0..300 {
        for tier in [Tier::Critical, Tier::NonSheddable, Tier::Deferrable] {
            match w.ask("flood", req("t", 20).tier(tier)) {
                Answer::Accepted { .. } => admitted[tier.index()] += 1,
                Answer::Deferred { .. } => panic!("deferred by a controller that does not know its state"),
                Answer::Refused(refusal) => {
                    stale += u32::from(refusal.overload.code == Some(Code::ControllerStale));
                }
            }
        }
        w.advance(10);
    }
    // Critical has the five places of its budget; non-sheddable had three waiting when the tick was last seen, and they
    // still wait; deferrable has nothing.
    assert_eq!(admitted, [5, 0, 0]);
    assert_eq!(stale, 600);

    // The workers go on, the tick comes back, and nobody asks.
    w.held = false;
    w.ticking = true;
    w.advance(10_000);
    let g = w.gauges();
    assert_eq!((g.state, g.tickets), (ServiceState::Normal, 0));
    assert_eq!(w.ask("after", req("t", 20)).code(), None);
}
