//! The client-side field cases that can be shown in virtual time: real reports, told as sentences. The id is in the
//! comment; the reports are in the field-case collection of the conformance suite.

mod common;

use std::time::Duration;

use common::*;
use holdoff_contract::limits::MAX_HINT;
use holdoff_contract::{Applied, Code, Granularity, Hint, Overload, Scope};
use holdoff_policy::{
    Action, Call, CallSpec, Destinations, Finish, Outcome, Policy, Replay, Safety, StopReason,
};

/// Runs a call once for each of `n` clients of its own, and returns the wait after attempt `attempt`.
fn waits(n: u64, policy: &Policy, attempt: usize, service: impl Fn(u32) -> Outcome) -> Vec<Duration> {
    let wait = |seed| {
        let mut world = World::seeded(policy.clone(), seed);
        let run = world.run(get(), &service);
        assert_eq!((&run.finish, run.sends.len()), (&Finish::Deliver, attempt + 1));
        assert_eq!(world.log.early(), 0);
        run.gaps[attempt - 1]
    };
    (0..n).map(wait).collect()
}

/// Refused with this until attempt k, then served.
fn until(k: u32, refusal: impl Fn() -> Overload) -> impl Fn(u32) -> Outcome {
    move |attempt| {
        if attempt <= k {
            refused(refusal())
        } else {
            Outcome::Success
        }
    }
}

/// Calls that are all under way, each with its first attempt sent.
fn start(world: &mut World, n: usize) -> Vec<Call> {
    let send = |_| {
        let mut call = world.call(get());
        let _ = world.send(&mut call);
        call
    };
    (0..n).map(send).collect()
}

#[test]
fn a_hint_in_seconds_is_waited_for_in_seconds() {
    // FC-PAR-02
    for wait in waits(50, &field_policy().build().unwrap(), 1, until(1, || seconds(2))) {
        assert!((ms(2000)..=ms(3000)).contains(&wait), "{wait:?}");
    }
}

#[test]
fn no_hint_is_not_a_hint_of_zero() {
    // FC-PAR-07
    let policy = field_policy().build().unwrap();
    for (k, least) in [(1_u32, 50), (2, 100), (3, 200)] {
        for wait in waits(200, &policy, k as usize, until(k, bare)) {
            assert!(
                (ms(least)..=ms(2 * least)).contains(&wait),
                "attempt {k}: {wait:?}"
            );
        }
    }
    let run = World::new(policy).run(get(), |_| refused(bare()));
    assert_eq!((run.why(), run.sends.len()), (StopReason::AttemptsExhausted, 4));
    assert_eq!(run.gave_up().retry_in, None);
}

#[test]
fn a_ten_digit_hint_stops_the_call_with_the_hint_and_without_a_panic() {
    // FC-DEL-01
    let huge = Hint::After {
        delay: MAX_HINT,
        granularity: Granularity::Seconds,
    };
    let mut world = World::new(field_policy().build().unwrap());
    let run = world.script(get(), vec![refused(overload(huge))]);
    assert_eq!((run.why(), run.elapsed), (StopReason::HintTooLong, ms(1)));
    assert_eq!(run.gave_up().retry_in, Some(MAX_HINT));
}

#[test]
fn growth_reaches_its_bound_and_stays_there_for_every_attempt_number() {
    // FC-DEL-02
    let policy = Policy::builder()
        .backoff_base(ms(500))
        .backoff_cap(ms(45_000))
        .build()
        .unwrap();
    let hint = Hint::After {
        delay: ms(200),
        granularity: Granularity::Milliseconds,
    };
    let width = |k| policy.window(hint, k).max.unwrap() - ms(200);
    let (mut last_b, mut last_width) = (Duration::ZERO, Duration::ZERO);
    for k in (1..=100_000).chain([u32::MAX]) {
        let (b, width) = (policy.backoff(k), width(k));
        assert!(b >= last_b && width >= last_width, "fell at {k}");
        assert!(k < 8 || b == ms(45_000), "{k}: {b:?}");
        assert!(k < 7 || width == ms(5000), "{k}: {width:?}");
        (last_b, last_width) = (b, width);
    }
    assert_eq!((policy.backoff(7), width(1)), (ms(32_000), ms(100)));
    let slow = Policy::builder()
        .backoff_base(Duration::from_nanos(1))
        .build()
        .unwrap();
    assert_eq!(
        (slow.backoff(36), slow.backoff(0)),
        (ms(20_000), Duration::from_nanos(1))
    );
}

#[test]
fn a_hint_of_zero_neither_waits_nothing_nor_resets_the_growth() {
    // FC-DEL-04
    let policy = field_policy().max_attempts(5).build().unwrap();
    for seed in 0..50 {
        let run = World::seeded(policy.clone(), seed).run(get(), |_| refused(seconds(0)));
        assert_eq!((run.why(), run.sends.len()), (StopReason::AttemptsExhausted, 5));
        for (gap, least) in run.gaps.iter().zip([50, 100, 200, 400]) {
            assert!((ms(least)..=ms(2 * least)).contains(gap), "{gap:?}");
        }
    }
}

#[test]
fn a_hint_over_the_cap_is_not_swapped_for_a_short_backoff() {
    // FC-DEL-05
    let run = World::new(field_policy().build().unwrap()).script(get(), vec![refused(seconds(90))]);
    assert_eq!((run.why(), run.elapsed), (StopReason::HintTooLong, ms(1)));
    assert_eq!(run.gave_up().retry_in, Some(ms(90_000)));
}

#[test]
fn clients_refused_together_come_back_spread_over_the_window() {
    // FC-JIT-01
    let samples = waits(60, &field_policy().build().unwrap(), 1, until(1, || seconds(2)));
    assert_spread(&samples, ms(2000), ms(3000));
}

#[test]
fn a_hint_equal_to_the_cap_still_gets_its_whole_window() {
    // FC-JIT-02
    let policy = field_policy().hint_cap(ms(3000)).build().unwrap();
    assert_spread(
        &waits(50, &policy, 1, until(1, || seconds(3))),
        ms(3000),
        ms(4500),
    );
}

#[test]
fn half_of_the_backoff_is_random_and_really_used() {
    // FC-JIT-03
    let samples = waits(1000, &field_policy().build().unwrap(), 3, until(3, bare));
    assert_spread(&samples, ms(200), ms(400));
    let mut distinct: Vec<u128> = samples.iter().map(Duration::as_millis).collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() >= 100, "{}", distinct.len());
}

#[test]
fn an_empty_random_range_is_no_reason_to_panic_or_to_retry_at_once() {
    // FC-JIT-04
    for (base, cap) in [(0, 0), (1, 1), (0, 20_000)] {
        let policy = Policy::builder()
            .backoff_base(ms(base))
            .backoff_cap(ms(cap))
            .backoff_floor(ms(50));
        assert_spread(
            &waits(100, &policy.build().unwrap(), 1, until(1, bare)),
            ms(50),
            ms(100),
        );
    }
}

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
fn an_overload_without_a_hint_is_not_permanent() {
    // FC-PRO-04
    let policy = field_policy().build().unwrap();
    let marked = || overload(Hint::Absent);
    for wait in
        waits(50, &policy, 1, until(1, marked))
            .into_iter()
            .chain(waits(50, &policy, 1, until(1, bare)))
    {
        assert!((ms(50)..=ms(100)).contains(&wait), "{wait:?}");
    }
}

#[test]
fn a_backlog_of_waiting_calls_comes_back_spread_over_the_window_and_none_is_thrown_away() {
    // FC-REC-05, case 1
    let mut world = World::new(field_policy().max_attempts(3).max_waiting(500).build().unwrap());
    let mut calls = start(&mut world, 500);
    let refused_at = world.now;
    for call in &mut calls {
        world.tell(
            call,
            refused(Overload {
                scope: Scope::Service,
                ..window(10_000, 15_000)
            }),
        );
    }
    let mut slices = vec![0_usize; 151];
    for call in &mut calls {
        let Action::WaitUntil(until) = world.next(call) else {
            panic!("thrown away")
        };
        slices[usize::try_from((until - refused_at).as_millis() / 100).unwrap()] += 1;
    }
    assert!(slices[..100].iter().all(|sent| *sent == 0), "early");
    assert!(slices[100..].iter().all(|sent| *sent <= 50), "{slices:?}");
    assert_eq!(slices.iter().sum::<usize>(), 500);
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
    }
}
