//! A place in the queue, and the permit it becomes: guards that give back what was charged exactly once (ADM-15).

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use holdoff_admission::{Ending, Rejection, Ticket};
use holdoff_contract::{Code, Overload, Tier};
use tokio::sync::oneshot;

use crate::admission::{Shared, Turn};
use crate::clock;
use crate::record::Record;

/// The ticket and the way back. Whatever drops it ends the ticket, once.
pub(crate) struct Seat {
    shared: Arc<Shared>,
    ticket: Option<Ticket>,
    started: Option<Instant>,
    /// The work's own code is running: if this is still set when the seat is dropped, it panicked.
    in_work: bool,
    /// For who watches; `None` where nobody does.
    record: Option<Box<Record>>,
}

impl Seat {
    pub(crate) fn new(shared: Arc<Shared>, ticket: Ticket, record: Option<Box<Record>>) -> Self {
        Self {
            shared,
            ticket: Some(ticket),
            started: None,
            in_work: false,
            record,
        }
    }

    fn service(&self, now: Instant) -> Duration {
        self.started
            .map_or(Duration::ZERO, |started| now.saturating_duration_since(started))
    }

    /// Polls the work; if it panics, the seat knows why it is dropped.
    fn poll<F: Future>(&mut self, work: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.in_work = true;
        let polled = work.poll(cx);
        self.in_work = false;
        polled
    }

    fn end(&mut self, now: Instant, ending: Ending) {
        if let Some(ticket) = self.ticket.take() {
            self.shared.finish(now, ticket, ending);
            if let Some(mut record) = self.record.take() {
                record.started = self.started;
                self.shared.ended(*record);
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            let now = clock::now();
            let ending = if self.in_work && self.started.is_some() {
                let service = self.service(now);
                Ending::Failed { service }
            } else {
                Ending::Cancelled
            };
            self.end(now, ending);
        }
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("ticket", &self.ticket)
            .field("started", &self.started)
            .finish()
    }
}

/// What was decided about a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceFacts {
    pub(crate) tier: Tier,
    pub(crate) deadline: Instant,
    pub(crate) predicted_wait: Duration,
    pub(crate) poll_after: Option<Duration>,
}

/// Admitted, waiting for its turn. Dropping it gives the place back and nothing is started (SRQ-10).
#[derive(Debug)]
#[must_use = "dropping a place gives it up"]
pub struct Place {
    seat: Seat,
    told: Told,
    facts: PlaceFacts,
}

/// How a place learns what becomes of it.
#[derive(Debug)]
pub(crate) enum Told {
    /// It was settled together with the admission, and when: a worker was free, as it is for most.
    AtOnce(Turn, Instant),
    /// It waits.
    Later(oneshot::Receiver<Turn>),
}

impl Place {
    pub(crate) fn new(seat: Seat, told: Told, facts: PlaceFacts) -> Self {
        Self { seat, told, facts }
    }

    /// When it is expected to start, from admission.
    pub fn predicted_wait(&self) -> Duration {
        self.facts.predicted_wait
    }

    /// When to poll for the result, where the work was deferred; `None` = accepted.
    pub fn poll_after(&self) -> Option<Duration> {
        self.facts.poll_after
    }

    /// When its caller stops waiting.
    pub fn deadline(&self) -> Instant {
        self.facts.deadline
    }

    /// Waits for the turn.
    ///
    /// # Errors
    /// The refusal of work that was taken out of the queue: expired or evicted. It was not started.
    pub async fn turn(self) -> Result<Permit, Rejection> {
        let Self {
            mut seat,
            told,
            facts,
        } = self;
        let (turn, at) = match told {
            Told::AtOnce(turn, at) => (Ok(turn), Some(at)),
            Told::Later(told) => (told.await, None),
        };
        match turn {
            Ok(Turn::Start) => {
                seat.started = Some(at.unwrap_or_else(clock::now));
                Ok(Permit { seat, facts })
            }
            Ok(Turn::Refuse(rejection)) => {
                if let Some(record) = &mut seat.record {
                    record.code.clone_from(&rejection.overload.code);
                }
                Err(rejection)
            }
            // The controller forgets a place only when it is told to start, refused or ended, and none has happened:
            // answer what is true of an instance that lost its admission.
            Err(_) => Err(Rejection {
                overload: Box::new(Overload::new(Code::Draining)),
            }),
        }
    }
}

/// How work under a permit ended.
#[derive(Debug)]
pub enum Run<T> {
    /// It came to its end; the permit is still held (a response body may have to be sent).
    Finished(T, Permit),
    /// Its caller's deadline passed first and it was dropped. Something may have been done: answer `deadline_expired`
    /// with applied=maybe.
    Overdue(Permit),
}

/// The right to use a worker. Dropping it without an ending counts as cancelled; a panic under [`Permit::run`] counts
/// as a failure.
#[derive(Debug)]
#[must_use = "dropping a permit gives the worker back"]
pub struct Permit {
    seat: Seat,
    facts: PlaceFacts,
}

impl Permit {
    /// Runs the work, cut off at the caller's deadline: nobody waits for it after that, and a worker that goes on
    /// is lost to those who do. Never cut are non-sheddable work, which runs though it is late (DESIGN section 4), and
    /// deferred work, whose caller has an answer and left.
    pub async fn run<F: Future>(self, work: F) -> Run<F::Output> {
        let nobody_waits = self.facts.tier == Tier::NonSheddable || self.facts.poll_after.is_some();
        if nobody_waits {
            let (output, permit) = self.run_to_end(work).await;
            return Run::Finished(output, permit);
        }
        let deadline = self.facts.deadline;
        let (mut permit, mut work) = (self, pin!(work));
        // Most work ends before it has to wait for anything, and needs no timer.
        let mut timer = pin!(None);
        let output = poll_fn(|cx| {
            if let Poll::Ready(output) = permit.seat.poll(work.as_mut(), cx) {
                return Poll::Ready(Some(output));
            }
            if timer.is_none() {
                timer.set(Some(clock::sleep_until(deadline)));
            }
            match timer.as_mut().as_pin_mut() {
                Some(timer) => timer.poll(cx).map(|()| None),
                None => Poll::Pending,
            }
        })
        .await;
        match output {
            Some(output) => Run::Finished(output, permit),
            None => Run::Overdue(permit),
        }
    }

    /// Runs the work to its end, however late: for work that must not be dropped half done.
    pub async fn run_to_end<F: Future>(mut self, work: F) -> (F::Output, Self) {
        let mut work = pin!(work);
        let output = poll_fn(|cx| self.seat.poll(work.as_mut(), cx)).await;
        (output, self)
    }

    /// When its caller stops waiting.
    pub fn deadline(&self) -> Instant {
        self.facts.deadline
    }

    fn end(&mut self, ending: impl FnOnce(Duration) -> Ending) {
        let now = clock::now();
        let service = self.seat.service(now);
        self.seat.end(now, ending(service));
    }

    /// It ran to its end: a sample of the class's service time.
    pub fn completed(mut self) {
        self.end(|service| Ending::Completed { service });
    }

    /// It failed.
    pub fn failed(mut self) {
        self.end(|service| Ending::Failed { service });
    }

    /// It was cut off: a sample of at least this length.
    pub fn timed_out(mut self) {
        self.end(|service| Ending::TimedOut { service });
    }
}
