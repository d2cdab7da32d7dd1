//! The one loop that sleeps and sends.
//!
//! It decides nothing: the policy says what to do next, the loop does it and tells what came of it. What it has to
//! get right is bookkeeping: a call that is dropped anywhere gives back what it holds, a connection is freed before
//! a wait, a service is polled ready before it is called and not kept ready while nobody calls it.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use holdoff_contract::vocabulary::Vocabulary;
use holdoff_policy::{
    Action, Call, Destination, Event, Events, Finish, GiveUp, Outcome, Send as Sending, StopReason,
};
use http::{HeaderMap, Response};
use http_body::Body;
use tracing::{Instrument, Span};

use crate::body::ResponseBody;
use crate::carrier::{Answered, Carrier, Readiness};
use crate::clock;
use crate::error::{BoxError, Error, Failure};
use crate::options::CallReport;
use crate::plan::Plan;
use crate::reject::{self, Receipt};
use crate::service::Shared;
use crate::telemetry::{Buffer, Waits};

/// Makes one call: sleeps and sends until the policy says that it is over.
///
/// Almost every call is sent once and answered, so that way is laid out apart: what is large or rarely needed stays in
/// [`go_on`], which is boxed. Otherwise each call would carry it along, and a big future costs more than everything it
/// decides. The clock is read when the call begins, when an answer is there, and after a wait.
pub(crate) async fn drive<C: Carrier>(
    carrier: &mut C,
    plan: &mut Plan,
    shared: &Shared,
    call_span: &Span,
) -> Result<Answered<C::Answer, C::Body>, Error> {
    let now = clock::now();
    let mut call = Running::start(carrier, plan, shared, now);
    let turn = match call.next_action(now) {
        Action::Send(send) if carrier.is_ready() => {
            let limit = call.limit(now);
            let span = attempt_span(carrier, &send);
            if span.is_disabled() {
                let vocabulary = plan.vocabulary(carrier, &send, shared);
                if !plan.begin(carrier, &send, shared) {
                    return Err(spent());
                }
                let sent = pin!(sent(carrier, limit, plan, shared)).await;
                let received = clock::now();
                if let Sent::Answered(answer) = sent {
                    match reject::at_a_glance(C::status(&answer), vocabulary) {
                        Some(outcome @ (Outcome::Success | Outcome::Answered))
                            if shared.dialect.is_none() =>
                        {
                            call.on_outcome(received, outcome);
                            return Ok(call.deliver::<C>(answer, call_span));
                        }
                        _ => Turn::Came(Sent::Answered(answer), received, limit, vocabulary),
                    }
                } else {
                    Turn::Came(sent, received, limit, vocabulary)
                }
            } else {
                Turn::Send(send, Some(span))
            }
        }
        action => Turn::Act(action),
    };
    Box::pin(go_on(carrier, plan, call, (turn, now), call_span)).await
}

/// What is to be done next.
enum Turn<'a, C: Carrier> {
    Act(Action),
    Send(Sending, Option<Span>),
    /// An attempt brought this then, with that limit, at whoever speaks so.
    Came(Sent<C::Answer>, Instant, Option<Instant>, &'a Vocabulary),
}

/// What sending brought.
enum Sent<A> {
    Answered(A),
    Failed(BoxError),
    RanOut,
}

/// The call from anywhere to its end.
async fn go_on<C: Carrier>(
    carrier: &mut C,
    plan: &mut Plan,
    mut call: Running<'_>,
    (mut turn, mut now): (Turn<'_, C>, Instant),
    call_span: &Span,
) -> Result<Answered<C::Answer, C::Body>, Error> {
    let shared = call.shared;
    let mut last = Last::<C>::Nothing;
    let mut unready = None;
    loop {
        let limit = call.limit(now);
        let (received, outcome) = match turn {
            Turn::Act(Action::Send(send)) => {
                turn = Turn::Send(send, None);
                continue;
            }
            Turn::Act(Action::WaitUntil(at)) => {
                carrier.idle();
                settle(last.unwanted(carrier), Some(at)).await;
                clock::sleep_until(at).await;
                unready = match carrier.ready(limit).await {
                    Readiness::Broken(error) => Some(error),
                    Readiness::Ready | Readiness::RanOut => None,
                };
                now = clock::now();
                turn = Turn::Act(call.next_action(now));
                continue;
            }
            Turn::Act(Action::Finish(finish)) => {
                if let Finish::GiveUp(_) = finish {
                    settle(last.unwanted(carrier), limit).await;
                }
                return call.end(finish, last, call_span);
            }
            Turn::Send(send, span) => {
                // A response that is still here belongs to an attempt that is followed by another.
                settle(last.unwanted(carrier), limit).await;
                let readiness = match unready.take() {
                    Some(error) => Readiness::Broken(error),
                    None => carrier.ready(limit).await,
                };
                match readiness {
                    Readiness::Ready => {
                        let span = span.unwrap_or_else(|| attempt_span(carrier, &send));
                        let vocabulary = plan.vocabulary(carrier, &send, shared);
                        if !span.in_scope(|| plan.begin(carrier, &send, shared)) {
                            return Err(spent());
                        }
                        let attempt = async {
                            let sent = sent(carrier, limit, plan, shared).await;
                            let came = (sent, clock::now());
                            look_into(carrier, came, limit, (shared, plan, vocabulary), &mut last).await
                        };
                        attempt.instrument(span).await
                    }
                    Readiness::RanOut => {
                        shared.counters.attempt(send.number);
                        (clock::now(), Outcome::TimedOut)
                    }
                    // Nothing was sent, so nothing was applied.
                    Readiness::Broken(error) => {
                        shared.counters.attempt(send.number);
                        last = Last::Failed(Failure::NotConnected, error);
                        (clock::now(), Outcome::NotConnected)
                    }
                }
            }
            Turn::Came(sent, received, limit, vocabulary) => {
                let came = (sent, received);
                look_into(carrier, came, limit, (shared, plan, vocabulary), &mut last).await
            }
        };
        now = call.on_outcome(received, outcome);
        turn = Turn::Act(match call.call.ended(now) {
            Some(finish) => Action::Finish(finish),
            None => call.next_action(now),
        });
    }
}

/// Waits for what was begun, within what is left of the call's deadline (CLI-28).
async fn sent<C: Carrier>(
    carrier: &mut C,
    limit: Option<Instant>,
    plan: &Plan,
    shared: &Shared,
) -> Sent<C::Answer> {
    let fields = |headers: &mut HeaderMap| plan.write(headers, shared);
    let sent = pin!(carrier.send(limit, &fields));
    let came = match limit {
        Some(_) if !C::KEEPS_LIMIT => clock::within(limit, sent).await,
        _ => Ok(sent.await),
    };
    match came {
        Ok(Ok(answer)) => Sent::Answered(answer),
        Ok(Err(error)) => Sent::Failed(error),
        Err(clock::RanOut) => Sent::RanOut,
    }
}

/// Tells what an attempt brought, and leaves it in `last`.
async fn look_into<C: Carrier>(
    carrier: &mut C,
    (sent, received): (Sent<C::Answer>, Instant),
    limit: Option<Instant>,
    (shared, plan, vocabulary): (&Shared, &Plan, &Vocabulary),
    last: &mut Last<C>,
) -> (Instant, Outcome) {
    let answer = match sent {
        Sent::Answered(answer) => answer,
        Sent::RanOut => {
            *last = Last::Nothing;
            return (received, Outcome::TimedOut);
        }
        Sent::Failed(error) => {
            let failure = (shared.classify)(&*error);
            tracing::debug!(failure = ?failure, "attempt failed");
            *last = Last::Failed(failure, error);
            let outcome = match failure {
                // The transport's own limit is set to the same instant as ours.
                _ if limit.is_some_and(|limit| received >= limit) => Outcome::TimedOut,
                Failure::NotConnected => Outcome::NotConnected,
                Failure::Broken => Outcome::Broken,
                Failure::Final | Failure::Unsendable => Outcome::Answered,
            };
            return (received, outcome);
        }
    };
    let status = C::status(&answer);
    Span::current().record("http.response.status_code", status.as_u16());
    let dialect = shared.dialect.as_deref();
    if dialect.is_none()
        && let Some(outcome) = reject::at_a_glance(status, vocabulary)
    {
        *last = Last::Answer(answer);
        return (received, outcome);
    }
    let receipt = Receipt {
        received,
        limit,
        compat: shared.compat,
        dialect,
        replay: plan.replay(),
        vocabulary,
    };
    let (response, outcome) = reject::judge(carrier.open(answer), &receipt, &shared.counters).await;
    *last = Last::Opened(Box::new(response));
    (received, outcome)
}

/// The policy asks for no second send of a stream.
fn spent() -> Error {
    Error::request("the body was a stream and has been sent")
}

/// What the last attempt left behind.
enum Last<C: Carrier> {
    Nothing,
    Answer(C::Answer),
    /// Boxed: it is kept in the call's future, and there is none most of the time.
    Opened(Box<Response<ResponseBody<C::Body>>>),
    Failed(Failure, BoxError),
}

impl<C: Carrier> Last<C> {
    /// The body of a response that is not handed on. Boxed, as the response is.
    fn unwanted(&mut self, carrier: &C) -> Option<Box<ResponseBody<C::Body>>> {
        if !matches!(self, Self::Answer(_) | Self::Opened(_)) {
            return None;
        }
        match std::mem::replace(self, Self::Nothing) {
            Self::Answer(answer) => Some(Box::new(carrier.open(answer).into_body().into())),
            Self::Opened(response) => Some(Box::new(response.into_body())),
            Self::Nothing | Self::Failed(..) => None,
        }
    }
}

/// Gets rid of a response that is not handed on, so that its connection is free while the call waits.
async fn settle<B: Body<Data = Bytes>>(unwanted: Option<Box<ResponseBody<B>>>, until: Option<Instant>) {
    if let Some(body) = unwanted {
        Box::pin(reject::drain(*body, until)).await;
    }
}

/// A call under way. Dropping it cancels it, so that its charge and its place among the waiting go back whatever
/// ends it (CLI-17).
struct Running<'a> {
    call: Call,
    destination: Arc<Mutex<Destination>>,
    shared: &'a Shared,
    waits: Waits,
}

impl<'a> Running<'a> {
    fn start<C: Carrier>(carrier: &C, plan: &Plan, shared: &'a Shared, now: Instant) -> Self {
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

    /// Hands on an answer.
    fn deliver<C: Carrier>(&self, mut answer: C::Answer, span: &Span) -> Answered<C::Answer, C::Body> {
        let (attempts, waited) = (self.call.attempts(), self.call.waited());
        span.record("holdoff.attempts", attempts);
        C::extensions_mut(&mut answer).insert(CallReport { attempts, waited });
        Answered::AsItCame(answer)
    }

    /// Hands on what the last attempt brought, or the reason why the call stopped.
    fn end<C: Carrier>(
        &self,
        finish: Finish,
        last: Last<C>,
        span: &Span,
    ) -> Result<Answered<C::Answer, C::Body>, Error> {
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
                Ok(Answered::LookedInto(*response))
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
    fn limit(&self, now: Instant) -> Option<Instant> {
        clock::after(now, self.call.time_left(now)?)
    }

    fn next_action(&mut self, now: Instant) -> Action {
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
    fn on_outcome(&mut self, received: Instant, outcome: Outcome) -> Instant {
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
fn attempt_span<C: Carrier>(carrier: &C, send: &Sending) -> Span {
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
