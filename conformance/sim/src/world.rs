//! The event loop: callers, network, doors and workers in virtual time.
//!
//! Three sources of events are merged: the arrivals, which are known from the start and sorted; the heap of everything
//! that was set for later; and the next expiry of each door. At equal times the order is fixed, so that a run depends on
//! its setup alone.

mod writing;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use holdoff_admission::{Ending, ProfileError};
use holdoff_contract::Overload;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::Setup;
use crate::caller::{Answer, Caller, Callers, Next};
use crate::door::{Ask, Door, Turn, Verdict};
use crate::record::{CallRecord, Counts, Run, Span};
use crate::relay::{self, RESERVE};
use crate::scenario::{Network, REJECT_COST, Scenario, TENANTS};
use crate::series::{BIN, Series};
use crate::time::{Nanos, Origin};
use crate::trace::{self, Line};
use crate::workers::{Task, Workers};
use crate::workload::{Arrival, arrivals};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A worker of this replica is done.
    Done(u32, u32),
    /// The caller's wait is over.
    Wake(u32),
    /// An attempt reaches the door.
    AtDoor(u32, u32),
    /// An answer reaches the caller.
    Back(u32, u32),
    /// The time of an attempt ran out.
    TimeUp(u32, u32),
    /// The controller's tick.
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing is under way, or on the network.
    Away,
    /// In the queue of this replica.
    Queued(u32, u64),
    /// On a worker; its end tells.
    Running,
}

struct CallState {
    record: CallRecord,
    caller: Option<Caller>,
    place: Place,
    told: Option<Duration>,
    answer: Option<Answer>,
    line: u32,
}

struct Replica {
    door: Box<dyn Door>,
    workers: Workers,
    /// The call in each place of the door, by the low half of its key.
    seats: Vec<u32>,
    /// Cost of rejects that no worker has borne yet.
    debt: Nanos,
    expiry: Nanos,
}

/// Everything.
pub(crate) struct World {
    setup: Setup,
    origin: Origin,
    now: Nanos,
    heap: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    set: u64,
    calls: Vec<CallState>,
    callers: Callers,
    replicas: Vec<Replica>,
    active: u32,
    counts: Counts,
    series: Series,
    spans: Vec<Span>,
    trace: Vec<Line>,
    tenants: Vec<String>,
    rng: Pcg64Mcg,
}

impl World {
    pub(crate) fn new(setup: &Setup, origin: Origin) -> Result<Self, ProfileError> {
        let scenario = &setup.scenario;
        let replica = |_| {
            Ok(Replica {
                door: setup.admission.door(scenario, setup.hint, origin)?,
                workers: Workers::new(scenario),
                seats: Vec::new(),
                debt: 0,
                expiry: Nanos::MAX,
            })
        };
        let state = |arrival: Arrival| CallState {
            record: CallRecord {
                arrival,
                took: arrival.need_at(scenario, arrival.at),
                attempts: 0,
                served: None,
            },
            caller: None,
            place: Place::Away,
            told: None,
            answer: None,
            line: 0,
        };
        let stream = |n: u64| Pcg64Mcg::seed_from_u64(setup.seed.wrapping_mul(0x9E37_79B9).wrapping_add(n));
        let mut world = Self {
            origin,
            now: 0,
            heap: BinaryHeap::new(),
            set: 0,
            calls: arrivals(scenario, setup.seed).into_iter().map(state).collect(),
            callers: Callers::new(origin, scenario, stream(1)),
            replicas: (0..scenario.replicas).map(replica).collect::<Result<_, _>>()?,
            active: 0,
            counts: Counts::default(),
            series: Series::default(),
            spans: Vec::new(),
            trace: Vec::new(),
            tenants: (0..TENANTS)
                .map(|n| trace::tenant_hash(&format!("tenant-{n}")))
                .collect(),
            rng: stream(2),
            setup: setup.clone(),
        };
        world.push(0, Event::Tick);
        Ok(world)
    }

    fn scenario(&self) -> &Scenario {
        &self.setup.scenario
    }

    fn push(&mut self, at: Nanos, event: Event) {
        self.set += 1;
        self.heap.push(Reverse((at, self.set, event)));
    }

    pub(crate) fn run(mut self) -> Run {
        let mut next = 0;
        loop {
            let arrival = self
                .calls
                .get(next)
                .map_or(Nanos::MAX, |call| call.record.arrival.at);
            let event = self.heap.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at);
            let expiry = self.replicas.iter().map(|r| r.expiry).min().unwrap_or(Nanos::MAX);
            let at = arrival.min(event).min(expiry);
            if at == Nanos::MAX {
                break;
            }
            self.now = self.now.max(at);
            if expiry == at {
                (0..self.replicas.len()).for_each(|n| self.pump(n));
            } else if event == at {
                if let Some(Reverse((_, _, event))) = self.heap.pop() {
                    self.handle(event);
                }
            } else {
                self.arrive(next as u32);
                next += 1;
            }
        }
        Run {
            calls: self.calls.into_iter().map(|call| call.record).collect(),
            counts: self.counts,
            series: self.series,
            spans: self.spans,
            early_retries: self.callers.early,
            trace: self.trace,
            setup: self.setup,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Done(replica, worker) => self.done(replica as usize, worker),
            Event::Wake(call) => self.advance(call),
            Event::AtDoor(call, attempt) if self.awaits(call, attempt) => self.at_door(call),
            Event::Back(call, attempt) if self.awaits(call, attempt) => self.back(call),
            Event::TimeUp(call, attempt) if self.awaits(call, attempt) => self.time_up(call),
            Event::AtDoor(..) | Event::Back(..) | Event::TimeUp(..) => {}
            Event::Tick => self.tick(),
        }
    }

    /// Is this attempt of this call the one that is under way?
    fn awaits(&self, call: u32, attempt: u32) -> bool {
        let state = &self.calls[call as usize];
        state.record.attempts == attempt && state.told.is_some()
    }

    fn arrive(&mut self, call: u32) {
        let arrival = self.calls[call as usize].record.arrival;
        let kind = match self.scenario().odd_callers {
            Some((_, odd)) if arrival.odd => odd,
            _ => self.setup.clients,
        };
        let caller = self.callers.start(kind, self.now, &arrival);
        self.calls[call as usize].caller = Some(caller);
        self.active += 1;
        self.advance(call);
    }

    /// Asks the caller what it does, and does it.
    fn advance(&mut self, call: u32) {
        let now = self.now;
        let state = &mut self.calls[call as usize];
        let Some(caller) = &mut state.caller else { return };
        match self.callers.next(caller, &state.record.arrival, now) {
            Next::Wait(until) => self.push(until.max(now), Event::Wake(call)),
            Next::Done => {
                state.caller = None;
                self.active -= 1;
            }
            Next::Send { limit, told } => {
                state.record.attempts += 1;
                let attempt = state.record.attempts;
                // A call that says no deadline is awaited as well: `told` is what marks an attempt under way.
                state.told = Some(told.unwrap_or(Duration::MAX));
                let limit = now.saturating_add(crate::time::whole(limit));
                match self.delay() {
                    0 => self.at_door(call),
                    delay => self.push(now + delay, Event::AtDoor(call, attempt)),
                }
                if self.awaits(call, attempt) {
                    self.push(limit, Event::TimeUp(call, attempt));
                }
            }
        }
    }

    fn delay(&mut self) -> Nanos {
        match self.scenario().network {
            Network::Instant => 0,
            Network::Varying(least, greatest) => self.rng.random_range(least..=greatest).max(1),
        }
    }

    fn at_door(&mut self, call: u32) {
        let now = self.now;
        let replicas = self.replicas.len();
        let at = if replicas > 1 {
            self.rng.random_range(0..replicas)
        } else {
            0
        };
        let state = &self.calls[call as usize];
        let CallRecord {
            arrival, attempts, ..
        } = state.record;
        let bin = self.series.at(now);
        if attempts == 1 {
            bin.first += 1;
        } else {
            bin.again += 1;
        }
        let reserve = Duration::from_nanos(RESERVE * Nanos::from(self.setup.scenario.relays));
        let told = state.told.filter(|told| *told != Duration::MAX);
        let ask = Ask {
            tenant: arrival.tenant,
            class: arrival.class,
            tier: arrival.tier,
            caller: self.setup.scenario.fleet.caller(arrival.tenant, arrival.process),
            call,
            attempt: attempts,
            time_left: told.map(|left| {
                left.saturating_sub(reserve)
                    .mul_f64(self.setup.scenario.overstated)
            }),
        };
        let verdict = self.replicas[at].door.admit(now, ask);
        self.write_decision(call, &ask, &verdict);
        match verdict {
            Verdict::Accepted { key, .. } => {
                self.counts.accepted[arrival.tier.index()] += 1;
                let seats = &mut self.replicas[at].seats;
                let seat = (key & u64::from(u32::MAX)) as usize;
                if seats.len() <= seat {
                    seats.resize(seat + 1, u32::MAX);
                }
                seats[seat] = call;
                self.calls[call as usize].place = Place::Queued(at as u32, key);
            }
            Verdict::Refused(overload) => {
                self.counts.refused += 1;
                self.refuse(at, call, overload);
            }
        }
        self.pump(at);
    }

    /// Does what the door says, until it says nothing more.
    fn pump(&mut self, at: usize) {
        let now = self.now;
        while let Some(turn) = self.replicas[at].door.next(now) {
            match turn {
                Turn::Start(key) => self.start(at, key),
                Turn::Refuse(key, overload) => {
                    let call = self.replicas[at].seats[(key & u64::from(u32::MAX)) as usize];
                    self.refuse(at, call, overload);
                }
            }
        }
        self.replicas[at].expiry = self.replicas[at].door.next_expiry().unwrap_or(Nanos::MAX);
    }

    fn start(&mut self, at: usize, key: u64) {
        let now = self.now;
        let replica = &mut self.replicas[at];
        let call = replica.seats[(key & u64::from(u32::MAX)) as usize];
        let state = &mut self.calls[call as usize];
        let part = replica.debt / Nanos::from(self.setup.scenario.workers);
        replica.debt -= part;
        let need = state.record.arrival.need_at(&self.setup.scenario, now);
        state.record.took = need;
        let task = Task {
            key,
            call,
            attempt: state.record.attempts,
            started: now,
            takes: need + part,
            span: self.spans.len(),
        };
        state.place = Place::Running;
        self.counts.busy += need;
        if let Some((worker, done)) = replica.workers.start(now, task, &mut self.rng) {
            self.push(done, Event::Done(at as u32, worker));
            self.spans.push(Span {
                from: now,
                to: done,
                need,
                kept: false,
            });
            self.write_start(call, now, done);
        }
    }

    fn done(&mut self, at: usize, worker: u32) {
        let now = self.now;
        let replica = &mut self.replicas[at];
        let Some(task) = replica.workers.stop(worker) else {
            return;
        };
        let service = Duration::from_nanos(now - task.started);
        replica.door.finish(now, task.key, Ending::Completed { service });
        if self.awaits(task.call, task.attempt) {
            self.spans[task.span].kept = true;
            self.calls[task.call as usize].place = Place::Away;
            self.answer(task.call, Answer::Served);
        } else {
            self.counts.wasted += self.spans[task.span].need;
        }
        self.pump(at);
    }

    fn refuse(&mut self, at: usize, call: u32, overload: Box<Overload>) {
        self.replicas[at].debt += REJECT_COST;
        self.series.at(self.now).refused += 1;
        self.write_refusal(call, &overload);
        let state = &mut self.calls[call as usize];
        state.place = Place::Away;
        let tier = state.record.arrival.tier;
        let relays = self.setup.scenario.relays;
        let overload = if relays > 0 {
            relay::pass_up(relays, overload, self.origin, self.now, tier, &mut self.rng)
        } else {
            overload
        };
        self.answer(call, Answer::Refused(overload));
    }

    fn answer(&mut self, call: u32, answer: Answer) {
        let attempt = self.calls[call as usize].record.attempts;
        self.calls[call as usize].answer = Some(answer);
        match self.delay() {
            0 => self.back(call),
            delay => self.push(self.now + delay, Event::Back(call, attempt)),
        }
    }

    /// The answer is with its caller.
    fn back(&mut self, call: u32) {
        let now = self.now;
        let state = &mut self.calls[call as usize];
        let Some(answer) = state.answer.take() else { return };
        state.told = None;
        if let Answer::Served = answer {
            let arrival = state.record.arrival;
            state.record.served = Some(now);
            self.counts.kept[arrival.tier.index()] += 1;
            self.series.at(now).done += state.record.took;
        }
        self.tell(call, answer);
    }

    /// The caller gives its attempt up. What waits is dropped, what runs runs to its end.
    fn time_up(&mut self, call: u32) {
        let place = self.calls[call as usize].place;
        let state = &mut self.calls[call as usize];
        if let Some(Answer::Served) = state.answer.take() {
            self.counts.wasted += state.record.took;
        }
        state.told = None;
        state.place = Place::Away;
        if let Place::Queued(at, key) = place {
            self.replicas[at as usize]
                .door
                .finish(self.now, key, Ending::Cancelled);
            self.pump(at as usize);
        }
        self.tell(call, Answer::TimedOut);
    }

    fn tell(&mut self, call: u32, answer: Answer) {
        let state = &mut self.calls[call as usize];
        if let Some(caller) = &mut state.caller {
            self.callers.tell(caller, &state.record.arrival, self.now, answer);
        }
        self.advance(call);
    }

    fn tick(&mut self) {
        let now = self.now;
        for at in 0..self.replicas.len() {
            self.replicas[at].door.tick(now);
            self.pump(at);
        }
        let bin = self.series.at(now);
        for replica in &self.replicas {
            let look = replica.door.look(now);
            bin.queued += look.queued;
            bin.oldest = bin.oldest.max(look.oldest);
            if rank(look.state) > rank(bin.state) {
                bin.state = look.state;
            }
        }
        if self.active > 0 || now < self.scenario().horizon() {
            self.push(now + BIN, Event::Tick);
        }
    }
}

/// How bad a state is.
fn rank(state: holdoff_contract::ServiceState) -> u8 {
    use holdoff_contract::ServiceState::{Congested, Normal, Recovering, Shedding};
    match state {
        Normal => 0,
        Recovering => 1,
        Congested => 2,
        Shedding => 3,
    }
}
