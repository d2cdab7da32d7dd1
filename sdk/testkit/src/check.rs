//! Proof of what a caller did. Each check comes twice: `check_..` tells, `assert_..` fails the test with the same words.
//!
//! Gaps are measured at the server, from the moment an answer was given to the connection to the moment the next
//! request was there. That is never shorter than what the caller waited, so these checks never blame one that obeyed;
//! they miss one that was early by less than the way of the answer, which on loopback is well below a millisecond.

use std::fmt;
use std::time::Duration;

use holdoff_contract::{Hint, Retry};

use crate::record::{MAX_REQUESTS, Record, Sent};

/// What a caller did wrong. Its `Display` is one line for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What was asked for.
    pub rule: &'static str,
    /// Where it was not kept: call, and what was measured. At most [`Self::MAX_SHOWN`].
    pub found: Vec<String>,
    /// How often it was not kept.
    pub count: usize,
}

impl Violation {
    /// Places that are shown; more are only counted.
    pub const MAX_SHOWN: usize = 10;
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} times not kept", self.rule, self.count)?;
        self.found.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl std::error::Error for Violation {}

/// The result of a check.
pub type Check = Result<(), Violation>;

impl Record {
    /// No request came back before the D of the answer before it had passed (CLI-01).
    ///
    /// # Errors
    /// The requests that did.
    pub fn check_never_early(&self) -> Check {
        self.judge_returns("no request comes back before its hint", |before, after| {
            let gap = after.arrived.saturating_duration_since(before.answered);
            (gap < before.delay()).then(|| format!("after {gap:?} of {:?}", before.delay()))
        })
    }

    /// Every request that came back did so before the end of the window it was given, and `slack` for what the machine
    /// adds. Answers without a `max` bind nothing here.
    ///
    /// # Errors
    /// The requests that did not.
    pub fn check_within_window(&self, slack: Duration) -> Check {
        self.judge_returns("every request comes back within its window", |before, after| {
            let Some(Hint::Window { max, .. }) = before.refusal.as_ref().map(|refusal| refusal.hint) else {
                return None;
            };
            let gap = after.arrived.saturating_duration_since(before.answered);
            (gap > max.saturating_add(slack)).then(|| format!("after {gap:?}, window ends at {max:?}"))
        })
    }

    /// Nobody came back after retry=no (CLI-06).
    ///
    /// # Errors
    /// The requests that did.
    pub fn check_stops_when_told(&self) -> Check {
        self.judge_returns("nobody comes back after retry=no", |before, _| {
            let refusal = before.refusal.as_ref()?;
            (refusal.retry == Retry::No).then(|| format!("after {refusal}"))
        })
    }

    /// Exactly so many requests came.
    ///
    /// # Errors
    /// The number that came.
    pub fn check_attempts(&self, attempts: usize) -> Check {
        let came = self.attempts();
        self.settle(
            "the number of requests",
            (came != attempts).then(|| format!("{came} came, {attempts} were asked for")),
        )
    }

    /// No call sent more than so many requests.
    ///
    /// # Errors
    /// The calls that did.
    pub fn check_attempts_per_call(&self, most: usize) -> Check {
        let calls = self.calls();
        let over = calls
            .iter()
            .filter(|(_, sends)| sends.len() > most)
            .map(|(call, sends)| format!("{call}: {} requests, {most} are allowed", sends.len()));
        self.settle("requests of one call", over)
    }

    /// Of the requests that came back, no slot of this length holds more than this share (0 to 1): callers that were
    /// refused together do not come back together. Slots are laid at every arrival. `slot` 10 ms and `share` 0.2 is
    /// what our own SDK is held to.
    ///
    /// # Errors
    /// The fullest slot; also where fewer than 10 requests came back, of which nothing can be said.
    pub fn check_spread(&self, slot: Duration, share: f64) -> Check {
        const RULE: &str = "requests that come back are spread";
        let returns = self.returns().len();
        if returns < 10 {
            let line = format!("only {returns} came back, a spread needs 10");
            return self.settle(RULE, Some(line));
        }
        let fullest = self.fullest_slot(slot);
        #[expect(clippy::cast_precision_loss, reason = "at most MAX_REQUESTS, far below 2^53")]
        let found = fullest as f64 / returns as f64;
        let line = format!("{fullest} of {returns} within {slot:?}: {found:.2}, allowed is {share:.2}");
        self.settle(RULE, (found > share).then_some(line))
    }

    /// Every request has an `Overload-Deadline-Ms`, and in each call it shrinks from request to request by at least the
    /// D that was waited for (REQ-02, CLI-28).
    ///
    /// # Errors
    /// The requests where it does not, or is missing.
    pub fn check_deadline_shrinks(&self) -> Check {
        const RULE: &str = "the deadline is sent and shrinks";
        let all = self.all();
        let missing = all
            .iter()
            .filter(|sent| sent.fields.deadline.is_none())
            .map(|sent| format!("{}: no Overload-Deadline-Ms", sent.call));
        self.settle(RULE, missing)?;
        self.judge_returns(RULE, |before, after| {
            let (first, then) = (before.fields.deadline?, after.fields.deadline?);
            // Both are whole milliseconds, rounded down.
            let most = first
                .saturating_sub(before.delay())
                .saturating_add(Duration::from_millis(1));
            let shrunk = then <= most && (then < first || before.delay().is_zero());
            (!shrunk).then(|| format!("{first:?}, then {then:?}, with {:?} waited", before.delay()))
        })
    }

    /// All requests carry one and the same `Idempotency-Key` (REQ-08). For tests with one call.
    ///
    /// # Errors
    /// The requests with another key, or none.
    pub fn check_same_key(&self) -> Check {
        let all = self.all();
        let first = all.first().and_then(|sent| sent.fields.idempotency_key.clone());
        let wrong = all.iter().filter_map(|sent| match &sent.fields.idempotency_key {
            None => Some(format!("{} {}: no key", sent.method, sent.target)),
            key if *key != first => Some(format!("{} {}: another key", sent.method, sent.target)),
            Some(_) => None,
        });
        self.settle("one key for all requests", wrong)
    }

    /// In each call the body is the same byte for byte (CLI-13).
    ///
    /// # Errors
    /// The requests with another body.
    pub fn check_same_body(&self) -> Check {
        self.judge_returns("the body is the same each time", |before, after| {
            let same = before.body == after.body && before.body_length == after.body_length;
            (!same).then(|| format!("{} bytes, then {}", before.body_length, after.body_length))
        })
    }

    fn judge_returns(&self, rule: &'static str, judge: impl Fn(&Sent, &Sent) -> Option<String>) -> Check {
        let returns = self.returns();
        let wrong = returns
            .iter()
            .filter_map(|(before, after)| Some(format!("{}: {}", after.call, judge(before, after)?)));
        self.settle(rule, wrong)
    }

    fn settle(&self, rule: &'static str, wrong: impl IntoIterator<Item = String>) -> Check {
        let dropped = self.dropped();
        if dropped > 0 {
            let line = format!("{dropped} requests came after the record was full at {MAX_REQUESTS}");
            return Err(Violation {
                rule,
                found: vec![line],
                count: dropped,
            });
        }
        let (mut found, mut count) = (Vec::new(), 0);
        for line in wrong {
            count += 1;
            if found.len() < Violation::MAX_SHOWN {
                found.push(line);
            }
        }
        if count == 0 {
            Ok(())
        } else {
            Err(Violation { rule, found, count })
        }
    }
}

macro_rules! asserts {
    ($($(#[$meta:meta])* $assert:ident = $check:ident ( $($arg:ident: $type:ty),* );)+) => {
        impl Record {
            $(
                $(#[$meta])*
                ///
                /// # Panics
                /// Where the check tells an error: the test fails with its lines.
                #[track_caller]
                pub fn $assert(&self, $($arg: $type),*) {
                    if let Err(violation) = self.$check($($arg),*) {
                        panic!("{violation}");
                    }
                }
            )+
        }
    };
}

asserts! {
    /// Fails the test unless [`Self::check_never_early`] holds.
    assert_never_early = check_never_early();
    /// Fails the test unless [`Self::check_within_window`] holds.
    assert_within_window = check_within_window(slack: Duration);
    /// Fails the test unless [`Self::check_stops_when_told`] holds.
    assert_stops_when_told = check_stops_when_told();
    /// Fails the test unless [`Self::check_attempts`] holds.
    assert_attempts = check_attempts(attempts: usize);
    /// Fails the test unless [`Self::check_attempts_per_call`] holds.
    assert_attempts_per_call = check_attempts_per_call(most: usize);
    /// Fails the test unless [`Self::check_spread`] holds.
    assert_spread = check_spread(slot: Duration, share: f64);
    /// Fails the test unless [`Self::check_deadline_shrinks`] holds.
    assert_deadline_shrinks = check_deadline_shrinks();
    /// Fails the test unless [`Self::check_same_key`] holds.
    assert_same_key = check_same_key();
    /// Fails the test unless [`Self::check_same_body`] holds.
    assert_same_body = check_same_body();
}
