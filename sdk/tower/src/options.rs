//! What one call asks for, carried in the request's extensions.
//!
//! A tower stack hands on nothing but the request, so the wishes of a call travel inside it: put a
//! [`CallOptions`] into `request.extensions_mut()` before the request enters the layer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdoff_contract::{IdempotencyKey, TaskClass, Tenant, Tier};
use holdoff_policy::{CallerKey, Incoming, Policy, Safety};
use http::HeaderMap;

/// The wishes of one call; what is `None` is taken from the layer's defaults, or not said.
///
/// Fields of CONTRACT section 3 that stand in the request's headers already are read as if they had been set here;
/// what is set here wins. `Overload-Attempt` is always ours. A malformed one counts as absent and is not sent: the
/// headers may be those of a request that is passed on, and a stranger's slip must not fail it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CallOptions {
    /// Time for the whole call, all attempts and waits included. It limits each attempt by what is left
    /// (CLI-28), and travels as `Overload-Deadline-Ms` (REQ-02). At most 24 h, the most that field can say: a longer one
    /// counts as 24 h. Zero ends the call before its first send. Default: the layer's, else none: then only waiting is
    /// bounded (180 s), not a slow answer.
    pub deadline: Option<Duration>,
    /// How much the work matters: `Overload-Tier`. Default: the layer's, else not said (deferrable at the server).
    pub tier: Option<Tier>,
    /// Kind of work: `Overload-Task-Class`.
    pub task_class: Option<TaskClass>,
    /// Whose work: `Overload-Tenant`, sent only to trusted origins (REQ-07). Default: the layer's.
    pub tenant: Option<Tenant>,
    /// The caller's estimate of the work: `Overload-Cost-Ms`, at most 24 h; a longer one counts as 24 h.
    pub cost: Option<Duration>,
    /// The same on each attempt (REQ-08); makes a method that is not idempotent safe to send again.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Whether the request may be sent again when nobody knows whether it was applied. Default: as its method and
    /// key say (RFC 9110 section 9.2.2); every gRPC call is a POST, so say it here where the method is idempotent.
    pub safety: Option<Safety>,
    /// The request this call is made in answer to (CONTRACT section 6). Default: the one whose
    /// [`crate::Inbound`] scope the call is made in, if any.
    pub incoming: Option<Incoming>,
    /// The call changes nothing, whatever its method says, so the request that it is made for need not say
    /// applied=maybe afterwards (INT-08). Default: false; then only GET, HEAD, OPTIONS and TRACE change nothing.
    pub reads_only: bool,
    /// When to try again and when to stop, for this call only. Default: the layer's. The destination's budget keeps the
    /// capacity that the layer's policy gave it, since it is shared.
    pub policy: Option<Arc<Policy>>,
    /// Whose call it is, for hold-offs with scope tenant. Default: the tenant where it is sent, else the credential
    /// that the layer finds in the request's fields; calls that say neither are one caller's.
    pub caller: Option<CallerKey>,
    /// Where the call tells how far it is. Default: nowhere.
    pub progress: Option<Progress>,
}

impl CallOptions {
    /// Nothing asked for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the deadline of the whole call, at most 24 h.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the tier.
    pub fn tier(mut self, tier: Tier) -> Self {
        self.tier = Some(tier);
        self
    }

    /// Sets the task class.
    pub fn task_class(mut self, class: TaskClass) -> Self {
        self.task_class = Some(class);
        self
    }

    /// Sets the tenant.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Sets the cost estimate.
    pub fn cost(mut self, cost: Duration) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Sets the idempotency key.
    pub fn idempotency_key(mut self, key: IdempotencyKey) -> Self {
        self.idempotency_key = Some(key);
        self
    }

    /// Says whether the request may be sent again when nobody knows whether it was applied.
    pub fn safety(mut self, safety: Safety) -> Self {
        self.safety = Some(safety);
        self
    }

    /// Sets the request that this call answers.
    pub fn incoming(mut self, incoming: Incoming) -> Self {
        self.incoming = Some(incoming);
        self
    }

    /// Says that the call changes nothing, whatever its method says: a search by POST, say.
    pub fn reads_only(mut self) -> Self {
        self.reads_only = true;
        self
    }

    /// Sets the policy of this call.
    pub fn policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Sets whose call it is.
    pub fn caller(mut self, caller: CallerKey) -> Self {
        self.caller = Some(caller);
        self
    }

    /// Has the call tell how far it is.
    pub fn progress(mut self, progress: &Progress) -> Self {
        self.progress = Some(progress.clone());
        self
    }
}

/// How far a call is, to be read from outside. A call that is dropped before its end, by a `select!` or a timeout
/// around it, has no answer and no error to ask; this still tells what it did. Clones tell the same; use one a call.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU32>);

impl Progress {
    /// Of a call that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends made so far.
    pub fn attempts(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn sending(&self, number: u32) {
        self.0.store(number, Ordering::Relaxed);
    }
}

/// What an attempt knows about itself; put into the extensions of each request that leaves the layer, for
/// transports with limits or telemetry of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptContext {
    /// 1 for the first send.
    pub number: u32,
    /// What was left of the call's deadline at send.
    pub time_left: Option<Duration>,
}

type Hook = dyn Fn(&mut HeaderMap, AttemptContext) + Send + Sync;

/// Called for each attempt, inside its span, with the fields that are about to be sent.
#[derive(Clone)]
pub(crate) struct BeforeSend(Arc<Hook>);

impl BeforeSend {
    pub(crate) fn new(hook: impl Fn(&mut HeaderMap, AttemptContext) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    pub(crate) fn call(&self, fields: &mut HeaderMap, context: AttemptContext) {
        (self.0)(fields, context);
    }
}

impl fmt::Debug for BeforeSend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeSend")
    }
}

/// What it took to get this answer; put into the extensions of every response that the layer hands on. (A call that
/// stopped says the same in its [`crate::Error`].)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallReport {
    /// Sends made: 1 where the first was answered.
    pub attempts: u32,
    /// Time spent waiting, without the attempts themselves.
    pub waited: Duration,
}
