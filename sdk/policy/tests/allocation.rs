//! The success path costs no allocation.
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
