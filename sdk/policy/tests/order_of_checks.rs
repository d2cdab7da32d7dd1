//! Which reason is reported when several apply: the order of CONTRACT section 5.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

mod common;

use common::*;
use holdoff_contract::{Applied, Hint, Overload, Retry};
use holdoff_policy::{
    Action, CallSpec, Event, Finish, Instances, Outcome, Policy, Price, Progress, Replay, Safety, StopReason,
};

/// In the order of the contract.
const ORDER: [StopReason; 9] = [
    StopReason::RetryForbidden,
    StopReason::NotSafe,
    StopReason::NotReplayable,
    StopReason::AttemptsExhausted,
    StopReason::UpstreamRetries,
    StopReason::HintTooLong,
    StopReason::DeadlineBeforeHint,
    StopReason::TooManyWaiting,
    StopReason::BudgetExhausted,
];

/// A world, call and refusal to which exactly these reasons apply.
fn with_reasons(applies: impl Fn(StopReason) -> bool) -> (World, CallSpec, Overload) {
    let policy = Policy::builder()
        .max_attempts(if applies(StopReason::AttemptsExhausted) {
            1
        } else {
            3
        })
        .max_waiting(if applies(StopReason::TooManyWaiting) {
            0
        } else {
            1024
        })
        .budget_capacity(if applies(StopReason::BudgetExhausted) {
            4
        } else {
            100
        });
    let unsafe_to_send = applies(StopReason::NotSafe);
    let spec = CallSpec {
        safety: if unsafe_to_send {
            Safety::Unsafe
        } else {
            Safety::Idempotent
        },
        replay: if applies(StopReason::NotReplayable) {
            Replay::Once
        } else {
            Replay::Bytes
        },
        deadline: applies(StopReason::DeadlineBeforeHint).then_some(ms(900)),
        incoming: applies(StopReason::UpstreamRetries)
            .then(|| relayed(1, false))
            .flatten(),
        ..get()
    };
    let refusal = Overload {
        retry: if applies(StopReason::RetryForbidden) {
            Retry::No
        } else {
            Retry::After
        },
        applied: if unsafe_to_send {
            Applied::Maybe
        } else {
            Applied::No
        },
        ..after(if applies(StopReason::HintTooLong) {
            120_001
        } else {
            1000
        })
    };
    (World::new(policy.build().unwrap()), spec, refusal)
}

#[test]
fn of_every_combination_of_reasons_the_first_in_the_contract_wins_and_nothing_stays_taken() {
    for mask in 1_u32..1 << ORDER.len() {
        let applies = |why| mask & (1 << ORDER.iter().position(|reason| *reason == why).unwrap()) != 0;
        let first = ORDER[mask.trailing_zeros() as usize];
        let (mut world, spec, refusal) = with_reasons(applies);
        let give_up = world.stop_after(spec, refused(refusal.clone()));
        assert_eq!(give_up.why, first, "{mask:09b}");
        assert_eq!(give_up.attempts, 1);
        assert_eq!(give_up.waited, ms(0));
        assert_eq!(
            give_up.retry_in,
            Some(refusal.hint.delay_or_zero()),
            "uncut: {mask:09b}"
        );
        assert_eq!(*give_up.last.unwrap().overload, refusal);
        assert_eq!(world.log.0, [Event::GaveUp(first)]);
        assert!(world.destination.is_at_rest());
    }
}

#[test]
fn without_any_reason_to_stop_the_call_waits() {
    let (mut world, spec, refusal) = with_reasons(|_| false);
    let mut call = world.call(spec);
    let _ = world.send(&mut call);
    world.tell(&mut call, refused(refusal));
    let Action::WaitUntil(until) = world.next(&mut call) else {
        panic!("no wait")
    };
    assert!((ms(1000)..=ms(1500)).contains(&(until - world.now)));
    assert_eq!(
        world.next(&mut call),
        Action::WaitUntil(until),
        "asking again changes nothing"
    );
    assert_eq!(
        (world.destination.waiting(), world.destination.budget().level()),
        (1, 95)
    );
}

#[test]
fn a_server_window_is_followed_up_to_twelve_sends_and_own_waits_up_to_two() {
    let mut world = World::new(Policy::default());
    let run = world.run(get(), |_| refused(window(50, 100)));
    assert_eq!((run.why(), run.sends.len()), (StopReason::AttemptsExhausted, 12));
    let run = world.run(get(), |_| refused(after(50)));
    assert_eq!((run.why(), run.sends.len()), (StopReason::AttemptsExhausted, 3));
    // Mixed: the windows do not use up the own waits, and the own waits do not end the windows.
    let run = world.run(get(), |k| {
        refused(if k % 4 == 0 { after(50) } else { window(50, 100) })
    });
    assert_eq!((run.why(), run.sends.len()), (StopReason::AttemptsExhausted, 12));
    let run = world.run(get(), |k| {
        refused(if k % 3 == 0 { after(50) } else { window(50, 100) })
    });
    assert_eq!((run.why(), run.sends.len()), (StopReason::AttemptsExhausted, 9));
}

#[test]
fn the_limits_of_attempts_can_turn_off_own_retries_or_all() {
    let mut world = World::new(Policy::builder().max_attempts(1).build().unwrap());
    assert_eq!(
        world.stop_after(get(), refused(bare())).why,
        StopReason::AttemptsExhausted
    );
    assert_eq!(
        world
            .script(get(), vec![refused(window(50, 90)), Outcome::Success])
            .finish,
        Finish::Deliver
    );
    let mut world = World::new(Policy::builder().max_attempts_scheduled(1).build().unwrap());
    assert_eq!(
        world.stop_after(get(), refused(window(50, 90))).why,
        StopReason::AttemptsExhausted
    );
}

#[test]
fn a_keyed_or_provably_unapplied_post_is_retried_and_a_bare_503_to_a_post_is_not() {
    let mut world = World::new(Policy::default());
    assert_eq!(world.stop_after(post(), refused(bare())).why, StopReason::NotSafe);
    let unapplied = vec![refused(after(60)), Outcome::Success];
    assert_eq!(world.script(post(), unapplied).finish, Finish::Deliver);
    let keyed = CallSpec {
        safety: Safety::Keyed,
        ..get()
    };
    assert_eq!(
        world
            .script(keyed, vec![refused(bare()), Outcome::Success])
            .finish,
        Finish::Deliver
    );
}

#[test]
fn a_relay_retries_only_where_it_opted_in_and_nobody_above_it_does() {
    let mut world = World::new(Policy::default());
    for (attempt, retries, why) in [
        (1, false, Some(StopReason::UpstreamRetries)),
        (2, true, Some(StopReason::UpstreamRetries)),
        (1, true, None),
    ] {
        let spec = CallSpec {
            incoming: relayed(attempt, retries),
            ..get()
        };
        let run = world.run(spec, |k| {
            if k == 1 {
                refused(window(50, 90))
            } else {
                Outcome::Success
            }
        });
        match why {
            Some(why) => assert_eq!(run.why(), why),
            None => assert_eq!(run.finish, Finish::Deliver),
        }
        assert_eq!(run.sends.len(), if why.is_some() { 1 } else { 2 });
    }
}

#[test]
fn a_hint_at_the_cap_is_waited_for_and_one_over_it_is_never_clamped() {
    let mut world = World::new(Policy::default());
    let run = world.script(get(), vec![refused(after(120_000)), Outcome::Success]);
    assert!(run.gaps[0] >= ms(120_000));
    assert_eq!(
        world.stop_after(get(), refused(after(120_001))).why,
        StopReason::HintTooLong
    );
}

#[test]
fn a_window_must_open_more_than_ten_milliseconds_before_the_time_is_over() {
    for (deadline, waits) in [(1011, false), (1012, true)] {
        let mut world = World::new(Policy::default());
        let spec = CallSpec {
            deadline: Some(ms(deadline)),
            ..get()
        };
        // The attempt takes 1 ms.
        let run = world.run(spec, |k| {
            if k == 1 {
                refused(window(1000, 9000))
            } else {
                Outcome::Success
            }
        });
        assert_eq!(run.sends.len(), if waits { 2 } else { 1 });
        if waits {
            assert!(
                (ms(1000)..=ms(1001)).contains(&run.gaps[0]),
                "cut to the deadline: {:?}",
                run.gaps
            );
        } else {
            assert_eq!(run.why(), StopReason::DeadlineBeforeHint);
            assert_eq!(run.gave_up().retry_in, Some(ms(1000)));
        }
    }
}

#[test]
fn an_answer_whose_body_was_read_past_the_deadline_stops_at_once() {
    let mut world = World::new(Policy::default());
    let mut call = world.call(CallSpec {
        deadline: Some(ms(2000)),
        ..get()
    });
    let _ = world.send(&mut call);
    let received = world.now + ms(100);
    world.now += ms(1995);
    let outcome = refused(window(200, 400));
    call.on_outcome(
        received,
        world.now,
        outcome,
        &mut world.destination,
        &mut world.rng,
        &mut world.log,
    );
    let Finish::GiveUp(give_up) = world.finish(&mut call) else {
        panic!("delivered")
    };
    assert_eq!(
        (give_up.why, give_up.retry_in),
        (StopReason::DeadlineBeforeHint, Some(ms(0)))
    );
}

#[test]
fn elsewhere_goes_to_another_known_instance_soon_and_else_waits_like_after() {
    let elsewhere = || refused(with_retry(Retry::Elsewhere, after(5000)));
    let mut world = World::new(Policy::default());
    let known = CallSpec {
        instances: Instances::new(2, 0),
        ..get()
    };
    let mut call = world.call(known);
    let _ = world.send(&mut call);
    world.tell(&mut call, elsewhere());
    assert_eq!(world.destination.budget().level(), 95, "cost 5");
    let Action::WaitUntil(until) = world.next(&mut call) else {
        panic!("no wait")
    };
    assert!((ms(50)..=ms(100)).contains(&(until - world.now)));
    world.now = until;
    assert_eq!(world.send(&mut call).instance, 1);
    assert_eq!(world.log.early(), 0, "D does not bind another instance");
    world.tell(&mut call, Outcome::Success);
    assert_eq!(world.finish(&mut call), Finish::Deliver);

    let run = world.script(get(), vec![elsewhere(), Outcome::Success]);
    assert!(run.gaps[0] >= ms(5000));
    assert_eq!(run.sends[1].instance, 0);
    let blind = refused(with_retry(Retry::Elsewhere, overload(Hint::Absent)));
    let run = world.script(get(), vec![blind, Outcome::Success]);
    assert!((ms(500)..=ms(1000)).contains(&run.gaps[0]));
}

#[test]
fn elsewhere_does_not_lift_the_cap() {
    let mut world = World::new(Policy::default());
    let known = CallSpec {
        instances: Instances::new(2, 0),
        ..get()
    };
    let over = with_retry(Retry::Elsewhere, after(121_000));
    assert_eq!(
        world.stop_after(known, refused(over)).why,
        StopReason::HintTooLong
    );
}

#[test]
fn a_decision_can_be_shown_without_a_wait() {
    let policy = Policy::default();
    let first = Progress::first(ms(600_000));
    let shown = policy.judge(&get(), &window(1000, 4000), first).unwrap();
    assert_eq!(
        (shown.price, shown.hint, shown.window.max),
        (Price::Scheduled, Some(ms(1000)), Some(ms(4000)))
    );
    assert_eq!(policy.judge(&post(), &bare(), first), Err(StopReason::NotSafe));
}

#[test]
fn every_failure_of_the_transport_stops_with_the_limit_that_binds() {
    let broken = || Outcome::Broken;
    let why = |policy: Policy, spec, outcome| World::new(policy).stop_after(spec, outcome).why;
    let build = |builder: holdoff_policy::PolicyBuilder| builder.build().unwrap();
    let default = Policy::default;
    let once = CallSpec {
        replay: Replay::Once,
        ..get()
    };
    let relay = CallSpec {
        incoming: relayed(1, false),
        ..get()
    };
    let late = CallSpec {
        deadline: Some(ms(10)),
        ..get()
    };
    assert_eq!(
        why(default(), post(), broken()),
        StopReason::Transport,
        "perhaps applied"
    );
    assert_eq!(why(default(), post(), Outcome::TimedOut), StopReason::Transport);
    assert_eq!(why(default(), once, Outcome::NotConnected), StopReason::Transport);
    assert_eq!(
        why(build(Policy::builder().max_attempts(1)), get(), broken()),
        StopReason::Transport
    );
    assert_eq!(why(default(), relay, broken()), StopReason::UpstreamRetries);
    assert_eq!(why(default(), late, broken()), StopReason::DeadlineExceeded);
    assert_eq!(
        why(default(), late, Outcome::TimedOut),
        StopReason::DeadlineExceeded
    );
    let late_post = CallSpec {
        deadline: Some(ms(10)),
        ..post()
    };
    assert_eq!(
        why(default(), late_post, broken()),
        StopReason::Transport,
        "perhaps applied comes first"
    );
    assert_eq!(
        why(default(), late_post, Outcome::TimedOut),
        StopReason::DeadlineExceeded,
        "the call's time"
    );
    assert_eq!(
        why(build(Policy::builder().max_waiting(0)), get(), broken()),
        StopReason::TooManyWaiting
    );
    assert_eq!(
        why(build(Policy::builder().budget_capacity(13)), get(), broken()),
        StopReason::BudgetExhausted
    );
}

#[test]
fn a_connection_that_was_never_made_is_retried_for_any_replayable_call() {
    let mut world = World::new(Policy::default());
    let run = world.script(
        post(),
        vec![Outcome::NotConnected, Outcome::NotConnected, Outcome::Success],
    );
    assert_eq!(run.finish, Finish::Deliver);
    assert!(run.gaps[0] <= ms(50) && run.gaps[1] <= ms(100), "{:?}", run.gaps);
}

#[test]
fn a_bad_gateway_that_is_not_tried_again_is_delivered_whatever_stopped_it() {
    let mut world = World::new(Policy::default());
    assert_eq!(
        world.script(post(), vec![Outcome::BadGateway]).finish,
        Finish::Deliver
    );
    let run = world.run(get(), |_| Outcome::BadGateway);
    assert_eq!((run.finish, run.sends.len()), (Finish::Deliver, 3));
    assert!(world.log.gave_up().is_empty());
}
