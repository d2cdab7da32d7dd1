//! The request that is being answered, known to the calls that are made for it.
//!
//! A handler that calls another service should pass on what is left of its caller's time, its tier and its attempt
//! number, and should not retry what its caller retries (CONTRACT section 6). Handlers forget; so an inbound layer
//! puts an [`Inbound`] around the handler, and calls that are made inside it through a layer of this crate find it by
//! themselves. It is scoped to the task: hand it over with [`Inbound::scope`] where a handler spawns another.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdoff_contract::{Attempt, RequestFields};
use holdoff_policy::Incoming;

use crate::clock;
use crate::error::PassUp;

tokio::task_local! {
    static CURRENT: Inbound;
}

/// Kept back of a caller's deadline for answering it (CONTRACT section 6.1). Default: 10 ms, as much as the policy
/// keeps back of a wait for sending.
const RESERVE: Duration = Duration::from_millis(10);

/// What an incoming request said about itself, and when.
#[derive(Clone, Debug)]
pub struct Inbound {
    fields: Arc<RequestFields>,
    received: Instant,
    reserve: Duration,
    retries: bool,
    side_effect: Arc<AtomicBool>,
}

impl Inbound {
    /// A request that came just now. Drop what is not to be believed before (the tenant of a stranger).
    pub fn new(fields: RequestFields) -> Self {
        Self {
            fields: Arc::new(fields),
            received: clock::now(),
            reserve: RESERVE,
            retries: false,
            side_effect: Arc::default(),
        }
    }

    /// Keeps back another part of the deadline for answering the caller. Default: 10 ms.
    #[must_use]
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.reserve = reserve;
        self
    }

    /// Lets calls made for this request be retried here, where its caller does not retry already. Default: they are
    /// not; retries belong to one layer (CONTRACT section 6.6).
    #[must_use]
    pub fn with_retries(mut self) -> Self {
        self.retries = true;
        self
    }

    /// What the request said, as it was received.
    pub fn fields(&self) -> &RequestFields {
        &self.fields
    }

    /// What is left of the caller's time; `None` where it named no deadline.
    pub fn time_left(&self) -> Option<Duration> {
        let elapsed = clock::now().saturating_duration_since(self.received);
        Some(self.fields.deadline?.saturating_sub(elapsed))
    }

    /// Notes that something was changed for this request: its refusals from now on say applied=maybe (INT-08).
    pub fn mark_side_effect(&self) {
        self.side_effect.store(true, Ordering::Relaxed);
    }

    /// The request whose scope this is run in.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Runs a future in which calls are made for this request.
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, future)
    }

    /// The same for a closure.
    pub fn sync_scope<T>(self, run: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, run)
    }

    /// What the policy wants to know for a call that is made now.
    pub(crate) fn incoming(&self, now: Instant) -> Incoming {
        let elapsed = now.saturating_duration_since(self.received);
        Incoming {
            attempt: self.fields.attempt.unwrap_or(Attempt::FIRST),
            retries: self.retries,
            tier: self.fields.tier,
            deadline: self
                .fields
                .deadline
                .map(|deadline| deadline.saturating_sub(elapsed).saturating_sub(self.reserve)),
        }
    }

    /// What [`crate::Error::for_caller`] wants to know, for a dependency that is called with this service's own
    /// identity. `idempotent` is the incoming request's own method.
    pub fn pass_up(&self, idempotent: bool) -> PassUp {
        PassUp {
            called_as: holdoff_contract::CalledAs::OwnService,
            idempotent: idempotent || self.fields.idempotency_key.is_some(),
            side_effect: self.side_effect.load(Ordering::Relaxed),
        }
    }
}
