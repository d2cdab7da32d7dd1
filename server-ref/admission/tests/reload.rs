//! Another profile while work waits and runs.

mod common;

use common::{World, profile, req};
use holdoff_admission::Controller;

const CLASSES: &str = r#""classes": {"t": {"mean_ms": 100, "p95_ms": 100, "deadline_ms": 60000}},
    "tiers": {"critical": {"reserved_workers": 0}}"#;

fn json(more: &str) -> String {
    format!("{{{CLASSES}, {more}}}")
}

fn reload(world: &mut World, more: &str) {
    assert_eq!(world.c.reload(world.now, profile(&json(more))), Ok(()));
    world.settle();
}

/// Past the slow start, so that only the bounds of the profile bind.
fn warm(more: &str) -> World {
    let mut world = World::new(&json(more));
    for _ in 0..10 {
        world.ask("warm", req("t", 100)).key();
        world.advance(200);
    }
    world.started.clear();
    world
}

#[test]
fn what_was_admitted_keeps_its_place_when_the_workers_become_fewer_or_more() {
    let mut world = warm(r#""workers": 4"#);
    world.held = true;
    for name in ["a", "b", "c", "d", "e", "f"] {
        world.ask(name, req("t", 100)).key();
    }
    assert_eq!(world.started, ["a", "b", "c", "d"]);
    reload(&mut world, r#""workers": 2"#);
    assert_eq!((world.gauges().busy, world.gauges().workers), (4, 2));
    world.advance(100);
    assert_eq!(world.started.len(), 4, "more run than there are workers");
    reload(&mut world, r#""workers": 5"#);
    assert_eq!(world.started, ["a", "b", "c", "d", "e"]);
    world.held = false;
    world.advance(1_000);
    assert_eq!(world.done.len(), 16);
    let gauges = world.gauges();
    assert_eq!((gauges.tickets, gauges.busy), (0, 0));
    assert!(gauges.estimated_work.is_zero());
}

#[test]
fn a_limit_of_running_tasks_that_is_lowered_or_lifted_binds_at_once() {
    let mut world = warm(r#""workers": 4"#);
    world.held = true;
    for name in ["a1", "a2", "a3", "a4"] {
        world.ask(name, req("t", 100).of("a")).key();
    }
    world.ask("a5", req("t", 100).of("a")).key();
    world.ask("b1", req("t", 100).of("b")).key();
    reload(&mut world, r#""workers": 4, "tenants": {"a": {"active": 2}}"#);
    world.held = false;
    world.advance(100);
    assert_eq!(world.started[4..], ["b1", "a5"], "a5 once a is below its limit");
    world.held = true;
    world.ask("a6", req("t", 100).of("a")).key();
    world.ask("a7", req("t", 100).of("a")).key();
    assert!(!world.started.contains(&"a7".to_owned()));
    reload(&mut world, r#""workers": 4"#);
    assert!(world.started.contains(&"a7".to_owned()));
    world.held = false;
    world.advance(1_000);
    assert_eq!(world.gauges().tickets, 0);
}

#[test]
fn classes_keep_what_was_measured_and_dropped_ones_make_room() {
    let mut world = warm(r#""workers": 1"#);
    let samples = |world: &World, name: &str| {
        let classes = world.gauges().classes;
        classes
            .iter()
            .find(|class| class.name == name)
            .map(|class| class.samples)
    };
    reload(&mut world, r#""workers": 1, "hold_ms": 500"#);
    assert_eq!(samples(&world, "t"), Some(10));
    let other = r#"{"classes": {"u": {"mean_ms": 5}, "other": {"mean_ms": 7}}}"#;
    world.c.reload(world.now, profile(other)).unwrap();
    assert_eq!(
        world.c.class(Some("t")),
        world.c.class(None),
        "t is a stranger now"
    );
    assert_ne!(world.c.class(Some("u")), world.c.class(None));
    for round in 0..500 {
        let name = format!(r#"{{"classes": {{"c{round}": {{"mean_ms": 5}}}}}}"#);
        world.c.reload(world.now, profile(&name)).unwrap();
    }
    assert!(
        world.gauges().classes.len() < 10,
        "{}",
        world.gauges().classes.len()
    );
}

#[test]
fn a_bad_profile_is_refused_and_the_old_one_stands() {
    let mut world = warm(r#""workers": 3"#);
    let error = world
        .c
        .reload(world.now, profile(r#"{"workers": 0}"#))
        .unwrap_err();
    assert_eq!((error.key.as_str(), error.value.as_str()), ("workers", "0"));
    assert_eq!(world.gauges().workers, 3);
    world.ask("a", req("t", 100)).key();
    world.advance(Controller::TICK.as_millis() as u64 * 2);
    assert_eq!(world.done.last().map(|(name, _)| name.as_str()), Some("a"));
}
