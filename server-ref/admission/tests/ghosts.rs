//! What would have become of refused work.

mod common;

use common::{World, req};
use holdoff_admission::{Event, GhostOutcome};
use holdoff_contract::Code;

const TWO: &str = r#"{"workers":2,"queue":2,"classes":{"t":{"mean_ms":100,"p95_ms":150,"deadline_ms":2000}},
    "tiers":{"critical":{"reserved_workers":0}}}"#;

fn outcomes(w: &World) -> Vec<GhostOutcome> {
    let ghost = |event: &Event| match event {
        Event::Ghost { outcome, .. } => Some(*outcome),
        _ => None,
    };
    w.events.iter().filter_map(ghost).collect()
}

/// Both workers busy for 100 ms and both places in the queue taken.
fn full() -> World {
    let mut w = World::new(TWO);
    for _ in 0..10 {
        w.ask("warm", req("t", 100)).key();
        w.advance(100);
    }
    for _ in 0..4 {
        w.ask("fill", req("t", 100).within(5_000)).key();
    }
    w
}

#[test]
fn a_task_refused_before_the_workers_fall_idle_is_an_avoidable_loss() {
    let mut w = full();
    let refused = w.ask("x", req("t", 100).within(2_000));
    assert_eq!(refused.code(), Some(Code::QueueFull));
    w.advance(1_900);
    assert_eq!(outcomes(&w), [], "its time is not over");
    w.advance(300);
    assert_eq!(outcomes(&w), [GhostOutcome::Avoidable]);
}

#[test]
fn a_task_whose_turn_would_have_come_too_late_was_refused_rightly() {
    let mut w = full();
    // 200 ms ahead of it and 100 ms of its own.
    assert!(w.ask("x", req("t", 100).within(250)).code().is_some());
    w.advance(500);
    assert_eq!(outcomes(&w), [GhostOutcome::Missed]);
}

#[test]
fn under_load_that_leaves_nobody_idle_no_loss_was_avoidable() {
    let mut w = full();
    let mut refused = 0;
    for _ in 0..100 {
        w.advance(25);
        refused += usize::from(w.ask("x", req("t", 100).within(1_000)).code().is_some());
    }
    assert!(refused > 30, "{refused}");
    w.advance(75); // before the queue has run empty
    let seen = outcomes(&w);
    assert!(
        seen.contains(&GhostOutcome::InTime),
        "each alone would have been in time: {seen:?}"
    );
    let avoidable = seen
        .iter()
        .filter(|outcome| **outcome == GhostOutcome::Avoidable)
        .count();
    assert_eq!(avoidable, 0, "{seen:?}");
}

#[test]
fn idle_time_is_used_by_one_ghost_only_and_ghosts_are_bounded() {
    let mut w = full();
    for _ in 0..1_000 {
        assert!(w.ask("x", req("t", 100).within(1_000)).code().is_some());
    }
    w.advance(1_200);
    let seen = outcomes(&w);
    assert_eq!(seen.len(), 256);
    let avoidable = seen
        .iter()
        .filter(|outcome| **outcome == GhostOutcome::Avoidable)
        .count();
    // Two workers are idle for the last 800 ms or so: sixteen tasks, one or two more until the tick that counts them.
    assert!((14..=18).contains(&avoidable), "{avoidable}");
}
