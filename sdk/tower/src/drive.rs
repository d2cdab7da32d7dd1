//! The one loop that sleeps and sends.
//!
//! It decides nothing: the policy says what to do next, the loop does it and tells what came of it. What it has to
//! get right is bookkeeping: a call that is dropped anywhere gives back what it holds, a connection is freed before
//! a wait, a service is polled ready before it is called and not kept ready while nobody calls it.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use holdoff_contract::vocabulary::Vocabulary;
use holdoff_policy::{
    Action, Call, Destination, Event, Events, Finish, GiveUp, Outcome, Replay, Send as Sending, StopReason,
};
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;
use tracing::{Instrument, Span};

use crate::body::{ReplayBody, ResponseBody};
use crate::clock;
use crate::error::{BoxError, Error, Failure};
use crate::options::CallReport;
use crate::origin;
use crate::plan::Plan;
use crate::reject::{self, Receipt};
use crate::service::Shared;
use crate::telemetry::{Buffer, Waits};

/// Makes one call: sleeps and sends until the policy says that it is over.
///
/// What is large and rarely needed across a wait is boxed or made before it: this future is allocated for every call,
/// and a big one costs more than everything it decides.
pub(crate) async fn drive<S, B, RB>(
    mut inner: Inner<S>,
    mut plan: Box<Plan<B>>,
    shared: Arc<Shared>,
) -> Result<Response<ResponseBody<RB>>, Error>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    S::Error: Into<BoxError>,
    B: ReplayBody,
    RB: Body<Data = Bytes> + Unpin,
{
    let replay = plan.spec().replay;
    let mut call = Running::start(&plan, shared);
    let mut last = Last::Nothing;
    loop {
        let (now, action) = call.next_action();
        let limit = call.limit(now);
        match action {
            Action::WaitUntil(at) => {
                inner = inner.idle();
                last.settle(Some(at)).await;
                clock::sleep_until(at).await;
                inner = inner.ready(limit).await;
            }
            Action::Send(send) => {
                // A response that is still here belongs to an attempt that is followed by another.
                last.settle(limit).await;
                let (received, outcome);
                (last, received, outcome) = match inner.ready(limit).await {
                    Inner::Ready(mut service) => {
                        let shared = &*call.shared;
                        let (sent, span, vocabulary) = {
                            let dialect = shared.dialect.as_deref();
                            let Some(mut request) = plan.request(&send, &shared.defaults, dialect) else {
                                return Err(Error::request("the body was a stream and has been sent"));
                            };
                            shared.counters.attempt(send.number);
                            let span = attempt_span(&request, &send);
                            let sent = span.in_scope(|| {
                                if let Some(hook) = &shared.before_send {
                                    hook.call(&mut request);
                                }
                                let vocabulary = shared.vocabularies.at(request.uri());
                                (service.call(request), vocabulary)
                            });
                            (sent.0, span, sent.1)
                        };
                        inner = Inner::Idle(service);
                        attempt(sent, limit, shared, (replay, vocabulary))
                            .instrument(span)
                            .await
                    }
                    idle @ Inner::Idle(_) => {
                        call.shared.counters.attempt(send.number);
                        inner = idle;
                        (Last::Nothing, clock::now(), Outcome::TimedOut)
                    }
                    // Nothing was sent, so nothing was applied.
                    Inner::Broken(service, error) => {
                        call.shared.counters.attempt(send.number);
                        inner = Inner::Idle(service);
                        let failed = Last::Failed(Failure::NotConnected, error);
                        (failed, clock::now(), Outcome::NotConnected)
                    }
                };
                call.on_outcome(received, outcome);
            }
            Action::Finish(finish) => {
                if let Finish::GiveUp(_) = finish {
                    last.settle(limit).await;
                }
                return call.end(finish, last);
            }
        }
    }
}

/// Waits for what was sent, within what is left of the call's deadline (CLI-28), and reads what comes back.
async fn attempt<F, RB, E>(
    sent: F,
    limit: Option<Instant>,
    shared: &Shared,
    (replay, vocabulary): (Replay, &Vocabulary),
) -> (Last<RB>, Instant, Outcome)
where
    F: Future<Output = Result<Response<RB>, E>>,
    E: Into<BoxError>,
    RB: Body<Data = Bytes> + Unpin,
{
    let result = clock::within(limit, sent)
        .await
        .map(|done| done.map_err(Into::<BoxError>::into));
    let received = clock::now();
    match result {
        Err(clock::RanOut) => (Last::Nothing, received, Outcome::TimedOut),
        Ok(Ok(response)) => {
            Span::current().record("http.response.status_code", response.status().as_u16());
            let dialect = shared.dialect.as_deref();
            let glance = match dialect {
                None => reject::at_a_glance(response, vocabulary),
                Some(_) => Err(response),
            };
            let (response, outcome) = match glance {
                Ok(judged) => judged,
                Err(response) => {
                    let receipt = Receipt {
                        received,
                        limit,
                        compat: shared.compat,
                        dialect,
                        replay,
                        vocabulary,
                    };
                    Box::pin(reject::judge(response, &receipt, &shared.counters)).await
                }
            };
            (Last::Response(Box::new(response)), received, outcome)
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

/// The service under the layer, and whether it may be called.
pub(crate) enum Inner<S> {
    /// Polled ready: to be called once.
    Ready(S),
    /// To be polled first.
    Idle(S),
    /// Polling it failed: what the next send brings.
    Broken(S, BoxError),
}

impl<S> Inner<S> {
    /// Gives up a place that was polled ready, before a wait: somebody else may want it.
    fn idle(self) -> Self
    where
        S: Clone,
    {
        match self {
            Self::Ready(ready) => {
                let service = ready.clone();
                // A clone is not ready; dropping the original is what gives the place up.
                drop(ready);
                Self::Idle(service)
            }
            other => other,
        }
    }

    /// Polls the service ready, before the policy is asked, so that the deadline which a send carries is still true.
    async fn ready<B>(self, limit: Option<Instant>) -> Self
    where
        S: Service<Request<B>>,
        S::Error: Into<BoxError>,
    {
        let Self::Idle(mut service) = self else {
            return self;
        };
        let polled = clock::within(limit, poll_fn(|cx| service.poll_ready(cx))).await;
        match polled {
            Ok(Ok(())) => Self::Ready(service),
            Ok(Err(error)) => Self::Broken(service, error.into()),
            // The policy sees that time is up.
            Err(clock::RanOut) => Self::Idle(service),
        }
    }
}

/// What the last attempt left behind.
enum Last<RB: Body> {
    Nothing,
    /// Boxed: it is kept in the call's future, and most of that is empty most of the time.
    Response(Box<Response<ResponseBody<RB>>>),
    Failed(Failure, BoxError),
}

impl<RB: Body<Data = Bytes>> Last<RB> {
    /// Gets rid of a response that is not handed on, so that its connection is free while the call waits.
    async fn settle(&mut self, until: Option<Instant>) {
        if let Self::Response(_) = self
            && let Self::Response(response) = std::mem::replace(self, Self::Nothing)
        {
            Box::pin(reject::drain(response.into_body(), until)).await;
        }
    }
}

/// A call under way. Dropping it cancels it, so that its charge and its place among the waiting go back whatever
/// ends it (CLI-17).
struct Running {
    call: Call,
    destination: Arc<Mutex<Destination>>,
    shared: Arc<Shared>,
    waits: Waits,
}

impl Running {
    fn start<B: ReplayBody>(plan: &Plan<B>, shared: Arc<Shared>) -> Self {
        let destination = plan.destination(|scheme, authority| shared.destinations.get(scheme, authority));
        let policy = Arc::clone(plan.policy().unwrap_or(&shared.policy));
        let call = Call::new(policy, plan.spec(), clock::now());
        Self {
            call,
            destination,
            shared,
            waits: Waits::default(),
        }
    }

    /// Hands on what the last attempt brought, or the reason why the call stopped.
    fn end<RB: Body<Data = Bytes>>(
        &self,
        finish: Finish,
        last: Last<RB>,
    ) -> Result<Response<ResponseBody<RB>>, Error> {
        let (attempts, waited) = (self.call.attempts(), self.call.waited());
        Span::current().record("holdoff.attempts", attempts);
        if let Finish::GiveUp(give_up) = &finish {
            Span::current().record("holdoff.gave_up", give_up.why.as_str());
        }
        match finish {
            Finish::GiveUp(give_up) => {
                let failed = match last {
                    Last::Failed(failure, error) => Some((failure, error)),
                    Last::Nothing | Last::Response(_) => None,
                };
                Err(Error::gave_up(give_up, failed))
            }
            Finish::Deliver => match last {
                Last::Response(mut response) => {
                    response.extensions_mut().insert(CallReport { attempts, waited });
                    Ok(*response)
                }
                Last::Failed(failure, error) => {
                    // The policy took it for an answer, since it is not tried again; here it is known for a failure.
                    let mut events = Buffer::default();
                    events.emit(Event::GaveUp(StopReason::Transport));
                    events.flush(&self.shared.counters, &mut Waits::default());
                    let last = self.call.last_refusal().cloned();
                    let (why, retry_in) = (StopReason::Transport, None);
                    let give_up = GiveUp {
                        why,
                        last,
                        attempts,
                        waited,
                        retry_in,
                    };
                    Err(Error::gave_up(give_up, Some((failure, error))))
                }
                Last::Nothing => Err(Error::request("there is no answer to deliver")),
            },
        }
    }

    /// Where the call's time ends.
    fn limit(&self, now: Instant) -> Option<Instant> {
        clock::after(now, self.call.time_left(now)?)
    }

    /// What to do, and when that was asked.
    fn next_action(&mut self) -> (Instant, Action) {
        let now = clock::now();
        let mut events = Buffer::default();
        let Self {
            call,
            destination,
            shared,
            waits,
        } = self;
        let action = shared
            .entropy
            .with(|rng| call.next_action(now, &mut lock(destination), rng, &mut events));
        events.flush(&shared.counters, waits);
        (now, action)
    }

    fn on_outcome(&mut self, received: Instant, outcome: Outcome) {
        let now = clock::now();
        let mut events = Buffer::default();
        let Self {
            call,
            destination,
            shared,
            waits,
        } = self;
        shared.entropy.with(|rng| {
            call.on_outcome(received, now, outcome, &mut lock(destination), rng, &mut events);
        });
        events.flush(&shared.counters, waits);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
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
fn attempt_span<B>(request: &Request<B>, send: &Sending) -> Span {
    // The fields are worked out only where somebody wants the span.
    tracing::debug_span!(
        "holdoff.attempt",
        http.request.method = request.method().as_str(),
        http.request.resend_count = send.number.saturating_sub(1),
        server.address = &*origin::key(request.uri()).1,
        overload.tier = send.tier.map(|tier| tier.as_str()),
        http.response.status_code = tracing::field::Empty,
    )
}

/// The span of a call over all its attempts and waits.
pub(crate) fn call_span<B>(request: &Request<B>) -> Span {
    tracing::debug_span!(
        "holdoff.call",
        http.request.method = request.method().as_str(),
        server.address = &*origin::key(request.uri()).1,
        holdoff.attempts = tracing::field::Empty,
        holdoff.gave_up = tracing::field::Empty,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_place_that_was_polled_ready_is_given_up_before_a_wait() {
        let held = Arc::new(());
        let place = Arc::downgrade(&held);
        let idle = Inner::Ready(Ready { _place: held }).idle();
        assert!(matches!(&idle, Inner::Idle(_)));
        assert_eq!(place.strong_count(), 0);
    }

    /// Holds a place, which its clones do not have, as tower's own limits do.
    struct Ready {
        _place: Arc<()>,
    }

    impl Clone for Ready {
        fn clone(&self) -> Self {
            Self {
                _place: Arc::default(),
            }
        }
    }
}
