//! Load that swings round the threshold must not make the state swing with it.

mod common;

use common::{World, req};
use holdoff_admission::Event;
use holdoff_contract::Tier;

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
    let changes: Vec<_> = w
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Transition { from, to } => Some((*from, *to)),
            _ => None,
        })
        .collect();
    assert!(
        (1..=4).contains(&changes.len()),
        "{} changes: {changes:?}",
        changes.len()
    );
}
