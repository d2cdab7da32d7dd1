//! The request that is being answered, known to the calls that are made for it.
//!
//! A handler that calls another service should pass on what is left of its caller's time, its tier and its attempt
//! number, should not retry what its caller retries, and should say when something was done already (CONTRACT section
//! 6). Handlers forget; so an inbound layer puts an [`Inbound`] around the handler, and calls that are made inside it
//! through a layer of this crate find it by themselves. It is scoped to the task: hand it over with
//! [`Inbound::scope`] where a handler spawns another.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdoff_contract::write::Audience;
use holdoff_contract::{Attempt, CalledAs, RequestFields, Tenant, field_name};
use holdoff_policy::Incoming;
use http::{HeaderMap, Method, StatusCode};

use crate::clock;
use crate::error::{Error, PassUp};
use crate::options::CallOptions;

tokio::task_local! {
    static CURRENT: Inbound;
}

/// Kept back of a caller's deadline for answering it (CONTRACT section 6.1). Default: 10 ms, as much as the policy
/// keeps back of a wait for sending.
const RESERVE: Duration = Duration::from_millis(10);

/// What an incoming request said about itself, and when. Clones are of the same request.
#[derive(Clone, Debug)]
pub struct Inbound {
    fields: Arc<RequestFields>,
    received: Instant,
    reserve: Duration,
    retries: bool,
    called_as: CalledAs,
    audience: Audience,
    idempotent: bool,
    side_effect: Arc<AtomicBool>,
}

impl Inbound {
    /// A request that came just now. Drop what is not to be believed before: the tenant and the high tier of a
    /// stranger.
    pub fn new(fields: RequestFields) -> Self {
        Self {
            fields: Arc::new(fields),
            received: clock::now(),
            reserve: RESERVE,
            retries: false,
            called_as: CalledAs::OwnService,
            audience: Audience::Stranger,
            idempotent: false,
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

    /// With whose identity dependencies are called: it decides what their 429 means for the caller (INT-10), and
    /// with [`CalledAs::CallersTenant`] the caller's tenant goes along to trusted origins. Default: this service's.
    #[must_use]
    pub fn with_called_as(mut self, called_as: CalledAs) -> Self {
        self.called_as = called_as;
        self
    }

    /// Who reads the answer. Default: a stranger (INT-15).
    #[must_use]
    pub fn with_audience(mut self, audience: Audience) -> Self {
        self.audience = audience;
        self
    }

    /// The incoming method: one that is not idempotent must not be sent again after applied=maybe (CONTRACT section
    /// 6.5). Default: taken for one that is not.
    #[must_use]
    pub fn with_method(mut self, method: &Method) -> Self {
        self.idempotent = method.is_idempotent();
        self
    }

    /// What the request said, as far as it is believed.
    pub fn fields(&self) -> &RequestFields {
        &self.fields
    }

    /// Who reads the answer.
    pub fn audience(&self) -> Audience {
        self.audience
    }

    /// What is left of the caller's time; `None` where it named no deadline.
    pub fn time_left(&self) -> Option<Duration> {
        let elapsed = clock::now().saturating_duration_since(self.received);
        Some(self.fields.deadline?.saturating_sub(elapsed))
    }

    /// Notes that something was changed for this request: its refusals from now on say applied=maybe (INT-08). Calls
    /// that are made for it and may have changed something note it themselves; see [`CallOptions::reads_only`].
    pub fn mark_side_effect(&self) {
        self.side_effect.store(true, Ordering::Relaxed);
    }

    /// Was something changed for this request, as far as is known?
    pub fn has_side_effect(&self) -> bool {
        self.side_effect.load(Ordering::Relaxed)
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

    /// Whose work a call for this request is, where it is made in the caller's name.
    pub(crate) fn tenant_for_calls(&self) -> Option<Tenant> {
        let callers = self.called_as == CalledAs::CallersTenant;
        self.fields.tenant.clone().filter(|_| callers)
    }

    /// What [`Error::for_caller`] wants to know. `idempotent` is what the handler knows on top of the method: that
    /// this request may be repeated although its method does not say so.
    pub fn pass_up(&self, idempotent: bool) -> PassUp {
        PassUp {
            called_as: self.called_as,
            idempotent: idempotent || self.idempotent || self.fields.idempotency_key.is_some(),
            side_effect: self.has_side_effect(),
        }
    }
}

/// Watches a call that may change something, so that the request it is made for knows (INT-08). A call that is
/// dropped before its end may have changed something, too.
pub(crate) struct Watch {
    inbound: Option<Inbound>,
    /// An attempt that was refused with applied=maybe may have been followed by another.
    repeatable: bool,
}

impl Watch {
    /// Watches this call, unless its method or its options say that it only reads.
    pub(crate) fn begin(method: &Method, headers: &HeaderMap, options: Option<&CallOptions>) -> Self {
        let reads = method.is_safe() || options.is_some_and(|options| options.reads_only);
        let inbound = if reads { None } else { Inbound::current() };
        let has_key = |options: &CallOptions| options.idempotency_key.is_some();
        let keyed = || options.is_some_and(has_key) || headers.contains_key(field_name::IDEMPOTENCY_KEY);
        Self {
            // Asked for only where somebody may be told.
            repeatable: inbound.is_some() && (method.is_idempotent() || keyed()),
            inbound,
        }
    }

    /// The call is over.
    pub(crate) fn end(&mut self, result: Result<StatusCode, &Error>) {
        if self.inbound.is_none() {
            return;
        }
        let nothing_done = match result {
            Ok(status) => status.is_client_error(),
            Err(error) => !error.may_have_applied() && (error.attempts() <= 1 || !self.repeatable),
        };
        if nothing_done {
            self.inbound = None;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(inbound) = &self.inbound {
            inbound.mark_side_effect();
        }
    }
}
