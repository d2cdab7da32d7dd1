//! The one loop that sleeps and sends.
//!
//! It decides nothing: the policy says what to do next, the loop does it and tells what came of it. What it has to
//! get right is bookkeeping: a call that is dropped anywhere gives back what it holds, a connection is freed before
//! a wait, a service is polled ready before it is called and not kept ready while nobody calls it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use holdoff_contract::vocabulary::Vocabulary;
use holdoff_policy::{Action, Finish, Outcome, Send as Sending};
use http::{HeaderMap, Response};
use http_body::Body;
use tracing::{Instrument, Span};

use crate::body::ResponseBody;
use crate::carrier::{Answered, Carrier, Readiness};
use crate::clock;
use crate::context::Watch;
use crate::error::{BoxError, Error, Failure};
use crate::options::CallOptions;
use crate::plan::Plan;
use crate::reject::{self, Receipt};
use crate::running::{Running, attempt_span, call_span};
use crate::service::Shared;

/// How a call ends.
pub(crate) type Ended<C> = Result<Answered<<C as Carrier>::Answer, <C as Carrier>::Body>, Error>;

/// A call that is settled and not yet sent.
pub(crate) struct Begun {
    pub(crate) span: Span,
    watch: Watch,
    pub(crate) plan: Plan,
}

impl Begun {
    pub(crate) fn new<C: Carrier>(carrier: &C, options: Option<Box<CallOptions>>, shared: &Shared) -> Self {
        Self {
            span: call_span(carrier),
            watch: Watch::begin(carrier.method(), carrier.headers(), options.as_deref()),
            plan: Plan::new(carrier, options, &shared.defaults, shared.dialect.as_deref()),
        }
    }
}

/// Makes one call: sleeps and sends until the policy says that it is over.
///
/// Almost every call is sent once and answered, so that way is laid out apart, with nothing between the caller and the
/// transport's own future but this one: futures in between are code and memory that the processor has to fetch, and that
/// costs more than everything that is decided. What is large or rarely needed stays in [`go_on`], which is boxed. The
/// clock is read when the call begins, when an answer is there, and after a wait.
pub(crate) async fn drive<C: Carrier>(
    carrier: &mut C,
    begin: impl FnOnce(&C) -> Begun,
    shared: &Shared,
) -> Ended<C> {
    let mut begun = begin(carrier);
    let now = clock::now();
    let mut call = Running::start(carrier, &begun.plan, shared, now);
    let turn = match call.first(carrier, &mut begun, now) {
        First::Begun(limit, vocabulary) => {
            let Some(sending) = carrier.send() else {
                return Err(spent());
            };
            let sent = match limit {
                Some(_) if !C::KEEPS_LIMIT => Sent::of_limited(clock::within(limit, sending).await, C::told),
                _ => Sent::of(sending.await, C::told),
            };
            let received = clock::now();
            match sent {
                Sent::Answered(answer) => match call.glance(carrier, &answer, vocabulary) {
                    Some(outcome) => {
                        call.on_outcome(received, outcome);
                        begun.watch.end(Ok(C::status(&answer)));
                        return Ok(call.deliver::<C>(answer, &begun.span));
                    }
                    None => Turn::Came(Sent::Answered(answer), received, limit, vocabulary),
                },
                sent => Turn::Came(sent, received, limit, vocabulary),
            }
        }
        First::Otherwise(turn) => turn,
    };
    let Begun { span, watch, plan } = &mut begun;
    let result = apart(carrier, plan, call, (turn, now), span).await;
    watch.end(match &result {
        Ok(Answered::AsItCame(answer)) => Ok(C::status(answer)),
        Ok(Answered::LookedInto(response)) => Ok(response.status()),
        Err(error) => Err(error),
    });
    result
}

/// [`go_on`] in its span and in a box, made and polled out of line: inlined, it would give every call its frame, and all
/// that the transport does would happen on a part of the stack that nothing else has touched.
#[cold]
#[inline(never)]
fn apart<'a, C: Carrier>(
    carrier: &'a mut C,
    plan: &'a mut Plan,
    call: Running<'a>,
    turn: (Turn<'a, C>, Instant),
    span: &'a Span,
) -> Apart<impl Future<Output = Ended<C>>> {
    let rest = go_on(carrier, plan, call, turn, span);
    Apart(Box::pin(rest.instrument(span.clone())))
}

struct Apart<F>(Pin<Box<F>>);

impl<F: Future> Future for Apart<F> {
    type Output = F::Output;

    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(context)
    }
}

/// How a call begins.
pub(crate) enum First<'a, C: Carrier> {
    /// A request is made, to be sent with that limit to whoever speaks so.
    Begun(Option<Instant>, &'a Vocabulary),
    Otherwise(Turn<'a, C>),
}

/// What is to be done next.
pub(crate) enum Turn<'a, C: Carrier> {
    Ask,
    Act(Action),
    Send(Sending, Option<Span>),
    /// An attempt brought this then, with that limit, at whoever speaks so.
    Came(Sent<C::Answer>, Instant, Option<Instant>, &'a Vocabulary),
}

/// What sending brought.
pub(crate) enum Sent<A> {
    Answered(A),
    Failed(BoxError),
    RanOut,
}

impl<A> Sent<A> {
    fn of<E>(result: Result<A, E>, told: impl FnOnce(E) -> BoxError) -> Self {
        match result {
            Ok(answer) => Self::Answered(answer),
            Err(error) => Self::Failed(told(error)),
        }
    }

    fn of_limited<E>(result: Result<Result<A, E>, clock::RanOut>, told: impl FnOnce(E) -> BoxError) -> Self {
        result.map_or(Self::RanOut, |result| Self::of(result, told))
    }
}

/// The call from anywhere to its end.
async fn go_on<C: Carrier>(
    carrier: &mut C,
    plan: &mut Plan,
    mut call: Running<'_>,
    (mut turn, mut now): (Turn<'_, C>, Instant),
    call_span: &Span,
) -> Ended<C> {
    let shared = call.shared;
    let mut last = Last::<C>::Nothing;
    let mut unready = None;
    loop {
        let limit = call.limit(now);
        let (received, outcome) = match turn {
            Turn::Ask => {
                turn = Turn::Act(call.next_action(now));
                continue;
            }
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
                            let came = sent(carrier, limit).await;
                            let came = followed(carrier, came, limit, plan, shared).await;
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
                let came = followed(carrier, (sent, received), limit, plan, shared).await;
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

/// Sends, and waits for what it brings within what is left of the call's deadline (CLI-28).
async fn sent<C: Carrier>(carrier: &mut C, limit: Option<Instant>) -> (Sent<C::Answer>, Instant) {
    let sent = match carrier.send() {
        Some(sending) if C::KEEPS_LIMIT => Sent::of(sending.await, C::told),
        Some(sending) => Sent::of_limited(clock::within(limit, sending).await, C::told),
        None => Sent::Failed(spent().into()),
    };
    (sent, clock::now())
}

/// Goes where an answer leads on to, in a carrier that follows redirects by itself.
async fn followed<C: Carrier>(
    carrier: &mut C,
    (sent, received): (Sent<C::Answer>, Instant),
    limit: Option<Instant>,
    plan: &Plan,
    shared: &Shared,
) -> (Sent<C::Answer>, Instant) {
    match sent {
        Sent::Answered(answer) if carrier.leads_on(&answer) => {
            let fields = |headers: &mut HeaderMap| plan.write(headers, shared);
            let sent = Sent::of(carrier.follow(answer, limit, &fields).await, |error| error);
            (sent, clock::now())
        }
        sent => (sent, received),
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
pub(crate) enum Last<C: Carrier> {
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
