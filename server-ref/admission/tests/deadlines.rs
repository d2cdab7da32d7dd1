//! What is admitted beside an overload is done in time, whatever the tenants and tiers it comes from; and critical work is served
//! though each of its callers has little of it.

#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

mod common;

use common::{World, req};
use holdoff_contract::Tier;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const WORKERS: u64 = 16;
const SERVICE_MS: u64 = 100;
const DEADLINE_MS: u64 = 2_000;
/// Critical work asks for this share of the capacity, whatever the load.
const CRITICAL: f64 = 0.4;

/// By tier.
#[derive(Debug, Default)]
struct Tally {
    asked: [u32; 3],
    accepted: [u32; 3],
    in_time: [u32; 3],
}

/// Half a minute of Poisson arrivals of tasks of 100 ms and 2 s of patience from fifty tenants; nobody comes back.
fn half_a_minute(seed: u64, load: f64) -> Tally {
    let mut w = World::new(&format!(
        r#"{{"workers":{WORKERS},"classes":{{"t":{{"mean_ms":{SERVICE_MS},"p95_ms":110,"deadline_ms":{DEADLINE_MS}}}}}}}"#
    ));
    let tenants: Vec<&'static str> = (0..50).map(|n| &*format!("tenant {n}").leak()).collect();
    let mut rng = Pcg64::seed_from_u64(seed);
    let (mut at, mut tally) = (0.0_f64, Tally::default());
    let gap = SERVICE_MS as f64 / WORKERS as f64 / load;
    while at < 30_000.0 {
        at -= gap * (1.0 - rng.random_range(0.0..1.0_f64)).ln();
        w.advance((at as u64).saturating_sub(w.at()));
        let drawn = rng.random_range(0.0..1.0_f64) * load;
        let tier = if drawn < CRITICAL {
            Tier::Critical
        } else if drawn < CRITICAL + (load - CRITICAL) / 4.0 {
            Tier::NonSheddable
        } else {
            Tier::Deferrable
        };
        let tenant = tenants[rng.random_range(0..tenants.len())];
        let name = format!("{} {}", tier.index(), w.at());
        let r = req("t", SERVICE_MS + 1).of(tenant).tier(tier).within(DEADLINE_MS);
        tally.asked[tier.index()] += 1;
        let answer = w.ask(&name, r);
        tally.accepted[tier.index()] += u32::from(answer.code().is_none());
    }
    w.advance(4_000);
    for (name, done) in &w.done {
        let (tier, asked) = name.split_once(' ').unwrap();
        if *done <= asked.parse::<u64>().unwrap() + DEADLINE_MS {
            tally.in_time[tier.parse::<usize>().unwrap()] += 1;
        }
    }
    tally
}

#[test]
fn beside_any_overload_what_is_admitted_is_done_in_time_and_critical_work_of_many_tenants_is_admitted() {
    for load in [2.0, 5.0, 10.0] {
        for seed in 1..=3 {
            let t = half_a_minute(seed, load);
            let sum = |counts: [u32; 3]| f64::from(counts.iter().sum::<u32>());
            let late = 1.0 - sum(t.in_time) / sum(t.accepted);
            let critical = f64::from(t.in_time[0]) / f64::from(t.asked[0]);
            let goodput = sum(t.in_time) * SERVICE_MS as f64 / (30_000.0 * WORKERS as f64);
            println!(
                "load {load}, seed {seed}: late {late:.4}, critical {critical:.4}, goodput {goodput:.4}"
            );
            assert!(late <= 0.03, "load {load}, seed {seed}: late {late}, {t:?}");
            assert!(
                critical >= 0.995,
                "load {load}, seed {seed}: critical {critical}, {t:?}"
            );
            assert!(
                goodput >= 0.95,
                "load {load}, seed {seed}: goodput {goodput}, {t:?}"
            );
        }
    }
}
