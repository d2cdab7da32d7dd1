//! In `backon`'s own loop, in paused time over a service in memory.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Mutex;
use std::time::Duration;

use backon::{BackoffBuilder, ConstantBuilder, Retryable};
use common::{Failed, failed, ms, now, pacer, spec, window};
use holdoff_backoff::{Event, Outcome, PacedCall, Pacer, Policy, Safety, StopReason, outcome_of};

/// Runs a call in the loop over these failures and then a success; says when each attempt began.
async fn run(call: &PacedCall, failures: &[Failed]) -> (Result<u32, Failed>, Vec<Duration>) {
    let (began, at) = (now(), Mutex::new(Vec::new()));
    let result = (|| async {
        let attempt = call.begin().unwrap().number;
        at.lock().unwrap().push(now() - began);
        let result = match failures.get(attempt as usize - 1) {
            Some(failure) => Err(failure.clone()),
            None => Ok(attempt),
        };
        call.told(result, |error| outcome_of(error.status, &error.headers, None))
    })
    .retry(call.clone())
    .await;
    (result, at.into_inner().unwrap())
}

fn is_builder(_: &impl BackoffBuilder) {}

#[tokio::test(start_paused = true)]
async fn every_retry_comes_in_its_window_and_the_budget_is_whole_again() {
    let (pacer, seen) = pacer(Pacer::builder());
    let call = pacer.call(spec(None));
    is_builder(&call);
    let (result, at) = run(&call, &[window(1740, 2300), window(500, 900)]).await;
    assert_eq!(result, Ok(3));
    assert!((ms(1740)..=ms(2301)).contains(&at[1]), "{at:?}");
    assert!((ms(500)..=ms(902)).contains(&(at[2] - at[1])), "{at:?}");
    assert_eq!((pacer.waiting(), pacer.budget_tokens()), (0, 100));
    let sent: Vec<bool> = seen
        .lock()
        .unwrap()
        .iter()
        .filter_map(|event| match event {
            Event::RetrySent { early, .. } => Some(*early),
            _ => None,
        })
        .collect();
    assert_eq!(sent, [false, false]);
}

#[tokio::test(start_paused = true)]
async fn a_hint_over_the_deadline_stops_at_once() {
    let (pacer, _) = pacer(Pacer::builder());
    let call = pacer.call(spec(Some(ms(2000))));
    let (result, at) = run(&call, &[failed(503, &[("retry-after", "3")])]).await;
    assert_eq!(result.unwrap_err().status, 503);
    assert_eq!(at, [ms(0)]);
    let give_up = call.give_up().unwrap();
    assert_eq!(give_up.why, StopReason::DeadlineBeforeHint);
    assert_eq!(give_up.retry_in, Some(ms(3000)));
    assert_eq!(now() - call.last_refusal().unwrap().received, ms(0));
}

#[tokio::test(start_paused = true)]
async fn what_the_server_forbids_and_what_is_no_refusal_end_the_loop() {
    let no = "v=1, code=queue_full, retry=no, applied=no";
    for (failure, why) in [
        (
            failed(503, &[("overload-signal", no)]),
            Some(StopReason::RetryForbidden),
        ),
        (failed(400, &[("retry-after", "1")]), None),
    ] {
        let (pacer, _) = pacer(Pacer::builder());
        let call = pacer.call(spec(None));
        let (result, at) = run(&call, &[failure]).await;
        assert!(result.is_err());
        assert_eq!(at.len(), 1);
        assert_eq!(call.give_up().map(|give_up| give_up.why), why);
    }
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_one_pacer_share_a_budget() {
    let policy = Policy::builder().budget_capacity(20).build().unwrap();
    let (pacer, _) = pacer(Pacer::builder().policy(policy));
    let blind = || failed(503, &[]);
    // A blind retry costs 14: one is paid for, and spent, since it is refused too.
    let first = pacer.call(spec(None));
    let (_, at) = run(&first, &[blind(), blind(), blind()]).await;
    assert_eq!(at.len(), 2);
    assert_eq!(first.give_up().unwrap().why, StopReason::BudgetExhausted);
    let second = pacer.call(spec(None));
    let (_, at) = run(&second, &[blind()]).await;
    assert_eq!(at.len(), 1);
    // Starting a call again does not fill it.
    second.restart();
    let (_, at) = run(&second, &[blind()]).await;
    assert_eq!(at.len(), 1);
    assert_eq!(pacer.budget_tokens(), 6);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_safe_is_sent_once_unless_nothing_was_done() {
    let unsafe_call = holdoff_backoff::CallSpec {
        safety: Safety::Unsafe,
        ..spec(None)
    };
    let (pacer, _) = pacer(Pacer::builder());
    let call = pacer.call(unsafe_call);
    let (_, at) = run(&call, &[failed(503, &[("retry-after", "1")])]).await;
    assert_eq!((at.len(), call.give_up().unwrap().why), (1, StopReason::NotSafe));
    let call = pacer.call(unsafe_call);
    let (result, _) = run(&call, &[window(100, 200)]).await;
    assert_eq!(result, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_comes_back_early_sends_nothing() {
    let (pacer, seen) = pacer(Pacer::builder());
    let call = pacer.call(spec(None));
    // The waits of another: 10 ms, whatever the server said.
    let result = (|| async {
        let _attempt = call.begin().map_err(|give_up| give_up.why)?;
        call.told(Err::<(), _>(StopReason::Transport), |_| {
            let Failed { status, headers } = window(1000, 1100);
            outcome_of(status, &headers, None)
        })
    })
    .retry(ConstantBuilder::new().with_delay(ms(10)).with_max_times(1))
    .await;
    assert_eq!(result, Err(StopReason::Cancelled));
    assert_eq!(call.attempts(), 1);
    assert!(
        seen.lock()
            .unwrap()
            .contains(&Event::GaveUp(StopReason::Cancelled))
    );
    assert_eq!((pacer.waiting(), pacer.budget_tokens()), (0, 100));
}

#[tokio::test(start_paused = true)]
async fn steps_that_are_left_out_are_filled_in_to_the_careful_side() {
    // A loop that only asks for waits: each attempt counts as broken, and the limits bind.
    let (pacer, _) = pacer(Pacer::builder());
    let mut call = pacer.call(spec(None));
    let mut waits = Vec::new();
    while let Some(wait) = call.next() {
        // Asking twice is not waiting twice.
        if !wait.is_zero() {
            assert_eq!(call.next_wait(), Some(wait));
        }
        tokio::time::sleep(wait + ms(1)).await;
        waits.push(wait);
    }
    assert_eq!((waits.len(), call.attempts()), (2, 3));
    assert!(waits[0] <= ms(50) && waits[1] <= ms(100), "{waits:?}");
    assert_eq!(call.give_up().unwrap().why, StopReason::Transport);
    // A second word on the same attempt is ignored.
    call.tell(Outcome::Success);
    assert_eq!((call.next_wait(), pacer.budget_tokens()), (None, 100 - 28));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_gives_back_what_it_holds() {
    let (pacer, _) = pacer(Pacer::builder());
    let call = pacer.call(spec(None));
    call.tell(outcome_of(
        http::StatusCode::SERVICE_UNAVAILABLE,
        &http::HeaderMap::new(),
        None,
    ));
    let clone = call.clone();
    drop(call);
    assert_eq!((pacer.waiting(), pacer.budget_tokens()), (1, 86));
    drop(clone);
    assert_eq!((pacer.waiting(), pacer.budget_tokens()), (0, 100));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_answered_begins_anew_with_its_next_attempt() {
    let (pacer, _) = pacer(Pacer::builder());
    let call = pacer.call(spec(None));
    for _ in 0..3 {
        let (result, _) = run(&call, &[]).await;
        assert_eq!(result, Ok(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_under_a_hold_off_sends_nothing_before_its_release() {
    let (pacer, _) = pacer(Pacer::builder());
    let signal = "v=1, code=queue_full, retry=after, applied=no, after=1000, max=1200, scope=service";
    let refused = failed(503, &[("overload-signal", signal)]);
    let first = pacer.call(spec(None));
    first.tell(outcome_of(refused.status, &refused.headers, None));
    // Another call of the same destination is held before its first send, and served after the release.
    let call = pacer.call(spec(None));
    let began = now();
    let result = (|| async {
        let attempt = call.begin().map_err(|held| held.why)?.number;
        call.told(Ok((attempt, now() - began)), |_: &StopReason| Outcome::Broken)
    })
    .retry(call.clone())
    .await;
    let (attempt, at) = result.unwrap();
    assert_eq!(attempt, 1);
    assert!(at >= ms(1000), "{at:?}");
}
