//! The one loop that sleeps and sends.
//!
//! It decides nothing: the policy says what to do next, the loop does it and tells what came of it. What it has to
//! get right is bookkeeping: a call that is dropped anywhere gives back what it holds, a connection is freed before
//! a wait, a service is polled ready before it is called and not kept ready while nobody calls it.

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
/// What is large and rarely needed across a wait is boxed: this future is made for every call, and a big one costs more
/// than everything it decides. The clock is read when the call begins, when an answer is there, and after a wait.
pub(crate) async fn drive<C: Carrier>(
    carrier: &mut C,
    mut plan: Plan,
    shared: &Shared,
) -> Result<Answered<C::Answer, C::Body>, Error> {
    let mut now = clock::now();
    let mut call = Running::start(carrier, &plan, shared, now);
    let mut last = Last::<C>::Nothing;
    let mut unready = None;
    loop {
        let action = call.next_action(now);
        let limit = call.limit(now);
        match action {
            Action::WaitUntil(at) => {
                carrier.idle();
                settle(last.unwanted(carrier), Some(at)).await;
                clock::sleep_until(at).await;
                unready = match carrier.ready(limit).await {
                    Readiness::Broken(error) => Some(error),
                    Readiness::Ready | Readiness::RanOut => None,
                };
                now = clock::now();
            }
            Action::Send(send) => {
                // A response that is still here belongs to an attempt that is followed by another.
                settle(last.unwanted(carrier), limit).await;
                let readiness = match unready.take() {
                    Some(error) => Readiness::Broken(error),
                    None => carrier.ready(limit).await,
                };
                let (received, outcome);
                (last, received, outcome) = match readiness {
                    Readiness::Ready => {
                        let vocabulary = plan.vocabulary(carrier, &send, shared);
                        let span = attempt_span(carrier, &send);
                        let began = span.in_scope(|| plan.begin(carrier, &send, shared));
                        if !began {
                            return Err(Error::request("the body was a stream and has been sent"));
                        }
                        attempt(carrier, limit, shared, &plan, vocabulary)
                            .instrument(span)
                            .await
                    }
                    Readiness::RanOut => {
                        shared.counters.attempt(send.number);
                        (Last::Nothing, clock::now(), Outcome::TimedOut)
                    }
                    // Nothing was sent, so nothing was applied.
                    Readiness::Broken(error) => {
                        shared.counters.attempt(send.number);
                        let failed = Last::Failed(Failure::NotConnected, error);
                        (failed, clock::now(), Outcome::NotConnected)
                    }
                };
                now = call.on_outcome(received, outcome);
                if let Some(finish) = call.call.ended(now) {
                    if let Finish::GiveUp(_) = finish {
                        settle(last.unwanted(carrier), limit).await;
                    }
                    return call.end(finish, last);
                }
            }
            Action::Finish(finish) => {
                if let Finish::GiveUp(_) = finish {
                    settle(last.unwanted(carrier), limit).await;
                }
                return call.end(finish, last);
            }
        }
    }
}

/// Waits for what was sent, within what is left of the call's deadline (CLI-28), and reads what comes back.
async fn attempt<C: Carrier>(
    carrier: &mut C,
    limit: Option<Instant>,
    shared: &Shared,
    plan: &Plan,
    vocabulary: &Vocabulary,
) -> (Last<C>, Instant, Outcome) {
    let timer = limit.filter(|_| !C::KEEPS_LIMIT);
    let fields = |headers: &mut HeaderMap| plan.write(headers, shared);
    let result = clock::within(timer, carrier.send(limit, &fields)).await;
    let received = clock::now();
    match result {
        Err(clock::RanOut) => (Last::Nothing, received, Outcome::TimedOut),
        Ok(Ok(answer)) => {
            let status = C::status(&answer);
            Span::current().record("http.response.status_code", status.as_u16());
            let dialect = shared.dialect.as_deref();
            let glance = match dialect {
                None => reject::at_a_glance(status, vocabulary),
                Some(_) => None,
            };
            if let Some(outcome) = glance {
                return (Last::Answer(answer), received, outcome);
            }
            let receipt = Receipt {
                received,
                limit,
                compat: shared.compat,
                dialect,
                replay: plan.replay(),
                vocabulary,
            };
            let judged = reject::judge(carrier.open(answer), &receipt, &shared.counters);
            let (response, outcome) = Box::pin(judged).await;
            (Last::Opened(Box::new(response)), received, outcome)
        }
        Ok(Err(error)) => {
            let failure = (shared.classify)(&*error);
            tracing::debug!(failure = ?failure, "attempt failed");
            let outcome = match failure {
                // The transport's own limit is set to the same instant as ours.
                _ if limit.is_some_and(|limit| received >= limit) => Outcome::TimedOut,
                Failure::NotConnected => Outcome::NotConnected,
                Failure::Broken => Outcome::Broken,
                Failure::Final => Outcome::Answered,
            };
            (Last::Failed(failure, error), received, outcome)
        }
    }
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

    /// Hands on what the last attempt brought, or the reason why the call stopped.
    fn end<C: Carrier>(&self, finish: Finish, last: Last<C>) -> Result<Answered<C::Answer, C::Body>, Error> {
        let (attempts, waited) = (self.call.attempts(), self.call.waited());
        let report = CallReport { attempts, waited };
        Span::current().record("holdoff.attempts", attempts);
        if let Finish::GiveUp(give_up) = &finish {
            Span::current().record("holdoff.gave_up", give_up.why.as_str());
        }
        match (finish, last) {
            (Finish::GiveUp(give_up), Last::Failed(failure, error)) => {
                Err(Error::gave_up(give_up, Some((failure, error))))
            }
            (Finish::GiveUp(give_up), _) => Err(Error::gave_up(give_up, None)),
            (Finish::Deliver, Last::Answer(mut answer)) => {
                C::extensions_mut(&mut answer).insert(report);
                Ok(Answered::AsItCame(answer))
            }
            (Finish::Deliver, Last::Opened(mut response)) => {
                response.extensions_mut().insert(report);
                Ok(Answered::LookedInto(*response))
            }
            (Finish::Deliver, Last::Failed(failure, error)) => {
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
            (Finish::Deliver, Last::Nothing) => Err(Error::request("there is no answer to deliver")),
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
