//! A class with long deadlines must not take the places of one with short deadlines, nor the other way round (ADM-16).

#![allow(clippy::unwrap_used, reason = "a test fails the test")]

mod common;

use common::{World, req};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const CLASSES: [(&str, u64, u64); 3] = [("short", 20, 11), ("middle", 40, 15), ("long", 60, 17)];
const PROFILE: &str = r#"{"workers":4,"queue":200,"tiers":{"critical":{"reserved_workers":0}},"classes":{
    "short":{"mean_ms":20,"p95_ms":30,"deadline_ms":500},
    "middle":{"mean_ms":40,"p95_ms":60,"deadline_ms":2000},
    "long":{"mean_ms":60,"p95_ms":90,"deadline_ms":10000}}}"#;

/// Twice the capacity for so many seconds by callers that do not return; what of each class was done in time.
fn shares(seconds: u64, gap: &mut impl FnMut(u64) -> f64) -> [f64; 3] {
    let mut w = World::new(PROFILE);
    let mut arrivals: Vec<(u64, usize)> = Vec::new();
    for (class, (_, _, every)) in CLASSES.iter().enumerate() {
        let mut at = 5.0 * class as f64;
        while at < seconds as f64 * 1_000.0 {
            arrivals.push((at as u64, class));
            at += gap(*every);
        }
    }
    arrivals.sort_unstable();
    let mut asked = [0_u32; 3];
    for (at, class) in arrivals {
        w.advance(at - w.at());
        let (name, takes, _) = CLASSES[class];
        asked[class] += 1;
        w.ask(name, req(name, takes));
    }
    w.advance(20_000);
    [0, 1, 2].map(|class| {
        let (name, _, _) = CLASSES[class];
        let done = w.done.iter().filter(|(done, _)| done == name).count();
        done as f64 / f64::from(asked[class])
    })
}

fn least_to_greatest(shares: [f64; 3]) -> f64 {
    let (least, greatest) = shares
        .iter()
        .fold((f64::MAX, 0.0_f64), |(a, b), s| (a.min(*s), b.max(*s)));
    least / greatest
}

#[test]
fn at_twice_the_capacity_three_classes_fare_alike_whether_callers_come_at_random_or_in_step() {
    for seed in 1..=3 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut poisson = |every| -(every as f64) * (1.0 - rng.random_range(0.0..1.0_f64)).ln();
        let shares = shares(20, &mut poisson);
        assert!(least_to_greatest(shares) >= 0.7, "seed {seed}: {shares:?}");
    }
    // As the case over the wire asks: periods without a common measure, in step for six seconds.
    for seconds in [6, 20] {
        let shares = shares(seconds, &mut |every| every as f64);
        assert!(
            least_to_greatest(shares) >= 0.7,
            "periodic, {seconds} s: {shares:?}"
        );
    }
}
