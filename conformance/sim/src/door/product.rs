//! The product's controller behind the simulator's trait: no rule of it is repeated here.

use std::collections::BTreeMap;

use holdoff_admission::profile::{Class as ClassProfile, TierLimits, Tiers};
use holdoff_admission::{
    Caller, ClassId, Controller, DeadlineOf, Decision, Ending, Profile, ProfileError, Step, Ticket, Work,
};
use holdoff_contract::{Overload, Retry};

use super::{Ask, Door, HintKind, Hinter, Look, Turn, Verdict};
use crate::scenario::{Scenario, TENANTS, Tasks};
use crate::time::{Nanos, Origin, whole};
use crate::workload::{Class, ONE_CLASS_MEAN_MS, ONE_CLASS_P95_MS};

/// The controller with the tickets it gave out.
#[derive(Debug)]
pub struct Product {
    controller: Controller,
    origin: Origin,
    /// By the low half of their keys.
    tickets: Vec<Option<Ticket>>,
    short: ClassId,
    long: ClassId,
    tenants: Vec<String>,
    hinter: Hinter,
    edge: Edge,
}

/// Whether callers are known to the controller, so that it can stop those that come back too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The controller knows the callers apart, and each call has an Idempotency-Key.
    On,
    /// Nothing is known of callers.
    Off,
}

/// Greatest wait bound W of every tier in the simulated service, 1 s (DESIGN section 4).
const WAIT_BOUND_MS: u64 = 1_000;
/// Deferrable places a worker. The wait bound binds long before: a second of short tasks is 50 a worker.
const QUEUE_PER_WORKER: u32 = 64;

/// The profile an operator would write for the simulated service: two classes, the wait bound, defaults otherwise.
pub(crate) fn profile(scenario: &Scenario) -> Profile {
    if scenario.tasks == Tasks::OneClass {
        // As holdoff-bench has it: what it says is how many workers there are and how long a task takes.
        let class = ClassProfile {
            mean_ms: ONE_CLASS_MEAN_MS,
            p95_ms: Some(ONE_CLASS_P95_MS),
            ..ClassProfile::default()
        };
        return Profile {
            workers: scenario.workers,
            classes: BTreeMap::from([(Class::Short.name().to_owned(), class)]),
            ..Profile::default()
        };
    }
    let class = |class: Class, deadline_ms| {
        let mean_ms = class.mean() as f64 / 1e6;
        ClassProfile {
            mean_ms,
            p95_ms: Some(2.0 * mean_ms),
            deadline_ms,
            max_deadline_ms: None,
        }
    };
    let tier = || TierLimits {
        max_wait_ms: Some(WAIT_BOUND_MS),
        ..TierLimits::default()
    };
    Profile {
        workers: scenario.workers,
        queue: scenario.workers * QUEUE_PER_WORKER,
        classes: BTreeMap::from([
            ("short".to_owned(), class(Class::Short, 2_000)),
            ("long".to_owned(), class(Class::Long, 5_000)),
        ]),
        tiers: Tiers {
            critical: tier(),
            non_sheddable: tier(),
            deferrable: tier(),
        },
        ..Profile::default()
    }
}

impl Product {
    /// The controller of one replica.
    ///
    /// # Errors
    /// When the controller refuses the profile.
    pub fn new(
        scenario: &Scenario,
        hint: HintKind,
        edge: Edge,
        origin: Origin,
    ) -> Result<Self, ProfileError> {
        let controller = Controller::new(profile(scenario), origin.at(0))?;
        Ok(Self {
            short: controller.class(Some(Class::Short.name())),
            long: controller.class(Some(Class::Long.name())),
            controller,
            origin,
            tickets: Vec::new(),
            tenants: (0..TENANTS).map(|n| format!("tenant-{n}")).collect(),
            hinter: Hinter::new(hint),
            edge,
        })
    }

    fn keep(&mut self, ticket: Ticket) -> u64 {
        let key = ticket.key();
        let slot = index(key);
        if self.tickets.len() <= slot {
            self.tickets.resize_with(slot + 1, || None);
        }
        self.tickets[slot] = Some(ticket);
        key
    }

    /// Another kind of hint, where one is simulated.
    fn rehint(&mut self, now: Nanos, mut overload: Box<Overload>) -> Box<Overload> {
        let backlog = overload.predicted_wait.map_or(0, whole);
        if let Some(hint) = self.hinter.hint(now, backlog) {
            overload.hint = hint;
            // Those hints know nothing of deadlines; the caller judges by its own.
            let forbidden = overload
                .code
                .as_ref()
                .is_some_and(|code| code.default_retry() == Retry::No);
            if !forbidden {
                overload.retry = Retry::After;
            }
        }
        overload
    }
}

/// A hash of a small number, as an adapter hashes names (the finalizer of splitmix64). The tables of the edge choose a row by
/// the upper half: numbers as they are would all share one.
const fn hash(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

/// The dense half of a key.
pub(crate) fn index(key: u64) -> usize {
    (key & u64::from(u32::MAX)) as usize
}

impl Door for Product {
    fn admit(&mut self, now: Nanos, ask: Ask) -> Verdict {
        let instant = self.origin.at(now);
        let class = match ask.class {
            Class::Short => self.short,
            Class::Long => self.long,
        };
        let work = Work {
            tenant: self
                .controller
                .tenant(Some(&self.tenants[usize::from(ask.tenant)])),
            class,
            tier: ask.tier,
            deadline: instant + self.controller.deadline(class, ask.time_left),
            deadline_of: if ask.time_left.is_some() {
                DeadlineOf::Caller
            } else {
                DeadlineOf::Class
            },
            cost: None,
            bytes: 1_024,
            may_defer: false,
        };
        let decision = match self.edge {
            Edge::Off => self.controller.admit(instant, work, &mut ()),
            Edge::On => {
                let caller = Caller {
                    id: hash(u64::from(ask.caller)),
                    key: Some(hash(u64::from(ask.call))),
                    attempt: u8::try_from(ask.attempt).ok(),
                };
                self.controller.admit_from(instant, work, &caller, &mut ())
            }
        };
        match decision {
            Decision::Accept {
                ticket,
                predicted_wait,
            } => Verdict::Accepted {
                key: self.keep(ticket),
                predicted: whole(predicted_wait),
            },
            // No route of the simulated service answers 202.
            Decision::Defer { ticket, poll_after } => Verdict::Accepted {
                key: self.keep(ticket),
                predicted: whole(poll_after),
            },
            Decision::Reject(rejection) => Verdict::Refused(self.rehint(now, rejection.overload)),
        }
    }

    fn next(&mut self, now: Nanos) -> Option<Turn> {
        let step = self.controller.next_step(self.origin.at(now), &mut ())?;
        Some(match step {
            Step::Start(key) => Turn::Start(key),
            Step::Refuse(key, rejection) => {
                self.tickets[index(key)] = None;
                Turn::Refuse(key, self.rehint(now, rejection.overload))
            }
        })
    }

    fn finish(&mut self, now: Nanos, key: u64, ending: Ending) {
        if let Some(ticket) = self.tickets.get_mut(index(key)).and_then(Option::take) {
            self.controller
                .finish(self.origin.at(now), ticket, ending, &mut ());
        }
    }

    fn tick(&mut self, now: Nanos) {
        self.controller.tick(self.origin.at(now), &mut ());
    }

    fn next_expiry(&self) -> Option<Nanos> {
        self.controller.next_expiry().map(|t| self.origin.nanos(t))
    }

    fn look(&self, now: Nanos) -> Look {
        let snapshot = self.controller.snapshot(self.origin.at(now));
        Look {
            queued: snapshot.tiers.iter().map(|tier| tier.queued).sum(),
            oldest: whole(snapshot.oldest_age),
            state: snapshot.state,
        }
    }
}
