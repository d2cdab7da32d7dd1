//! How long does a decision take? The target is a p50 of 250 ns: a refusal must cost nothing beside what it refuses.
//!
//! ```text
//! cargo bench -p holdoff-admission --bench admit
//! ```

use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use holdoff_admission::{Caller, Controller, Decision, Ending, Profile, Ticket, Work};
use holdoff_contract::Tier;

#[expect(clippy::disallowed_methods, reason = "an origin for the controller's time")]
fn origin() -> Instant {
    Instant::now()
}

struct Loaded {
    c: Controller,
    now: Instant,
    work: Work,
    held: Vec<Ticket>,
}

/// `workers` busy, `queued` tasks of ten tenants waiting.
fn loaded(workers: u32, queued: usize) -> Loaded {
    let now = origin();
    let profile = Profile {
        workers,
        queue: 10_000,
        ..Profile::default()
    };
    #[expect(clippy::expect_used, reason = "a bench has nobody to hand an error to")]
    let mut c = Controller::new(profile, now).expect("the profile is in range");
    let mut held = Vec::new();
    let mut work = Work {
        tenant: c.tenant(None),
        class: c.class(None),
        tier: Tier::Deferrable,
        deadline: now + Duration::from_secs(3_000),
        cost: None,
        bytes: 100,
        may_defer: false,
    };
    for n in 0..queued + workers as usize + 16 {
        work.tenant = c.tenant(Some(&format!("tenant {}", n % 10)));
        if let Decision::Accept { ticket, .. } = c.admit(now, work.clone(), &mut ()) {
            while c.next_step(now, &mut ()).is_some() {}
            if n < 16 {
                c.finish(
                    now,
                    ticket,
                    Ending::Completed {
                        service: Duration::from_millis(50),
                    },
                    &mut (),
                );
            } else {
                held.push(ticket);
            }
        }
    }
    Loaded { c, now, work, held }
}

fn admit(criterion: &mut Criterion) {
    for (name, workers, queued) in [
        ("idle_4", 4, 0),
        ("queued_4", 4, 100),
        ("queued_32", 32, 100),
        ("queued_64", 64, 100),
    ] {
        let idle = name == "idle_4";
        let mut l = loaded(workers, queued);
        if idle {
            for ticket in l.held.drain(..) {
                l.c.finish(l.now, ticket, Ending::Cancelled, &mut ());
            }
        }
        // The decision and its undoing: an accept must be taken back, or the queue is full after a moment.
        criterion.bench_function(&format!("admit_and_cancel/{name}"), |b| {
            b.iter_batched(
                || l.work.clone(),
                |work| match l.c.admit(l.now, black_box(work), &mut ()) {
                    Decision::Accept { ticket, .. } | Decision::Defer { ticket, .. } => {
                        l.c.finish(l.now, ticket, Ending::Cancelled, &mut ());
                    }
                    Decision::Reject(rejection) => drop(black_box(rejection)),
                },
                BatchSize::SmallInput,
            );
        });
    }
    // With the edge before it, as a caller with a key that was never refused.
    let mut l = loaded(32, 100);
    let mut key = 0;
    criterion.bench_function("admit_from_and_cancel/queued_32", |b| {
        b.iter_batched(
            || {
                key += 1;
                let caller = Caller {
                    id: key % 64,
                    key: Some(key),
                    attempt: Some(1),
                };
                (l.work.clone(), caller)
            },
            |(work, caller)| match l.c.admit_from(l.now, black_box(work), &caller, &mut ()) {
                Decision::Accept { ticket, .. } | Decision::Defer { ticket, .. } => {
                    l.c.finish(l.now, ticket, Ending::Cancelled, &mut ());
                }
                Decision::Reject(rejection) => drop(black_box(rejection)),
            },
            BatchSize::SmallInput,
        );
    });
    two_threads(criterion);
    let mut l = loaded(4, 100);
    l.work.deadline = l.now + Duration::from_millis(100);
    criterion.bench_function("reject/deadline_queued_4", |b| {
        b.iter(|| black_box(l.c.admit(l.now, black_box(l.work.clone()), &mut ())));
    });
}

/// What one of two threads waits for a decision and its undoing, behind one lock as the layer has it.
fn two_threads(criterion: &mut Criterion) {
    let Loaded { c, now, work, held } = loaded(32, 100);
    let c = Mutex::new(c);
    criterion.bench_function("admit_and_cancel/two_threads", |b| {
        b.iter_custom(|rounds| {
            let run = || {
                let start = origin();
                for _ in 0..rounds {
                    #[expect(clippy::unwrap_used, reason = "nobody panics with the lock held")]
                    let mut c = c.lock().unwrap();
                    if let Decision::Accept { ticket, .. } = c.admit(now, black_box(work.clone()), &mut ()) {
                        c.finish(now, ticket, Ending::Cancelled, &mut ());
                    }
                }
                origin() - start
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(run);
                let own = run();
                #[expect(clippy::unwrap_used, reason = "it does not panic")]
                own.max(other.join().unwrap())
            })
        });
    });
    drop(held);
}

criterion_group!(benches, admit);
criterion_main!(benches);
