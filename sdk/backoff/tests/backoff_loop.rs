//! In `backoff`'s own async loop, in paused time over a service in memory.
//! `cargo test -p holdoff-backoff --features backoff-tokio`

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Mutex;
use std::time::Duration;

use backoff::{Error, ExponentialBackoffBuilder};
use common::{Failed, failed, ms, now, pacer, spec, window};
use holdoff_backoff::{Outcome, PacedCall, Pacer, StopReason, outcome_of};

async fn run(call: &PacedCall, failures: &[Failed]) -> (Result<u32, Failed>, Vec<Duration>) {
    let (began, at) = (now(), Mutex::new(Vec::new()));
    let result = backoff::future::retry(call.clone(), || async {
        let attempt = call.begin().unwrap().number;
        at.lock().unwrap().push(now() - began);
        let result = match failures.get(attempt as usize - 1) {
            Some(failure) => Err(failure.clone()),
            None => Ok(attempt),
        };
        let result = call.told(result, |error| outcome_of(error.status, &error.headers, None));
        result.map_err(Error::transient)
    })
    .await;
    (result, at.into_inner().unwrap())
}

#[tokio::test(start_paused = true)]
async fn every_retry_comes_in_its_window() {
    let (pacer, _) = pacer(Pacer::builder());
    let call = pacer.call(spec(None));
    let (result, at) = run(&call, &[window(1740, 2300), window(500, 900)]).await;
    assert_eq!(result, Ok(3));
    assert!((ms(1740)..=ms(2301)).contains(&at[1]), "{at:?}");
    assert!((ms(500)..=ms(902)).contains(&(at[2] - at[1])), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_policy_stops_the_loop_stops() {
    let (pacer, _) = pacer(Pacer::builder());
    let call = pacer.call(spec(Some(ms(2000))));
    let (result, at) = run(&call, &[failed(503, &[("retry-after", "3")])]).await;
    assert_eq!((result.unwrap_err().status.as_u16(), at.len()), (503, 1));
    assert_eq!(call.give_up().unwrap().why, StopReason::DeadlineBeforeHint);
}

/// Existing code: `backoff`'s own waits, and an error with the server's delay as `retry_after`.
async fn existing(call: Option<&PacedCall>, delay: Duration, most: u32) -> (u32, Duration) {
    let own = ExponentialBackoffBuilder::new()
        .with_max_elapsed_time(Some(ms(2000)))
        .build();
    let (began, sent) = (now(), Mutex::new(0));
    let _ = backoff::future::retry(own, || async {
        let sent = {
            let mut sent = sent.lock().unwrap();
            *sent += 1;
            *sent
        };
        if sent == most {
            return Ok(());
        }
        let error = Error::retry_after("refused", delay);
        Err(call.map_or_else(|| Error::retry_after("refused", delay), |call| call.bind(error)))
    })
    .await;
    (sent.into_inner().unwrap(), now() - began)
}

#[tokio::test(start_paused = true)]
async fn a_hint_goes_around_every_limit_of_backoff_and_around_none_of_ours() {
    // On its own: 50 sends over more than two minutes, under a max_elapsed_time of 2 s.
    let (sent, took) = existing(None, ms(3000), 50).await;
    assert_eq!(sent, 50);
    assert!(took >= ms(147_000), "{took:?}");

    // The hint ends after the deadline: one send.
    let (pacer, _) = pacer(Pacer::builder());
    let call = pacer.call(spec(Some(ms(2000))));
    let (sent, took) = existing(Some(&call), ms(3000), 50).await;
    assert_eq!((sent, took), (1, ms(0)));
    assert_eq!(call.give_up().unwrap().why, StopReason::DeadlineBeforeHint);

    // Without a deadline attempts bind: three sends, and neither wait is shorter than the hint.
    let call = pacer.call(spec(None));
    let (sent, took) = existing(Some(&call), ms(3000), 50).await;
    assert_eq!(sent, 3);
    assert!(took >= ms(6000) && took <= ms(16_000), "{took:?}");
    assert_eq!(call.give_up().unwrap().why, StopReason::AttemptsExhausted);
}

#[tokio::test(start_paused = true)]
async fn callers_with_one_hint_do_not_come_back_in_one_instant() {
    let (pacer, _) = pacer(Pacer::builder().rng_seed(7));
    let mut waits: Vec<Duration> = (0..20)
        .map(|_| {
            let call = pacer.call(spec(None));
            let Error::Transient {
                retry_after: Some(wait),
                ..
            } = call.bind(Error::retry_after((), ms(1000)))
            else {
                panic!("stopped: {:?}", call.give_up());
            };
            wait
        })
        .collect();
    waits.sort_unstable();
    assert!(waits[0] >= ms(1000), "{waits:?}");
    assert!(waits[19] - waits[0] > ms(500), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn errors_keep_their_kind_and_what_was_told_first_counts() {
    let (pacer, _) = pacer(Pacer::builder());
    let call = pacer.call(spec(None));
    assert_eq!(call.bind(Error::permanent("bad")), Error::permanent("bad"));
    assert_eq!((call.give_up(), call.next_wait()), (None, None));

    // The whole refusal was told: its window counts, not the bare delay.
    let call = pacer.call(spec(None));
    let refused = window(400, 500);
    call.tell(outcome_of(refused.status, &refused.headers, None));
    let Error::Transient {
        retry_after: Some(wait),
        ..
    } = call.bind(Error::retry_after("refused", ms(9000)))
    else {
        panic!("stopped: {:?}", call.give_up());
    };
    assert!((ms(400)..=ms(500)).contains(&wait), "{wait:?}");

    // Nothing was told: a broken connection.
    let call = pacer.call(spec(None));
    let _attempt = call.begin().unwrap();
    assert!(matches!(
        call.bind(Error::transient("reset")),
        Error::Transient { .. }
    ));
    let call = pacer.call(spec(None));
    call.tell(Outcome::Broken);
    call.tell(Outcome::Success);
    assert!(call.next_wait().is_some());
}
