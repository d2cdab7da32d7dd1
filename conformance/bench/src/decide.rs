//! What does one decision cost, without a socket in the way? A permit taken and given back by tower's limits, a cell
//! of governor's limiter, and a place in our controller, which also charges, predicts, orders and remembers. Batches
//! take turns; a batch is long enough for the clock and short enough that a pause spoils one batch and no more.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures_util::FutureExt;
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};
use holdoff::Tier;
use holdoff_admission::{Controller, DeadlineOf, Decision, Ending, Profile, Ticket, Work};
use holdoff_admission_tower::{Admission, Ask};
use serde::Serialize;
use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::{Service, ServiceBuilder, service_fn};

use crate::clock;
use crate::host::one_thread;
use crate::stats::{Spread, paired_ratios};

/// Decisions in a batch.
const BATCH: usize = 512;

/// Tasks that wait where the queue is not empty.
const WAITING: usize = 100;

/// What others are compared with: [`Contest::all`] begins with it.
const TOWER: &str = "tower load_shed + concurrency_limit";

/// The figure that the target of 250 ns is about.
pub const OURS: &str = "controller: admit, start, finish";

/// One contestant's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// Who.
    pub name: &'static str,
    /// Nanoseconds a decision, one entry a batch.
    pub ns: Spread,
    /// Through tower's of the same round.
    pub ratio: Spread,
}

/// All contestants.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    /// Batches of each.
    pub batches: usize,
    /// Decisions in a batch.
    pub batch: usize,
    /// Per contestant, tower first.
    pub costs: Vec<Cost>,
}

type Noop = fn(()) -> Ready<Result<(), Infallible>>;
type Limits = LoadShed<ConcurrencyLimit<tower::util::ServiceFn<Noop>>>;

/// A decider with what it needs.
enum Contest {
    Tower(Limits),
    Governor(DefaultDirectRateLimiter),
    GovernorByTenant(DefaultKeyedRateLimiter<&'static str>),
    Whole(Loaded),
    Admit(Loaded),
    Waiting(Loaded),
    Refuse(Loaded),
    Layer(Admission),
}

impl Contest {
    fn all() -> anyhow::Result<Vec<(&'static str, Self)>> {
        let noop: Noop = |()| ready(Ok(()));
        let limits = ServiceBuilder::new()
            .load_shed()
            .concurrency_limit(4)
            .service(service_fn(noop));
        let quota = Quota::per_second(NonZeroU32::MAX);
        let mut refuse = Loaded::new(4, WAITING)?;
        refuse.work.deadline = refuse.now + Duration::from_millis(100);
        Ok(vec![
            (TOWER, Self::Tower(limits)),
            ("governor, one limit", Self::Governor(RateLimiter::direct(quota))),
            (
                "governor, one limit a tenant",
                Self::GovernorByTenant(RateLimiter::keyed(quota)),
            ),
            (OURS, Self::Whole(Loaded::new(4, 0)?)),
            ("controller: admit alone", Self::Admit(Loaded::new(64, 0)?)),
            (
                "controller: admit and cancel, 100 waiting",
                Self::Waiting(Loaded::new(4, WAITING)?),
            ),
            ("controller: refuse, 100 waiting", Self::Refuse(refuse)),
            (
                "layer: knock, start, finish (lock, clock, metrics)",
                Self::Layer(Admission::start(profile(4), None)?),
            ),
        ])
    }

    /// Time that a batch took; an error where a decision was not the one meant.
    fn batch(&mut self) -> anyhow::Result<Duration> {
        let mut cx = Context::from_waker(Waker::noop());
        let begun = clock::now();
        let mut good = 0;
        match self {
            Self::Tower(limits) => {
                for _ in 0..BATCH {
                    let _ = limits.poll_ready(&mut cx);
                    good += usize::from(matches!(limits.call(()).now_or_never(), Some(Ok(()))));
                }
            }
            Self::Governor(limiter) => {
                for _ in 0..BATCH {
                    good += usize::from(limiter.check().is_ok());
                }
            }
            Self::GovernorByTenant(limiter) => {
                for n in 0..BATCH {
                    good += usize::from(limiter.check_key(&TENANTS[n % TENANTS.len()]).is_ok());
                }
            }
            Self::Whole(loaded) => good = loaded.whole(),
            Self::Admit(loaded) => return loaded.admit(),
            Self::Waiting(loaded) => good = loaded.admit_and_cancel(),
            Self::Refuse(loaded) => good = loaded.refuse(),
            Self::Layer(admission) => {
                let ask = Ask::default();
                for _ in 0..BATCH {
                    // Outside of tokio's cooperative budget: a real request has one of its own.
                    let entering = admission.enter(black_box(&ask));
                    let entered = tokio::task::coop::unconstrained(entering).now_or_never();
                    if let Some(Ok(permit)) = entered {
                        permit.completed();
                        good += 1;
                    }
                }
            }
        }
        let took = clock::now() - begun;
        ensure!(good == BATCH, "{good} of {BATCH} decisions were as meant");
        Ok(took)
    }
}

const TENANTS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

fn profile(workers: u32) -> Profile {
    Profile {
        workers,
        queue: 10_000,
        ..Profile::default()
    }
}

/// A controller with tasks of ten tenants waiting behind busy workers.
struct Loaded {
    controller: Controller,
    now: Instant,
    work: Work,
    tickets: Vec<Ticket>,
}

impl Loaded {
    /// Without waiting tasks the workers are idle too.
    fn new(workers: u32, waiting: usize) -> anyhow::Result<Self> {
        let now = clock::now();
        let mut controller = Controller::new(profile(workers), now)?;
        let work = Work {
            tenant: controller.tenant(None),
            class: controller.class(None),
            tier: Tier::Deferrable,
            deadline: now + Duration::from_secs(3_000),
            deadline_of: DeadlineOf::Caller,
            cost: None,
            bytes: 100,
            may_defer: false,
        };
        let mut loaded = Self {
            controller,
            now,
            work,
            tickets: Vec::new(),
        };
        // Enough samples that the class is known, all of 50 ms.
        for _ in 0..16 {
            ensure!(
                loaded.pass(Duration::from_millis(50)),
                "an idle controller refused"
            );
        }
        let held = if waiting == 0 {
            0
        } else {
            waiting + workers as usize
        };
        for n in 0..held {
            let tenant = loaded.controller.tenant(Some(TENANTS[n % TENANTS.len()]));
            let work = Work {
                tenant,
                ..loaded.work.clone()
            };
            match loaded.controller.admit(now, work, &mut ()) {
                // Held until the end: what waits must go on waiting.
                Decision::Accept { ticket, .. } => loaded.tickets.push(ticket),
                Decision::Defer { .. } | Decision::Reject(_) => anyhow::bail!("task {n} was not accepted"),
            }
            while loaded.controller.next_step(now, &mut ()).is_some() {}
        }
        Ok(loaded)
    }

    /// One task through an idle controller.
    fn pass(&mut self, service: Duration) -> bool {
        let Self {
            controller,
            now,
            work,
            ..
        } = self;
        let decision = controller.admit(*now, black_box(work.clone()), &mut ());
        let Decision::Accept { ticket, .. } = decision else {
            return false;
        };
        let started = controller.next_step(*now, &mut ()).is_some();
        controller.finish(*now, ticket, Ending::Completed { service }, &mut ());
        started
    }

    fn whole(&mut self) -> usize {
        let service = Duration::from_millis(50);
        (0..BATCH).map(|_| usize::from(self.pass(service))).sum()
    }

    /// Only the decisions are timed: their undoing comes after.
    fn admit(&mut self) -> anyhow::Result<Duration> {
        let begun = clock::now();
        for _ in 0..BATCH {
            let decision = self
                .controller
                .admit(self.now, black_box(self.work.clone()), &mut ());
            if let Decision::Accept { ticket, .. } = decision {
                self.tickets.push(ticket);
            }
        }
        let took = clock::now() - begun;
        ensure!(
            self.tickets.len() == BATCH,
            "{} of {BATCH} accepted",
            self.tickets.len()
        );
        for ticket in self.tickets.drain(..) {
            self.controller
                .finish(self.now, ticket, Ending::Cancelled, &mut ());
        }
        Ok(took)
    }

    fn admit_and_cancel(&mut self) -> usize {
        let mut good = 0;
        for _ in 0..BATCH {
            let decision = self
                .controller
                .admit(self.now, black_box(self.work.clone()), &mut ());
            if let Decision::Accept { ticket, .. } = decision {
                self.controller
                    .finish(self.now, ticket, Ending::Cancelled, &mut ());
                good += 1;
            }
        }
        good
    }

    fn refuse(&mut self) -> usize {
        let mut good = 0;
        for _ in 0..BATCH {
            let decision = self
                .controller
                .admit(self.now, black_box(self.work.clone()), &mut ());
            good += usize::from(matches!(black_box(decision), Decision::Reject(_)));
        }
        good
    }
}

/// Measures every contestant, a batch each in turn.
///
/// # Errors
/// When one decides otherwise than it was set up to.
pub fn measure(batches: usize) -> anyhow::Result<Costs> {
    let runtime = one_thread()?;
    // Our layer's time keeper needs a runtime; the batches are made inside it, so that nothing else runs meanwhile.
    runtime.block_on(async {
        let mut contest = Contest::all()?;
        let mut ns = vec![Vec::with_capacity(batches); contest.len()];
        for (name, contestant) in &mut contest {
            contestant.batch().with_context(|| *name)?;
        }
        for _ in 0..batches {
            for ((name, contestant), ns) in contest.iter_mut().zip(&mut ns) {
                let took = contestant.batch().with_context(|| *name)?;
                ns.push(took.as_secs_f64() * 1e9 / BATCH as f64);
            }
            tokio::task::yield_now().await;
        }
        let mut costs = Vec::new();
        for ((name, _), of) in contest.iter().zip(&ns) {
            costs.push(Cost {
                name,
                ns: Spread::of(of).context("no batches")?,
                ratio: Spread::of(&paired_ratios(of, &ns[0])).context("no batches")?,
            });
        }
        Ok(Costs {
            batches,
            batch: BATCH,
            costs,
        })
    })
}
