//! What the calls to one destination share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use holdoff_policy::{CallSpec, Destination, Event, Events, Policy};

use crate::PacedCall;
use crate::clock::{self, Entropy};

/// Paces the calls to one destination: they share its retry budget and the bound on how many of them wait. Make one for
/// each service that is called, and keep it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pacer {
    pub(crate) shared: Arc<Shared>,
}

/// Builds a [`Pacer`]; what is not set keeps the contract's default.
#[derive(Default)]
#[must_use]
pub struct PacerBuilder {
    policy: Policy,
    seed: Option<u64>,
    clock: Option<Clock>,
    observer: Option<Observer>,
}

type Clock = Box<dyn Fn() -> Instant + Send + Sync>;
type Observer = Box<dyn Fn(Event) + Send + Sync>;

pub(crate) struct Shared {
    pub(crate) policy: Arc<Policy>,
    destination: Mutex<Destination>,
    entropy: Entropy,
    clock: Option<Clock>,
    observer: Option<Observer>,
}

impl Pacer {
    /// A pacer with the contract's defaults.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Sets up a pacer.
    pub fn builder() -> PacerBuilder {
        PacerBuilder::default()
    }

    /// Starts a call: its deadline runs from here.
    pub fn call(&self, spec: CallSpec) -> PacedCall {
        PacedCall::new(Arc::clone(&self.shared), spec)
    }

    /// Tokens left in the retry budget.
    pub fn budget_tokens(&self) -> u32 {
        self.shared
            .with_destination(|destination| destination.budget().level())
    }

    /// Calls that wait for a retry.
    pub fn waiting(&self) -> u32 {
        self.shared.with_destination(|destination| destination.waiting())
    }
}

impl Default for Pacer {
    fn default() -> Self {
        Self::new()
    }
}

impl PacerBuilder {
    /// When to try again and when to stop. Default: the contract's (section 5).
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Draws jitter from a generator with this seed, so that a test can be repeated. Default: the thread's own.
    pub fn rng_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Reads this clock, which must never go back. Default: the system's monotonic clock. For tests in virtual time.
    pub fn clock(mut self, clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Told what happens: waits, retries and whether they kept to their hints, reasons to stop. Called on the thread of
    /// the call, without a lock held.
    pub fn observer(mut self, observer: impl Fn(Event) + Send + Sync + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// The pacer.
    pub fn build(self) -> Pacer {
        Pacer {
            shared: Arc::new(Shared {
                destination: Mutex::new(Destination::new(&self.policy)),
                policy: Arc::new(self.policy),
                entropy: self.seed.map_or(Entropy::Thread, Entropy::seeded),
                clock: self.clock,
                observer: self.observer,
            }),
        }
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Instant {
        self.clock.as_ref().map_or_else(clock::system, |clock| clock())
    }

    fn with_destination<T>(&self, f: impl FnOnce(&mut Destination) -> T) -> T {
        // The policy leaves no destination half changed, so a poisoned lock is as good as new.
        f(&mut self.destination.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes one step of a call, with the destination locked, and returns what is to be observed once it is free.
    pub(crate) fn step<T>(
        &self,
        events: &mut Buffer,
        step: impl FnOnce(&mut Destination, &mut dyn rand::Rng, &mut Buffer) -> T,
    ) -> T {
        self.with_destination(|destination| self.entropy.with(|rng| step(destination, rng, events)))
    }

    pub(crate) fn observe(&self, events: Buffer) {
        if let Some(observer) = &self.observer {
            events.0.into_iter().for_each(observer);
        }
    }
}

/// Events until the locks are free. Does not allocate while nothing happens.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<Event>);

impl Events for Buffer {
    fn emit(&mut self, event: Event) {
        self.0.push(event);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer")
            .field("policy", &self.policy)
            .field("destination", &self.destination)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PacerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacerBuilder")
            .field("policy", &self.policy)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}
