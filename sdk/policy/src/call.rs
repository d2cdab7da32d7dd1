//! The state machine of one call.
//!
//! An adapter that decides for itself when to retry decides differently in each adapter. So the decision is here, told
//! by values and instants, and an adapter only sleeps and sends:
//!
//! ```text
//!            on_outcome: try again              next_action at or after `until`
//!   Ready -> InFlight ---------------> Waiting ---------------> InFlight -> ..
//!     |          | on_outcome: end        | |  ^ held off: wait again
//!     |          |                        | +--+
//!     +----------+------------------------+--> Done: delivered, or stopped (time ran out, cancelled, ..)
//! ```
//!
//! A first send that a hold-off covers goes from Ready to Waiting as well.

mod beside;

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdoff_contract::limits::MAX_DEADLINE;
use holdoff_contract::{Attempt, Hint, Tier};
use rand_core::Rng;

use self::beside::{emit_hold_offs, window_of};
use crate::instances::Told;
use crate::judge::{Failure, SEND_MARGIN};
use crate::{
    Action, CallSpec, Destination, Event, Events, Finish, GiveUp, Instance, Outcome, Policy, Price, Progress,
    Refusal, Retrial, Send, StopReason, Withdrawal,
};

/// The least time that an attempt is sent with, 1 ms: the deadline travels in whole milliseconds, and zero of them is
/// no time (REQ-03).
const LEAST_TIME: Duration = Duration::from_millis(1);

/// One logical request over all its attempts. No heap on the success path.
///
/// The order is: [`Self::next_action`] until it answers `Send`, one [`Self::on_outcome`] for that send, and so on until
/// it answers `Finish`. Pass the same destination each time. Calls in another order do no harm: an outcome that nobody
/// waits for is ignored, and asking for an action while an attempt is under way ends the call as cancelled, since the
/// attempt's outcome was lost and a second send could double it.
#[derive(Debug)]
#[must_use]
pub struct Call {
    policy: Arc<Policy>,
    spec: CallSpec,
    /// When the call's time is over; `None` where there is no deadline, or none within reach of the clock.
    deadline: Option<Instant>,
    phase: Phase,
    /// Sends made.
    attempts: u32,
    /// Waits that no server window scheduled.
    own_waits: u32,
    /// Time spent waiting.
    waited: Duration,
    /// Tokens taken for the retry that waits or is under way.
    charge: u32,
    /// The last refusal.
    last: Option<Refusal>,
    /// The retry that is decided and not yet sent.
    pending: Option<Pending>,
    /// The instance of the last send, or the one to ask first.
    instance: u8,
    /// What each of several instances said.
    told: Told,
    /// When the hold-off is over that this call met last and was not sent since.
    held_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Free to send: nothing sent yet, or a wait is over.
    Ready,
    /// An attempt is under way since then.
    InFlight { since: Instant },
    /// A retry is decided, or a hold-off holds the call.
    Waiting(Wait),
    /// Over, with the last attempt's own answer.
    Delivered,
    /// Over, stopped.
    Stopped(StopReason),
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// From when it counts: receipt of the head, or when the hold-off was met.
    since: Instant,
    /// Not before then.
    until: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Receipt of the head that it answers, from which its wait is measured.
    received: Instant,
    /// The D that binds it.
    hint: Option<Duration>,
    instance: u8,
}

impl Call {
    /// A call that starts now. Its deadline is the lesser of its own and that of the request being answered; its tier
    /// the less important of the two. A request being answered that names no tier is deferrable (CONTRACT section 3),
    /// and so then is a call made for it that names one. A deadline over 24 h, the most that the wire can say, counts as
    /// 24 h.
    pub fn new(policy: Arc<Policy>, mut spec: CallSpec, now: Instant) -> Self {
        if let Some(incoming) = spec.incoming {
            spec.tier = match (spec.tier, incoming.tier) {
                (Some(own), theirs) => Some(own.max(theirs.unwrap_or(Tier::Deferrable))),
                (None, theirs) => theirs,
            };
            spec.deadline = match (spec.deadline, incoming.deadline) {
                (Some(own), Some(theirs)) => Some(own.min(theirs)),
                (own, theirs) => own.or(theirs),
            };
        }
        Self {
            policy,
            spec,
            deadline: spec
                .deadline
                .and_then(|deadline| now.checked_add(deadline.min(MAX_DEADLINE))),
            phase: Phase::Ready,
            attempts: 0,
            own_waits: 0,
            waited: Duration::ZERO,
            charge: 0,
            last: None,
            pending: None,
            instance: spec.instances.first(),
            told: Told::default(),
            held_until: None,
        }
    }

    /// What to do now. Idempotent while waiting: asking early answers the same instant again, so a timer that fires
    /// early cannot send early.
    pub fn next_action<R: Rng + ?Sized>(
        &mut self,
        now: Instant,
        destination: &mut Destination,
        rng: &mut R,
        events: &mut impl Events,
    ) -> Action {
        match self.phase {
            Phase::Waiting(wait) if now < wait.until => return Action::WaitUntil(wait.until),
            Phase::InFlight { .. } => self.stop(StopReason::Cancelled, now, destination, events),
            Phase::Waiting(wait) => {
                self.leave_wait(wait, now, destination);
                self.phase = Phase::Ready;
                if let Some(action) = self.pass_or_wait(now, destination, rng, events) {
                    return action;
                }
                emit_levels(destination, events);
            }
            Phase::Ready => {
                if let Some(action) = self.pass_or_wait(now, destination, rng, events) {
                    return action;
                }
            }
            Phase::Delivered | Phase::Stopped(_) => {}
        }
        Action::Finish(self.finish(now))
    }

    /// Tells what the attempt brought. `received` is the instant its head arrived (or the failure was seen), from
    /// which every wait is measured; `now` may be later, for instance after a body was read.
    ///
    /// What follows from a failure that is not an overload: a 502 that is not tried again is delivered, whatever
    /// stopped it. A transport failure stops with `Transport` where it may not be sent again or attempts are used up,
    /// with `DeadlineExceeded` where time is, and else with the limit that binds. An attempt whose time ran out
    /// together with the call's stops with `DeadlineExceeded`.
    ///
    /// Ignored when no attempt is under way.
    pub fn on_outcome<R: Rng + ?Sized>(
        &mut self,
        received: Instant,
        now: Instant,
        outcome: Outcome,
        destination: &mut Destination,
        rng: &mut R,
        events: &mut impl Events,
    ) {
        let Phase::InFlight { since } = self.phase else {
            return;
        };
        // An answer is not older than its request, nor younger than now: a wrong instant must not make a retry early.
        let received = received.max(since);
        let now = now.max(received);
        let mut another = None;
        let is_answer = matches!(outcome, Outcome::BadGateway);
        let judged = match outcome {
            Outcome::Success => return self.succeed(since, now, destination, events),
            Outcome::Answered => {
                self.phase = Phase::Delivered;
                return;
            }
            Outcome::Overload(overload) => {
                let refusal = Refusal { overload, received };
                self.hear(&refusal, now, destination, events);
                let target = self.elsewhere(now, destination);
                another = target.map(|target| target.instance);
                let progress = Progress {
                    elsewhere: target.and_then(|target| window_of(target.held?, received)),
                    ..self.progress(received, now)
                };
                let judged = self.policy.judge(&self.spec, &refusal.overload, progress);
                self.last = Some(refusal);
                judged
            }
            Outcome::TimedOut if self.is_out_of_time(received) => Err(StopReason::DeadlineExceeded),
            Outcome::NotConnected => self.judge_failure(Failure::NotConnected, received, now),
            Outcome::Broken | Outcome::TimedOut | Outcome::BadGateway => {
                self.judge_failure(Failure::PerhapsApplied, received, now)
            }
        };
        let scheduled = judged.and_then(|retrial| {
            let instance = match retrial.instance {
                Instance::Same => self.instance,
                Instance::Another => another.unwrap_or(self.instance),
            };
            self.schedule(retrial, instance, received, destination, rng, events)
        });
        match scheduled {
            Ok(()) => {}
            Err(_) if is_answer => self.phase = Phase::Delivered,
            Err(why) => self.stop(why, now, destination, events),
        }
    }

    /// Ends the call early: gives back what it holds (budget of an unsent retry, its place among the waiting).
    /// Must be called when a call is dropped unfinished; harmless after its end.
    pub fn cancel(&mut self, now: Instant, destination: &mut Destination, events: &mut impl Events) {
        self.stop(StopReason::Cancelled, now, destination, events);
    }

    /// How the call ended, once it has; what [`Self::next_action`] would answer then, without a destination to lock.
    pub fn ended(&self, now: Instant) -> Option<Finish> {
        self.has_ended().then(|| self.finish(now))
    }

    /// Is the call over?
    pub const fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Delivered | Phase::Stopped(_))
    }

    /// What is left of the call's deadline, for the bounded reading of a refusal's body (SEC-08). `None` without one.
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(now))
    }

    /// Sends so far.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Time spent waiting so far, without the wait under way.
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// The last refusal, also where the call then ended otherwise: the cause of a 502 that is delivered (CLI-27).
    pub const fn last_refusal(&self) -> Option<&Refusal> {
        self.last.as_ref()
    }

    /// Sends, unless nothing is left of the call's time: then the call stops, also before its first send (REQ-03).
    fn try_send(
        &mut self,
        now: Instant,
        destination: &mut Destination,
        events: &mut impl Events,
    ) -> Option<Send> {
        let time_left = self.time_left(now);
        if time_left.is_some_and(|left| left < LEAST_TIME) {
            self.stop(StopReason::DeadlineExceeded, now, destination, events);
            return None;
        }
        self.instance = self.next_instance();
        self.attempts = self.attempts.saturating_add(1);
        self.phase = Phase::InFlight { since: now };
        let held = self.held_until.take().is_some();
        if let Some(retry) = self.pending.take() {
            emit_sent_again(retry, now, destination, events);
        } else {
            // What held the first send was no refusal of this call.
            self.last = None;
            if held {
                events.emit(Event::Released);
                emit_levels(destination, events);
            }
        }
        let own = Attempt::saturating(self.attempts);
        let attempt = self
            .spec
            .incoming
            .map_or(own, |incoming| incoming.attempt.max(own));
        Some(Send {
            attempt,
            number: self.attempts,
            time_left,
            tier: self.spec.tier,
            instance: self.instance,
        })
    }

    /// Takes a place among the waiting and the price from the budget, and draws the wait.
    fn schedule<R: Rng + ?Sized>(
        &mut self,
        retrial: Retrial,
        instance: u8,
        received: Instant,
        destination: &mut Destination,
        rng: &mut R,
        events: &mut impl Events,
    ) -> Result<(), StopReason> {
        if destination.waiting >= self.policy.max_waiting {
            return Err(StopReason::TooManyWaiting);
        }
        let limit = self.time_to_wait(received).saturating_sub(SEND_MARGIN);
        let wait = retrial.window.draw(limit, rng);
        // Past the end of the clock: nothing that a deadline could be before.
        let until = received.checked_add(wait).ok_or(StopReason::DeadlineBeforeHint)?;
        let Withdrawal::Granted { tokens } = destination.budget.withdraw(retrial.price) else {
            return Err(StopReason::BudgetExhausted);
        };
        // What the failed attempt cost is spent.
        self.charge = tokens;
        destination.waiting = destination.waiting.saturating_add(1);
        if retrial.price != Price::Scheduled {
            self.own_waits = self.own_waits.saturating_add(1);
        }
        let since = received;
        self.phase = Phase::Waiting(Wait { since, until });
        self.pending = Some(Pending {
            received,
            hint: retrial.hint,
            instance,
        });
        events.emit(Event::RetryScheduled {
            hint: retrial.hint,
            wait,
        });
        emit_levels(destination, events);
        Ok(())
    }

    /// A 2xx: pays into the budget on the first try, and has the price of the retry paid back on a later one. Ends the
    /// hold-offs that it disproves.
    fn succeed(
        &mut self,
        sent: Instant,
        now: Instant,
        destination: &mut Destination,
        events: &mut impl Events,
    ) {
        let subject = self.subject(self.instance);
        if destination.hold_offs.end(&subject, sent) {
            emit_hold_offs(destination, now, events);
        }
        let before = destination.budget.level();
        if self.attempts == 1 {
            destination.budget.deposit();
        } else {
            destination.budget.refund(self.charge);
        }
        self.charge = 0;
        self.phase = Phase::Delivered;
        if destination.budget.level() != before {
            emit_levels(destination, events);
        }
    }

    /// Ends the call, once: what an unsent retry holds goes back, what a sent one cost is spent.
    fn stop(
        &mut self,
        why: StopReason,
        now: Instant,
        destination: &mut Destination,
        events: &mut impl Events,
    ) {
        match self.phase {
            Phase::Delivered | Phase::Stopped(_) => return,
            Phase::Ready => destination.budget.refund(self.charge),
            Phase::InFlight { .. } => {}
            Phase::Waiting(wait) => {
                self.leave_wait(wait, now, destination);
                destination.budget.refund(self.charge);
                emit_levels(destination, events);
            }
        }
        self.charge = 0;
        self.phase = Phase::Stopped(why);
        events.emit(Event::GaveUp(why));
    }

    /// Gives back the place among the waiting. The phase must not stay `Waiting` after it.
    fn leave_wait(&mut self, wait: Wait, now: Instant, destination: &mut Destination) {
        destination.waiting = destination.waiting.saturating_sub(1);
        self.waited = self
            .waited
            .saturating_add(now.saturating_duration_since(wait.since));
    }

    fn judge_failure(
        &self,
        failure: Failure,
        received: Instant,
        now: Instant,
    ) -> Result<Retrial, StopReason> {
        self.policy
            .judge_failure(&self.spec, failure, self.progress(received, now))
    }

    fn progress(&self, received: Instant, now: Instant) -> Progress {
        Progress {
            attempt: self.attempts,
            own_waits: self.own_waits,
            age: now.saturating_duration_since(received),
            time_left: self.time_to_wait(received),
            elsewhere: None,
        }
    }

    /// min(deadline, waiting in all) - what has passed.
    fn time_to_wait(&self, at: Instant) -> Duration {
        let waiting = self.policy.max_wait_total.saturating_sub(self.waited);
        self.time_left(at).map_or(waiting, |left| left.min(waiting))
    }

    /// The attempt had what was left of the call's time, and that is over: timers differ by less than the margin.
    fn is_out_of_time(&self, at: Instant) -> bool {
        self.time_left(at).is_some_and(|left| left <= SEND_MARGIN)
    }

    fn finish(&self, now: Instant) -> Finish {
        let Phase::Stopped(why) = self.phase else {
            return Finish::Deliver;
        };
        // Before the first send the refusal is that of another call: what it says binds here as far as the hold-off that
        // it armed.
        let own = self.last.as_ref().filter(|_| self.attempts > 0);
        let own = own.and_then(|last| match last.overload.hint {
            Hint::Absent => None,
            Hint::After { delay, .. } | Hint::Window { delay, .. } => {
                Some(delay.saturating_sub(now.saturating_duration_since(last.received)))
            }
        });
        let held = self.held_until.map(|until| until.saturating_duration_since(now));
        let retry_in = own.max(held);
        let (attempts, waited) = (self.attempts, self.waited);
        Finish::GiveUp(GiveUp {
            why,
            last: self.last.clone(),
            attempts,
            waited,
            retry_in,
        })
    }
}

/// Tells that a retry left, and whether it kept to its hint: measured, not taken from what was planned.
fn emit_sent_again(retry: Pending, now: Instant, destination: &Destination, events: &mut impl Events) {
    let waited = now.saturating_duration_since(retry.received);
    let early = retry.hint.is_some_and(|hint| waited < hint);
    events.emit(Event::RetrySent {
        waited,
        hint: retry.hint,
        early,
    });
    emit_levels(destination, events);
}

fn emit_levels(destination: &Destination, events: &mut impl Events) {
    events.emit(Event::Levels {
        budget: destination.budget.level(),
        waiting: destination.waiting,
    });
}
