//! The caller's judgement, as the simulator sees it: the product's own `Call`, or a habit of callers today.
//!
//! A fleet of client processes shares nothing but the service, unless the scenario says so: each client has its own retry
//! budget, its own waiting room and its own hold-offs, so they are kept for each client, for the product and for the
//! baselines alike.

use std::sync::Arc;
use std::time::Duration;

use holdoff_contract::{Overload, Retry, Scope};
use holdoff_policy::{
    Action, Call, CallSpec, CallerKey, Destination, Instances, Outcome, Policy, Replay, Safety,
};
use rand_pcg::Pcg64Mcg;

use crate::plain::{Bucket, Plain};
use crate::scenario::{Fleet, PROCESSES_EACH, Scenario, TENANTS};
use crate::time::{Nanos, Origin, SECOND, whole};
use crate::workload::Arrival;

/// Behaviours of callers by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ClientKind {
    /// The product's policy
    Holdoff,
    /// The product's policy, but a refusal holds back nothing but its own call
    NoHoldOff,
    /// Never retries
    None,
    /// Three retries with full jitter, hints ignored
    FullJitter,
    /// Three retries from 1 s up, full jitter, hints ignored: reqwest-retry as documented
    ReqwestRetry,
    /// Retries from 100 ms up to 1 s while somebody waits, full jitter, hints ignored
    Eager,
    /// Comes back exactly when the hint ends
    Exact,
    /// Jitter below the hint: U(0, D)
    Below,
    /// A token bucket of 500, 5 a retry, three attempts, full jitter
    Aws,
    /// Retries are at most 20 % of the requests, full jitter
    Budget20,
    /// Sees a relay's 500 without a hint, and the relay retries as well: three times three sends
    Generic500,
    /// Gives each attempt 1 s (4 s for a long task), says no deadline, obeys Retry-After
    Legacy,
    /// Sends again every 50 ms whatever it is told
    Hammer,
}

impl ClientKind {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holdoff => "holdoff",
            Self::NoHoldOff => "no-hold-off",
            Self::None => "none",
            Self::FullJitter => "full-jitter",
            Self::ReqwestRetry => "reqwest-retry",
            Self::Eager => "eager",
            Self::Exact => "exact",
            Self::Below => "below",
            Self::Aws => "aws",
            Self::Budget20 => "budget20",
            Self::Generic500 => "generic500",
            Self::Legacy => "legacy",
            Self::Hammer => "hammer",
        }
    }
}

/// One call under way.
#[derive(Debug)]
pub enum Caller {
    /// The product's.
    Holdoff(Box<Call>, Scopes),
    /// A baseline.
    Plain(Plain),
}

/// Whether a caller believes that a refusal speaks for other calls too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scopes {
    /// As the SDK does.
    Heard,
    /// An ablation.
    Ignored,
}

/// What a caller does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Sends, with this much time for the attempt and, where it says it, for the call.
    Send {
        /// Until it gives the attempt up.
        limit: Duration,
        /// What it tells the server.
        told: Option<Duration>,
    },
    /// Waits until then.
    Wait(Nanos),
    /// Is done.
    Done,
}

/// What an attempt brought.
#[derive(Debug)]
pub enum Answer {
    /// Served.
    Served,
    /// Refused.
    Refused(Box<Overload>),
    /// The attempt's own time ran out.
    TimedOut,
}

/// All callers of a run: what they share by client.
#[derive(Debug)]
pub struct Callers {
    origin: Origin,
    fleet: Fleet,
    policy: Arc<Policy>,
    destinations: Vec<Destination>,
    buckets: Vec<Bucket>,
    rng: Pcg64Mcg,
    /// Retries of the product that left before the end of their hint: zero, or it is broken.
    pub early: u32,
}

/// Counts early retries.
struct Early<'a>(&'a mut u32);

impl holdoff_policy::Events for Early<'_> {
    fn emit(&mut self, event: holdoff_policy::Event) {
        if let holdoff_policy::Event::RetrySent { early: true, .. } = event {
            *self.0 += 1;
        }
    }
}

impl Callers {
    /// Nobody calls yet.
    pub fn new(origin: Origin, scenario: &Scenario, rng: Pcg64Mcg) -> Self {
        let mut policy = Policy::builder();
        if let Some(room) = scenario.waiting_room {
            policy = policy.max_waiting(room);
        }
        let policy = policy
            .build()
            .unwrap_or_else(|_| unreachable!("the waiting room of every scenario is within its bounds"));
        let processes = usize::from(PROCESSES_EACH * TENANTS);
        Self {
            origin,
            fleet: scenario.fleet,
            destinations: (0..processes).map(|_| Destination::new(&policy)).collect(),
            buckets: vec![Bucket::default(); processes],
            policy: Arc::new(policy),
            rng,
            early: 0,
        }
    }

    /// The client that this call goes through.
    fn client(&self, arrival: &Arrival) -> usize {
        usize::from(self.fleet.client(arrival.tenant, arrival.process))
    }

    /// A call that starts now.
    pub fn start(&self, kind: ClientKind, now: Nanos, arrival: &Arrival) -> Caller {
        let (deadline, tier) = (arrival.deadline, arrival.tier);
        let scopes = match kind {
            ClientKind::Holdoff => Scopes::Heard,
            ClientKind::NoHoldOff => Scopes::Ignored,
            plain => return Caller::Plain(Plain::new(plain, arrival.class, deadline)),
        };
        let spec = CallSpec {
            safety: Safety::Idempotent,
            replay: Replay::Bytes,
            deadline: Some(Duration::from_nanos(deadline - now)),
            tier: Some(tier),
            // A client of one tenant has nothing to say; one of many says whose call it is.
            caller: (self.fleet == Fleet::Gateway).then(|| CallerKey::new(u64::from(arrival.tenant))),
            instances: Instances::default(),
            incoming: None,
        };
        let call = Call::new(Arc::clone(&self.policy), spec, self.origin.at(now));
        Caller::Holdoff(Box::new(call), scopes)
    }

    /// What this caller does now.
    pub fn next(&mut self, caller: &mut Caller, arrival: &Arrival, now: Nanos) -> Next {
        let client = self.client(arrival);
        match caller {
            Caller::Plain(plain) => plain.next(now, &mut self.buckets[client]),
            Caller::Holdoff(call, _) => {
                let destination = &mut self.destinations[client];
                let mut events = Early(&mut self.early);
                match call.next_action(self.origin.at(now), destination, &mut self.rng, &mut events) {
                    // Every simulated call has a deadline.
                    Action::Send(send) => Next::Send {
                        limit: send.time_left.unwrap_or(Duration::MAX),
                        told: send.time_left,
                    },
                    Action::WaitUntil(until) => Next::Wait(self.origin.nanos(until)),
                    Action::Finish(_) => Next::Done,
                }
            }
        }
    }

    /// Tells it what its attempt brought.
    pub fn tell(&mut self, caller: &mut Caller, arrival: &Arrival, now: Nanos, answer: Answer) {
        let client = self.client(arrival);
        match caller {
            Caller::Plain(plain) => plain.tell(now, &answer, &mut self.buckets[client], &mut self.rng),
            Caller::Holdoff(call, scopes) => {
                let outcome = match answer {
                    Answer::Served => Outcome::Success,
                    Answer::Refused(mut overload) => {
                        if *scopes == Scopes::Ignored {
                            overload.scope = Scope::Request;
                        }
                        Outcome::Overload(overload)
                    }
                    Answer::TimedOut => Outcome::TimedOut,
                };
                let at = self.origin.at(now);
                let destination = &mut self.destinations[client];
                call.on_outcome(at, at, outcome, destination, &mut self.rng, &mut ());
            }
        }
    }
}

/// The wait that a refusal asks for; `None` where it forbids a retry. One second where it says nothing.
pub(crate) fn asked(overload: &Overload) -> Option<Nanos> {
    if overload.retry == Retry::No {
        return None;
    }
    let delay = whole(overload.hint.delay_or_zero());
    Some(if delay == 0 { SECOND } else { delay })
}
