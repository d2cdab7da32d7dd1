//! Growth and jitter: pure functions of attempt number and `rng`.
//!
//! Two things go wrong in almost every home-made backoff. The doubling overflows in a long outage, and the jitter is
//! cut off again by a clamp, cast or empty range, so that everybody comes back in the same instant. Here growth
//! saturates for every attempt number, and a window is never empty, so a draw is always a draw.

use std::time::Duration;

use holdoff_contract::limits::MAX_WINDOW;
use holdoff_contract::{Granularity, Hint};
use rand::RngExt as _;
use rand_core::Rng;

use crate::Policy;

/// Least width of a window that follows a hint, 50 ms (CONTRACT section 5): narrower ones line callers up.
pub(crate) const MIN_WIDTH: Duration = Duration::from_millis(50);
/// Greatest width of a window that the caller makes for itself, 5 s (CONTRACT section 5).
const MAX_OWN_WIDTH: Duration = Duration::from_secs(5);
/// Least width of an own window where D came from a field in whole seconds, 1 s: the server's rounding lined callers up
/// on the second (CONTRACT section 5).
const MIN_WIDTH_SECONDS: Duration = Duration::from_secs(1);
/// 1 s in nanoseconds.
const NANOS: u128 = 1_000_000_000;

/// The times between which a retry may leave, measured from receipt of the refusal's head (CONTRACT section 5). The
/// deadline is not in it yet: it cuts `hi`, or stops the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Window {
    /// Least wait. Never below D.
    pub lo: Duration,
    /// Greatest wait. Never below `lo`.
    pub hi: Duration,
    /// M: the end that the server gave, or that the caller made for itself after a plain hint. `None` without a hint
    /// or with a hint of zero. `hi` is later than M only where M left less than 50 ms.
    pub max: Option<Duration>,
}

impl Window {
    /// Draws a wait from the window, cut to `limit` (what the deadline leaves). Never below `lo`.
    pub(crate) fn draw<R: Rng + ?Sized>(self, limit: Duration, rng: &mut R) -> Duration {
        let width = self.hi.min(limit).saturating_sub(self.lo);
        // A width of 584 years does not occur: the widest window is an hour (range of backoff_cap).
        let nanos = u64::try_from(width.as_nanos()).unwrap_or(u64::MAX);
        self.lo
            .saturating_add(Duration::from_nanos(rng.random_range(0..=nanos)))
    }
}

impl Policy {
    /// The window after an overload response of attempt `attempt` (1 for the first) with this hint, whose retry is
    /// `after`. Pure: asks neither deadline nor budget.
    ///
    /// A hint of zero sets no minimum, so it is answered like no hint: own backoff, never at once (HNT-05).
    pub fn window(&self, hint: Hint, attempt: u32) -> Window {
        let delay = hint.delay_or_zero();
        if delay.is_zero() {
            return self.blind_window(attempt);
        }
        let max = match hint {
            Hint::Window { max, .. } => max.clamp(delay, delay.saturating_add(MAX_WINDOW)),
            _ => delay.saturating_add(own_width(delay, hint_granularity(hint), attempt)),
        };
        let lo = delay.max(self.backoff_floor);
        Window {
            lo,
            hi: max.max(lo.saturating_add(MIN_WIDTH)),
            max: Some(max),
        }
    }

    /// b(k) = min(backoff_cap, backoff_base x 2^(k-1)): the ceiling of the own backoff of attempt k.
    pub fn backoff(&self, attempt: u32) -> Duration {
        grown(self.backoff_base, attempt, self.backoff_cap)
    }

    /// Without a hint: half of b is fixed, the other half is random; never below the floor.
    fn blind_window(&self, attempt: u32) -> Window {
        let ceiling = self.backoff(attempt);
        let lo = (ceiling / 2).max(self.backoff_floor);
        // A backoff configured below the floor leaves no range to draw from: it gets the least width above the floor.
        let hi = if ceiling > lo {
            ceiling
        } else {
            lo.saturating_add(MIN_WIDTH)
        };
        Window { lo, hi, max: None }
    }

    /// After retry=elsewhere with another instance known: U(floor, 2 x floor). That instance has said nothing.
    pub(crate) fn elsewhere_window(&self) -> Window {
        Window {
            lo: self.backoff_floor,
            hi: self.backoff_floor.saturating_mul(2),
            max: None,
        }
    }

    /// The window of an instance that has spoken before, brought to at least the one of [`Self::elsewhere_window`].
    pub(crate) fn not_before(&self, window: Window) -> Window {
        let least = self.elsewhere_window();
        let lo = window.lo.max(least.lo);
        let hi = window.hi.max(least.hi).max(lo.saturating_add(MIN_WIDTH));
        Window { lo, hi, max: None }
    }

    /// After a transport failure or an unmarked 502 or 504: U(0, min(backoff_cap, transport_base x 2^(k-1))). A cap
    /// below the floor counts as the floor, so that a policy without blind backoff still spreads its reconnects.
    pub(crate) fn transport_window(&self, attempt: u32) -> Window {
        let cap = self.backoff_cap.max(self.backoff_floor);
        Window {
            lo: Duration::ZERO,
            hi: grown(self.transport_base, attempt, cap),
            max: None,
        }
    }
}

/// `base` doubled for each attempt after the first, at most `limit`; saturates for every attempt number.
fn grown(base: Duration, attempt: u32, limit: Duration) -> Duration {
    let factor = 1_u128 << attempt.saturating_sub(1).min(127);
    from_nanos(base.as_nanos().saturating_mul(factor), limit)
}

/// Width of the window that the caller makes for itself: clamp(0.5 x D x 2^(k-1), low, 5 s).
fn own_width(delay: Duration, granularity: Granularity, attempt: u32) -> Duration {
    let low = match granularity {
        Granularity::Seconds => MIN_WIDTH_SECONDS,
        Granularity::Milliseconds => MIN_WIDTH,
    };
    grown(delay / 2, attempt, MAX_OWN_WIDTH).max(low)
}

fn hint_granularity(hint: Hint) -> Granularity {
    match hint {
        Hint::After { granularity, .. } => granularity,
        Hint::Absent | Hint::Window { .. } => Granularity::Milliseconds,
    }
}

/// The duration of so many nanoseconds, at most `limit`.
fn from_nanos(nanos: u128, limit: Duration) -> Duration {
    if nanos >= limit.as_nanos() {
        return limit;
    }
    match (u64::try_from(nanos / NANOS), u32::try_from(nanos % NANOS)) {
        (Ok(seconds), Ok(rest)) => Duration::new(seconds, rest),
        _ => limit,
    }
}
