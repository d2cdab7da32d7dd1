//! One call in virtual time: instants are a base and an offset, a service is a list of outcomes.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod account;

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdoff_contract::{Applied, Attempt, Code, Granularity, Hint, Overload, Retry, Scope};
use holdoff_policy::{
    Action, Call, CallSpec, Destination, Event, Events, Finish, GiveUp, Incoming, Outcome, Policy,
    PolicyBuilder, Replay, Safety, Send, StopReason,
};
use rand_pcg::Pcg64Mcg;

/// The only look at the clock: virtual time needs some instant to count from.
#[expect(
    clippy::disallowed_methods,
    reason = "a base for virtual time; nothing is measured with it"
)]
pub(crate) fn base() -> Instant {
    Instant::now()
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn rng(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::new(0xcafe_f00d_d15e_a5e5 ^ (u128::from(seed) << 64) ^ u128::from(seed))
}

/// An idempotent call with its body in memory and no deadline.
pub(crate) fn get() -> CallSpec {
    CallSpec::new(Safety::Idempotent, Replay::Bytes)
}

pub(crate) fn post() -> CallSpec {
    CallSpec {
        safety: Safety::Unsafe,
        ..get()
    }
}

pub(crate) fn relayed(attempt: u32, retries: bool) -> Option<Incoming> {
    Some(Incoming {
        attempt: Attempt::saturating(attempt),
        retries,
        tier: None,
        deadline: None,
    })
}

/// The policy of most field cases.
pub(crate) fn field_policy() -> PolicyBuilder {
    Policy::builder()
        .max_attempts(4)
        .backoff_base(ms(100))
        .backoff_cap(ms(10_000))
        .hint_cap(ms(60_000))
}

pub(crate) fn overload(hint: Hint) -> Overload {
    Overload {
        hint,
        ..Overload::new(Code::QueueFull)
    }
}

pub(crate) fn bare() -> Overload {
    Overload {
        code: None,
        applied: Applied::Maybe,
        ..overload(Hint::Absent)
    }
}

pub(crate) fn after(delay: u64) -> Overload {
    overload(Hint::After {
        delay: ms(delay),
        granularity: Granularity::Milliseconds,
    })
}

pub(crate) fn seconds(seconds: u64) -> Overload {
    let hint = Hint::After {
        delay: Duration::from_secs(seconds),
        granularity: Granularity::Seconds,
    };
    Overload { hint, ..bare() }
}

pub(crate) fn window(delay: u64, max: u64) -> Overload {
    overload(Hint::Window {
        delay: ms(delay),
        max: ms(max),
    })
}

pub(crate) fn with_retry(retry: Retry, overload: Overload) -> Overload {
    Overload { retry, ..overload }
}

pub(crate) fn refused(overload: Overload) -> Outcome {
    Outcome::Overload(Box::new(overload))
}

#[derive(Default)]
pub(crate) struct Log(pub(crate) Vec<Event>);

impl Events for Log {
    fn emit(&mut self, event: Event) {
        self.0.push(event);
    }
}

impl Log {
    pub(crate) fn early(&self) -> usize {
        self.0
            .iter()
            .filter(|event| matches!(event, Event::RetrySent { early: true, .. }))
            .count()
    }

    pub(crate) fn gave_up(&self) -> Vec<StopReason> {
        let why = |event: &Event| {
            if let Event::GaveUp(why) = event {
                Some(*why)
            } else {
                None
            }
        };
        self.0.iter().filter_map(why).collect()
    }
}

/// One client: a policy, a destination, a clock and what it saw.
pub(crate) struct World {
    pub(crate) base: Instant,
    pub(crate) now: Instant,
    pub(crate) policy: Arc<Policy>,
    pub(crate) destination: Destination,
    pub(crate) rng: Pcg64Mcg,
    pub(crate) log: Log,
    /// How long each attempt takes.
    pub(crate) attempt_takes: Duration,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) finish: Finish,
    pub(crate) sends: Vec<Send>,
    /// Time from each outcome to the next send.
    pub(crate) gaps: Vec<Duration>,
    pub(crate) elapsed: Duration,
}

impl Run {
    pub(crate) fn gave_up(&self) -> &GiveUp {
        match &self.finish {
            Finish::GiveUp(give_up) => give_up,
            Finish::Deliver => panic!("delivered: {self:?}"),
        }
    }

    pub(crate) fn why(&self) -> StopReason {
        self.gave_up().why
    }
}

impl World {
    pub(crate) fn new(policy: Policy) -> Self {
        Self::seeded(policy, 1)
    }

    pub(crate) fn seeded(policy: Policy, seed: u64) -> Self {
        let base = base();
        let destination = Destination::new(&policy);
        let policy = Arc::new(policy);
        Self {
            base,
            now: base,
            policy,
            destination,
            rng: rng(seed),
            log: Log::default(),
            attempt_takes: ms(1),
        }
    }

    pub(crate) fn call(&self, spec: CallSpec) -> Call {
        Call::new(Arc::clone(&self.policy), spec, self.now)
    }

    pub(crate) fn next(&mut self, call: &mut Call) -> Action {
        call.next_action(self.now, &mut self.destination, &mut self.rng, &mut self.log)
    }

    pub(crate) fn tell(&mut self, call: &mut Call, outcome: Outcome) {
        call.on_outcome(
            self.now,
            self.now,
            outcome,
            &mut self.destination,
            &mut self.rng,
            &mut self.log,
        );
    }

    pub(crate) fn cancel(&mut self, call: &mut Call) {
        call.cancel(self.now, &mut self.destination, &mut self.log);
    }

    /// Asks until the call sends; panics if it does not.
    pub(crate) fn send(&mut self, call: &mut Call) -> Send {
        match self.next(call) {
            Action::Send(send) => send,
            other => panic!("no send: {other:?}"),
        }
    }

    pub(crate) fn finish(&mut self, call: &mut Call) -> Finish {
        match self.next(call) {
            Action::Finish(finish) => finish,
            other => panic!("no end: {other:?}"),
        }
    }

    /// Sends once, is told this and must stop at once.
    pub(crate) fn stop_after(&mut self, spec: CallSpec, outcome: Outcome) -> GiveUp {
        let mut call = self.call(spec);
        let _ = self.send(&mut call);
        self.tell(&mut call, outcome);
        match self.finish(&mut call) {
            Finish::GiveUp(give_up) => give_up,
            Finish::Deliver => panic!("delivered"),
        }
    }

    /// Runs a call against a service that answers each attempt by its number, to its end.
    pub(crate) fn run(&mut self, spec: CallSpec, mut service: impl FnMut(u32) -> Outcome) -> Run {
        let started = self.now;
        let mut call = self.call(spec);
        let (mut sends, mut gaps, mut told) = (Vec::new(), Vec::new(), None);
        loop {
            match self.next(&mut call) {
                Action::Send(send) => {
                    gaps.extend(told.map(|told| self.now - told));
                    self.now += self.attempt_takes;
                    told = Some(self.now);
                    self.tell(&mut call, service(send.number));
                    sends.push(send);
                }
                Action::WaitUntil(until) => {
                    assert!(until > self.now);
                    self.now = until;
                }
                Action::Finish(finish) => {
                    let elapsed = self.now - started;
                    return Run {
                        finish,
                        sends,
                        gaps,
                        elapsed,
                    };
                }
            }
        }
    }

    /// The same against a script; panics where more is sent than the script has.
    pub(crate) fn script(&mut self, spec: CallSpec, outcomes: Vec<Outcome>) -> Run {
        let mut outcomes = outcomes.into_iter();
        self.run(spec, |_| outcomes.next().expect("one send more than expected"))
    }
}

/// Samples `n` draws and asserts that they are random over the window and not bunched (FC-JIT-01, FC-JIT-03).
pub(crate) fn assert_spread(samples: &[Duration], lo: Duration, hi: Duration) {
    let width = hi - lo;
    assert!(
        samples.iter().all(|sample| (lo..=hi).contains(sample)),
        "outside {lo:?}..={hi:?}: {samples:?}"
    );
    let least = *samples.iter().min().unwrap();
    let most = *samples.iter().max().unwrap();
    assert!(
        most - least > width / 2,
        "{least:?}..{most:?} uses less than half of {lo:?}..={hi:?}"
    );
    for slice in 0..10_u32 {
        let from = lo + width * slice / 10;
        let inside = samples
            .iter()
            .filter(|sample| **sample >= from && **sample < from + width / 10)
            .count();
        assert!(
            inside * 3 <= samples.len(),
            "{inside} of {} within {:?} of {from:?}",
            samples.len(),
            width / 10
        );
    }
}

/// Runs a call once for each of `n` clients of its own, and returns the wait after attempt `attempt`.
pub(crate) fn waits(
    n: u64,
    policy: &Policy,
    attempt: usize,
    service: impl Fn(u32) -> Outcome,
) -> Vec<Duration> {
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
pub(crate) fn until(k: u32, refusal: impl Fn() -> Overload) -> impl Fn(u32) -> Outcome {
    move |attempt| {
        if attempt <= k {
            refused(refusal())
        } else {
            Outcome::Success
        }
    }
}

/// Calls that are all under way, each with its first attempt sent.
pub(crate) fn start(world: &mut World, n: usize) -> Vec<Call> {
    let send = |_| {
        let mut call = world.call(get());
        let _ = world.send(&mut call);
        call
    };
    (0..n).map(send).collect()
}

/// A refusal that speaks for the whole service.
pub(crate) fn service(overload: Overload) -> Outcome {
    refused(Overload {
        scope: Scope::Service,
        ..overload
    })
}

/// A call of this kind is refused with this now; it is left as it then is.
pub(crate) fn arm(world: &mut World, spec: CallSpec, outcome: Outcome) -> Call {
    let mut call = world.call(spec);
    let _ = world.send(&mut call);
    world.tell(&mut call, outcome);
    call
}

/// How long a call of this kind, made now, would be held; zero where it is sent.
pub(crate) fn held(world: &mut World, spec: CallSpec) -> Duration {
    let mut call = world.call(spec);
    let action = world.next(&mut call);
    let held = match action {
        Action::Send(_) => Duration::ZERO,
        Action::WaitUntil(until) => until - world.now,
        Action::Finish(finish) => panic!("stopped: {finish:?}"),
    };
    world.cancel(&mut call);
    held
}
