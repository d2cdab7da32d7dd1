//! Whether the client under test stood still while a case was played.
//!
//! A program that gets no processor sends late, and all that fell due meanwhile leaves together: a perfect jitter arrives as
//! a bunch, and a call whose time ran out meanwhile ends in an error. On the wire that looks like a fault of the client. So the
//! client is asked again and again, beside its calls, for the cheapest reply there is: to a command that it does not know
//! (ADAPTER.md). While that reply takes long, the program stood still; see [`crate::still`] for what follows.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::adapter::Adapter;
use crate::clock;
use crate::lock::lock;
use crate::still::{MAX_KEPT, PROMPT, Stills};

/// Between two questions.
const EVERY: Duration = Duration::from_millis(3);

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
        let seen = || lock(&self.0);
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
        let seen = lock(&self.0);
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
