//! What holds for every call, whatever the server says, the clock does and the adapter forgets: 100 032 calls, 64 at a
//! time on one destination, against an independent account of what they hold and of what holds them off.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::account::Account;
use common::*;
use holdoff_contract::{Applied, Code, Granularity, Hint, Overload, Retry, Scope, Tier};
use holdoff_policy::{
    Action, Call, CallSpec, CallerKey, Event, Finish, Instances, Outcome, Policy, Replay, Safety,
};
use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

const CALLS: usize = 64;
const WORLDS: u64 = 1563;

/// What the test knows of a call, from what it told it and was told.
struct Tracked {
    call: Call,
    started: Instant,
    spec: CallSpec,
    /// When D of the last refusal of each instance is over.
    not_before: [Option<Instant>; 3],
    /// The last send, and to which instance.
    sent: Option<(Instant, u8)>,
    /// Where it is, as the test sees it.
    state: State,
    sends: u32,
    own_waits: u32,
    waited: Duration,
    /// Time that the adapter asked later than told.
    late: Duration,
    charge: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Ready,
    InFlight,
    Waiting { received: Instant, until: Instant },
    Over,
}

fn any_ms(rng: &mut Pcg64Mcg) -> Duration {
    match rng.random_range(0..10) {
        0 => Duration::ZERO,
        1 => Duration::from_nanos(rng.random_range(0..2_000_000)),
        2 => ms(rng.random_range(100_000..140_000)),
        3 => ms(rng.random_range(0..86_400_000)),
        4 => Duration::new(rng.random(), rng.random_range(0..1_000_000_000)),
        _ => ms(rng.random_range(1..5000)),
    }
}

fn any_overload(rng: &mut Pcg64Mcg) -> Overload {
    let delay = any_ms(rng);
    let hint = match rng.random_range(0..4) {
        0 => Hint::Absent,
        1 => Hint::After {
            delay,
            granularity: Granularity::Seconds,
        },
        2 => Hint::After {
            delay,
            granularity: Granularity::Milliseconds,
        },
        _ => Hint::Window {
            delay,
            max: any_ms(rng),
        },
    };
    let retry = match rng.random_range(0..12) {
        0 => Retry::No,
        1 => Retry::Elsewhere,
        _ => Retry::After,
    };
    let applied = if rng.random_bool(0.3) {
        Applied::Maybe
    } else {
        Applied::No
    };
    let scope = match rng.random_range(0..10) {
        0 => Scope::Service,
        1 => Scope::Tenant,
        _ => Scope::Request,
    };
    Overload {
        hint,
        retry,
        applied,
        scope,
        tier: any_tier(rng),
        ..Overload::new(Code::QueueFull)
    }
}

fn any_tier(rng: &mut Pcg64Mcg) -> Option<Tier> {
    let tiers = [
        None,
        Some(Tier::Critical),
        Some(Tier::NonSheddable),
        Some(Tier::Deferrable),
    ];
    tiers[rng.random_range(0..4)]
}

fn any_outcome(rng: &mut Pcg64Mcg) -> Outcome {
    match rng.random_range(0..20) {
        0..=3 => Outcome::Success,
        4 => Outcome::Answered,
        5 => Outcome::BadGateway,
        6 => Outcome::NotConnected,
        7 => Outcome::Broken,
        8 => Outcome::TimedOut,
        _ => refused(any_overload(rng)),
    }
}

fn any_spec(rng: &mut Pcg64Mcg) -> CallSpec {
    CallSpec {
        safety: [Safety::Idempotent, Safety::Keyed, Safety::Unsafe][rng.random_range(0..3)],
        replay: if rng.random_bool(0.1) {
            Replay::Once
        } else {
            Replay::Bytes
        },
        deadline: rng.random_bool(0.5).then(|| any_ms(rng)),
        tier: any_tier(rng),
        caller: [None, Some(CallerKey::new(1)), Some(CallerKey::new(2))][rng.random_range(0..3)],
        instances: Instances::new(rng.random_range(1..4), rng.random_range(0..3)),
        incoming: if rng.random_bool(0.1) {
            relayed(rng.random_range(1..3), rng.random_bool(0.8))
        } else {
            None
        },
    }
}

impl Tracked {
    fn new(world: &mut World) -> Self {
        let spec = any_spec(&mut world.rng);
        Self {
            call: Call::new(Arc::clone(&world.policy), spec, world.now),
            started: world.now,
            spec,
            not_before: [None; 3],
            sent: None,
            state: State::Ready,
            sends: 0,
            own_waits: 0,
            waited: Duration::ZERO,
            late: Duration::ZERO,
            charge: 0,
        }
    }

    /// One step of an adapter that may be late, forgetful or gone.
    fn step(&mut self, world: &mut World, account: &mut Account) {
        match (world.rng.random_range(0..40), self.state) {
            (0, State::Waiting { received, until }) => {
                account.refund(self.charge);
                self.waited += world.now - received;
                self.late += world.now.saturating_duration_since(until);
                self.cancel(world);
            }
            (0, _) => self.cancel(world),
            // Told at the wrong time: no effect.
            (1, State::Ready | State::Waiting { .. } | State::Over) => {
                let outcome = any_outcome(&mut world.rng);
                world.tell(&mut self.call, outcome);
            }
            (_, State::InFlight) => self.tell(world, account),
            (_, State::Over) => assert!(matches!(world.next(&mut self.call), Action::Finish(_))),
            (_, State::Ready | State::Waiting { .. }) => self.ask(world, account),
        }
    }

    fn cancel(&mut self, world: &mut World) {
        world.cancel(&mut self.call);
        world.cancel(&mut self.call);
        self.state = State::Over;
    }

    fn ask(&mut self, world: &mut World, account: &mut Account) {
        let now = world.now;
        match world.next(&mut self.call) {
            Action::Send(send) => {
                if let State::Waiting { until, .. } = self.state {
                    assert!(now >= until, "before it was told to");
                    self.end_wait(now);
                }
                let not_before = self.not_before[usize::from(send.instance)];
                assert!(not_before.is_none_or(|end| now >= end), "before D");
                assert!(
                    !account.holds(&self.spec, send.instance, now),
                    "before a hold-off was over"
                );
                self.sent = Some((now, send.instance));
                // A deadline beyond the end of the clock is none.
                let within_clock = |deadline: &Duration| self.started.checked_add(*deadline).is_some();
                if let Some(deadline) = self.spec.deadline.filter(within_clock) {
                    let left = send.time_left.unwrap_or(Duration::MAX);
                    assert!(left >= ms(1) && left <= deadline.saturating_sub(world.now - self.started));
                }
                self.sends += 1;
                assert_eq!(send.number, self.sends);
                self.state = State::InFlight;
            }
            Action::WaitUntil(until) => {
                assert!(until > now);
                match self.state {
                    State::Waiting { until: told, .. } if told == until => {}
                    State::Waiting { until: told, .. } => {
                        assert!(now >= told, "held while it waits");
                        self.end_wait(now);
                        self.hold(now, until, account);
                    }
                    _ => self.hold(now, until, account),
                }
            }
            Action::Finish(finish) => {
                assert!(matches!(finish, Finish::GiveUp(_)));
                if let State::Waiting { .. } = self.state {
                    account.refund(self.charge);
                    self.end_wait(now);
                }
                self.state = State::Over;
            }
        }
    }

    fn end_wait(&mut self, now: Instant) {
        if let State::Waiting { received, until } = self.state {
            self.waited += now - received;
            self.late += now - until;
        }
    }

    fn hold(&mut self, now: Instant, until: Instant, account: &Account) {
        assert!(account.0.holds > 0, "held without a hold-off");
        assert!(self.spec.incoming.is_none_or(|incoming| incoming.retries));
        self.state = State::Waiting { received: now, until };
    }

    fn tell(&mut self, world: &mut World, account: &mut Account) {
        let outcome = any_outcome(&mut world.rng);
        let received = world.now;
        // Reading the body takes its time.
        if world.rng.random_bool(0.2) {
            world.now += any_ms(&mut world.rng).min(ms(3000));
        }
        match outcome {
            Outcome::Success if self.sends == 1 => account.refund(1),
            Outcome::Success => account.refund(self.charge),
            _ => {}
        }
        let (sent, instance) = self.sent.expect("told after a send");
        match &outcome {
            Outcome::Success => account.end(&self.spec, instance, sent),
            Outcome::Overload(overload) => {
                let delay = overload.hint.delay_or_zero();
                let not_before = &mut self.not_before[usize::from(instance)];
                *not_before = (*not_before).max(received.checked_add(delay));
                account.arm(&self.spec, instance, overload, (received, world.now));
            }
            _ => {}
        }
        let price = self.price(&outcome);
        let mut log = Log::default();
        let (destination, rng) = (&mut world.destination, &mut world.rng);
        self.call
            .on_outcome(received, world.now, outcome, destination, rng, &mut log);
        let wait = log.0.iter().find_map(|event| match event {
            Event::RetryScheduled { wait, .. } => Some(*wait),
            _ => None,
        });
        let Some(wait) = wait else {
            self.state = State::Over;
            return;
        };
        self.state = State::Waiting {
            received,
            until: received + wait,
        };
        self.charge = price;
        self.own_waits += u32::from(price > 0);
        account.withdraw(price);
        let left = self
            .spec
            .deadline
            .map_or(Duration::MAX, |d| d.saturating_sub(received - self.started));
        assert!(wait <= left.saturating_sub(ms(10)), "past the deadline");
        assert!(
            self.waited + wait <= ms(180_000),
            "more waiting than is allowed in all"
        );
    }

    /// What CONTRACT section 5 says a retry after this costs.
    fn price(&self, outcome: &Outcome) -> u32 {
        let Outcome::Overload(overload) = outcome else {
            return 14;
        };
        match overload.hint {
            _ if overload.retry == Retry::Elsewhere && self.spec.instances.another() => 5,
            hint if hint.delay_or_zero().is_zero() => 14,
            Hint::Window { .. } => 0,
            _ => 5,
        }
    }
}

/// Runs one world to the end of all its calls; returns how often a retry was sent, a call stopped, and a call waited
/// behind a hold-off.
fn run_world(seed: u64) -> (usize, usize, usize) {
    let mut world = World::seeded(Policy::builder().max_waiting(40).build().unwrap(), seed);
    let mut account = Account::default();
    account.0.tokens = 100;
    let mut calls: Vec<Tracked> = (0..CALLS).map(|_| Tracked::new(&mut world)).collect();
    let mut alive: Vec<usize> = (0..CALLS).collect();
    while !alive.is_empty() {
        let index = alive[world.rng.random_range(0..alive.len())];
        let tracked = &mut calls[index];
        // The adapter wakes early, on time, or late.
        if let State::Waiting { until, .. } = tracked.state
            && world.rng.random_bool(0.5)
        {
            world.now = world.now.max(until);
        }
        world.now += Duration::from_nanos(world.rng.random_range(0..5_000_000));
        tracked.step(&mut world, &mut account);
        alive.retain(|index| calls[*index].state != State::Over);
        let waiting = calls
            .iter()
            .filter(|tracked| matches!(tracked.state, State::Waiting { .. }))
            .count();
        assert_eq!(usize::try_from(world.destination.waiting()).unwrap(), waiting);
        assert!(waiting <= 40);
        assert_eq!(world.destination.budget().level(), account.0.tokens);
    }
    for tracked in &mut calls {
        let Action::Finish(finish) = world.next(&mut tracked.call) else {
            panic!("not over")
        };
        assert!(tracked.sends <= 12 && tracked.own_waits <= 2);
        assert!(
            tracked.waited <= ms(180_000) + tracked.late,
            "{:?}",
            tracked.waited
        );
        assert_eq!(tracked.call.attempts(), tracked.sends);
        if let Finish::GiveUp(give_up) = finish {
            assert_eq!(
                (give_up.attempts, give_up.waited),
                (tracked.sends, tracked.waited)
            );
        }
    }
    assert_eq!(world.destination.waiting(), 0);
    assert_eq!(world.log.early(), 0);
    let sent_again = |event: &&Event| matches!(event, Event::RetrySent { .. });
    let held_back = |event: &&Event| matches!(event, Event::HeldBack { .. });
    assert_eq!(world.destination.hold_offs(world.now + ms(30_000)), 0);
    (
        world.log.0.iter().filter(sent_again).count(),
        world.log.gave_up().len(),
        world.log.0.iter().filter(held_back).count(),
    )
}

#[test]
fn no_call_is_early_or_endless_and_all_give_back_what_they_hold() {
    let (mut retries, mut stops, mut held) = (0, 0, 0);
    for seed in 0..WORLDS {
        let (sent_again, gave_up, held_back) = run_world(seed);
        retries += sent_again;
        stops += gave_up;
        held += held_back;
    }
    assert!(
        retries > 20_000 && stops > 8000 && held > 5000,
        "{retries} retries, {stops} stops and {held} held calls show too little"
    );
}

#[test]
fn when_every_retry_is_cancelled_or_succeeds_the_budget_is_where_it_began() {
    for seed in 0..200 {
        let mut world = World::seeded(Policy::default(), seed);
        let mut calls: Vec<Call> = (0..20).map(|_| world.call(get())).collect();
        for call in &mut calls {
            let _ = world.send(call);
            world.tell(call, refused(after(1000)));
        }
        assert_eq!(
            (world.destination.budget().level(), world.destination.waiting()),
            (0, 20)
        );
        world.now += ms(1500);
        for call in &mut calls {
            if world.rng.random_bool(0.5) {
                world.cancel(call);
            } else {
                let _ = world.send(call);
                world.tell(call, Outcome::Success);
            }
        }
        assert!(world.destination.is_at_rest());
    }
}
