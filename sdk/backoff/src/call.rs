//! One call inside somebody else's loop.
//!
//! `backoff` and `backon` own the loop: they run the operation, ask for a wait, sleep, and run it again. They ask without
//! saying what happened, so what happened is told from inside the operation, and the wait that is asked for afterwards
//! is the answer to it:
//!
//! ```text
//! Fresh -- begin --> InFlight -- told --> Waiting -- begin --> InFlight ..
//!                                    \--> Over: no more waits
//! ```
//!
//! Steps that are left out are filled in, always to the careful side: an attempt that was not begun began when its end
//! was told, and one whose end was not told broke.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdoff_policy::{Action, Call, CallSpec, Finish, GiveUp, Outcome, Refusal, Send, StopReason};

use crate::pacer::{Buffer, Shared};

/// One logical request over all its attempts, paced for a retry loop: an [`Iterator`] of waits, which is all that
/// `backon` wants, and with feature `backoff` a `Backoff`. Clones are the same call: one goes to the loop, one into the
/// operation.
///
/// The last clone that is dropped ends the call: an unsent retry gives back what it holds.
#[derive(Clone, Debug)]
pub struct PacedCall {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    spec: CallSpec,
    call: Call,
    step: Step,
}

#[derive(Clone, Debug)]
enum Step {
    /// Nothing begun.
    Fresh,
    /// An attempt is under way.
    InFlight,
    /// The next attempt may begin then.
    Waiting { until: Instant, asked: bool },
    /// The next attempt may begin: its wait was over before it was asked for.
    Due { send: Send, asked: bool },
    /// No more attempts.
    Over(Finish),
}

impl PacedCall {
    pub(crate) fn new(shared: Arc<Shared>, spec: CallSpec) -> Self {
        let call = Call::new(Arc::clone(&shared.policy), spec, shared.now());
        Self {
            inner: Arc::new(Mutex::new(Inner {
                shared,
                spec,
                call,
                step: Step::Fresh,
            })),
        }
    }

    /// Begins an attempt: the first thing in the operation (with `backoff`'s async loop inside the `async` block, since
    /// its closure runs before the wait). What it returns is for the wire: attempt, time left, effective tier.
    ///
    /// After a call that ended with an answer this begins a new one.
    ///
    /// # Errors
    /// The attempt must not be sent. With [`StopReason::HeldOff`] a hold-off of the destination covers it: fail the
    /// operation, and [`Self::next_wait`] answers its release. Else the call is over: its time ran out meanwhile, or the
    /// loop did not wait as long as it was told.
    pub fn begin(&self) -> Result<Send, Box<GiveUp>> {
        self.with(Inner::begin)
    }

    /// Tells how an attempt ended, and hands its result on: the last thing in the operation. `outcome` reads an error:
    /// see [`crate::outcome_of`] for HTTP.
    ///
    /// # Errors
    /// The result's own.
    pub fn told<T, E>(&self, result: Result<T, E>, outcome: impl FnOnce(&E) -> Outcome) -> Result<T, E> {
        let outcome = match &result {
            Ok(_) => Outcome::Success,
            Err(error) => outcome(error),
        };
        self.tell(outcome);
        result
    }

    /// Tells how an attempt ended. The first word on an attempt counts; a second is ignored.
    pub fn tell(&self, outcome: Outcome) {
        self.with(|inner, events| inner.tell(outcome, events));
    }

    /// How long to wait before the next attempt, from now; `None` where there is none. Asking again answers what is
    /// left of the same wait. An attempt that nobody told the end of counts as broken.
    pub fn next_wait(&self) -> Option<Duration> {
        self.with(Inner::next_wait)
    }

    /// Why the call stopped, with the last refusal; `None` while it goes on, and where it ended with an answer.
    pub fn give_up(&self) -> Option<GiveUp> {
        self.with(|inner, _| match &inner.step {
            Step::Over(Finish::GiveUp(give_up)) => Some(give_up.clone()),
            _ => None,
        })
    }

    /// The last refusal.
    pub fn last_refusal(&self) -> Option<Refusal> {
        self.with(|inner, _| inner.call.last_refusal().cloned())
    }

    /// Attempts begun.
    pub fn attempts(&self) -> u32 {
        self.with(|inner, _| inner.call.attempts())
    }

    /// Makes it a new call with the same wishes, unless nothing has been begun. What the destination's calls share
    /// stays as it is, so that this does not hand out a fresh budget.
    pub fn restart(&self) {
        self.with(|inner, events| {
            if !matches!(inner.step, Step::Fresh) {
                inner.restart(events);
            }
        });
    }

    /// Observers are called when the lock is free again: they may ask this call.
    fn with<T>(&self, f: impl FnOnce(&mut Inner, &mut Buffer) -> T) -> T {
        let mut events = Buffer::default();
        // Nothing in here panics between two states, so a poisoned lock is as good as new.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let result = f(&mut inner, &mut events);
        let shared = Arc::clone(&inner.shared);
        drop(inner);
        shared.observe(events);
        result
    }
}

impl Iterator for PacedCall {
    type Item = Duration;

    /// See [`PacedCall::next_wait`].
    fn next(&mut self) -> Option<Duration> {
        self.next_wait()
    }
}

impl Inner {
    fn begin(&mut self, events: &mut Buffer) -> Result<Send, Box<GiveUp>> {
        if let Step::InFlight = self.step {
            self.tell(Outcome::Broken, events);
        }
        if let Step::Over(Finish::Deliver) = self.step {
            self.restart(events);
        }
        let action = match &self.step {
            Step::Due { send, .. } => Action::Send(*send),
            Step::Over(finish) => Action::Finish(finish.clone()),
            Step::Fresh | Step::InFlight | Step::Waiting { .. } => self.next_action(events),
        };
        match action {
            Action::Send(send) => {
                self.step = Step::InFlight;
                Ok(send)
            }
            // A hold-off covers the attempt: nothing is sent, and its release is what the loop is answered next.
            Action::WaitUntil(until) if !self.is_early() => {
                let now = self.shared.now();
                self.step = Step::Waiting { until, asked: false };
                Err(Box::new(GiveUp {
                    why: StopReason::HeldOff,
                    last: self.call.last_refusal().cloned(),
                    attempts: self.call.attempts(),
                    waited: self.call.waited(),
                    retry_in: Some(until.saturating_duration_since(now)),
                }))
            }
            // The loop came back early. Sending now would break the hint, so there is nothing to send.
            Action::WaitUntil(_) => {
                self.cancel(events);
                let action = self.next_action(events);
                Err(self.over(action))
            }
            finish @ Action::Finish(_) => Err(self.over(finish)),
        }
    }

    /// The loop did not wait as long as it was told.
    fn is_early(&self) -> bool {
        matches!(self.step, Step::Waiting { until, .. } if self.shared.now() < until)
    }

    fn tell(&mut self, outcome: Outcome, events: &mut Buffer) {
        match self.step {
            Step::InFlight => {}
            // The attempt was not begun by name.
            Step::Fresh | Step::Waiting { asked: true, .. } | Step::Due { asked: true, .. } => {
                if self.begin(events).is_err() {
                    return;
                }
            }
            // Told already.
            Step::Waiting { .. } | Step::Due { .. } | Step::Over(_) => return,
        }
        let now = self.shared.now();
        let Self { shared, call, .. } = self;
        shared.step(events, |destination, rng, events| {
            call.on_outcome(now, now, outcome, destination, rng, events);
        });
        self.step = match self.next_action(events) {
            Action::WaitUntil(until) => Step::Waiting { until, asked: false },
            Action::Send(send) => Step::Due { send, asked: false },
            Action::Finish(finish) => Step::Over(finish),
        };
    }

    fn next_wait(&mut self, events: &mut Buffer) -> Option<Duration> {
        let now = self.shared.now();
        let untold = match self.step {
            Step::Fresh | Step::InFlight => true,
            Step::Waiting { until, asked } => asked && now >= until,
            Step::Due { asked, .. } => asked,
            Step::Over(_) => false,
        };
        if untold {
            self.tell(Outcome::Broken, events);
        }
        match &mut self.step {
            Step::Waiting { until, asked } => {
                *asked = true;
                Some(until.saturating_duration_since(now))
            }
            Step::Due { asked, .. } => {
                *asked = true;
                Some(Duration::ZERO)
            }
            Step::Fresh | Step::InFlight | Step::Over(_) => None,
        }
    }

    fn restart(&mut self, events: &mut Buffer) {
        self.cancel(events);
        self.call = Call::new(Arc::clone(&self.shared.policy), self.spec, self.shared.now());
        self.step = Step::Fresh;
    }

    fn next_action(&mut self, events: &mut Buffer) -> Action {
        let now = self.shared.now();
        let Self { shared, call, .. } = self;
        shared.step(events, |destination, rng, events| {
            call.next_action(now, destination, rng, events)
        })
    }

    fn cancel(&mut self, events: &mut Buffer) {
        let now = self.shared.now();
        let Self { shared, call, .. } = self;
        shared.step(events, |destination, _, events| {
            call.cancel(now, destination, events);
        });
    }

    /// Keeps how the call ended. A call that is cancelled or was stopped answers a reason, so the other arm is one that
    /// ended with an answer, which begins anew instead.
    fn over(&mut self, action: Action) -> Box<GiveUp> {
        let give_up = match action {
            Action::Finish(Finish::GiveUp(give_up)) => give_up,
            Action::Finish(Finish::Deliver) | Action::Send(_) | Action::WaitUntil(_) => GiveUp {
                why: StopReason::Cancelled,
                last: self.call.last_refusal().cloned(),
                attempts: self.call.attempts(),
                waited: self.call.waited(),
                retry_in: None,
            },
        };
        self.step = Step::Over(Finish::GiveUp(give_up.clone()));
        Box::new(give_up)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut events = Buffer::default();
        self.cancel(&mut events);
        self.shared.observe(events);
    }
}
