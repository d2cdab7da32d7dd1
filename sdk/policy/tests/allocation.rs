//! The success path costs no allocation, and a destination at rest next to no memory.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

mod common;

use std::sync::Arc;

use common::*;
use holdoff_policy::{Action, Call, Destinations, Finish, Outcome, Policy};

#[test]
fn a_call_that_succeeds_on_a_known_destination_allocates_nothing() {
    let policy = Arc::new(Policy::default());
    let destinations = Destinations::new(&policy);
    drop(destinations.get("https", "service.example:443"));
    let now = base();
    let mut rng = rng(1);
    let mut delivered = 0;
    let counted = allocation_counter::measure(|| {
        for _ in 0..100 {
            let shared = destinations.get("https", "service.example:443");
            let mut call = Call::new(Arc::clone(&policy), get(), now);
            let Ok(mut destination) = shared.lock() else {
                return;
            };
            let Action::Send(_) = call.next_action(now, &mut destination, &mut rng, &mut ()) else {
                return;
            };
            call.on_outcome(now, now, Outcome::Success, &mut destination, &mut rng, &mut ());
            let end = call.next_action(now, &mut destination, &mut rng, &mut ());
            delivered += u32::from(end == Action::Finish(Finish::Deliver));
        }
    });
    assert_eq!(delivered, 100);
    assert_eq!(counted.count_total, 0, "{counted:?}");
    let control = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1_u8))));
    assert_eq!(control.count_total, 1, "the counter counts");
}

#[test]
fn a_destination_at_rest_costs_at_most_256_bytes_with_its_name_and_its_place_in_the_table() {
    let policy = Policy::default();
    let mut held = 0;
    for count in [100_u64, 1000, 1024] {
        let mut destinations = None;
        let counted = allocation_counter::measure(|| {
            let table = Destinations::new(&policy);
            for n in 0..count {
                drop(table.get("https", &format!("service-{n:04}.team.example:8443")));
            }
            destinations = Some(table);
        });
        held = u64::try_from(counted.bytes_current).unwrap() / count;
        assert!(held <= 256, "{held} bytes each of {count}");
        assert_eq!(
            destinations.map(|table| table.len()),
            Some(usize::try_from(count).unwrap())
        );
    }
    assert!(held > 64, "the counter counts: {held}");
}

#[test]
fn a_destination_that_was_held_off_costs_nothing_more_once_that_is_over() {
    let mut world = World::new(Policy::default());
    let counted = allocation_counter::measure(|| {
        let mut call = world.call(get());
        let _ = world.send(&mut call);
        let refusal = holdoff_contract::Overload {
            scope: holdoff_contract::Scope::Service,
            ..after(1000)
        };
        world.tell(&mut call, refused(refusal));
        world.cancel(&mut call);
        drop(call);
        world.now += ms(1000);
        let mut next = world.call(get());
        let _ = world.send(&mut next);
        world.log.0 = Vec::new();
    });
    assert!(counted.count_total > 0);
    assert_eq!(counted.bytes_current, 0, "{counted:?}");
}
