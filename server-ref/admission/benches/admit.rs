//! How long does a decision take? A refusal must cost nothing beside what it refuses, and an admission little.
//!
//! ```text
//! cargo bench -p holdoff-admission --bench admit
//! ```
//!
//! One line a figure, each with its goal; exit code 1 and `MISSED` where one is over. Every figure of one thread is the least over
//! many rounds: what a busy machine adds is not the code's, and no pause spoils all of them. Each call is timed alone, the
//! clock's own time taken off; what undoes it (an admission must be taken back, or the queue is full after a moment) is
//! outside of that.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::hint::black_box;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use holdoff_admission::{Caller, Controller, DeadlineOf, Decision, Ending, Profile, Ticket, Work};
use holdoff_contract::Tier;

/// The estimator is private to the crate; this is its very source.
#[path = "../src/estimator.rs"]
#[allow(dead_code, reason = "the bench needs a part of it")]
mod estimator;
mod profile {
    pub(crate) use holdoff_admission::profile::*;
}
mod slots {
    pub(crate) type Nanos = u64;
}

/// Rounds of a figure.
const ROUNDS: usize = 60;
/// Calls a round.
const CALLS: usize = 2_000;

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn clock() -> Instant {
    Instant::now()
}

/// What a goal is about.
#[derive(Clone, Copy)]
enum Goal {
    /// At most so many nanoseconds.
    Most(u64),
    /// Printed to be known.
    None,
}

/// The median and the 99th percentile of a round, nanoseconds.
fn quantiles(mut times: Vec<u64>) -> (u64, u64) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

/// The median and the 99th percentile of each round of what `call` says it took.
fn rounds(mut call: impl FnMut() -> u64) -> Vec<(u64, u64)> {
    let round = |_| quantiles((0..CALLS).map(|_| call()).collect());
    (0..ROUNDS).map(round).collect()
}

/// The least of both over the rounds.
fn least(call: impl FnMut() -> u64) -> (u64, u64) {
    let least = |(p50, p99): (u64, u64), (a, b)| (p50.min(a), p99.min(b));
    rounds(call).into_iter().fold((u64::MAX, u64::MAX), least)
}

/// Times one call.
fn timed<T>(call: impl FnOnce() -> T) -> (u64, T) {
    let start = clock();
    let result = call();
    ((clock() - start).as_nanos() as u64, result)
}

/// Figures against their goals.
struct Report {
    clock: u64,
    missed: bool,
}

impl Report {
    fn line(&mut self, name: &str, figure: &str, ns: u64, goal: Goal) {
        let verdict = match goal {
            Goal::Most(most) if ns > most => {
                self.missed = true;
                format!("goal {most} ns  MISSED")
            }
            Goal::Most(most) => format!("goal {most} ns  ok"),
            Goal::None => String::new(),
        };
        println!("{name:<44} {figure:<4} {ns:>6} ns  {verdict}");
    }

    fn both(&mut self, name: &str, (p50, p99): (u64, u64), goals: (Goal, Goal)) {
        let clock = self.clock;
        self.line(name, "p50", p50.saturating_sub(clock), goals.0);
        self.line(name, "p99", p99.saturating_sub(clock), goals.1);
    }
}

struct Loaded {
    c: Controller,
    now: Instant,
    work: Work,
    /// What keeps the workers busy and the queue filled.
    held: Vec<Ticket>,
}

impl Loaded {
    /// `workers` busy and `queued` tasks of ten tenants waiting; with 0 workers' work held everything is idle.
    fn new(workers: u32, busy: usize, queued: usize) -> Self {
        let now = clock();
        let profile = Profile {
            workers,
            queue: 10_000,
            ..Profile::default()
        };
        #[expect(clippy::expect_used, reason = "a bench has nobody to hand an error to")]
        let mut c = Controller::new(profile, now).expect("the profile is in range");
        let work = Work {
            tenant: c.tenant(None),
            class: c.class(None),
            tier: Tier::Deferrable,
            deadline: now + Duration::from_secs(3_000),
            deadline_of: DeadlineOf::Caller,
            cost: None,
            bytes: 100,
            may_defer: false,
        };
        let mut loaded = Self {
            c,
            now,
            work,
            held: Vec::new(),
        };
        for _ in 0..16 {
            let service = Duration::from_millis(50);
            if let Some(ticket) = loaded.admit(0) {
                loaded
                    .c
                    .finish(now, ticket, Ending::Completed { service }, &mut ());
            }
        }
        for n in 0..busy + queued {
            let ticket = loaded.admit(n % 10);
            loaded.held.extend(ticket);
        }
        assert_eq!(loaded.held.len(), busy + queued, "the load was not admitted");
        loaded
    }

    fn admit(&mut self, tenant: usize) -> Option<Ticket> {
        self.work.tenant = self.c.tenant(Some(&format!("tenant {tenant}")));
        let decision = self.c.admit(self.now, self.work.clone(), &mut ());
        while self.c.next_step(self.now, &mut ()).is_some() {}
        match decision {
            Decision::Accept { ticket, .. } | Decision::Defer { ticket, .. } => Some(ticket),
            Decision::Reject(_) => None,
        }
    }

    fn undo(&mut self, decision: Decision) {
        match decision {
            Decision::Accept { ticket, .. } | Decision::Defer { ticket, .. } => {
                self.c.finish(self.now, ticket, Ending::Cancelled, &mut ());
            }
            Decision::Reject(rejection) => drop(black_box(rejection)),
        }
    }
}

fn decisions(report: &mut Report) {
    let goals = (Goal::Most(250), Goal::Most(2_000));
    for (name, workers, busy, queued) in [
        ("admit, 4 workers idle", 4, 0, 0),
        ("admit, 4 workers busy, 100 wait", 4, 4, 100),
        ("admit, 32 workers busy, 100 wait", 32, 32, 100),
        ("admit, 64 workers busy, 100 wait", 64, 64, 100),
        ("admit, 1024 workers busy, 100 wait", 1_024, 1_024, 100),
    ] {
        let mut l = Loaded::new(workers, busy, queued);
        let mut refused = 0;
        let figure = least(|| {
            let work = l.work.clone();
            let (ns, decision) = timed(|| l.c.admit(l.now, black_box(work), &mut ()));
            refused += u32::from(matches!(decision, Decision::Reject(_)));
            l.undo(decision);
            ns
        });
        assert_eq!(refused, 0, "{name}: refused");
        report.both(name, figure, goals);
    }
    // With the edge before it, as callers with keys that were never refused.
    let mut l = Loaded::new(32, 32, 100);
    let mut key = 0;
    let figure = least(|| {
        key += 1;
        let (work, caller) = (
            l.work.clone(),
            Caller {
                id: key % 64,
                key: Some(key),
                attempt: Some(1),
            },
        );
        let (ns, decision) = timed(|| l.c.admit_from(l.now, black_box(work), &caller, &mut ()));
        l.undo(decision);
        ns
    });
    report.both("admit with the edge, 32 workers, 100 wait", figure, goals);
    // A refusal for its deadline: judged twice, with a window and the deadline that would do.
    for (name, workers) in [
        ("refuse, 4 workers busy, 100 wait", 4),
        ("refuse, 32 workers busy, 100 wait", 32),
    ] {
        let mut l = Loaded::new(workers, workers as usize, 100);
        l.work.deadline = l.now + Duration::from_millis(100);
        let mut refused = 0;
        let figure = least(|| {
            let work = l.work.clone();
            let (ns, decision) = timed(|| l.c.admit(l.now, black_box(work), &mut ()));
            refused += usize::from(matches!(decision, Decision::Reject(_)));
            l.undo(decision);
            ns
        });
        assert_eq!(refused, ROUNDS * CALLS, "{name}: admitted");
        report.both(name, figure, goals);
    }
}

/// What two threads pay for a decision behind one lock, as the layer has it: time of each call, lock included. The median over
/// the rounds, since in the least one the other thread may have been away.
fn two_threads(report: &mut Report) {
    let Loaded { c, now, work, held } = Loaded::new(4, 4, 100);
    let c = Mutex::new(c);
    let barrier = Barrier::new(2);
    let run = || {
        rounds(|| {
            let work = work.clone();
            let mut decision = None;
            let (ns, ()) = timed(|| {
                #[expect(clippy::unwrap_used, reason = "nobody panics with the lock held")]
                let mut c = c.lock().unwrap();
                decision = Some(c.admit(now, black_box(work), &mut ()));
            });
            if let Some(Decision::Accept { ticket, .. }) = decision {
                #[expect(clippy::unwrap_used, reason = "nobody panics with the lock held")]
                let mut c = c.lock().unwrap();
                c.finish(now, ticket, Ending::Cancelled, &mut ());
            }
            ns
        })
    };
    let (one, other) = std::thread::scope(|scope| {
        let start = || {
            barrier.wait();
            run()
        };
        let other = scope.spawn(start);
        let one = start();
        #[expect(clippy::unwrap_used, reason = "it does not panic")]
        (one, other.join().unwrap())
    });
    drop(held);
    let median = |of: fn(&(u64, u64)) -> u64| quantiles(one.iter().chain(&other).map(of).collect()).0;
    let figure = (median(|round| round.0), median(|round| round.1));
    report.both(
        "lock and admit, 2 threads, 100 wait",
        figure,
        (Goal::Most(500), Goal::None),
    );
}

/// A sample is too short for the clock: a thousand at once.
fn estimator_add(report: &mut Report) {
    const BATCH: u64 = 1_000;
    let declared = profile::Class::default();
    let mut class = estimator::Class::new("t", &declared, &Profile::default());
    let (p50, _) = least(|| {
        let (ns, ()) = timed(|| {
            for n in 0..BATCH {
                class.sample(n, black_box(Duration::from_micros(40_000 + n * 17 % 20_000)));
            }
        });
        ns / BATCH
    });
    report.line("estimator add", "p50", p50, Goal::Most(20));
    let (p50, _) = least(|| {
        class.sample(0, Duration::from_millis(50));
        timed(|| class.publish()).0
    });
    report.line("estimator publish, a class a tick", "p50", p50, Goal::None);
}

fn main() {
    let (clock, _) = least(|| timed(|| black_box(())).0);
    let mut report = Report { clock, missed: false };
    println!("least of {ROUNDS} rounds of {CALLS} calls; the clock's own {clock} ns taken off");
    decisions(&mut report);
    two_threads(&mut report);
    estimator_add(&mut report);
    if report.missed {
        std::process::exit(1);
    }
}
