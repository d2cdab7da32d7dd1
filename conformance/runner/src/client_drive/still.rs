//! When the program under test stood still, or the machine under it.
//!
//! A program that gets no processor sends late, and all that fell due meanwhile leaves together: a perfect jitter arrives as
//! a bunch, and a call whose time ran out meanwhile ends in an error. On the wire that looks like a fault of the client. So the
//! client is asked again and again, beside its calls, for the cheapest reply there is: to a command that it does not know
//! (ADAPTER.md). While that reply takes long, the program stood still. What a standstill explains is no failure and no pass
//! either: the case is played again.
//!
//! Early is never explained by this: whoever stands still does not send.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::adapter::Adapter;
use crate::clock;

/// A reply that takes no longer than this is prompt: two schedulers and two pipes lie between.
const PROMPT: Duration = Duration::from_millis(10);
/// What piled up in a standstill leaves within this after its end.
const DRAIN: Duration = Duration::from_millis(25);
/// Between two questions.
const EVERY: Duration = Duration::from_millis(3);
/// Standstills kept of one play at most.
const MAX_KEPT: usize = 10_000;

/// From when to when, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stills(pub(crate) Vec<(Instant, Instant)>);

impl Stills {
    /// When the standstill began that may have held up what happened at `at`.
    pub(crate) fn before(&self, at: Instant) -> Option<Instant> {
        let holds = |(from, to): &&(Instant, Instant)| *from <= at && at <= *to + DRAIN;
        self.0.iter().find(holds).map(|(from, _)| *from)
    }

    /// The longest.
    pub(crate) fn longest(&self) -> Duration {
        let lengths = self
            .0
            .iter()
            .map(|(from, to)| to.saturating_duration_since(*from));
        lengths.max().unwrap_or_default()
    }
}

/// Looks on while a case is played.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    stills: Stills,
    /// A question whose reply is still awaited.
    asked: Option<Instant>,
    /// It was answered at least once: a program that does not answer what it does not know is no witness.
    answers: bool,
}

impl Watch {
    /// Asks until it is dropped, or the program ends.
    pub(crate) async fn ask(&self, adapter: &Adapter) {
        let seen = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let asked = clock::now();
            seen().asked = Some(asked);
            if !adapter.answers(json!({"cmd": "still_there"})).await {
                return std::future::pending().await;
            }
            // The pause counts too: it is long where the runner itself stood still.
            tokio::time::sleep(EVERY).await;
            let now = clock::now();
            let mut seen = seen();
            seen.asked = None;
            seen.answers = true;
            if now.saturating_duration_since(asked) > PROMPT + EVERY && seen.stills.0.len() < MAX_KEPT {
                seen.stills.0.push((asked, now));
            }
        }
    }

    /// What was seen until now.
    pub(crate) fn stills(&self, now: Instant) -> Stills {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.answers {
            return Stills::default();
        }
        let mut stills = seen.stills.clone();
        let open = seen
            .asked
            .filter(|asked| now.saturating_duration_since(*asked) > PROMPT + EVERY);
        stills.0.extend(open.map(|asked| (asked, now)));
        stills
    }
}
