//! Three times its capacity, with callers that obey their windows: most of the capacity does work in time, and when the
//! load ends so does the overload.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

mod common;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use holdoff_admission::{Controller, DeadlineOf, Decision, Ending, Step, Ticket, Work};
use holdoff_contract::{Hint, Retry, ServiceState, Tier};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const WORKERS: u32 = 8;
const LOAD_FOR: Duration = Duration::from_secs(30);
const PROFILE: &str = r#"{"workers":8,"queue":400,"hold_ms":1000,"ramp_ms":1000,"tiers":{"critical":{"reserved_workers":0}},
    "classes":{"short":{"mean_ms":20,"p95_ms":50,"deadline_ms":1500},"long":{"mean_ms":400,"p95_ms":900,"deadline_ms":6000}}}"#;

#[derive(Clone, Debug)]
struct Call {
    tenant: usize,
    long: bool,
    tier: Tier,
    takes: Duration,
    deadline: Instant,
    attempts: u32,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Tick,
    Done(u64),
    Send(usize),
}

#[derive(Default, Debug)]
struct Tally {
    calls: [u32; 2],
    in_time: [u32; 2],
    accepted: u32,
    missed: u32,
    /// By tier, then short and long.
    missed_by: [[u32; 2]; 3],
    accepted_by: [[u32; 2]; 3],
    attempts: u32,
    useful: Duration,
    most_queued: u32,
    early_returns: u32,
}

struct Sim {
    c: Controller,
    start: Instant,
    now: Instant,
    rng: Pcg64,
    agenda: BinaryHeap<Reverse<(Instant, What)>>,
    calls: Vec<Call>,
    tickets: HashMap<u64, (Ticket, usize)>,
    tally: Tally,
    in_time_by_tenant: [u32; 10],
}

impl Sim {
    fn new(seed: u64) -> Self {
        let start = common::origin();
        let c = Controller::new(common::profile(PROFILE), start).unwrap();
        let (agenda, tickets) = (BinaryHeap::new(), HashMap::new());
        let rng = Pcg64::seed_from_u64(seed);
        Self {
            c,
            start,
            now: start,
            rng,
            agenda,
            calls: Vec::new(),
            tickets,
            tally: Tally::default(),
            in_time_by_tenant: [0; 10],
        }
    }

    fn exponential(&mut self, mean: f64) -> Duration {
        Duration::from_secs_f64(-mean * (1.0 - self.rng.random_range(0.0..1.0_f64)).ln())
    }

    /// Poisson arrivals, 95:5 short and long, ten tenants, tiers 10/30/60 %.
    fn plan(&mut self, factor: f64) {
        let mean_work = 0.95 * 0.02 + 0.05 * 0.4;
        let rate = factor * f64::from(WORKERS) / mean_work;
        let mut at = self.start;
        while at < self.start + LOAD_FOR {
            at += self.exponential(1.0 / rate);
            let long = self.rng.random_range(0..100) < 5;
            // Half of it is fixed, half exponential: spread as services are.
            let mean = if long { 0.4 } else { 0.02 };
            let takes = Duration::from_secs_f64(mean / 2.0) + self.exponential(mean / 2.0);
            let patience = self.rng.random_range(1.0..3.0) + if long { 3.0 } else { 0.0 };
            let tier = match self.rng.random_range(0..10) {
                0 => Tier::Critical,
                1..=3 => Tier::NonSheddable,
                _ => Tier::Deferrable,
            };
            let deadline = at + Duration::from_secs_f64(patience);
            self.calls.push(Call {
                tenant: self.rng.random_range(0..10),
                long,
                tier,
                takes,
                deadline,
                attempts: 0,
            });
            self.agenda.push(Reverse((at, What::Send(self.calls.len() - 1))));
        }
        self.agenda.push(Reverse((self.start, What::Tick)));
    }

    fn send(&mut self, n: usize) {
        let call = self.calls[n].clone();
        self.calls[n].attempts += 1;
        self.tally.attempts += 1;
        let tenant = self.c.tenant(Some(&format!("tenant {}", call.tenant)));
        let class = self.c.class(Some(if call.long { "long" } else { "short" }));
        let work = Work {
            tenant,
            class,
            tier: call.tier,
            deadline: call.deadline,
            deadline_of: DeadlineOf::Caller,
            cost: None,
            bytes: 100,
            may_defer: false,
        };
        match self.c.admit(self.now, work, &mut ()) {
            Decision::Accept { ticket, .. } => {
                self.tally.accepted += 1;
                self.tally.accepted_by[call.tier.index()][usize::from(call.long)] += 1;
                self.tickets.insert(ticket.key(), (ticket, n));
            }
            Decision::Defer { .. } => panic!("deferred on a route that waits"),
            Decision::Reject(rejection) => {
                let Hint::Window { delay, max } = rejection.overload.hint else {
                    panic!("no window")
                };
                let wait = self.rng.random_range(delay..=max);
                let back = self.now + wait;
                if rejection.overload.retry == Retry::After && back < call.deadline && call.attempts < 12 {
                    self.tally.early_returns += u32::from(wait < delay);
                    self.agenda.push(Reverse((back, What::Send(n))));
                }
            }
        }
    }

    fn settle(&mut self) {
        while let Some(step) = self.c.next_step(self.now, &mut ()) {
            match step {
                Step::Start(key) => {
                    let takes = self.calls[self.tickets[&key].1].takes;
                    self.agenda.push(Reverse((self.now + takes, What::Done(key))));
                }
                Step::Refuse(key, _) => {
                    let (_, n) = self.tickets.remove(&key).unwrap();
                    self.miss(n);
                }
            }
        }
        let queued = self
            .c
            .snapshot(self.now)
            .tiers
            .iter()
            .map(|tier| tier.queued)
            .sum();
        self.tally.most_queued = self.tally.most_queued.max(queued);
    }

    fn done(&mut self, key: u64) {
        let (ticket, n) = self.tickets.remove(&key).unwrap();
        let call = &self.calls[n];
        self.c.finish(
            self.now,
            ticket,
            Ending::Completed { service: call.takes },
            &mut (),
        );
        if self.now <= call.deadline {
            self.tally.in_time[usize::from(call.long)] += 1;
            self.tally.useful += call.takes;
            self.in_time_by_tenant[call.tenant] += 1;
        } else {
            self.miss(n);
        }
    }

    fn miss(&mut self, n: usize) {
        self.tally.missed += 1;
        self.tally.missed_by[self.calls[n].tier.index()][usize::from(self.calls[n].long)] += 1;
    }

    /// Until `until`; what is due in between happens in its order.
    fn run(&mut self, until: Instant) {
        loop {
            let due = self
                .agenda
                .peek()
                .map(|Reverse((at, _))| *at)
                .filter(|at| *at <= until);
            let expiry = self.c.next_expiry().filter(|at| *at <= until);
            if let Some(at) = expiry.filter(|at| due.is_none_or(|due| *at < due)) {
                self.now = self.now.max(at);
                self.settle();
                continue;
            }
            let Some(Reverse((at, what))) = due.and_then(|_| self.agenda.pop()) else {
                break;
            };
            self.now = at;
            match what {
                What::Tick => {
                    self.c.tick(self.now, &mut ());
                    self.agenda.push(Reverse((at + Controller::TICK, What::Tick)));
                }
                What::Done(key) => self.done(key),
                What::Send(n) => self.send(n),
            }
            self.settle();
        }
        self.now = until;
    }
}

fn overload(seed: u64, factor: f64) -> Sim {
    let mut sim = Sim::new(seed);
    sim.plan(factor);
    for call in &sim.calls {
        sim.tally.calls[usize::from(call.long)] += 1;
    }
    sim.run(sim.start + LOAD_FOR);
    sim
}

#[test]
fn at_three_times_capacity_most_of_it_does_work_in_time() {
    for seed in 1..=5 {
        let mut sim = overload(seed, 3.0);
        let goodput = sim.tally.useful.as_secs_f64() / (LOAD_FOR.as_secs_f64() * f64::from(WORKERS));
        // No traffic from here on but what was promised.
        let sent_back = sim
            .agenda
            .iter()
            .filter(|Reverse((_, what))| matches!(what, What::Send(_)))
            .count();
        sim.run(sim.start + LOAD_FOR + Duration::from_secs(12));
        let t = &sim.tally;
        let calls = t.calls[0] + t.calls[1];
        let attempts = f64::from(t.attempts) / f64::from(calls);
        let misses = f64::from(t.missed) / f64::from(t.accepted);
        let success = [0, 1].map(|n| f64::from(t.in_time[n]) / f64::from(t.calls[n]));
        println!(
            "seed {seed}: goodput {goodput:.3}, attempts {attempts:.2}, misses {misses:.4}, success {success:.2?}, most queued {}, waiting {sent_back}",
            t.most_queued
        );
        println!("accepted {:?} missed {:?}", t.accepted_by, t.missed_by);
        assert!(goodput >= 0.85, "seed {seed}: goodput {goodput}");
        assert!(misses <= 0.03, "seed {seed}: misses {misses}");
        assert!(attempts <= 1.6, "seed {seed}: attempts {attempts}");
        assert!(t.most_queued <= 400 + 200 + 100, "seed {seed}: {}", t.most_queued);
        assert_eq!(t.early_returns, 0);
        let g = sim.c.snapshot(sim.now);
        assert_eq!(
            (g.state, g.tickets, g.estimated_work),
            (ServiceState::Normal, 0, Duration::ZERO)
        );
    }
}

#[test]
fn below_capacity_nearly_everything_succeeds_at_the_first_attempt() {
    let sim = overload(7, 0.7);
    let t = &sim.tally;
    let calls = f64::from(t.calls[0] + t.calls[1]);
    let success = f64::from(t.in_time[0] + t.in_time[1]) / calls;
    let attempts = f64::from(t.attempts) / calls;
    println!("success {success:.4}, attempts {attempts:.3}, {t:?}");
    assert!(success >= 0.99 && attempts <= 1.02, "{success} {attempts}");
}

#[test]
fn ten_times_the_capacity_for_half_a_minute_passes_no_bound_and_keeps_the_goodput() {
    let mut sim = overload(3, 10.0);
    let goodput = sim.tally.useful.as_secs_f64() / (LOAD_FOR.as_secs_f64() * f64::from(WORKERS));
    sim.run(sim.start + LOAD_FOR + Duration::from_secs(12));
    let t = &sim.tally;
    let attempts = f64::from(t.attempts) / f64::from(t.calls[0] + t.calls[1]);
    println!(
        "goodput {goodput:.3}, attempts {attempts:.2}, missed {} of {}, most queued {}",
        t.missed, t.accepted, t.most_queued
    );
    assert!(goodput >= 0.85 && attempts <= 1.6, "{goodput} {attempts}");
    assert!(t.most_queued <= 400 + 200 + 100, "{}", t.most_queued);
    let g = sim.c.snapshot(sim.now);
    assert_eq!(
        (g.state, g.tickets, g.estimated_work),
        (ServiceState::Normal, 0, Duration::ZERO)
    );
}

/// Nine tenants at 0.63 of the capacity; the tenth sends ten times its share in the tier given, or as the others do.
fn beside_a_noisy_tenant(tier: Option<Tier>) -> f64 {
    let mut sim = Sim::new(5);
    sim.plan(0.7 * 1.9);
    for call in &mut sim.calls {
        // Of nineteen shares the noisy tenant has ten.
        let share = sim.rng.random_range(0..19_usize);
        call.tenant = share.saturating_sub(9);
        if share < 10 {
            call.tier = tier.unwrap_or(call.tier);
            call.tenant = 0;
        }
    }
    sim.run(sim.start + LOAD_FOR + Duration::from_secs(12));
    let victims = sim.calls.iter().filter(|call| call.tenant != 0);
    let served = sim.in_time_by_tenant.iter().skip(1).sum::<u32>();
    f64::from(served) / victims.count() as f64
}

#[test]
fn the_neighbours_of_a_noisy_tenant_hardly_notice_it() {
    let success = beside_a_noisy_tenant(None);
    println!("victims' success {success:.4}");
    assert!(success >= 0.98, "{success}");
}

#[test]
fn the_neighbours_of_a_tenant_that_calls_everything_critical_hardly_notice_it() {
    let success = beside_a_noisy_tenant(Some(Tier::Critical));
    println!("victims' success {success:.4}");
    assert!(success >= 0.95, "{success}");
}

/// One tier at twice the capacity, callers that do not come back: long deadlines buy no more than short ones.
#[test]
fn a_class_with_long_deadlines_does_not_starve_one_with_short_ones() {
    let mut sim = Sim::new(11);
    let mut at = sim.start;
    let mean_work = 0.95 * 0.02 + 0.05 * 0.4;
    while at < sim.start + LOAD_FOR {
        at += sim.exponential(mean_work / (2.0 * f64::from(WORKERS)));
        let long = sim.rng.random_range(0..20) == 0;
        let mean = if long { 0.4 } else { 0.02 };
        let takes = Duration::from_secs_f64(mean / 2.0) + sim.exponential(mean / 2.0);
        let deadline = at + Duration::from_secs(if long { 60 } else { 2 });
        let tenant = sim.rng.random_range(0..10);
        // All twelve attempts are used: a refusal is final.
        sim.calls.push(Call {
            tenant,
            long,
            tier: Tier::Deferrable,
            takes,
            deadline,
            attempts: 12,
        });
        sim.agenda.push(Reverse((at, What::Send(sim.calls.len() - 1))));
        sim.tally.calls[usize::from(long)] += 1;
    }
    sim.agenda.push(Reverse((sim.start, What::Tick)));
    sim.run(sim.start + LOAD_FOR + Duration::from_secs(60));
    let success = [0, 1].map(|n| f64::from(sim.tally.in_time[n]) / f64::from(sim.tally.calls[n]));
    println!("success short, long: {success:.3?}");
    let least = success[0].min(success[1]);
    assert!(least / success[0].max(success[1]) >= 0.7, "{success:?}");
}
