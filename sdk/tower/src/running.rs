//! A call under way, between the loop and the policy.
//!
//! What a call holds (a place among the waiting, tokens of the budget) belongs to others as soon as the call is gone,
//! and a call may be dropped anywhere. So it is asked, told and given up through here, and its span and counters say
//! the same as the policy.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use holdoff_contract::vocabulary::Vocabulary;
use holdoff_policy::{
    Action, Call, Destination, Event, Events, Finish, GiveUp, Outcome, Send as Sending, StopReason,
};
use tracing::Span;

use crate::carrier::{Answered, Carrier};
use crate::clock;
use crate::drive::{Begun, Ended, First, Last, Turn};
use crate::error::{Error, Failure};
use crate::options::CallReport;
use crate::plan::Plan;
use crate::reject;
use crate::service::Shared;
use crate::telemetry::{Buffer, Waits};

/// A call under way. Dropping it cancels it, so that its charge and its place among the waiting go back whatever
/// ends it (CLI-17).
pub(crate) struct Running<'a> {
    pub(crate) call: Call,
    destination: Arc<Mutex<Destination>>,
    pub(crate) shared: &'a Shared,
    waits: Waits,
}

impl<'a> Running<'a> {
    pub(crate) fn start<C: Carrier>(carrier: &C, plan: &Plan, shared: &'a Shared, now: Instant) -> Self {
        let destination = plan.destination(carrier, |scheme, authority| {
            shared.destinations.get(scheme, authority)
        });
        let policy = Arc::clone(plan.policy().unwrap_or(&shared.policy));
        Self {
            call: Call::new(policy, plan.spec(carrier), now),
            destination,
            shared,
            waits: Waits::default(),
        }
    }

    /// Makes the first send's request where nothing is in its way and nobody listens: a span has to be entered first.
    pub(crate) fn first<C: Carrier>(
        &mut self,
        carrier: &mut C,
        begun: &mut Begun,
        now: Instant,
    ) -> First<'a, C> {
        if !begun.span.is_disabled() || !carrier.is_ready() {
            return First::Otherwise(Turn::Ask);
        }
        let send = match self.next_action(now) {
            Action::Send(send) => send,
            action => return First::Otherwise(Turn::Act(action)),
        };
        let span = attempt_span(carrier, &send);
        if !span.is_disabled() {
            return First::Otherwise(Turn::Send(send, Some(span)));
        }
        let vocabulary = begun.plan.vocabulary(carrier, &send, self.shared);
        // Where there is no request, there is none to send either.
        let _ = begun.plan.begin(carrier, &send, self.shared);
        First::Begun(self.limit(now), vocabulary)
    }

    /// What an answer means that says all with its status, and is not to be followed anywhere.
    pub(crate) fn glance<C: Carrier>(
        &self,
        carrier: &C,
        answer: &C::Answer,
        vocabulary: &Vocabulary,
    ) -> Option<Outcome> {
        if self.shared.dialect.is_some() {
            return None;
        }
        match reject::at_a_glance(C::status(answer), vocabulary)? {
            Outcome::Success => Some(Outcome::Success),
            Outcome::Answered if !carrier.leads_on(answer) => Some(Outcome::Answered),
            _ => None,
        }
    }

    /// Hands on an answer. Inlined, so that it is not moved from place to place.
    #[inline(always)]
    pub(crate) fn deliver<C: Carrier>(
        &self,
        mut answer: C::Answer,
        span: &Span,
    ) -> Answered<C::Answer, C::Body> {
        let (attempts, waited) = (self.call.attempts(), self.call.waited());
        span.record("holdoff.attempts", attempts);
        C::extensions_mut(&mut answer).insert(CallReport { attempts, waited });
        Answered::AsItCame(answer)
    }

    /// Hands on what the last attempt brought, or the reason why the call stopped.
    pub(crate) fn end<C: Carrier>(&self, finish: Finish, last: Last<C>, span: &Span) -> Ended<C> {
        let (attempts, waited) = (self.call.attempts(), self.call.waited());
        span.record("holdoff.attempts", attempts);
        if let Finish::GiveUp(give_up) = finish {
            span.record("holdoff.gave_up", give_up.why.as_str());
            let failed = match last {
                Last::Failed(failure, error) => Some((failure, error)),
                Last::Nothing | Last::Answer(_) | Last::Opened(_) => None,
            };
            return Err(Error::gave_up(give_up, failed));
        }
        match last {
            Last::Answer(mut answer) => {
                C::extensions_mut(&mut answer).insert(CallReport { attempts, waited });
                Ok(Answered::AsItCame(answer))
            }
            Last::Opened(mut response) => {
                response.extensions_mut().insert(CallReport { attempts, waited });
                Ok(Answered::LookedInto(response))
            }
            Last::Failed(Failure::Unsendable, error) if attempts == 1 => Err(Error::request(error)),
            Last::Failed(failure, error) => {
                // The policy took it for an answer, since it is not tried again; here it is known for a failure.
                let mut events = Buffer::default();
                events.emit(Event::GaveUp(StopReason::Transport));
                events.flush(&self.shared.counters, &mut Waits::default());
                let give_up = GiveUp {
                    why: StopReason::Transport,
                    last: self.call.last_refusal().cloned(),
                    attempts,
                    waited,
                    retry_in: None,
                };
                Err(Error::gave_up(give_up, Some((failure, error))))
            }
            Last::Nothing => Err(Error::request("there is no answer to deliver")),
        }
    }

    /// Where the call's time ends.
    pub(crate) fn limit(&self, now: Instant) -> Option<Instant> {
        clock::after(now, self.call.time_left(now)?)
    }

    pub(crate) fn next_action(&mut self, now: Instant) -> Action {
        let mut events = Buffer::default();
        let action = self.call.next_action(
            now,
            &mut lock(&self.destination),
            &mut self.shared.entropy.draw(),
            &mut events,
        );
        events.flush(&self.shared.counters, &mut self.waits);
        action
    }

    /// Tells the policy what came, and when that was told.
    pub(crate) fn on_outcome(&mut self, received: Instant, outcome: Outcome) -> Instant {
        // Only a refusal takes time to read.
        let now = match &outcome {
            Outcome::Success | Outcome::Answered => received,
            _ => clock::now(),
        };
        let mut events = Buffer::default();
        self.call.on_outcome(
            received,
            now,
            outcome,
            &mut lock(&self.destination),
            &mut self.shared.entropy.draw(),
            &mut events,
        );
        events.flush(&self.shared.counters, &mut self.waits);
        now
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.call.has_ended() {
            return;
        }
        let mut events = Buffer::default();
        self.call
            .cancel(clock::now(), &mut lock(&self.destination), &mut events);
        events.flush(&self.shared.counters, &mut self.waits);
    }
}

/// The policy leaves no destination half changed, so a lock that is poisoned by a panic elsewhere is as good as new.
fn lock(destination: &Mutex<Destination>) -> MutexGuard<'_, Destination> {
    destination.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The span of one attempt, by the OpenTelemetry names. No path and no query: they may hold secrets.
pub(crate) fn attempt_span<C: Carrier>(carrier: &C, send: &Sending) -> Span {
    // The fields are worked out only where somebody wants the span.
    tracing::debug_span!(
        "holdoff.attempt",
        http.request.method = carrier.method().as_str(),
        http.request.resend_count = send.number.saturating_sub(1),
        server.address = &*carrier.origin().1,
        overload.tier = send.tier.map(|tier| tier.as_str()),
        http.response.status_code = tracing::field::Empty,
    )
}

/// The span of a call over all its attempts and waits.
pub(crate) fn call_span<C: Carrier>(carrier: &C) -> Span {
    tracing::debug_span!(
        "holdoff.call",
        http.request.method = carrier.method().as_str(),
        server.address = &*carrier.origin().1,
        holdoff.attempts = tracing::field::Empty,
        holdoff.gave_up = tracing::field::Empty,
    )
}
