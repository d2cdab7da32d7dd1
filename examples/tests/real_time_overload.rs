//! The main job on real sockets, held to its figures.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be read fails it")]

use std::time::Duration;

use holdoff_examples::storm::{Callers, Outcome, Plan, Storm};
use holdoff_examples::tally::End;
use tokio_util::sync::CancellationToken;

/// One storm at a time: two would share the processors, and each would measure the other.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn run(load: f64, callers: Callers, seconds: u64) -> Outcome {
    let _alone = ALONE.lock().await;
    let plan = Plan {
        length: Duration::from_secs(seconds),
        workers: 4,
        load,
        callers,
        seed: 7,
    };
    let storm = Storm::prepare(plan).await.unwrap();
    storm.run(CancellationToken::new(), |_| {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_three_times_its_capacity_callers_that_obey_need_few_attempts_and_nothing_accepted_is_lost() {
    // Retries are those that the server schedules: its lines hand out places at up to 1.3 times the capacity (admission's
    // PACE), which is 1.3 / 3 a call, as far ahead as callers have patience. So when arrivals end some 4 s of places are
    // still out, whatever the length: over 6 s that tail alone was 0.2 attempts a call (1.55 in all), over 12 s it is half.
    let Outcome { groups, service } = run(3.0, Callers::Holdoff, 12).await;
    let group = &groups[0];
    assert!(
        group.tally.calls.len() > 3000,
        "{} calls",
        group.tally.calls.len()
    );
    let attempts = group.tally.attempts_per_call();
    assert!(attempts <= 1.6, "{attempts} attempts per call");
    assert!(
        attempts > 1.1,
        "{attempts} attempts per call: was there an overload?"
    );
    assert_eq!(group.early, 0, "retries before the hint");
    // Every call was served in time, or told why not: what was accepted was answered.
    assert_eq!(
        group.tally.count(End::Failed),
        0,
        "calls without a true answer (the machine made calls up to {:?} late)",
        group.tally.behind
    );
    assert_eq!(service.watch.over_limit, 0, "readings of a queue over its limit");
    assert!(
        service.watch.readings > 100,
        "{} readings",
        service.watch.readings
    );
    assert_eq!(service.tickets, 0, "places still held");
    assert_eq!(service.state, "normal");
    assert!(service.recovered.is_some(), "not normal again in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_ignore_hints_are_seen_to_be_early_so_the_count_of_ours_can_fail() {
    let Outcome { groups, .. } = run(3.0, Callers::Deaf, 2).await;
    assert!(groups[0].early > 100, "{} early retries", groups[0].early);
    assert!(
        groups[0].tally.attempts_per_call() > 1.6,
        "{}",
        groups[0].tally.attempts_per_call()
    );
}
