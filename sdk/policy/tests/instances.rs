//! retry=elsewhere over several instances: whom to ask, and when (CLI-07, CLI-01).
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

mod common;

use common::*;
use holdoff_contract::Retry;
use holdoff_policy::{Action, Call, CallSpec, Instances, Policy};

#[test]
fn when_every_instance_says_elsewhere_the_call_comes_back_to_none_before_its_own_hint() {
    // CLI-01 over CLI-07.
    let spec = CallSpec {
        instances: Instances::new(2, 1),
        ..get()
    };
    for seed in 0..100 {
        let mut world = World::seeded(Policy::default(), seed);
        let mut call = world.call(spec);
        assert_eq!(world.send(&mut call).instance, 1, "the first as asked for");
        let first = world.now;
        world.tell(
            &mut call,
            refused(with_retry(Retry::Elsewhere, window(2000, 2500))),
        );
        step(&mut world, &mut call);
        assert_eq!(world.send(&mut call).instance, 0);
        assert!(world.now - first <= ms(100));
        world.tell(
            &mut call,
            refused(with_retry(Retry::Elsewhere, window(5000, 5500))),
        );
        step(&mut world, &mut call);
        assert_eq!(
            world.send(&mut call).instance,
            1,
            "never to the one that just sent it away"
        );
        assert!((ms(2000)..=ms(2500)).contains(&(world.now - first)));
        assert_eq!(world.log.early(), 0);
    }
}

#[test]
fn a_third_instance_that_has_said_nothing_is_asked_before_one_that_has() {
    let spec = CallSpec {
        instances: Instances::new(3, 0),
        ..get()
    };
    let mut world = World::new(Policy::builder().max_attempts(9).build().unwrap());
    let mut call = world.call(spec);
    let mut asked = Vec::new();
    let began = world.now;
    for delay in [3000, 1000, 2000] {
        asked.push(world.send(&mut call).instance);
        world.tell(&mut call, refused(with_retry(Retry::Elsewhere, after(delay))));
        step(&mut world, &mut call);
    }
    assert_eq!(asked, [0, 1, 2]);
    assert_eq!(world.send(&mut call).instance, 1, "the one that is free first");
    assert!(world.now - began >= ms(1050));
}

#[test]
fn another_instance_is_another_authority_so_the_hold_off_of_one_does_not_hold_it() {
    let mut world = World::new(Policy::default());
    let spec = |first| CallSpec {
        instances: Instances::new(2, first),
        ..get()
    };
    let _ = arm(&mut world, spec(0), service(window(1000, 1300)));
    assert!(held(&mut world, spec(0)) >= ms(1000));
    assert_eq!(held(&mut world, spec(1)), ms(0));
    // And whoever is sent away from the second waits for the first's hold-off.
    let mut call = arm(
        &mut world,
        spec(1),
        refused(with_retry(Retry::Elsewhere, after(9000))),
    );
    let refused_at = world.now;
    step(&mut world, &mut call);
    assert_eq!(world.send(&mut call).instance, 0);
    assert!((ms(1000)..=ms(1300)).contains(&(world.now - refused_at)));
}

/// Goes on to when the call may send.
fn step(world: &mut World, call: &mut Call) {
    match world.next(call) {
        Action::WaitUntil(until) => world.now = until,
        other => panic!("no wait: {other:?}"),
    }
}
