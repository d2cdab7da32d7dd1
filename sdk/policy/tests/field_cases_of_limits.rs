//! Field cases about when to stop, in virtual time: real reports, told as sentences. The id is in the comment; the reports are
//! in the field-case collection of the conformance suite.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

mod common;

use common::*;
use holdoff_contract::{Applied, Code, Overload, Scope};
use holdoff_policy::{Action, CallSpec, Destinations, Finish, Outcome, Policy, Replay, Safety, StopReason};

#[test]
fn a_budget_that_a_bad_spell_emptied_is_filled_by_good_traffic() {
    // FC-BUD-02
    let mut world = World::new(field_policy().build().unwrap());
    let mut requests = 0;
    for call in 0..200 {
        let run = world.run(get(), |_| refused(bare()));
        requests += run.sends.len();
        assert!(call < 100 || (run.why(), run.sends.len()) == (StopReason::BudgetExhausted, 1));
    }
    assert_eq!(requests, 207);
    for _ in 0..200 {
        let _ = world.script(get(), vec![Outcome::Success]);
    }
    let blip = world.script(get(), vec![refused(bare()), Outcome::Success]);
    assert_eq!(blip.finish, Finish::Deliver);
}

#[test]
fn the_budget_is_charged_before_the_sleep_so_a_crowd_does_not_pass_the_check() {
    // FC-BUD-03
    let mut world = World::new(field_policy().max_attempts(2).build().unwrap());
    let mut calls = start(&mut world, 1000);
    let (mut waiting, mut stopped) = (0, 0);
    for call in &mut calls {
        world.tell(call, refused(seconds(1)));
        match world.next(call) {
            Action::WaitUntil(_) => waiting += 1,
            Action::Finish(Finish::GiveUp(give_up)) => {
                assert_eq!(
                    (give_up.why, give_up.retry_in),
                    (StopReason::BudgetExhausted, Some(ms(1000)))
                );
                stopped += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((waiting, stopped), (20, 980));
}

#[test]
fn the_default_policy_has_a_working_budget() {
    // FC-BUD-05
    let mut world = World::new(Policy::default());
    let runs: Vec<Run> = (0..200).map(|_| world.run(get(), |_| refused(bare()))).collect();
    assert_eq!(runs.iter().map(|run| run.sends.len()).sum::<usize>(), 207);
    for run in &runs[150..] {
        assert_eq!((run.why(), run.sends.len()), (StopReason::BudgetExhausted, 1));
    }
}

#[test]
fn a_hint_past_the_deadline_returns_at_once_with_the_hint() {
    // FC-DLN-01
    let mut world = World::new(field_policy().build().unwrap());
    let run = world.script(
        CallSpec {
            deadline: Some(ms(2000)),
            ..get()
        },
        vec![refused(seconds(5))],
    );
    assert_eq!((run.why(), run.elapsed), (StopReason::DeadlineBeforeHint, ms(1)));
    assert_eq!(run.gave_up().retry_in, Some(ms(5000)));
}

#[test]
fn an_attempt_that_used_up_the_deadline_is_the_last() {
    // FC-DLN-02
    let mut world = World::new(field_policy().max_attempts(6).build().unwrap());
    world.attempt_takes = ms(500);
    let run = world.script(
        CallSpec {
            deadline: Some(ms(500)),
            ..get()
        },
        vec![Outcome::TimedOut],
    );
    assert_eq!(
        (run.why(), run.sends.len(), run.elapsed),
        (StopReason::DeadlineExceeded, 1, ms(500))
    );
    assert_eq!(run.gave_up().last, None);
}

#[test]
fn a_server_that_always_asks_for_more_is_bounded_in_all_and_not_per_try() {
    // FC-DLN-04, with the 60 s of waiting that the case takes for granted; the contract's default is 180 s.
    let policy = field_policy()
        .max_attempts(10)
        .max_wait_total(ms(60_000))
        .build()
        .unwrap();
    let mut world = World::new(policy);
    let spec = CallSpec {
        deadline: Some(ms(120_000)),
        ..get()
    };
    let run = world.run(spec, |_| refused(seconds(50)));
    assert_eq!((run.why(), run.sends.len()), (StopReason::DeadlineBeforeHint, 2));
    assert!((ms(50_000)..=ms(55_000)).contains(&run.gaps[0]));
    assert_eq!(
        (run.gave_up().waited, run.gave_up().retry_in),
        (run.gaps[0], Some(ms(50_000)))
    );
}

#[test]
fn a_cancelled_sleep_leaves_no_charge_and_no_waiting_place() {
    // FC-DLN-05
    let mut world = World::new(field_policy().build().unwrap());
    let mut call = start(&mut world, 1).remove(0);
    world.tell(&mut call, refused(seconds(30)));
    assert!(matches!(world.next(&mut call), Action::WaitUntil(_)));
    world.now += ms(200);
    world.cancel(&mut call);
    world.now += ms(36_000);
    let Finish::GiveUp(give_up) = world.finish(&mut call) else {
        panic!("delivered")
    };
    assert_eq!((give_up.why, give_up.attempts), (StopReason::Cancelled, 1));
    assert_eq!(
        (world.destination.budget().level(), world.destination.waiting()),
        (100, 0)
    );
}

#[test]
fn a_body_that_is_used_up_is_not_retried_and_not_waited_for() {
    // FC-BOD-02
    let spec = CallSpec {
        safety: Safety::Keyed,
        replay: Replay::Once,
        ..get()
    };
    let run = World::new(field_policy().build().unwrap()).script(spec, vec![refused(seconds(2))]);
    assert_eq!((run.why(), run.elapsed), (StopReason::NotReplayable, ms(1)));
    assert_eq!(run.gave_up().retry_in, Some(ms(2000)));
}

#[test]
fn a_post_is_sent_again_only_when_it_was_certainly_not_applied() {
    // FC-BOD-03, its four cases
    let world = || World::new(field_policy().build().unwrap());
    assert_eq!(
        world().script(post(), vec![Outcome::Broken]).why(),
        StopReason::Transport
    );
    let unapplied = world().script(post(), vec![refused(after(60)), Outcome::Success]);
    assert_eq!(unapplied.finish, Finish::Deliver);
    assert!((ms(60)..=ms(110)).contains(&unapplied.gaps[0]));
    let run = world().script(post(), vec![Outcome::NotConnected, Outcome::Success]);
    assert_eq!(run.finish, Finish::Deliver);
    let run = world().script(post(), vec![refused(seconds(1))]);
    assert_eq!(run.why(), StopReason::NotSafe);
    assert_eq!(
        run.gave_up().last.as_ref().unwrap().overload.applied,
        Applied::Maybe
    );
}

#[test]
fn the_waiting_room_has_a_bound() {
    // FC-CON-04
    let mut world = World::new(field_policy().max_waiting(100).build().unwrap());
    let mut calls = start(&mut world, 5000);
    let mut stopped = 0;
    for call in &mut calls {
        world.tell(call, refused(window(5000, 6000)));
        if let Action::Finish(Finish::GiveUp(give_up)) = world.next(call) {
            assert_eq!(
                (give_up.why, give_up.retry_in),
                (StopReason::TooManyWaiting, Some(ms(5000)))
            );
            stopped += 1;
        }
        assert!(world.destination.waiting() <= 100);
    }
    assert_eq!(stopped, 4900);
    world.now += ms(6000);
    let mut sent = 0;
    for call in &mut calls {
        sent += u32::from(matches!(world.next(call), Action::Send(_)));
    }
    assert_eq!((sent, world.destination.waiting()), (100, 0));
}

#[test]
fn first_tries_are_not_held_up_by_the_calls_that_wait_for_their_windows() {
    // FC-CON-05: the policy has no limit of its own on calls under way. (That each attempt passes a limiter inside the
    // layer is shown over tower, in `tests/waiting.rs` there.)
    let mut world = World::new(field_policy().build().unwrap());
    let mut waiting = start(&mut world, 50);
    for call in &mut waiting {
        world.tell(call, refused(window(50, 150)));
        assert!(matches!(world.next(call), Action::WaitUntil(_)));
    }
    assert_eq!(world.destination.waiting(), 50);
    for number in 0..50 {
        let mut other = world.call(get());
        assert_eq!(world.send(&mut other).number, 1, "call {number} is sent at once");
        world.tell(&mut other, Outcome::Success);
    }
    assert_eq!(world.destination.waiting(), 50);
}

#[test]
fn retries_and_attempts_are_counted_apart_from_calls_and_add_up() {
    // FC-MET-04
    let mut world = World::new(field_policy().max_attempts(3).build().unwrap());
    let mut attempts = 0;
    for _ in 0..10 {
        let run = world.run(get(), until(2, || window(50, 100)));
        assert_eq!(run.finish, Finish::Deliver);
        attempts += run.sends.len();
    }
    let sent_again =
        |event: &&holdoff_policy::Event| matches!(event, holdoff_policy::Event::RetrySent { .. });
    assert_eq!(
        (attempts, world.log.0.iter().filter(sent_again).count()),
        (30, 20)
    );
    assert_eq!((world.log.early(), world.log.gave_up()), (0, vec![]));
}

#[test]
fn a_glitch_on_the_last_try_does_not_replace_the_overload_seen_before_it() {
    // FC-PRO-01
    let limited = || Overload {
        code: Some(Code::RateLimited),
        scope: Scope::Request,
        ..after(1000)
    };
    let mut world = World::new(field_policy().max_attempts(3).build().unwrap());
    let run = world.script(
        get(),
        vec![refused(limited()), refused(limited()), Outcome::Broken],
    );
    assert_eq!((run.why(), run.gave_up().attempts), (StopReason::Transport, 3));
    assert_eq!(
        run.gave_up().last.as_ref().unwrap().overload.code,
        Some(Code::RateLimited)
    );
    assert!(run.gave_up().retry_in.unwrap() <= ms(1000));
}

#[test]
fn a_destination_has_one_budget_whatever_the_path() {
    // FC-SEC-03: the key is scheme and authority, there is nothing else to make it of.
    let policy = field_policy().max_attempts(5).build().unwrap();
    let destinations = Destinations::new(&policy);
    let mut world = World::new(policy);
    let mut requests = 0;
    for _ in 0..200 {
        let shared = destinations.get("http", "service:80");
        let mut call = world.call(get());
        let mut destination = shared.lock().unwrap();
        loop {
            match call.next_action(world.now, &mut destination, &mut world.rng, &mut ()) {
                Action::Send(_) => {
                    requests += 1;
                    let outcome = refused(bare());
                    call.on_outcome(
                        world.now,
                        world.now,
                        outcome,
                        &mut destination,
                        &mut world.rng,
                        &mut (),
                    );
                }
                Action::WaitUntil(until) => world.now = until,
                Action::Finish(_) => break,
            }
        }
    }
    assert_eq!(requests, 207);
}

#[test]
fn strangers_cannot_fill_the_table_of_destinations() {
    // FC-SEC-06
    let policy = field_policy().build().unwrap();
    let destinations = Destinations::new(&policy);
    let mut world = World::new(policy);
    for n in 0..100_000 {
        let shared = destinations.get("http", &format!("host-{n}:80"));
        let mut destination = shared.lock().unwrap();
        let mut call = world.call(get());
        let sent = call.next_action(world.now, &mut destination, &mut world.rng, &mut ());
        assert!(matches!(sent, Action::Send(_)));
        let hour = refused(Overload {
            scope: Scope::Service,
            ..after(3_600_000)
        });
        call.on_outcome(
            world.now,
            world.now,
            hour,
            &mut destination,
            &mut world.rng,
            &mut (),
        );
        let end = call.next_action(world.now, &mut destination, &mut world.rng, &mut ());
        let Action::Finish(Finish::GiveUp(give_up)) = end else {
            panic!("{end:?}")
        };
        assert_eq!(
            (give_up.why, give_up.retry_in),
            (StopReason::HintTooLong, Some(ms(3_600_000)))
        );
        assert!(destinations.len() <= Destinations::DEFAULT_LIMIT);
        // Those without a place of their own share one, which holds nobody; later the first have been idle for long
        // enough to make room.
        let held = match n / Destinations::DEFAULT_LIMIT {
            0 => 1..=1,
            1..16 => 0..=0,
            _ => 0..=1,
        };
        let hold_offs = destination.hold_offs(world.now);
        assert!(held.contains(&hold_offs), "{hold_offs} at destination {n}");
    }
    let unrelated = destinations.get("http", "unrelated:80");
    let action =
        world
            .call(get())
            .next_action(world.now, &mut unrelated.lock().unwrap(), &mut world.rng, &mut ());
    assert!(matches!(action, Action::Send(_)), "{action:?}");
}
