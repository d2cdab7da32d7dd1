//! The controller: what stands in it, and how work goes through it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use holdoff_contract::{Code, ServiceState, Tier};

use crate::ask::Ask;
use crate::bounds::{Bounds, EPOCH, whole};
use crate::demand::Demand;
use crate::edge::Edge;
use crate::estimator::Class;
use crate::ghosts::{Ghost, Ghosts};
use crate::line::Line;
use crate::pool::Pool;
use crate::queues::{BACKLOG, Queues};
use crate::slots::{NONE, Nanos, Place, Slot, Slots};
use crate::state::Machine;
use crate::tenants::Tenants;
use crate::wait::Run;
use crate::{
    Caller, ClassId, Decision, Ending, Event, Events, Profile, ProfileError, Step, TenantId, Ticket, Work,
};

/// Decides admission, order and expiry for one pool of workers.
#[derive(Debug)]
pub struct Controller {
    pub(crate) profile: Profile,
    origin: Instant,
    pub(crate) classes: Vec<Class>,
    pub(crate) class_ids: HashMap<Box<str>, u16>,
    pub(crate) tenants: Tenants,
    pub(crate) slots: Slots,
    pub(crate) queues: Queues,
    pub(crate) pool: Pool,
    pub(crate) machine: Machine,
    pub(crate) line: Line,
    pub(crate) edge: Edge,
    pub(crate) ghosts: Ghosts,
    pub(crate) bounds: Bounds,
    pub(crate) running_work: Nanos,
    pub(crate) last_tick: Nanos,
    pub(crate) epoch: Nanos,
    /// Non-sheddable tasks that may wait while the data is stale: what waited at the last tick.
    pub(crate) safe_depth: u32,
    /// Something was refused for load since the last tick.
    pub(crate) pressed: bool,
    pub(crate) draining: bool,
    pub(crate) demand: Demand,
}

impl Controller {
    /// Period of [`Controller::tick`].
    pub const TICK: Duration = Duration::from_millis(100);

    /// A controller with empty queues.
    ///
    /// # Errors
    /// When the profile is outside its ranges; the error names key, value and limit.
    pub fn new(profile: Profile, now: Instant) -> Result<Self, ProfileError> {
        profile.validate()?;
        let mut classes: Vec<Class> = profile
            .classes
            .iter()
            .map(|(name, declared)| Class::new(name, declared, &profile))
            .collect();
        if !profile.classes.contains_key("other") {
            classes.push(Class::new("other", &profile.other_class(), &profile));
        }
        // At most 65 names.
        let class_ids = classes
            .iter()
            .zip(0..)
            .map(|(class, id)| (class.name.as_str().into(), id))
            .collect();
        let bounds = Bounds::new(&profile);
        let mut controller = Self {
            origin: now,
            classes,
            class_ids,
            tenants: Tenants::new(&profile),
            slots: Slots::default(),
            queues: Queues::new(bounds.weights, profile.workers),
            pool: Pool::new(&profile),
            machine: Machine::new(&profile),
            line: Line::default(),
            edge: Edge::default(),
            ghosts: Ghosts::default(),
            bounds,
            running_work: 0,
            last_tick: 0,
            epoch: 0,
            safe_depth: 1,
            pressed: false,
            draining: false,
            demand: Demand::default(),
            profile,
        };
        controller.derive_bounds();
        Ok(controller)
    }

    /// Nanoseconds since the controller was made.
    pub(crate) fn nanos(&self, t: Instant) -> Nanos {
        whole(t.saturating_duration_since(self.origin))
    }

    /// The class with this name, else `other`.
    pub fn class(&self, name: Option<&str>) -> ClassId {
        let known = |name: &str| self.class_ids.get(name).copied();
        // `other` is always in the table.
        ClassId(name.and_then(known).or_else(|| known("other")).unwrap_or(0))
    }

    /// The slot of this tenant (`None` = anonymous); bounded.
    pub fn tenant(&mut self, name: Option<&str>) -> TenantId {
        self.tenants.find(name, self.last_tick)
    }

    /// The deadline to use for this class when the request says none or more than its maximum (SRQ-01, SRQ-03).
    pub fn deadline(&self, class: ClassId, asked: Option<Duration>) -> Duration {
        let class = &self.classes[usize::from(class.0)];
        asked.map_or(Duration::from_nanos(class.deadline), |asked| {
            asked.min(Duration::from_nanos(class.max_deadline))
        })
    }

    /// Decides for a caller of whom nothing is known. Constant time, no allocation that outlives the work.
    #[expect(clippy::needless_pass_by_value, reason = "the work is handed over")]
    pub fn admit(&mut self, now: Instant, work: Work, events: &mut impl Events) -> Decision {
        self.decide(self.nanos(now), &work, None, events)
    }

    /// Decides for a caller that is known: the edge first, which answers `retry_throttled` to a retry that comes before its
    /// hint and to a caller that has used up its refusals, before anything is predicted (ADM-13).
    #[expect(clippy::needless_pass_by_value, reason = "the work is handed over")]
    pub fn admit_from(
        &mut self,
        now: Instant,
        work: Work,
        caller: &Caller,
        events: &mut impl Events,
    ) -> Decision {
        let now = self.nanos(now);
        // An instance that goes away, or does not know its own load, has that to say first.
        if !self.draining && !self.is_stale(now) {
            let fair = self.fair_share(work.class);
            if let Some(throttle) = self.edge.check(now, caller, work.tier, fair, events) {
                return Decision::Reject(self.throttle(now, &work, caller, throttle, events));
            }
        }
        let decision = self.decide(now, &work, Some(caller), events);
        match &decision {
            Decision::Accept { .. } | Decision::Defer { .. } => self.edge.admitted(now, caller, work.tier),
            Decision::Reject(rejection) => self.account(now, caller, work.tier, rejection),
        }
        decision
    }

    fn decide(
        &mut self,
        now: Nanos,
        work: &Work,
        caller: Option<&Caller>,
        events: &mut impl Events,
    ) -> Decision {
        self.tenants.touch(work.tenant);
        self.count_arrival(work.class, work.tier);
        let ask = Ask {
            known: caller.is_some_and(|caller| caller.key.is_some()),
            ..self.ask(now, work)
        };
        // For statistics only, as the contract has it: what comes back is no demand of newcomers.
        let attempt = caller.and_then(|caller| caller.attempt);
        if attempt.is_none_or(|attempt| attempt < 2) {
            let class = &self.classes[usize::from(ask.class.0)];
            self.demand.count(class.usual_part(ask.charge));
        }
        let defer = self.defers(&ask);
        let found = if defer {
            crate::judge::Findings::default()
        } else {
            self.judge(&ask)
        };
        events.emit(Event::Decided {
            code: found.code.clone(),
            deferred: defer,
            tier: ask.tier,
            class: ask.class,
            tenant: ask.tenant,
            predicted_wait: Duration::from_nanos(ask.wait),
        });
        self.pressed |= found.load;
        if let Some(code) = found.code.clone() {
            self.haunt(&ask, &code);
            return Decision::Reject(self.refuse(&ask, &found, code));
        }
        if defer {
            let ticket = self.enqueue(&ask, BACKLOG);
            let poll_after = self.machine.time_to_normal(now).clamp(EPOCH, self.bounds.ceiling);
            return Decision::Defer {
                ticket,
                poll_after: Duration::from_nanos(poll_after),
            };
        }
        if ask.tier == Tier::Critical {
            let (rate, burst) = self.critical_share();
            self.tenants[ask.tenant.0]
                .critical
                .take(now, ask.charge, rate, burst);
        }
        self.count_admitted(ask.class, ask.tier);
        let ticket = self.enqueue(&ask, ask.tier.index());
        if found.probe {
            self.classes[usize::from(ask.class.0)].last_probe = now;
            self.slots[ticket.slot].exempt = true;
        }
        Decision::Accept {
            ticket,
            predicted_wait: Duration::from_nanos(ask.wait),
        }
    }

    /// Follows refused work, to know whether that was right. What has no time left, or no server, is no question.
    fn haunt(&mut self, ask: &Ask, code: &Code) {
        if matches!(code, Code::Draining | Code::DeadlineExpired) {
            return;
        }
        let ghost = Ghost {
            class: ask.class,
            tier: ask.tier,
            code: code.clone(),
            deadline: ask.deadline,
            service: self.classes[usize::from(ask.class.0)].times.mean,
        };
        self.ghosts.follow(ask.now, ghost, ask.starts);
    }

    /// Takes acknowledged work back into its queue, over its budget if need be: what was promised is not refused after a
    /// restart (ADM-06). The adapter bounds it by what its store held.
    #[expect(clippy::needless_pass_by_value, reason = "the work is handed over")]
    pub fn restore(&mut self, now: Instant, work: Work) -> Ticket {
        let now = self.nanos(now);
        let ask = self.ask(now, &work);
        let ticket = self.enqueue(&ask, ask.tier.index());
        self.queues.keep(ticket.slot);
        self.slots[ticket.slot].exempt = true;
        ticket
    }

    /// Charges the work and puts it in a lane.
    fn enqueue(&mut self, ask: &Ask, lane: usize) -> Ticket {
        let deadline = if lane == BACKLOG {
            ask.now.saturating_add(self.bounds.backlog_age)
        } else {
            ask.deadline
        };
        let exempt = lane == BACKLOG || ask.tier == Tier::NonSheddable;
        let ticket = self.slots.insert(Slot {
            generation: 0,
            place: Place::Free,
            tenant: ask.tenant.0,
            class: ask.class,
            tier: ask.tier,
            charge: ask.charge,
            bytes: ask.bytes,
            admitted: ask.now,
            started: 0,
            deadline,
            predicted: ask.wait,
            exempt,
            prev: NONE,
            next: NONE,
            older: NONE,
            newer: NONE,
        });
        let class = &mut self.classes[usize::from(ask.class.0)];
        class.queued_work += ask.charge;
        class.held += 1;
        self.ghosts.entered(lane, ask.charge);
        let expires = ask.tier != Tier::NonSheddable;
        self.queues
            .push(&mut self.slots, &mut self.tenants, ticket.slot, lane, expires);
        ticket
    }

    /// The next thing to do, `None` when there is nothing. Call until `None` after `admit`, `finish` and `tick`, and at
    /// [`Controller::next_expiry`].
    pub fn next_step(&mut self, now: Instant, events: &mut impl Events) -> Option<Step> {
        let now = self.nanos(now);
        if let Some((deadline, index)) = self.queues.next_expiry()
            && deadline <= now
        {
            let deferred = self.slots[index].place == Place::Queued(BACKLOG);
            let code = if deferred {
                Code::Evicted
            } else {
                Code::DeadlineExpired
            };
            return Some(self.take_out(now, index, code, events));
        }
        let (lane, index) = self.next_to_start()?;
        let slot = &self.slots[index];
        let p10 = self.classes[usize::from(slot.class.0)].times.p10;
        if !slot.exempt && now.saturating_add(p10) >= slot.deadline {
            return Some(self.take_out(now, index, Code::DeadlineUnattainable, events));
        }
        Some(self.start(now, index, lane, events))
    }

    /// The task whose turn it is and that has a worker, with its lane.
    fn next_to_start(&self) -> Option<(usize, u32)> {
        if self.pool.busy() >= self.pool.workers {
            return None;
        }
        self.queues.turns().into_iter().find_map(|lane| {
            if lane == BACKLOG && !self.machine.is_open() {
                return None;
            }
            let index = self.queues.head(&self.tenants, lane)?;
            let slot = &self.slots[index];
            self.pool
                .can_start(slot.tier, self.may_borrow(slot.class))
                .then_some((lane, index))
        })
    }

    fn start(&mut self, now: Nanos, index: u32, lane: usize, events: &mut impl Events) -> Step {
        self.queues.serve(&mut self.slots, &mut self.tenants, index, lane);
        self.ghosts.idle(now, &self.pool);
        let slot = &mut self.slots[index];
        let class = &mut self.classes[usize::from(slot.class.0)];
        class.queued_work -= slot.charge;
        let delay = now.saturating_sub(slot.admitted);
        class.note_wait(slot.predicted, delay);
        slot.started = now;
        let run = Run {
            slot: index,
            tier: slot.tier,
            started: now,
            mean: slot.charge,
            p95: class.times.p95.max(slot.charge),
        };
        slot.place = Place::Running(self.pool.start(run));
        self.running_work += slot.charge;
        let tenant = &mut self.tenants[slot.tenant];
        tenant.running += 1;
        tenant.running_work += slot.charge;
        if tenant.at_active_limit() {
            self.queues.park(&self.tenants, slot.tenant);
        }
        events.emit(Event::Started {
            class: slot.class,
            tier: slot.tier,
            start_delay: Duration::from_nanos(delay),
            predicted_wait: Duration::from_nanos(slot.predicted),
        });
        Step::Start(self.slots.key(index))
    }

    /// Takes queued work out with a refusal.
    fn take_out(&mut self, now: Nanos, index: u32, code: Code, events: &mut impl Events) -> Step {
        let slot = self.slots[index].clone();
        let key = self.slots.key(index);
        self.release(index);
        let rejection = self.refuse_queued(now, &slot, code.clone());
        let (class, tier) = (slot.class, slot.tier);
        events.emit(Event::Refused { class, tier, code });
        Step::Refuse(key, rejection)
    }

    /// Ends a ticket: releases exactly what was charged. A spent ticket does nothing.
    #[expect(clippy::needless_pass_by_value, reason = "the ticket is spent")]
    pub fn finish(&mut self, now: Instant, ticket: Ticket, ending: Ending, events: &mut impl Events) {
        let now = self.nanos(now);
        let Some(slot) = self.slots.live(&ticket).cloned() else {
            return;
        };
        let running = match slot.place {
            Place::Running(at) => Some(self.pool.is_held(at, now)),
            Place::Queued(_) | Place::Free => None,
        };
        self.ghosts.idle(now, &self.pool);
        self.release(ticket.slot);
        let Some(was_held) = running else { return };
        self.ghosts.worker_free(now, &self.queues);
        let class = &mut self.classes[usize::from(slot.class.0)];
        let service = match ending {
            Ending::Completed { service } if was_held => {
                class.sample_held(now, service, self.pool.workers);
                service
            }
            Ending::Completed { service } => {
                class.sample(now, service);
                service
            }
            Ending::TimedOut { service } => {
                class.sample_at_least(now, service);
                service
            }
            Ending::Failed { service } => service,
            Ending::Cancelled => Duration::from_nanos(now.saturating_sub(slot.started)),
        };
        events.emit(Event::Finished {
            class: slot.class,
            tier: slot.tier,
            service,
            late: now > slot.deadline,
        });
    }

    /// Gives back what the slot holds, wherever it is.
    fn release(&mut self, index: u32) {
        let Slot {
            place,
            tenant: tenant_index,
            class,
            charge,
            ..
        } = self.slots[index];
        match place {
            Place::Free => return,
            Place::Queued(lane) => {
                self.queues
                    .remove(&mut self.slots, &mut self.tenants, index, lane);
                self.classes[usize::from(class.0)].queued_work -= charge;
            }
            Place::Running(at) => {
                if let Some(moved) = self.pool.stop(at) {
                    self.slots[moved].place = Place::Running(at);
                }
                self.running_work -= charge;
                let tenant = &mut self.tenants[tenant_index];
                let was_at_limit = tenant.at_active_limit();
                tenant.running -= 1;
                tenant.running_work -= charge;
                // A limit that was lowered by a new profile can still bind.
                if was_at_limit && !tenant.at_active_limit() {
                    self.queues.unpark(&mut self.tenants, tenant_index);
                }
            }
        }
        self.classes[usize::from(class.0)].held -= 1;
        self.slots.release(index);
    }

    /// When the earliest queued deadline passes: call [`Controller::next_step`] then (ADM-04).
    pub fn next_expiry(&self) -> Option<Instant> {
        let (deadline, _) = self.queues.next_expiry()?;
        self.origin.checked_add(Duration::from_nanos(deadline))
    }

    /// The instance goes away: everything new is refused with `draining`; what was accepted finishes.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Pins the state (test fixture `force_state`), `None` to let it go. `Recovering` is entered and moves on by itself,
    /// since it is a ramp. A pinned state gates strictly, whatever the wait.
    pub fn force_state(&mut self, now: Instant, state: Option<ServiceState>, events: &mut impl Events) {
        let change = self.machine.force(self.nanos(now), state);
        Self::tell(change, events);
    }
}
