//! Five hundred calls at a time against a server that refuses most of them with random hints: none comes back early.
//!
//! A thousand retries in one second can all be right and the ten thousandth wrong: when a connection was taken over,
//! the budget ran dry, a timer wheel turned. So the same rule is judged for as long as one likes, by one clock, the
//! server's: from when a refusal had been written until the next request of that call had arrived.
//!
//! The long run, one minute: `cargo test -p holdoff-reqwest --test soak -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdoff_policy::StopReason;
use holdoff_reqwest::{Client, reqwest};
use support::{Reply, Seen, Server, answer, ms, now, ok, refuse, window};

/// Calls under way at once.
const CALLERS: u64 = 500;
/// Refusals of one call at most: fewer than the policy allows attempts.
const REFUSALS: u64 = 4;

/// What the server keeps of a call: the last refusal.
struct Refused {
    /// The least wait it asked for.
    after: Duration,
    /// When it had been written.
    answered: Option<Instant>,
}

/// What the server found.
#[derive(Default)]
struct Judge {
    open: HashMap<String, Refused>,
    retries: u64,
    early: Vec<(String, Duration, Duration)>,
}

/// splitmix64: hints are random and the same in each run.
fn random(number: u64) -> u64 {
    let mut z = number
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(0x6A09_E667_F3BC_C908);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The answer to this attempt, and D where it is a refusal: a window nine times out of ten, else a plain hint in
/// milliseconds or in seconds. (Plain hints cost of the budget, and would end most calls.)
fn reply(call: u64, attempt: u64) -> (Reply, Option<Duration>) {
    if attempt > 1 + random(call) % REFUSALS {
        return (ok(), None);
    }
    let chance = random(call * 16 + attempt);
    let after = 1 + chance % 900;
    let seconds = || {
        let fields = [("retry-after", "1")];
        Reply::Send(answer("503 Service Unavailable", &fields, "busy"))
    };
    match chance >> 32 & 31 {
        0 => (seconds(), Some(ms(1000))),
        1 | 2 => {
            let signal = format!("v=1, code=queue_full, retry=after, applied=no, after={after}");
            (refuse(&signal), Some(ms(after)))
        }
        _ => (window(after, after + (chance >> 40) % 400), Some(ms(after))),
    }
}

fn number(path: &str) -> u64 {
    path.rsplit('/').next().unwrap().parse().unwrap()
}

impl Judge {
    /// A request has come: was its wait over?
    fn judge(&mut self, seen: &Seen) -> Reply {
        let attempt = seen.number("overload-attempt");
        if let Some(refused) = self.open.remove(&seen.path) {
            let waited = seen.arrived - refused.answered.unwrap();
            self.retries += 1;
            if waited < refused.after {
                self.early.push((seen.path.clone(), waited, refused.after));
            }
        }
        let (reply, after) = reply(number(&seen.path), attempt);
        if let Some(after) = after {
            let refused = Refused {
                after,
                answered: None,
            };
            self.open.insert(seen.path.clone(), refused);
        }
        reply
    }
}

/// A server that judges.
async fn judging() -> (Server, Arc<Mutex<Judge>>) {
    let judge: Arc<Mutex<Judge>> = Arc::default();
    let (judging, noting) = (Arc::clone(&judge), Arc::clone(&judge));
    let server = Server::start_forgetful(
        move |_, seen| judging.lock().unwrap().judge(seen),
        move |seen, at| {
            if let Some(refused) = noting.lock().unwrap().open.get_mut(&seen.path) {
                refused.answered = Some(at);
            }
        },
    )
    .await;
    (server, judge)
}

/// One thread runs client and server, so that nothing of the client runs between the server's write and the reading
/// of its clock: "never early" is exact, without a tolerance.
async fn soak(length: Duration) -> u64 {
    let (server, judge) = judging().await;
    let client = Client::new();
    let until = now() + length;
    let callers = (0..CALLERS).map(|caller| {
        let (client, base, judge) = (client.clone(), server.url("/c"), Arc::clone(&judge));
        tokio::spawn(async move {
            let mut call = caller;
            let mut served = 0_u64;
            while now() < until {
                match client.get(format!("{base}/{call}")).send().await {
                    Ok(response) => {
                        assert_eq!(response.text().await.unwrap(), "done");
                        served += 1;
                    }
                    // Plain hints use the budget up; any other end would be a fault.
                    Err(error) => {
                        let why = error.why().unwrap();
                        assert!(
                            matches!(why, StopReason::BudgetExhausted | StopReason::AttemptsExhausted),
                            "{error}"
                        );
                        judge.lock().unwrap().open.remove(&format!("/c/{call}"));
                    }
                }
                call += CALLERS;
            }
            served
        })
    });
    let mut served = 0;
    for caller in callers.collect::<Vec<_>>() {
        served += caller.await.unwrap();
    }
    let judge = judge.lock().unwrap();
    let counts = client.counters().snapshot();
    println!(
        "{} s: {served} calls served, {} retries, {} early, {} connections; stopped: {:?}",
        length.as_secs(),
        judge.retries,
        judge.early.len(),
        server.connections(),
        counts.gave_up
    );
    assert!(judge.early.is_empty(), "path, waited, D: {:?}", judge.early);
    assert_eq!(
        (counts.retries_total, counts.early_retries_total),
        (judge.retries, 0)
    );
    assert!(served > CALLERS, "{served} calls served");
    judge.retries
}

#[tokio::test]
async fn real_time_three_seconds_of_five_hundred_calls_at_a_time_see_no_early_retry() {
    let retries = soak(Duration::from_secs(3)).await;
    assert!(retries > 1_000, "{retries} retries");
}

#[tokio::test]
#[ignore = "a minute: the command is in the module's documentation"]
async fn real_time_a_minute_of_five_hundred_calls_at_a_time_sees_no_early_retry() {
    let retries = soak(Duration::from_secs(60)).await;
    assert!(retries > 20_000, "{retries} retries");
}

#[tokio::test]
async fn real_time_a_caller_that_comes_back_at_once_is_seen_to_be_early() {
    let (server, judge) = judging().await;
    let client = reqwest::Client::new();
    for attempt in ["1", "2"] {
        let request = client.get(server.url("/c/0")).header("overload-attempt", attempt);
        request.send().await.unwrap();
    }
    let judge = judge.lock().unwrap();
    assert_eq!((judge.retries, judge.early.len()), (1, 1));
}
