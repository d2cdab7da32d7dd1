//! Deadlines, tiers, attempts on the wire, cancels, and calls in the wrong order.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

mod common;

use common::*;
use holdoff_contract::{Attempt, Hint, Overload, Retry, Tier};
use holdoff_policy::{Action, CallSpec, Destination, Finish, Incoming, Outcome, Policy, StopReason};
use std::time::Duration;

#[test]
fn what_is_left_of_the_deadline_is_recomputed_at_each_send() {
    let mut world = World::new(Policy::default());
    world.attempt_takes = ms(200);
    let spec = CallSpec {
        deadline: Some(ms(10_000)),
        ..get()
    };
    let run = world.run(spec, |k| {
        if k < 3 {
            refused(window(1000, 1200))
        } else {
            Outcome::Success
        }
    });
    let left: Vec<Duration> = run.sends.iter().map(|send| send.time_left.unwrap()).collect();
    assert_eq!(left[0], ms(10_000));
    assert_eq!(left[1], left[0] - ms(200) - run.gaps[0]);
    assert_eq!(left[2], left[1] - ms(200) - run.gaps[1]);
}

#[test]
fn a_call_with_nothing_left_is_not_sent() {
    for deadline in [Duration::ZERO, Duration::from_micros(999)] {
        let mut world = World::new(Policy::default());
        let run = world.script(
            CallSpec {
                deadline: Some(deadline),
                ..get()
            },
            vec![],
        );
        let give_up = run.gave_up();
        assert_eq!(
            (give_up.why, give_up.attempts, &give_up.last),
            (StopReason::DeadlineExceeded, 0, &None)
        );
    }
    let mut world = World::new(Policy::default());
    let run = world.script(
        CallSpec {
            deadline: Some(ms(1)),
            ..get()
        },
        vec![Outcome::Success],
    );
    assert_eq!(run.finish, Finish::Deliver);
}

#[test]
fn a_retry_that_is_asked_for_after_the_deadline_is_not_sent_and_its_charge_goes_back() {
    let mut world = World::new(Policy::default());
    let mut call = world.call(CallSpec {
        deadline: Some(ms(3000)),
        ..get()
    });
    let _ = world.send(&mut call);
    world.tell(&mut call, refused(after(1000)));
    assert_eq!(world.destination.budget().level(), 95);
    world.now += ms(3000);
    let Finish::GiveUp(give_up) = world.finish(&mut call) else {
        panic!("delivered")
    };
    assert_eq!((give_up.why, give_up.attempts), (StopReason::DeadlineExceeded, 1));
    assert_eq!((give_up.waited, give_up.retry_in), (ms(3000), Some(ms(0))));
    assert!(give_up.last.is_some());
    assert!(world.destination.is_at_rest());
}

#[test]
fn the_smaller_deadline_and_the_lower_tier_of_own_and_incoming_count() {
    let cases = [
        (
            Some(Tier::Critical),
            Some(Tier::Deferrable),
            Some(Tier::Deferrable),
        ),
        (
            Some(Tier::Deferrable),
            Some(Tier::Critical),
            Some(Tier::Deferrable),
        ),
        (
            Some(Tier::NonSheddable),
            Some(Tier::Critical),
            Some(Tier::NonSheddable),
        ),
        (None, Some(Tier::Critical), Some(Tier::Critical)),
        (Some(Tier::Critical), None, Some(Tier::Deferrable)),
        (None, None, None),
    ];
    for (own, theirs, effective) in cases {
        for (own_ms, theirs_ms, effective_ms) in [
            (Some(5), Some(4), Some(4)),
            (Some(4), Some(5), Some(4)),
            (None, Some(5), Some(5)),
            (Some(5), None, Some(5)),
        ] {
            let incoming = Incoming {
                attempt: Attempt::FIRST,
                retries: false,
                tier: theirs,
                deadline: theirs_ms.map(Duration::from_secs),
            };
            let deadline = own_ms.map(Duration::from_secs);
            let mut world = World::new(Policy::default());
            let mut call = world.call(CallSpec {
                tier: own,
                deadline,
                incoming: Some(incoming),
                ..get()
            });
            let send = world.send(&mut call);
            assert_eq!(send.tier, effective);
            assert_eq!(send.time_left, effective_ms.map(Duration::from_secs));
        }
    }
    let mut world = World::new(Policy::default());
    let mut call = world.call(CallSpec {
        tier: Some(Tier::Critical),
        ..get()
    });
    assert_eq!(world.send(&mut call).tier, Some(Tier::Critical));
}

#[test]
fn the_attempt_on_the_wire_is_the_larger_of_incoming_and_own() {
    let mut world = World::new(Policy::default());
    let run = world.script(get(), vec![refused(window(50, 90)), Outcome::Success]);
    let told: Vec<(u8, u32)> = run
        .sends
        .iter()
        .map(|send| (send.attempt.get(), send.number))
        .collect();
    assert_eq!(told, [(1, 1), (2, 2)]);
    let mut call = world.call(CallSpec {
        incoming: relayed(7, true),
        ..get()
    });
    let send = world.send(&mut call);
    assert_eq!((send.attempt.get(), send.number), (7, 1));
}

#[test]
fn a_cancel_while_waiting_gives_back_charge_and_place_and_one_in_flight_does_not_unsend() {
    let mut world = World::new(Policy::default());
    let mut call = world.call(get());
    let _ = world.send(&mut call);
    world.tell(&mut call, refused(bare()));
    assert_eq!(
        (world.destination.budget().level(), world.destination.waiting()),
        (86, 1)
    );
    world.now += ms(10);
    world.cancel(&mut call);
    assert!(world.destination.is_at_rest());
    let Finish::GiveUp(give_up) = world.finish(&mut call) else {
        panic!("delivered")
    };
    assert_eq!(
        (give_up.why, give_up.attempts, give_up.waited),
        (StopReason::Cancelled, 1, ms(10))
    );
    world.cancel(&mut call);
    assert_eq!(world.log.gave_up(), [StopReason::Cancelled], "once");

    let mut call = world.call(get());
    let _ = world.send(&mut call);
    world.tell(&mut call, refused(bare()));
    let Action::WaitUntil(until) = world.next(&mut call) else {
        panic!("no wait")
    };
    world.now = until;
    let _ = world.send(&mut call);
    world.cancel(&mut call);
    assert_eq!(
        (world.destination.budget().level(), world.destination.waiting()),
        (86, 0)
    );
}

#[test]
fn a_cancel_before_the_first_send_or_after_the_end_does_no_harm() {
    let mut world = World::new(Policy::default());
    let mut call = world.call(get());
    world.cancel(&mut call);
    let Finish::GiveUp(give_up) = world.finish(&mut call) else {
        panic!("delivered")
    };
    assert_eq!((give_up.why, give_up.attempts), (StopReason::Cancelled, 0));
    let mut call = world.call(get());
    let _ = world.send(&mut call);
    world.tell(&mut call, Outcome::Success);
    world.cancel(&mut call);
    assert_eq!(world.finish(&mut call), Finish::Deliver);
    assert!(world.destination.is_at_rest());
}

#[test]
fn calls_in_the_wrong_order_neither_panic_nor_send_twice() {
    let mut world = World::new(Policy::default());
    let mut call = world.call(get());
    world.tell(&mut call, Outcome::Success);
    let _ = world.send(&mut call);
    // Asked while an attempt is under way: its outcome was lost.
    let Finish::GiveUp(give_up) = world.finish(&mut call) else {
        panic!("delivered")
    };
    assert_eq!(give_up.why, StopReason::Cancelled);
    world.tell(&mut call, Outcome::Success);
    assert!(matches!(world.finish(&mut call), Finish::GiveUp(_)));

    let mut call = world.call(get());
    let _ = world.send(&mut call);
    world.tell(&mut call, refused(window(500, 600)));
    world.tell(&mut call, Outcome::Success);
    world.tell(&mut call, refused(window(500, 600)));
    assert!(matches!(world.next(&mut call), Action::WaitUntil(_)));
    assert_eq!(world.destination.waiting(), 1);
    // Another destination by mistake: nothing goes below zero.
    world.destination = Destination::new(&world.policy);
    world.cancel(&mut call);
    assert!(world.destination.is_at_rest());
}

#[test]
fn instants_in_the_wrong_order_make_a_wait_longer_and_never_shorter() {
    let mut world = World::new(Policy::default());
    world.now += Duration::from_secs(100);
    let sent = world.now;
    let mut call = world.call(get());
    let _ = world.send(&mut call);
    let hint = refused(window(1000, 1100));
    // Received before it was sent, and now before both.
    let (received, now) = (sent - ms(50_000), sent - ms(90_000));
    call.on_outcome(
        received,
        now,
        hint,
        &mut world.destination,
        &mut world.rng,
        &mut world.log,
    );
    let Action::WaitUntil(until) = world.next(&mut call) else {
        panic!("no wait")
    };
    assert!(until >= sent + ms(1000));
    // A clock that goes back never makes it early.
    world.now = sent - ms(10);
    assert_eq!(world.next(&mut call), Action::WaitUntil(until));
}

#[test]
fn durations_beyond_the_clock_neither_panic_nor_wait_for_ever() {
    let mut world = World::new(Policy::default());
    let spec = CallSpec {
        deadline: Some(Duration::MAX),
        ..get()
    };
    let mut call = world.call(spec);
    let day = ms(86_400_000);
    assert_eq!(
        world.send(&mut call).time_left,
        Some(day),
        "the most that the wire can say"
    );
    let endless = Hint::Window {
        delay: Duration::MAX,
        max: Duration::MAX,
    };
    world.tell(&mut call, refused(overload(endless)));
    let Finish::GiveUp(give_up) = world.finish(&mut call) else {
        panic!("delivered")
    };
    assert_eq!(give_up.why, StopReason::HintTooLong);
    let wide = world.policy.window(
        Hint::Window {
            delay: ms(1000),
            max: Duration::MAX,
        },
        1,
    );
    assert_eq!(
        (wide.lo, wide.hi),
        (ms(1000), ms(61_000)),
        "M is at most D + 60 s"
    );
}

#[test]
fn waiting_in_all_is_bounded_without_a_deadline() {
    let mut world = World::new(Policy::default());
    world.attempt_takes = Duration::from_secs(600);
    let run = world.run(get(), |_| refused(window(50_000, 50_100)));
    assert_eq!((run.why(), run.sends.len()), (StopReason::DeadlineBeforeHint, 4));
    let waited = run.gave_up().waited;
    assert!(
        waited >= ms(150_000) && waited <= ms(180_000),
        "the attempts are not in it: {waited:?}"
    );
    assert_eq!(run.gaps.iter().sum::<Duration>(), waited);
}

#[test]
fn a_success_pays_in_on_the_first_try_and_is_paid_back_on_a_later_one() {
    let mut world = World::new(Policy::default());
    let _ = world.run(get(), |_| refused(bare()));
    assert_eq!(
        world.destination.budget().level(),
        72,
        "two blind retries that failed are spent"
    );
    let _ = world.script(get(), vec![Outcome::Success]);
    assert_eq!(world.destination.budget().level(), 73);
    let _ = world.script(get(), vec![refused(bare()), refused(after(60)), Outcome::Success]);
    assert_eq!(
        world.destination.budget().level(),
        59,
        "14 spent, 5 paid back, nothing paid in"
    );
    let _ = world.script(get(), vec![refused(after(60)), Outcome::Answered]);
    assert_eq!(
        world.destination.budget().level(),
        54,
        "an error answer is no success"
    );
}

#[test]
fn the_last_overload_is_kept_when_the_last_attempt_fails_otherwise() {
    let mut world = World::new(Policy::default());
    let run = world.script(
        get(),
        vec![refused(after(1000)), Outcome::Broken, Outcome::Broken],
    );
    assert_eq!((run.why(), run.sends.len()), (StopReason::Transport, 3));
    let last = run.gave_up().last.as_ref().unwrap();
    assert_eq!(*last.overload, after(1000));
    assert_eq!(run.gave_up().retry_in, Some(ms(0)));
}

#[test]
fn the_cause_of_a_delivered_bad_gateway_can_still_be_asked_for() {
    let mut world = World::new(Policy::builder().max_attempts(2).build().unwrap());
    let mut call = world.call(get());
    let _ = world.send(&mut call);
    world.tell(&mut call, refused(after(60)));
    let Action::WaitUntil(until) = world.next(&mut call) else {
        panic!("no wait")
    };
    world.now = until;
    let _ = world.send(&mut call);
    world.tell(&mut call, Outcome::BadGateway);
    assert_eq!(world.finish(&mut call), Finish::Deliver);
    assert_eq!(*call.last_refusal().unwrap().overload, after(60));
    assert_eq!((call.attempts(), call.waited()), (2, until - world.base));
}

#[test]
fn every_knob_is_refused_by_name_outside_its_range() {
    let hour = Duration::from_secs(3601);
    let refusals = [
        (
            Policy::builder().max_attempts(0),
            "max_attempts is 0; it must be 1 to 255",
        ),
        (
            Policy::builder().max_attempts_scheduled(256),
            "max_attempts_scheduled is 256; it must be 1 to 255",
        ),
        (
            Policy::builder().hint_cap(ms(86_400_001)),
            "hint_cap is 86400.001s; it must be 0 to 24 h",
        ),
        (
            Policy::builder().backoff_floor(ms(0)),
            "backoff_floor is 0ns; it must be 1 ms to 60 s",
        ),
        (
            Policy::builder().backoff_base(hour),
            "backoff_base is 3601s; it must be 0 to 1 h",
        ),
        (
            Policy::builder().backoff_cap(hour),
            "backoff_cap is 3601s; it must be 0 to 1 h",
        ),
        (
            Policy::builder().transport_base(ms(0)),
            "transport_base is 0ns; it must be 1 ms to 1 h",
        ),
        (
            Policy::builder().max_wait_total(Duration::MAX),
            "must be 0 to 24 h",
        ),
        (
            Policy::builder().max_waiting(1_000_001),
            "max_waiting is 1000001; it must be 0 to 1000000",
        ),
        (
            Policy::builder().budget_capacity(u32::MAX),
            "budget_capacity is 4294967295; it must be 0 to 1000000",
        ),
    ];
    for (builder, message) in refusals {
        let refused = builder.build().unwrap_err().to_string();
        assert!(refused.ends_with(message), "{refused}");
    }
    assert_eq!(Policy::builder().build(), Ok(Policy::default()));
}

#[test]
fn how_a_call_ended_is_known_without_its_destination() {
    let mut world = World::new(Policy::default());
    let mut served = world.call(get());
    let _ = world.send(&mut served);
    assert!(!served.has_ended());
    assert_eq!(served.ended(world.now), None);
    world.tell(&mut served, Outcome::Success);
    assert_eq!(served.ended(world.now), Some(Finish::Deliver));

    let mut refused_for_good = world.call(get());
    let _ = world.send(&mut refused_for_good);
    let refusal = Overload {
        retry: Retry::No,
        ..after(1000)
    };
    world.tell(&mut refused_for_good, refused(refusal));
    assert!(refused_for_good.has_ended());
    let Some(Finish::GiveUp(give_up)) = refused_for_good.ended(world.now) else {
        panic!("it was delivered");
    };
    assert_eq!(give_up.why, StopReason::RetryForbidden);
}
