//! The controller behind a lock, with the work that waits and the task that keeps its time.
//!
//! A controller only decides; it neither waits nor wakes anybody. [`Admission`] does: it asks the controller for the
//! next steps after every change, tells what waits to start or that it is refused, ticks it when nothing happens, and
//! wakes when the next deadline in the queue passes, so that what expires is answered with or without a worker
//! (ADM-04, ADM-19).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use holdoff_admission::{
    Compliance, Controller, DeadlineOf, Decision, Ending, Profile, ProfileError, Rejection, Snapshot, Step,
    Ticket,
};
use holdoff_contract::ServiceState;
use tokio::sync::{Notify, oneshot};

use crate::ask::{Ask, Denied};
use crate::clock;
use crate::meters::{Meters, SharedRecorder};
use crate::place::{Permit, Place, PlaceFacts, Seat, Told};
use crate::reckoning::Transition;
use crate::record::{Record, Verdict, Watch};

/// Admission for one pool of workers. A handle: clones share the pool. The time keeper ends with the last handle,
/// place or permit.
#[derive(Clone, Debug)]
pub struct Admission {
    pub(crate) shared: Arc<Shared>,
}

/// What a waiting place is told.
#[derive(Debug)]
pub(crate) enum Turn {
    Start,
    Refuse(Rejection),
}

#[derive(Debug)]
pub(crate) struct Shared {
    profile: RwLock<Arc<Profile>>,
    state: Mutex<State>,
    /// Wakes the time keeper when something expires before it planned to wake.
    sooner: Arc<Notify>,
    /// Replaced with the profile, whose classes are labels.
    meters: RwLock<Arc<Meters>>,
    watch: OnceLock<Arc<dyn Watch>>,
}

#[derive(Debug)]
struct State {
    controller: Controller,
    /// Bounded by the controller's queues: an entry lives from admission to start, refusal or ending.
    waiting: HashMap<u64, oneshot::Sender<Turn>>,
    /// When the controller is to be ticked next.
    next_tick: Instant,
    /// When the time keeper will look next.
    planned: Instant,
    /// Test fixture: no ticks, so that the controller's data grows old.
    frozen: bool,
}

impl Admission {
    /// Starts admission for a pool, and its time keeper on the current runtime. Metrics go to `recorder`, or to the
    /// process's global recorder where that is `None`: a library does not install one.
    ///
    /// # Errors
    /// When the profile is outside its ranges; the error names key, value and limit.
    ///
    /// # Panics
    /// Outside a tokio runtime, as `tokio::spawn` does.
    pub fn start(profile: Profile, recorder: Option<SharedRecorder>) -> Result<Self, ProfileError> {
        let now = clock::now();
        let controller = Controller::new(profile.clone(), now)?;
        let meters = RwLock::new(Arc::new(Meters::new(&controller, now, recorder, &profile)));
        let sooner = Arc::new(Notify::new());
        let shared = Arc::new(Shared {
            profile: RwLock::new(Arc::new(profile)),
            state: Mutex::new(State {
                controller,
                waiting: HashMap::new(),
                next_tick: now,
                planned: now,
                frozen: false,
            }),
            sooner: Arc::clone(&sooner),
            meters,
            watch: OnceLock::new(),
        });
        tokio::spawn(keep_time(Arc::downgrade(&shared), sooner));
        Ok(Self { shared })
    }

    /// Decides at once. A [`Place`] is held until it is dropped or its [`Permit`] ends.
    ///
    /// # Errors
    /// The refusal with code and hint, or the limit that this work breaks on an empty server too.
    pub fn knock(&self, ask: &Ask) -> Result<Place, Denied> {
        let asked = clock::now();
        let (mut state, now) = self.shared.lock_since(asked);
        let meters = self.shared.meters();
        let mut meters = &*meters;
        self.shared.tick(&mut state, now);
        let (work, limit) = ask.work(&mut state.controller, now);
        let deadline = work.deadline;
        state.controller.validate(&work).map_err(Denied::Never)?;
        let decision = match &ask.caller {
            Some(caller) => state.controller.admit_from(now, work, caller, &mut meters),
            None => state.controller.admit(now, work, &mut meters),
        };
        let (ticket, predicted_wait, poll_after) = match decision {
            Decision::Accept {
                ticket,
                predicted_wait,
            } => (ticket, predicted_wait, None),
            Decision::Defer { ticket, poll_after } => (ticket, poll_after, Some(poll_after)),
            Decision::Reject(rejection) => {
                meters.refused(&rejection);
                self.shared.settle(&mut state, now, meters);
                drop(state);
                meters.reckoning.decided_in(clock::now() - asked);
                if let Some(watch) = self.shared.watch.get() {
                    let mut record = self.record(ask, now, limit, Verdict::Reject);
                    record.code.clone_from(&rejection.overload.code);
                    watch.ended(record);
                }
                return Err(Denied::Overload(rejection));
            }
        };
        let told = match self
            .shared
            .settle_with(&mut state, now, meters, Some(ticket.key()))
        {
            Some(turn) => Told::AtOnce(turn, now),
            None => {
                let (tell, told) = oneshot::channel();
                state.waiting.insert(ticket.key(), tell);
                Told::Later(told)
            }
        };
        drop(state);
        meters.reckoning.decided_in(clock::now() - asked);
        let record = self.shared.watch.get().map(|_| {
            let verdict = if poll_after.is_some() {
                Verdict::Defer
            } else {
                Verdict::Accept
            };
            let mut record = self.record(ask, now, limit, verdict);
            record.predicted_wait = predicted_wait;
            Box::new(record)
        });
        let facts = PlaceFacts {
            tier: ask.tier,
            deadline,
            predicted_wait,
            poll_after,
        };
        Ok(Place::new(
            Seat::new(Arc::clone(&self.shared), ticket, record),
            told,
            facts,
        ))
    }

    fn record(&self, ask: &Ask, at: Instant, deadline: Duration, decision: Verdict) -> Record {
        Record {
            at,
            tenant: ask.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()),
            class: ask.class.as_ref().map(|class| class.as_str().to_owned()),
            tier: ask.tier,
            deadline,
            decision,
            code: None,
            predicted_wait: Duration::ZERO,
            started: None,
            finished: at,
        }
    }

    /// Hands every request that has ended to `watch`. The first one stays: false where there is one already.
    pub fn watch(&self, watch: Arc<dyn Watch>) -> bool {
        self.shared.watch.set(watch).is_ok()
    }

    /// The last changes of state, at most 64, oldest first.
    pub fn transitions(&self) -> Vec<Transition> {
        self.shared.meters().reckoning.transitions()
    }

    /// The callers that keep to their hints least, at most `most`; their names are salted hashes (ADM-23).
    pub fn worst_callers(&self, most: usize) -> Vec<Compliance> {
        self.shared.lock().controller.worst_callers(most)
    }

    /// Decides at once, when called, and then waits for the turn. Dropping the future gives the place back.
    ///
    /// # Errors
    /// The refusal: at the door, or while queued (expired, evicted).
    pub fn enter(&self, ask: &Ask) -> impl Future<Output = Result<Permit, Denied>> + Send + use<> {
        let place = self.knock(ask);
        async move { place?.turn().await.map_err(Denied::Overload) }
    }

    /// What the service declares about itself.
    pub fn profile(&self) -> Arc<Profile> {
        let profile = self.shared.profile.read();
        Arc::clone(&profile.unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes another profile while work waits and runs: what was admitted keeps its place.
    ///
    /// # Errors
    /// When the profile is outside its ranges; the old one then stands.
    pub fn reload(&self, profile: Profile) -> Result<(), ProfileError> {
        let mut state = self.shared.lock();
        let now = clock::now();
        state.controller.reload(now, profile.clone())?;
        let meters = self.shared.meters().renewed(&state.controller, now, &profile);
        *self.shared.meters.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(meters);
        *self
            .shared
            .profile
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(profile);
        self.shared.settle(&mut state, now, &self.shared.meters());
        Ok(())
    }

    /// Takes acknowledged work back, over its budget if need be (ADM-06): after a restart, before new work is let in.
    /// `deadline` is the one that its caller was promised; it may have passed.
    pub fn restore(&self, ask: &Ask, deadline: Instant) -> Place {
        let mut state = self.shared.lock();
        let now = clock::now();
        let (mut work, _) = ask.work(&mut state.controller, now);
        work.deadline = deadline;
        work.deadline_of = DeadlineOf::Caller;
        let ticket = state.controller.restore(now, work);
        let facts = PlaceFacts {
            tier: ask.tier,
            deadline,
            predicted_wait: Duration::ZERO,
            poll_after: None,
        };
        let (tell, told) = oneshot::channel();
        state.waiting.insert(ticket.key(), tell);
        self.shared.settle(&mut state, now, &self.shared.meters());
        drop(state);
        Place::new(
            Seat::new(Arc::clone(&self.shared), ticket, None),
            Told::Later(told),
            facts,
        )
    }

    /// Gauges of this moment.
    pub fn snapshot(&self) -> Snapshot {
        let now = clock::now();
        self.shared.lock().controller.snapshot(now)
    }

    /// Brings the metrics' gauges up to date; the time keeper does it every tick, a scrape may ask for it sooner.
    pub fn publish(&self) {
        let now = clock::now();
        let snapshot = self.shared.lock().controller.snapshot(now);
        self.shared.meters().publish(now, &snapshot);
    }

    /// The instance goes away: everything new is refused with `draining`; what was accepted finishes.
    pub fn drain(&self) {
        let mut state = self.shared.lock();
        state.controller.drain();
        self.shared
            .settle(&mut state, clock::now(), &self.shared.meters());
    }

    /// The refusal of work that has a place when the instance goes away and can wait for it no longer: `draining`, with the
    /// window of the door, another one for each caller. The place is still its holder's to give back.
    pub fn cut_off(&self, ask: &Ask) -> Rejection {
        let mut state = self.shared.lock();
        let now = clock::now();
        let (work, _) = ask.work(&mut state.controller, now);
        state.controller.cut_off(now, &work)
    }

    /// Test fixture: pins the state, `None` lets it go.
    pub fn force_state(&self, pinned: Option<ServiceState>) {
        let mut state = self.shared.lock();
        let now = clock::now();
        state
            .controller
            .force_state(now, pinned, &mut &*self.shared.meters());
        self.shared.settle(&mut state, now, &self.shared.meters());
    }

    /// Test fixture: stops the controller's ticks, so that its data grows old (ADM-07).
    pub fn freeze(&self, frozen: bool) {
        self.shared.lock().frozen = frozen;
        self.shared.sooner.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between calls; a panic elsewhere must not end admission for everybody.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, and the instant to decide at. A clock costs as much as a small decision, so the reading that its asker
    /// has made is good where nobody holds the lock; whoever had to wait for it reads again. Another thread may have come
    /// and gone since the reading: by less than a lock takes, which the controller, like any lateness, counts as zero.
    fn lock_since(&self, read: Instant) -> (MutexGuard<'_, State>, Instant) {
        match self.state.try_lock() {
            Ok(state) => (state, read),
            Err(TryLockError::Poisoned(state)) => (state.into_inner(), read),
            Err(TryLockError::WouldBlock) => {
                let state = self.lock();
                (state, clock::now())
            }
        }
    }

    fn meters(&self) -> Arc<Meters> {
        Arc::clone(&self.meters.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A request that had a place has ended.
    pub(crate) fn ended(&self, mut record: Record) {
        record.finished = clock::now();
        if let Some(watch) = self.watch.get() {
            watch.ended(record);
        }
    }

    /// Ends a ticket and hands on what it frees. `ended` is now, as its holder read it.
    pub(crate) fn finish(&self, ended: Instant, ticket: Ticket, ending: Ending) {
        let (mut state, now) = self.lock_since(ended);
        let meters = self.meters();
        if !state.waiting.is_empty() {
            state.waiting.remove(&ticket.key());
        }
        state.controller.finish(now, ticket, ending, &mut &*meters);
        self.settle(&mut state, now, &meters);
    }

    /// Ticks the controller if it is time. A burst can keep the runtime from the time keeper for longer than the
    /// controller trusts its data, so whoever asks for a decision looks first; silence is the time keeper's (ADM-19).
    fn tick(&self, state: &mut State, now: Instant) {
        if now >= state.next_tick && !state.frozen {
            state.next_tick = now + Controller::TICK;
            state.controller.tick(now, &mut &*self.meters());
        }
    }

    /// Does every step that the controller asks for, and sees that the time keeper wakes in time.
    fn settle(&self, state: &mut State, now: Instant, meters: &Meters) {
        let unheard = self.settle_with(state, now, meters, None);
        debug_assert!(unheard.is_none(), "a turn of nobody's own");
    }

    /// As [`Self::settle`]; the turn of the place with the key `own`, which nobody waits for yet, is returned.
    fn settle_with(
        &self,
        state: &mut State,
        now: Instant,
        mut meters: &Meters,
        own: Option<u64>,
    ) -> Option<Turn> {
        let mut turn_of_own = None;
        while let Some(step) = state.controller.next_step(now, &mut meters) {
            let (key, turn) = match step {
                Step::Start(key) => (key, Turn::Start),
                Step::Refuse(key, rejection) => {
                    meters.refused(&rejection);
                    (key, Turn::Refuse(rejection))
                }
            };
            if own == Some(key) {
                turn_of_own = Some(turn);
                continue;
            }
            // Nobody listens when the place is being dropped at this moment: its seat then gives the ticket back.
            if let Some(tell) = state.waiting.remove(&key) {
                let _ = tell.send(turn);
            }
        }
        if state
            .controller
            .next_expiry()
            .is_some_and(|at| at < state.planned)
        {
            self.sooner.notify_one();
        }
        turn_of_own
    }
}

/// Least pause between two looks of the time keeper: the grain of the runtime's timer.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// Ticks the controller and wakes at the next expiry, until nobody holds the admission any more.
async fn keep_time(shared: Weak<Shared>, sooner: Arc<Notify>) {
    let mut known = ServiceState::Normal;
    let mut publish_at = clock::now();
    loop {
        let (wake, state) = {
            let Some(shared) = shared.upgrade() else { return };
            let mut state = shared.lock();
            let now = clock::now();
            shared.tick(&mut state, now);
            shared.settle(&mut state, now, &shared.meters());
            let mut seen = known;
            if now >= publish_at {
                publish_at = now + Controller::TICK;
                let snapshot = state.controller.snapshot(now);
                shared.meters().publish(now, &snapshot);
                seen = snapshot.state;
            }
            let expiry = state.controller.next_expiry().unwrap_or(publish_at);
            state.planned = expiry.min(publish_at).max(now + LEAST_PAUSE);
            (state.planned, seen)
        };
        // Said without the lock: whoever reads the log must not be able to stop admission.
        if state != known {
            tracing::info!(
                from = known.as_str(),
                to = state.as_str(),
                "admission state changed"
            );
            known = state;
        }
        tokio::select! {
            () = clock::sleep_until(wake) => {}
            () = sooner.notified() => {}
        }
    }
}
