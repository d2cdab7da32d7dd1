//! What a refusal says about other calls: whom it holds, for how long, and how they come back (CLI-15, CLI-16, SEC-01).
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

mod common;

use std::time::{Duration, Instant};

use common::*;
use holdoff_contract::{Applied, Hint, Overload, Retry, Scope, Tier};
use holdoff_policy::{Action, Call, CallSpec, CallerKey, Event, Finish, GiveUp, Outcome, Policy, StopReason};

fn tenant(overload: Overload) -> Outcome {
    refused(Overload {
        scope: Scope::Tenant,
        ..overload
    })
}

fn of(caller: u64) -> CallSpec {
    CallSpec {
        caller: Some(CallerKey::new(caller)),
        ..get()
    }
}

fn at(tier: Tier) -> CallSpec {
    CallSpec {
        tier: Some(tier),
        ..get()
    }
}

/// A call of this kind stops before its first send.
fn stopped(world: &mut World, spec: CallSpec) -> GiveUp {
    let mut call = world.call(spec);
    match world.finish(&mut call) {
        Finish::GiveUp(give_up) => give_up,
        Finish::Deliver => panic!("delivered"),
    }
}

#[test]
fn a_refusal_for_the_service_holds_every_caller_and_one_for_the_request_nobody_else() {
    let mut world = World::new(Policy::default());
    let _ = arm(&mut world, get(), refused(window(1000, 1300)));
    assert_eq!(held(&mut world, get()), ms(0));
    let _ = arm(&mut world, of(1), service(window(1000, 1300)));
    for spec in [get(), of(1), of(2)] {
        assert!((ms(1000)..=ms(1300)).contains(&held(&mut world, spec)));
    }
    world.now += ms(1000);
    assert_eq!(held(&mut world, get()), ms(0), "over at receipt + D");
}

#[test]
fn a_refusal_for_a_tenant_holds_that_caller_and_nobody_else() {
    let mut world = World::new(Policy::default());
    let _ = arm(&mut world, of(1), tenant(window(1000, 1300)));
    assert!(held(&mut world, of(1)) >= ms(1000));
    assert_eq!(held(&mut world, of(2)), ms(0));
    assert_eq!(
        held(&mut world, get()),
        ms(0),
        "who says nothing is another caller"
    );
    let _ = arm(&mut world, get(), tenant(window(500, 700)));
    assert!((ms(500)..=ms(700)).contains(&held(&mut world, get())));
    assert_eq!(held(&mut world, of(2)), ms(0));
}

#[test]
fn a_more_important_tier_is_never_held_and_those_below_are() {
    use Tier::{Critical, Deferrable, NonSheddable};
    for (refused, held_back) in [
        (Deferrable, [false, false, true]),
        (NonSheddable, [false, true, true]),
        (Critical, [true, true, true]),
    ] {
        let mut world = World::new(Policy::default());
        let _ = arm(&mut world, at(refused), service(window(1000, 1300)));
        let mut holds = |spec| !held(&mut world, spec).is_zero();
        assert_eq!(
            [Critical, NonSheddable, Deferrable].map(|tier| holds(at(tier))),
            held_back,
            "{refused}"
        );
        assert!(holds(get()), "a call that names no tier is deferrable");
    }
}

#[test]
fn the_tier_that_the_server_says_it_used_counts_only_downwards() {
    for (own, said, critical_is_held) in [
        (Tier::Deferrable, Tier::Critical, false),
        (Tier::Critical, Tier::Deferrable, false),
        (Tier::Critical, Tier::Critical, true),
    ] {
        let mut world = World::new(Policy::default());
        let said = Overload {
            tier: Some(said),
            ..window(1000, 1300)
        };
        let _ = arm(&mut world, at(own), service(said));
        assert_eq!(
            !held(&mut world, at(Tier::Critical)).is_zero(),
            critical_is_held,
            "{own}"
        );
    }
}

#[test]
fn a_shorter_hint_shortens_nothing_and_a_longer_one_lengthens() {
    let mut world = World::new(Policy::default());
    let began = world.now;
    // Three calls, all sent before any of them was refused.
    let mut calls = common::start(&mut world, 3);
    world.tell(&mut calls[0], service(window(1000, 1300)));
    world.now += ms(100);
    world.tell(&mut calls[1], service(window(200, 400)));
    assert!(held(&mut world, get()) >= ms(900));
    world.tell(&mut calls[2], service(window(2000, 2600)));
    let wait = held(&mut world, get());
    assert!((ms(2000)..=ms(2600)).contains(&wait), "{wait:?}");
    assert_eq!(world.destination.hold_offs(began + ms(2099)), 1);
    assert_eq!(world.destination.hold_offs(began + ms(2100)), 0);
}

#[test]
fn a_hold_off_lasts_thirty_seconds_at_most_and_is_armed_even_if_its_own_call_stops() {
    let stops = [
        (after(3_600_000), StopReason::HintTooLong, ms(30_000)..=ms(35_000)),
        (
            with_retry(Retry::No, after(1000)),
            StopReason::RetryForbidden,
            ms(1000)..=ms(1500),
        ),
    ];
    for (refusal, why, range) in stops {
        let mut world = World::new(Policy::default());
        let mut call = arm(&mut world, get(), service(refusal));
        let Finish::GiveUp(give_up) = world.finish(&mut call) else {
            panic!("delivered")
        };
        assert_eq!(give_up.why, why);
        let wait = held(&mut world, get());
        assert!(range.contains(&wait), "{wait:?}");
    }
    let mut world = World::new(Policy::default());
    let _ = arm(&mut world, get(), service(overload(Hint::Absent)));
    assert_eq!(
        held(&mut world, get()),
        ms(0),
        "without D there is nothing to wait for"
    );
}

#[test]
fn fifty_callers_held_together_come_back_spread_and_no_ten_milliseconds_hold_more_than_a_fifth() {
    // A window of 50 ms was made for one call: held ones spread over 200 ms.
    for seed in 0..50 {
        let mut world = World::seeded(Policy::default(), seed);
        let _ = arm(&mut world, get(), service(window(1000, 1050)));
        world.now += ms(100);
        let mut waits: Vec<Duration> = (0..50)
            .map(|_| {
                let mut call = world.call(get());
                match world.next(&mut call) {
                    Action::WaitUntil(until) => until - world.now,
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        assert_spread(&waits, ms(900), ms(1100));
        waits.sort();
        for from in &waits {
            let slot = waits
                .iter()
                .filter(|wait| (*from..*from + ms(10)).contains(wait))
                .count();
            assert!(slot <= 10, "{slot} of 50 within 10 ms of {from:?}, seed {seed}");
        }
        assert_eq!(world.destination.waiting(), 51);
    }
}

#[test]
fn a_call_whose_deadline_does_not_allow_the_wait_fails_at_once_with_what_is_left_of_the_hint() {
    let mut world = World::new(Policy::default());
    let said = Overload {
        applied: Applied::Maybe,
        detail: Some("tenant t-a is over its limit".to_owned()),
        ..window(2000, 2600)
    };
    let _ = arm(&mut world, of(1), service(said));
    world.now += ms(200);
    let hurried = CallSpec {
        deadline: Some(ms(500)),
        ..of(2)
    };
    let give_up = stopped(&mut world, hurried);
    assert_eq!(
        (give_up.why, give_up.attempts, give_up.waited, give_up.retry_in),
        (StopReason::HeldOff, 0, ms(0), Some(ms(1800)))
    );
    let last = give_up.last.expect("the refusal that holds it").overload;
    assert_eq!(last.code, window(1, 1).code);
    assert_eq!(last.applied, Applied::No, "of this call nothing was sent");
    assert_eq!(last.detail, None, "what was said of another's call stays there");
    assert_eq!(
        world.log.gave_up(),
        [StopReason::HeldOff],
        "and nothing was taken"
    );
    assert_eq!(world.destination.waiting(), 1);

    let just = CallSpec {
        deadline: Some(ms(1850)),
        ..get()
    };
    let wait = held(&mut world, just);
    assert!(
        (ms(1800)..=ms(1840)).contains(&wait),
        "cut to the deadline: {wait:?}"
    );
}

#[test]
fn a_held_off_call_reports_when_it_can_go_and_the_refused_one_what_it_was_told() {
    let mut world = World::new(Policy::default());
    let mut refused = arm(&mut world, get(), service(after(86_400_000)));
    let Finish::GiveUp(told) = world.finish(&mut refused) else {
        panic!("delivered")
    };
    assert_eq!(told.retry_in, Some(ms(86_400_000)), "not cut by any cap (CLI-14)");
    world.now += ms(1000);
    let hurried = CallSpec {
        deadline: Some(ms(500)),
        ..get()
    };
    let give_up = stopped(&mut world, hurried);
    assert_eq!(
        (give_up.why, give_up.retry_in),
        (StopReason::HeldOff, Some(ms(29_000)))
    );
    world.now += give_up.retry_in.unwrap();
    assert_eq!(held(&mut world, hurried), ms(0), "and then it goes");
}

#[test]
fn a_call_that_was_refused_itself_and_is_then_held_off_reports_the_longer_of_the_two() {
    let mut world = World::new(Policy::default());
    let hurried = CallSpec {
        deadline: Some(ms(5000)),
        ..get()
    };
    let mut hurried = arm(&mut world, hurried, refused(window(1000, 1050)));
    let _ = arm(&mut world, get(), service(after(86_400_000)));
    let Action::WaitUntil(until) = world.next(&mut hurried) else {
        panic!("not scheduled")
    };
    let slept = until - world.now;
    world.now = until;
    let Finish::GiveUp(give_up) = world.finish(&mut hurried) else {
        panic!("delivered")
    };
    assert_eq!(
        (give_up.why, give_up.retry_in),
        (StopReason::HeldOff, Some(ms(30_000) - slept))
    );
}

#[test]
fn a_relay_that_did_not_opt_in_to_retries_answers_at_once_and_one_that_did_waits() {
    let mut world = World::new(Policy::default());
    let _ = arm(&mut world, get(), service(window(1000, 1300)));
    let relay = |retries| CallSpec {
        incoming: relayed(1, retries),
        ..get()
    };
    assert_eq!(stopped(&mut world, relay(false)).why, StopReason::HeldOff);
    assert!(held(&mut world, relay(true)) >= ms(1000));
}

#[test]
fn held_calls_count_among_the_waiting_and_the_one_too_many_fails_at_once() {
    let mut world = World::new(Policy::builder().max_waiting(3).build().unwrap());
    let mut first = arm(&mut world, get(), service(window(1000, 1300)));
    let mut waiting: Vec<Call> = (0..2).map(|_| world.call(get())).collect();
    for call in &mut waiting {
        assert!(matches!(world.next(call), Action::WaitUntil(_)));
    }
    let give_up = stopped(&mut world, get());
    assert_eq!((give_up.why, give_up.attempts), (StopReason::TooManyWaiting, 0));
    assert!(give_up.last.is_some());
    // Waking gives the place back, and who is held again takes it again.
    world.cancel(&mut first);
    waiting.iter_mut().for_each(|call| world.cancel(call));
    assert_eq!(world.destination.waiting(), 0);
}

#[test]
fn a_success_of_a_covered_call_sent_after_it_was_armed_ends_it_and_one_sent_before_does_not() {
    let mut world = World::new(Policy::default());
    let mut before = world.call(get());
    let _ = world.send(&mut before);
    world.now += ms(1);
    let mut refused_at = world.call(get());
    let _ = world.send(&mut refused_at);
    // The head came at once, its body later; meanwhile another call was sent.
    let received = world.now;
    world.now += ms(100);
    let mut after_it = world.call(get());
    let _ = world.send(&mut after_it);
    let mut above = world.call(at(Tier::Critical));
    let _ = world.send(&mut above);
    world.now += ms(100);
    let (destination, rng, log) = (&mut world.destination, &mut world.rng, &mut world.log);
    refused_at.on_outcome(
        received,
        world.now,
        service(window(2000, 2600)),
        destination,
        rng,
        log,
    );
    let mut waits = world.call(get());
    let Action::WaitUntil(release) = world.next(&mut waits) else {
        panic!("not held")
    };

    world.tell(&mut before, Outcome::Success);
    assert!(!held(&mut world, get()).is_zero(), "sent before");
    world.tell(&mut above, Outcome::Success);
    assert!(!held(&mut world, get()).is_zero(), "not covered");
    world.tell(&mut after_it, Outcome::Success);
    assert_eq!(held(&mut world, get()), ms(0), "ended");
    assert_eq!(world.log.0.last(), Some(&Event::GaveUp(StopReason::Cancelled)));
    assert_eq!(
        world.next(&mut waits),
        Action::WaitUntil(release),
        "a release that was drawn stands"
    );
    world.now = release;
    let send = world.send(&mut waits);
    assert_eq!((send.number, send.attempt.get()), (1, 1));
    assert!(waits.last_refusal().is_none(), "it was never refused itself");
    assert!(world.log.0.contains(&Event::Released));
}

#[test]
fn who_wakes_passes_the_hold_off_again_and_keeps_its_charge_meanwhile() {
    // FC-REC-05, case 2, and CONTRACT section 5: "then pass the hold-off again (it may have grown)".
    let mut world = World::new(field_policy().max_waiting(500).build().unwrap());
    let mut calls = start(&mut world, 500);
    for call in &mut calls {
        world.tell(call, service(window(10_000, 15_000)));
    }
    let refused_at = world.now;
    let mut wakes: Vec<(Instant, usize)> = (0..500)
        .map(|n| match world.next(&mut calls[n]) {
            Action::WaitUntil(until) => (until, n),
            other => panic!("{other:?}"),
        })
        .collect();
    let (mut sent, mut second): (Vec<Instant>, Option<Instant>) = (Vec::new(), None);
    while let Some(next) = wakes.iter().enumerate().min_by_key(|(_, wake)| wake.0) {
        let (until, n) = wakes.swap_remove(next.0);
        world.now = until;
        match world.next(&mut calls[n]) {
            Action::WaitUntil(until) => wakes.push((until, n)),
            Action::Send(_) if second.is_none() && until >= refused_at + ms(12_000) => {
                second = Some(until);
                world.tell(&mut calls[n], service(window(3000, 4000)));
                let Action::WaitUntil(until) = world.next(&mut calls[n]) else {
                    panic!("thrown away")
                };
                wakes.push((until, n));
            }
            Action::Send(_) => {
                sent.push(until);
                world.tell(&mut calls[n], Outcome::Success);
            }
            Action::Finish(finish) => panic!("thrown away: {finish:?}"),
        }
    }
    let second = second.expect("one more refusal");
    assert_eq!(sent.len(), 500);
    assert!(sent.iter().all(|at| *at <= second || *at >= second + ms(3000)));
    for slice in 0..20 {
        let from = second + ms(3000 + slice * 100);
        let inside = sent
            .iter()
            .filter(|at| (from..from + ms(100)).contains(at))
            .count();
        assert!(inside <= 75, "{inside} in slice {slice}");
    }
    assert_eq!(world.log.early(), 0);
    assert!(world.destination.is_at_rest());
}

#[test]
fn the_time_behind_hold_offs_counts_as_waiting_and_is_bounded_in_all() {
    let mut world = World::new(Policy::builder().max_wait_total(ms(5000)).build().unwrap());
    let _ = arm(&mut world, get(), service(window(4000, 4100)));
    let mut call = world.call(get());
    let Action::WaitUntil(until) = world.next(&mut call) else {
        panic!("not held")
    };
    let waited = until - world.now;
    world.now = until;
    let _ = arm(&mut world, at(Tier::Critical), service(window(4000, 4100)));
    let Finish::GiveUp(give_up) = world.finish(&mut call) else {
        panic!("delivered")
    };
    assert_eq!((give_up.why, give_up.waited), (StopReason::HeldOff, waited));
}

#[test]
fn ten_thousand_cancelled_calls_leave_every_gauge_at_zero() {
    let mut world = World::new(Policy::builder().max_waiting(10_000).build().unwrap());
    let mut calls: Vec<Call> = Vec::new();
    let tokens = world.destination.budget().level();
    for n in 0..5000 {
        let mut call = world.call(of(n % 7));
        let _ = world.send(&mut call);
        calls.push(call);
    }
    for call in &mut calls {
        world.tell(call, service(window(1000, 1300)));
    }
    for n in 0..5000 {
        let mut call = world.call(of(n % 7));
        assert!(matches!(world.next(&mut call), Action::WaitUntil(_)));
        calls.push(call);
    }
    assert_eq!(world.destination.waiting(), 10_000);
    for call in &mut calls {
        world.cancel(call);
    }
    assert_eq!(world.destination.waiting(), 0);
    assert_eq!(world.destination.budget().level(), tokens);
    assert_eq!(world.destination.hold_offs(world.now), 1);
    world.now += ms(1000);
    assert_eq!(held(&mut world, get()), ms(0));
    assert!(
        world.destination.is_at_rest(),
        "the hold-off is gone, heap and all"
    );
}

#[test]
fn hold_offs_are_bounded_and_the_one_that_ends_first_makes_room() {
    let mut world = World::new(Policy::builder().max_waiting(10_000).build().unwrap());
    for n in 0..300 {
        let _ = arm(&mut world, of(n), tenant(window(1000 + n, 2000 + n)));
    }
    assert_eq!(world.destination.hold_offs(world.now), 256);
    assert!(!held(&mut world, of(299)).is_zero());
    assert_eq!(held(&mut world, of(0)), ms(0));
}
