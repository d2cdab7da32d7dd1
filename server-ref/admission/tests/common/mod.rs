//! A controller in virtual time, with workers that end when they are told to or when their time is over.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use holdoff_admission::{
    Caller, Controller, DeadlineOf, Decision, Ending, Event, Profile, Rejection, Snapshot, Step, Ticket, Work,
};
use holdoff_contract::{Code, Hint, Tier};

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn profile(json: &str) -> Profile {
    serde_json::from_str(json).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "an origin for virtual time, read once")]
pub fn origin() -> Instant {
    Instant::now()
}

/// What a request says; the rest has a default.
#[derive(Clone, Copy)]
pub struct Req {
    pub tenant: Option<&'static str>,
    pub class: &'static str,
    pub tier: Tier,
    pub deadline: Option<u64>,
    pub cost: Option<u64>,
    pub bytes: u64,
    pub may_defer: bool,
    /// How long it really takes.
    pub takes: u64,
}

pub fn req(class: &'static str, takes: u64) -> Req {
    Req {
        tenant: None,
        class,
        tier: Tier::Deferrable,
        deadline: None,
        cost: None,
        bytes: 0,
        may_defer: false,
        takes,
    }
}

impl Req {
    pub fn of(self, tenant: &'static str) -> Self {
        Self {
            tenant: Some(tenant),
            ..self
        }
    }
    pub fn tier(self, tier: Tier) -> Self {
        Self { tier, ..self }
    }
    pub fn within(self, deadline: u64) -> Self {
        Self {
            deadline: Some(deadline),
            ..self
        }
    }
    pub fn deferrable_on_202(self) -> Self {
        Self {
            may_defer: true,
            ..self
        }
    }
}

struct Task {
    ticket: Ticket,
    takes: Duration,
    name: String,
}

/// The adapter: payloads, timers, workers.
pub struct World {
    pub c: Controller,
    pub now: Instant,
    start: Instant,
    next_tick: Instant,
    tasks: BTreeMap<u64, Task>,
    ends: BTreeMap<(Instant, u64), ()>,
    pub held: bool,
    pub ticking: bool,
    /// Names, in order.
    pub started: Vec<String>,
    pub done: Vec<(String, u64)>,
    pub refused: Vec<(String, u64, Rejection)>,
    pub events: Vec<Event>,
}

impl World {
    pub fn new(json: &str) -> Self {
        let now = origin();
        Self {
            c: Controller::new(profile(json), now).unwrap(),
            now,
            start: now,
            next_tick: now + Controller::TICK,
            tasks: BTreeMap::new(),
            ends: BTreeMap::new(),
            held: false,
            ticking: true,
            started: Vec::new(),
            done: Vec::new(),
            refused: Vec::new(),
            events: Vec::new(),
        }
    }

    pub fn at(&self) -> u64 {
        (self.now - self.start).as_millis() as u64
    }

    pub fn work(&mut self, r: Req) -> Work {
        let class = self.c.class(Some(r.class));
        Work {
            tenant: self.c.tenant(r.tenant),
            class,
            tier: r.tier,
            deadline: self.now + self.c.deadline(class, r.deadline.map(ms)),
            deadline_of: if r.deadline.is_some() {
                DeadlineOf::Caller
            } else {
                DeadlineOf::Class
            },
            cost: r.cost.map(ms),
            bytes: r.bytes,
            may_defer: r.may_defer,
        }
    }

    /// Asks, keeps the ticket, runs what may run.
    pub fn ask(&mut self, name: &str, r: Req) -> Answer {
        let work = self.work(r);
        let decision = self.c.admit(self.now, work, &mut self.events);
        self.take(name, r, decision)
    }

    /// The same, as a caller that the edge knows.
    pub fn ask_as(&mut self, name: &str, r: Req, caller: Caller) -> Answer {
        let work = self.work(r);
        let decision = self.c.admit_from(self.now, work, &caller, &mut self.events);
        self.take(name, r, decision)
    }

    fn take(&mut self, name: &str, r: Req, decision: Decision) -> Answer {
        let answer = match decision {
            Decision::Accept {
                ticket,
                predicted_wait,
            } => {
                let key = self.keep(name, ticket, r);
                Answer::Accepted {
                    key,
                    wait: predicted_wait,
                }
            }
            Decision::Defer { ticket, .. } => Answer::Deferred {
                key: self.keep(name, ticket, r),
            },
            Decision::Reject(rejection) => Answer::Refused(rejection),
        };
        self.settle();
        answer
    }

    fn keep(&mut self, name: &str, ticket: Ticket, r: Req) -> u64 {
        let key = ticket.key();
        self.tasks.insert(
            key,
            Task {
                ticket,
                takes: ms(r.takes),
                name: name.to_owned(),
            },
        );
        key
    }

    /// Does what the controller says.
    pub fn settle(&mut self) {
        while let Some(step) = self.c.next_step(self.now, &mut self.events) {
            match step {
                Step::Start(key) => {
                    let task = &self.tasks[&key];
                    self.started.push(task.name.clone());
                    self.ends.insert((self.now + task.takes, key), ());
                }
                Step::Refuse(key, rejection) => {
                    let task = self.tasks.remove(&key).unwrap();
                    self.refused.push((task.name, self.at(), rejection));
                }
            }
        }
    }

    pub fn end(&mut self, key: u64, ending: Ending) {
        let task = self.tasks.remove(&key).unwrap();
        self.ends.retain(|(_, k), ()| *k != key);
        let at = self.at();
        self.done.push((task.name, at));
        self.c.finish(self.now, task.ticket, ending, &mut self.events);
        self.settle();
    }

    /// Lets time pass: ticks, timers, ends of work in their order.
    pub fn advance(&mut self, by: u64) {
        let until = self.now + ms(by);
        loop {
            let end = self.ends.keys().next().copied().filter(|_| !self.held);
            let mut next = until;
            next = next.min(if self.ticking { self.next_tick } else { until });
            next = next.min(end.map_or(until, |(t, _)| t));
            next = next.min(self.c.next_expiry().unwrap_or(until));
            self.now = self.now.max(next);
            if let Some((t, key)) = end
                && t <= self.now
            {
                let service = self.tasks[&key].takes;
                self.end(key, Ending::Completed { service });
            }
            if self.ticking && self.next_tick <= self.now {
                self.next_tick = self.now + Controller::TICK;
                self.c.tick(self.now, &mut self.events);
            }
            self.settle();
            let more = self
                .ends
                .keys()
                .next()
                .is_some_and(|(t, _)| *t <= self.now && !self.held);
            if self.now >= until && !more {
                return;
            }
        }
    }

    pub fn gauges(&self) -> Snapshot {
        self.c.snapshot(self.now)
    }
}

#[derive(Debug)]
pub enum Answer {
    Accepted { key: u64, wait: Duration },
    Deferred { key: u64 },
    Refused(Rejection),
}

impl Answer {
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(rejection) => rejection.overload.code.clone(),
            _ => None,
        }
    }

    #[track_caller]
    pub fn key(&self) -> u64 {
        match self {
            Self::Accepted { key, .. } | Self::Deferred { key } => *key,
            Self::Refused(rejection) => panic!("refused: {rejection:?}"),
        }
    }

    #[track_caller]
    pub fn refusal(&self) -> &Rejection {
        match self {
            Self::Refused(rejection) => rejection,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[track_caller]
    pub fn window(&self) -> (u64, u64) {
        window(self.refusal())
    }
}

#[track_caller]
pub fn window(rejection: &Rejection) -> (u64, u64) {
    match rejection.overload.hint {
        Hint::Window { delay, max } => (delay.as_millis() as u64, max.as_millis() as u64),
        other => panic!("no window: {other:?}"),
    }
}
