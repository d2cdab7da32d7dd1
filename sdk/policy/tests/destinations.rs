//! The table of destinations: bounded, and no way to reset a storm.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

mod common;

use std::sync::{Arc, Mutex};

use common::*;
use holdoff_contract::{Overload, Scope};
use holdoff_policy::{Action, Destination, Destinations, Policy};

/// Spends one blind retry of this destination; returns whether its budget allowed it.
fn spend(shared: &Arc<Mutex<Destination>>, world: &mut World) -> bool {
    let mut destination = shared.lock().unwrap();
    let mut call = world.call(get());
    let _ = call.next_action(world.now, &mut destination, &mut world.rng, &mut ());
    call.on_outcome(
        world.now,
        world.now,
        refused(bare()),
        &mut destination,
        &mut world.rng,
        &mut (),
    );
    let Action::WaitUntil(until) = call.next_action(world.now, &mut destination, &mut world.rng, &mut ())
    else {
        return false;
    };
    let sent = call.next_action(until, &mut destination, &mut world.rng, &mut ());
    call.cancel(until, &mut destination, &mut ());
    matches!(sent, Action::Send(_))
}

fn level(shared: &Arc<Mutex<Destination>>) -> u32 {
    shared.lock().unwrap().budget().level()
}

#[test]
fn scheme_and_authority_together_name_a_destination() {
    let destinations = Destinations::new(&Policy::default());
    assert!(destinations.is_empty());
    let one = destinations.get("https", "a:443");
    assert!(Arc::ptr_eq(&one, &destinations.get("https", "a:443")));
    for (scheme, authority) in [
        ("http", "a:443"),
        ("https", "a:444"),
        ("httpsa", ":443"),
        ("https", ""),
    ] {
        assert!(!Arc::ptr_eq(&one, &destinations.get(scheme, authority)));
    }
    assert_eq!(destinations.len(), 5);
}

#[test]
fn a_destination_in_trouble_outlives_any_number_of_new_ones() {
    let mut world = World::new(Policy::default());
    let destinations = Destinations::with_limit(&world.policy, 8);
    assert!(spend(&destinations.get("http", "storm"), &mut world));
    let held = destinations.get("http", "held");
    for n in 0..8 * 16 {
        let _ = destinations.get("http", &format!("new-{n}"));
        assert!(destinations.len() <= 8);
    }
    assert_eq!(
        level(&destinations.get("http", "storm")),
        86,
        "its budget was not made new"
    );
    assert!(
        Arc::ptr_eq(&held, &destinations.get("http", "held")),
        "a call holds it"
    );
}

#[test]
fn where_every_destination_is_in_trouble_new_ones_share_one_entry_and_its_budget() {
    let mut world = World::new(Policy::default());
    let destinations = Destinations::with_limit(&world.policy, 8);
    for n in 0..8 {
        assert!(spend(&destinations.get("http", &format!("busy-{n}")), &mut world));
    }
    let granted = (0..20)
        .filter(|n| spend(&destinations.get("http", &format!("late-{n}")), &mut world))
        .count();
    assert_eq!(granted, 7, "one budget of 100 at 14 for all of them");
    assert_eq!(destinations.len(), 8);
}

#[test]
fn a_hold_off_outlives_any_number_of_new_destinations_and_the_overflow_entry_holds_nobody() {
    let mut world = World::new(Policy::default());
    let destinations = Destinations::with_limit(&world.policy, 4);
    let mut refuse = |shared: &Arc<Mutex<Destination>>| {
        let mut destination = shared.lock().unwrap();
        let mut call = world.call(get());
        let sent = call.next_action(world.now, &mut destination, &mut world.rng, &mut ());
        assert!(matches!(sent, Action::Send(_)), "held by another authority");
        let said = refused(Overload {
            scope: Scope::Service,
            ..after(3_600_000)
        });
        call.on_outcome(
            world.now,
            world.now,
            said,
            &mut destination,
            &mut world.rng,
            &mut (),
        );
    };
    for n in 0..4 {
        refuse(&destinations.get("http", &format!("held-{n}")));
    }
    for n in 0..64 {
        refuse(&destinations.get("http", &format!("late-{n}")));
        assert_eq!(destinations.len(), 4);
    }
    let held = destinations.get("http", "held-3");
    assert_eq!(held.lock().unwrap().hold_offs(world.now), 1);
    assert_eq!(held.lock().unwrap().hold_offs(world.now + ms(30_000)), 0);
}

#[test]
fn a_destination_in_trouble_that_nobody_asks_for_any_more_makes_room_in_the_end() {
    let mut world = World::new(Policy::default());
    let destinations = Destinations::with_limit(&world.policy, 8);
    for n in 0..8 {
        assert!(spend(&destinations.get("http", &format!("gone-{n}")), &mut world));
    }
    for _ in 0..8 * 16 + 8 {
        let _ = destinations.get("http", "gone-0");
    }
    let new = destinations.get("http", "new");
    assert!(Arc::ptr_eq(&new, &destinations.get("http", "new")));
    assert_eq!(destinations.len(), 2, "the one in use and the new one");
    assert_eq!(level(&destinations.get("http", "gone-0")), 86);
}

#[test]
fn a_destination_with_waiting_calls_is_never_evicted() {
    let mut world = World::new(Policy::default());
    let destinations = Destinations::with_limit(&world.policy, 1);
    let mut call = world.call(get());
    {
        let shared = destinations.get("http", "waits");
        let mut destination = shared.lock().unwrap();
        let _ = call.next_action(world.now, &mut destination, &mut world.rng, &mut ());
        let hint = refused(window(1000, 1100));
        call.on_outcome(
            world.now,
            world.now,
            hint,
            &mut destination,
            &mut world.rng,
            &mut (),
        );
    }
    for n in 0..1000 {
        let _ = destinations.get("http", &format!("new-{n}"));
    }
    let shared = destinations.get("http", "waits");
    assert_eq!(shared.lock().unwrap().waiting(), 1);
    call.cancel(world.now, &mut shared.lock().unwrap(), &mut ());
    assert!(shared.lock().unwrap().is_at_rest());
}

#[test]
fn threads_share_the_table_and_a_panic_in_one_does_not_stop_the_others() {
    let destinations = Arc::new(Destinations::new(&Policy::default()));
    let poisoner = Arc::clone(&destinations);
    let panicked = std::thread::spawn(move || {
        let shared = poisoner.get("http", "a");
        let _guard = shared.lock().unwrap();
        panic!("while it holds a destination");
    });
    assert!(panicked.join().is_err());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let destinations = Arc::clone(&destinations);
            std::thread::spawn(move || (0..1000).for_each(|n| drop(destinations.get("http", &n.to_string()))))
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    assert_eq!(destinations.len(), 1001);
}

#[test]
fn a_full_table_is_not_searched_again_at_every_look_up() {
    let mut world = World::new(Policy::default());
    let destinations = Destinations::with_limit(&world.policy, 8);
    let mut shared = Vec::new();
    for n in 0..8 {
        shared.push(destinations.get("http", &format!("busy-{n}")));
        assert!(spend(&shared[n], &mut world));
    }
    let overflow = destinations.get("http", "late");
    // All are well again, which a search would see.
    for one in shared {
        let mut destination = one.lock().unwrap();
        *destination = Destination::new(&world.policy);
        assert!(destination.is_at_rest());
    }
    for _ in 0..7 {
        assert!(Arc::ptr_eq(&overflow, &destinations.get("http", "late")));
    }
    assert!(
        !Arc::ptr_eq(&overflow, &destinations.get("http", "late")),
        "one look-up for each place later"
    );
    assert_eq!(destinations.len(), 1);
}
