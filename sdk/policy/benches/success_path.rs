//! What the policy adds to a call that succeeds at once: must stay under a microsecond.
//!
//! `cargo bench -p holdoff-policy -- --quick`
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use holdoff_contract::{Code, Hint, Overload};
use holdoff_policy::{Action, Call, CallSpec, CallerKey, Destinations, Outcome, Policy, Replay, Safety};
use rand_pcg::Pcg64Mcg;

#[expect(
    clippy::disallowed_methods,
    reason = "a base for virtual time; criterion measures"
)]
fn base() -> Instant {
    Instant::now()
}

fn spec() -> CallSpec {
    CallSpec {
        deadline: Some(Duration::from_secs(5)),
        caller: Some(CallerKey::new(7)),
        ..CallSpec::new(Safety::Idempotent, Replay::Bytes)
    }
}

/// New call, look up its known destination, send, success, deliver.
fn success(bench: &mut Criterion) {
    let policy = Arc::new(Policy::default());
    let destinations = Destinations::new(&policy);
    for n in 0..100 {
        drop(destinations.get("https", &format!("service-{n}.example:443")));
    }
    let now = base();
    let mut rng = Pcg64Mcg::new(1);
    bench.bench_function("success_path", |bencher| {
        bencher.iter(|| {
            let shared = destinations.get("https", black_box("service-50.example:443"));
            let mut call = Call::new(Arc::clone(&policy), black_box(spec()), now);
            let mut destination = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = black_box(call.next_action(now, &mut destination, &mut rng, &mut ()));
            call.on_outcome(now, now, Outcome::Success, &mut destination, &mut rng, &mut ());
            black_box(call.next_action(now, &mut destination, &mut rng, &mut ()))
        });
    });
}

/// The same with one refusal in a window before the success; the refusal itself is made outside the measure.
fn one_refusal(bench: &mut Criterion) {
    let policy = Arc::new(Policy::default());
    let destinations = Destinations::new(&policy);
    let hint = Hint::Window {
        delay: Duration::from_millis(100),
        max: Duration::from_millis(150),
    };
    let refusal = || {
        Box::new(Overload {
            hint,
            ..Overload::new(Code::QueueFull)
        })
    };
    let start = base();
    let mut rng = Pcg64Mcg::new(1);
    bench.bench_function("one_refusal", |bencher| {
        bencher.iter_batched(
            refusal,
            |refusal| {
                let shared = destinations.get("https", black_box("service.example:443"));
                let mut call = Call::new(Arc::clone(&policy), black_box(spec()), start);
                let mut destination = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let mut now = start;
                let _ = black_box(call.next_action(now, &mut destination, &mut rng, &mut ()));
                let outcome = Outcome::Overload(refusal);
                call.on_outcome(now, now, outcome, &mut destination, &mut rng, &mut ());
                if let Action::WaitUntil(until) = call.next_action(now, &mut destination, &mut rng, &mut ()) {
                    now = until;
                }
                let _ = black_box(call.next_action(now, &mut destination, &mut rng, &mut ()));
                call.on_outcome(now, now, Outcome::Success, &mut destination, &mut rng, &mut ());
                black_box(call.next_action(now, &mut destination, &mut rng, &mut ()))
            },
            criterion::BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, success, one_refusal);
criterion_main!(benches);
