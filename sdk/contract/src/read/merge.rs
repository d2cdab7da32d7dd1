//! The merge rules of section 4: of all that was said, the most restrictive.

use std::time::Duration;

use crate::limits::MAX_WINDOW;
use crate::{
    Applied, BodyMember, Code, Extension, Granularity, Hint, Overload, OverloadStatus, Retry, Scope,
    ServiceState, Tier,
};

use super::{Malformed, number};

/// What the signal or the body says, each member that was usable. Numbers are milliseconds, not yet limited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    pub(crate) code: Option<Code>,
    pub(crate) retry: Option<Retry>,
    pub(crate) applied: Option<Applied>,
    pub(crate) after: Option<u64>,
    pub(crate) max: Option<u64>,
    pub(crate) scope: Option<Scope>,
    pub(crate) state: Option<ServiceState>,
    pub(crate) tier: Option<Tier>,
    pub(crate) hop: Option<u8>,
    pub(crate) detail: Option<String>,
    pub(crate) instance: Option<uuid::Uuid>,
    pub(crate) min_deadline: Option<Duration>,
    pub(crate) predicted_wait: Option<Duration>,
    pub(crate) origin: Option<String>,
    pub(crate) extensions: Vec<Extension>,
    pub(crate) members: Vec<BodyMember>,
}

/// What a service says in declared words of its own ([`crate::vocabulary`]).
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    pub(crate) code: Code,
    pub(crate) retry: Retry,
    pub(crate) applied: Option<Applied>,
    pub(crate) scope: Option<Scope>,
    /// Milliseconds, not yet limited, and how fine they were.
    pub(crate) delay: Option<(u64, Granularity)>,
}

/// Counts what could not be used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally(Malformed);

impl Tally {
    pub(crate) fn malformed(&mut self) {
        self.0.sources = self.0.sources.saturating_add(1);
    }

    /// Passes a value through and counts where there is none.
    pub(crate) fn keep<T>(&mut self, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.malformed();
        }
        value
    }

    pub(crate) fn get(self) -> Malformed {
        self.0
    }
}

/// The delays that stand outside signal and body, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delays {
    /// Largest millisecond field of others.
    pub(super) ms: Option<u64>,
    /// Largest `Retry-After`.
    pub(super) seconds: Option<u64>,
    /// Largest quota reset.
    pub(super) quota: Option<u64>,
}

/// Merges everything. An absent source is a `Said` that says nothing.
pub(super) fn merge(
    status: OverloadStatus,
    signal: Said,
    body: Said,
    foreign: Option<Foreign>,
    mut delays: Delays,
    forbidden: bool,
) -> Overload {
    let foreign = foreign.as_ref();
    match foreign.and_then(|foreign| foreign.delay) {
        Some((ms, Granularity::Milliseconds)) => delays.ms = delays.ms.max(Some(ms)),
        Some((ms, Granularity::Seconds)) => delays.seconds = delays.seconds.max(Some(ms)),
        None => {}
    }
    let default_retry = match status {
        OverloadStatus::GatewayTimeout => Retry::No,
        OverloadStatus::TooManyRequests | OverloadStatus::ServiceUnavailable => Retry::After,
    };
    let forbidden = forbidden.then_some(Retry::No);
    Overload {
        status,
        // Options order with None first, so `max` is the strictest of those that said something (rules 3 and 4).
        retry: signal
            .retry
            .max(body.retry)
            .max(foreign.map(|foreign| foreign.retry))
            .max(forbidden)
            .unwrap_or(default_retry),
        applied: signal
            .applied
            .max(body.applied)
            .max(foreign.and_then(|foreign| foreign.applied))
            .unwrap_or(Applied::Maybe),
        hint: hint(&signal, &body, delays),
        code: signal
            .code
            .or(body.code)
            .or_else(|| foreign.map(|foreign| foreign.code.clone())),
        scope: signal
            .scope
            .or(body.scope)
            .or_else(|| foreign.and_then(|foreign| foreign.scope))
            .unwrap_or(Scope::Request),
        state: signal.state.or(body.state),
        tier: signal.tier.or(body.tier),
        hop: signal.hop.or(body.hop).unwrap_or(0),
        detail: body.detail,
        instance: body.instance,
        min_deadline: body.min_deadline,
        predicted_wait: body.predicted_wait,
        origin: body.origin,
        quotas: Vec::new(),
        extensions: signal.extensions,
        members: body.members,
    }
}

/// Rules 1 and 2.
fn hint(signal: &Said, body: &Said, delays: Delays) -> Hint {
    let ms = signal.after.max(body.after).max(delays.ms).map(number::hint);
    let seconds = delays.seconds.map(number::hint);
    let (delay, granularity) = match (ms, seconds) {
        // Rounding up to whole seconds must not cost a second.
        (Some(ms), Some(seconds)) if seconds >= ms + Duration::from_secs(1) => {
            (seconds, Granularity::Seconds)
        }
        (Some(ms), _) => (ms, Granularity::Milliseconds),
        (None, Some(seconds)) => (seconds, Granularity::Seconds),
        (None, None) => match delays.quota.map(number::hint) {
            Some(quota) => (quota, Granularity::Seconds),
            None => return Hint::Absent,
        },
    };
    let max = signal
        .max
        .max(body.max)
        .map(Duration::from_millis)
        .filter(|max| *max >= delay);
    match max {
        // Zero is no minimum, so nothing begins that could end.
        Some(max) if !delay.is_zero() => Hint::Window {
            delay,
            max: max.min(delay + MAX_WINDOW),
        },
        _ => Hint::After { delay, granularity },
    }
}
