//! Each code has its condition, and where several refuse the first in the order of the test names it.

mod common;

use common::{World, ms, req, window};
use holdoff_admission::Ending;
use holdoff_contract::{Applied, Code, Retry, Scope, ServiceState, Tier};

const TWO: &str = r#"{"workers":2,"queue":4,"classes":{"t":{"mean_ms":20,"p95_ms":30,"deadline_ms":1000}},
    "tiers":{"critical":{"reserved_workers":0}}}"#;

#[test]
fn an_idle_server_starts_work_at_once_and_its_gauges_return_to_zero() {
    let mut w = World::new(TWO);
    assert!(matches!(w.ask("a", req("t", 20)), common::Answer::Accepted { wait, .. } if wait.is_zero()));
    assert_eq!((w.gauges().busy, w.gauges().tickets), (1, 1));
    w.advance(25);
    assert_eq!(w.done, [("a".to_owned(), 20)]);
    let g = w.gauges();
    assert_eq!((g.busy, g.tickets, g.estimated_work), (0, 0, ms(0)));
}

#[test]
fn beyond_workers_and_queue_the_code_is_queue_full() {
    let mut w = World::new(TWO);
    let codes: Vec<_> = (0..8)
        .map(|n| w.ask(&n.to_string(), req("t", 20)).code())
        .collect();
    assert_eq!(codes[..6], vec![None; 6]);
    assert_eq!(codes[6..], vec![Some(Code::QueueFull); 2]);
}
