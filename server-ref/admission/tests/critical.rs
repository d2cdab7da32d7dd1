//! Critical work is refused for load only by its own budget: while it asks for at most half of the capacity, it is served.

mod common;

use common::{World, req};
use holdoff_contract::Tier;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const TENANTS: [&str; 5] = ["a", "b", "c", "d", "e"];
const MINUTE: u64 = 60_000;

/// A minute of Poisson arrivals on four workers: critical work for half of what they can do, and `load` in all. Gives how
/// many critical calls there were and how many were done in time; nobody comes back.
fn critical_success(seed: u64, load: f64, bulk_ms: u64) -> (usize, usize) {
    let mut w = World::new(&format!(
        r#"{{"workers":4,"queue":200,"tiers":{{"critical":{{"reserved_workers":1}}}},"classes":{{
            "crit":{{"mean_ms":20,"p95_ms":40,"deadline_ms":1000}},
            "bulk":{{"mean_ms":{bulk_ms},"p95_ms":{},"deadline_ms":4000}}}}}}"#,
        bulk_ms * 2
    ));
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut whose = Pcg64::seed_from_u64(seed + 100);
    let mut exponential = |mean: f64| -mean * (1.0 - rng.random_range(0.0..1.0_f64)).ln();
    // A call every so many milliseconds, of tasks of 20 ms and of `bulk_ms`.
    let (critical_gap, bulk_gap) = (20.0 / (4.0 * 0.5), bulk_ms as f64 / (4.0 * (load - 0.5)));
    let (mut critical, mut bulk) = (exponential(critical_gap), exponential(bulk_gap));
    let mut asked = 0;
    while critical.min(bulk) < MINUTE as f64 {
        w.advance((critical.min(bulk) as u64).saturating_sub(w.at()));
        let tenant = TENANTS[whose.random_range(0..TENANTS.len())];
        if critical <= bulk {
            let takes = exponential(20.0).clamp(1.0, 200.0) as u64;
            let name = format!("critical {}", w.at());
            let _ = w.ask(
                &name,
                req("crit", takes).of(tenant).tier(Tier::Critical).within(1_000),
            );
            (asked, critical) = (asked + 1, critical + exponential(critical_gap));
        } else {
            let takes = exponential(bulk_ms as f64).clamp(1.0, 10.0 * bulk_ms as f64) as u64;
            let _ = w.ask("bulk", req("bulk", takes).of(tenant).within(4_000));
            bulk += exponential(bulk_gap);
        }
    }
    w.advance(2_000);
    let in_time = w.done.iter().filter(|(name, at)| {
        let asked_at = name.strip_prefix("critical ").and_then(|at| at.parse().ok());
        asked_at.is_some_and(|asked_at: u64| *at <= asked_at + 1_000)
    });
    (asked, in_time.count())
}

#[test]
fn critical_work_for_half_the_capacity_is_done_in_time_99_5_times_in_a_hundred_beside_any_overload() {
    for (load, bulk_ms) in [(2.0, 20), (5.0, 20), (10.0, 20), (3.0, 200)] {
        for seed in 1..=3 {
            let (asked, in_time) = critical_success(seed, load, bulk_ms);
            assert!(asked > 5_000, "{asked}");
            let share = in_time as f64 / asked as f64;
            assert!(
                share >= 0.995,
                "load {load}, bulk {bulk_ms} ms, seed {seed}: {share}"
            );
        }
    }
}
