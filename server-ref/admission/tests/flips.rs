//! Load that swings round the threshold must not make the state swing with it.

mod common;

use common::{World, ms, req};
use holdoff_admission::Event;
use holdoff_contract::{ServiceState, Tier};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

type Change = (ServiceState, ServiceState);

fn changes(w: &World) -> Vec<Change> {
    let change = |event: &Event| match event {
        Event::Transition { from, to } => Some((*from, *to)),
        _ => None,
    };
    w.events.iter().filter_map(change).collect()
}

/// Two minutes of Poisson arrivals of 40 ms on four workers, a fifth more than they can do for half of each period and a
/// fifth less for the other half; callers do not come back.
fn swinging(queue: u32, deadline_ms: u32, period_ms: f64) -> Vec<Change> {
    let mut w = World::new(&format!(
        r#"{{"workers":4,"queue":{queue},"classes":{{"t":{{"mean_ms":40,"p95_ms":60,"deadline_ms":{deadline_ms}}}}},
            "tiers":{{"critical":{{"reserved_workers":0}}}}}}"#
    ));
    let mut rng = Pcg64::seed_from_u64(1);
    let mut at = 0.0_f64;
    while at < 120_000.0 {
        let load = if (at / period_ms).fract() < 0.5 { 1.2 } else { 0.8 };
        at -= 10.0 / load * (1.0 - rng.random_range(0.0..1.0_f64)).ln();
        w.advance((at as u64).saturating_sub(w.at()));
        w.ask("x", req("t", 40));
    }
    changes(&w)
}

#[test]
fn load_that_swings_a_fifth_round_the_capacity_for_two_minutes_flips_the_state_four_times_at_most() {
    for period_ms in [2_000.0, 5_000.0, 10_000.0, 40_000.0] {
        let changes = swinging(800, 4_000, period_ms);
        assert!(
            changes.len() <= 4,
            "{period_ms} ms: {} changes: {changes:?}",
            changes.len()
        );
    }
}

#[test]
fn load_that_swings_past_the_threshold_of_shedding_as_well_flips_it_four_times_at_most_and_sheds_once() {
    // Each of these had five changes while a ramp that was over meant normal, and up to 45 before a relapse was believed less.
    for (queue, deadline_ms, period_ms) in [
        (40, 500, 2_000.0),
        (40, 1_000, 10_000.0),
        (80, 4_000, 5_000.0),
        (80, 4_000, 10_000.0),
        (80, 4_000, 20_000.0),
        (80, 4_000, 40_000.0),
        (80, 4_000, 60_000.0),
        (80, 500, 40_000.0),
        (200, 4_000, 2_000.0),
        (200, 4_000, 20_000.0),
    ] {
        let changes = swinging(queue, deadline_ms, period_ms);
        let sheds = changes.iter().filter(|(_, to)| *to == ServiceState::Shedding);
        assert!(
            sheds.count() <= 1,
            "{queue} {deadline_ms} {period_ms} ms: {changes:?}"
        );
        assert!(
            (1..=4).contains(&changes.len()),
            "{queue} {deadline_ms} {period_ms} ms: {} changes: {changes:?}",
            changes.len()
        );
    }
}

#[test]
fn after_an_ordinary_overload_everything_is_open_when_hold_and_ramp_are_over_whatever_load_follows() {
    // Hold and ramp are five seconds; before them the queue has to drain, which takes a second at 0.8 of the capacity.
    for (load, open_within, normal_within) in [(0.0, 5_500, 5_500), (0.5, 5_500, 7_000), (0.8, 6_500, 66_000)]
    {
        let mut w = World::new(
            r#"{"workers":4,"queue":80,"classes":{"t":{"mean_ms":40,"p95_ms":60,"deadline_ms":1000}},
                "tiers":{"critical":{"reserved_workers":0}}}"#,
        );
        let run = |w: &mut World, load: f64, until: u64, left: &dyn Fn(&World) -> bool| {
            let (mut owed, mut end) = (0.0, None);
            while w.at() < until && end.is_none() {
                owed += load;
                while owed >= 1.0 {
                    owed -= 1.0;
                    let _ = w.ask("x", req("t", 40));
                }
                w.advance(10);
                end = left(w).then(|| w.at());
            }
            end.unwrap_or(w.at())
        };
        let over = run(&mut w, 3.0, 20_000, &|_| false);
        assert_ne!(w.gauges().state, ServiceState::Normal);
        let deferrable = Tier::Deferrable.index();
        // Wide open it is 940 ms: the deadline without p95 and margin.
        let bound = |w: &World| w.gauges().wait_bounds[deferrable];
        let open = run(&mut w, load, over + 20_000, &|w| bound(w) >= ms(900));
        assert!(
            open <= over + open_within,
            "{load}: open after {} ms",
            open - over
        );
        let normal = run(&mut w, load, over + 90_000, &|w| {
            w.gauges().state == ServiceState::Normal
        });
        assert!(
            normal <= over + normal_within,
            "{load}: normal after {} ms",
            normal - over
        );
    }
}

#[test]
fn a_queue_that_swings_a_fifth_round_the_threshold_for_two_minutes_flips_the_state_four_times_at_most() {
    let mut w = World::new(
        r#"{"workers":4,"queue":80,"classes":{"t":{"mean_ms":40,"p95_ms":60,"deadline_ms":4000}},
            "tiers":{"critical":{"reserved_workers":0}}}"#,
    );
    for _ in 0..10 {
        w.ask("warm", req("t", 40)).key();
        w.advance(40);
    }
    // Congested from 40 that wait: the load fills the queue to 48 and lets it run down to 32.
    let (mut rising, mut swings) = (true, 0);
    while w.at() < 120_000 {
        let waiting = w.gauges().tiers[Tier::Deferrable.index()].queued;
        let turns = if rising { waiting >= 48 } else { waiting <= 32 };
        if turns {
            rising = !rising;
            swings += 1;
        }
        if rising {
            for _ in 0..3 {
                w.ask("x", req("t", 40));
            }
        }
        w.advance(20);
    }
    assert!(swings > 200, "{swings} swings");
    let changes = changes(&w);
    assert!(
        (1..=4).contains(&changes.len()),
        "{} changes: {changes:?}",
        changes.len()
    );
}
