//! What a refusal says, settled once: head and body are both written from here, so they cannot differ (SRV-06).

use std::time::Duration;

use super::Audience;
use crate::limits::{MAX_HINT, MAX_HOP, MAX_WINDOW};
use crate::{Applied, Code, Hint, Overload, OverloadStatus, Retry, Scope, ServiceState, Tier};

/// Sent where a hint must go out and none is known (section 2 as section 6.4 for relays).
const DEFAULT_AFTER_MS: u32 = 1000;

/// The mirrored values, each within its limits. Durations are milliseconds.
#[derive(Debug)]
pub(crate) struct Values {
    pub(crate) status: OverloadStatus,
    pub(crate) code: Code,
    pub(crate) retry: Retry,
    pub(crate) applied: Applied,
    /// 1..=86400000.
    pub(crate) after: Option<u32>,
    /// after..=after + 60000.
    pub(crate) max: Option<u32>,
    /// Only where it is not the default.
    pub(crate) scope: Option<Scope>,
    pub(crate) state: Option<ServiceState>,
    pub(crate) tier: Option<Tier>,
    /// 0..=16; written only where it is not zero.
    pub(crate) hop: u8,
}

impl Values {
    pub(crate) fn new(overload: &Overload, audience: Audience) -> Self {
        let code = overload.code.clone().unwrap_or(match overload.status {
            OverloadStatus::TooManyRequests => Code::RateLimited,
            OverloadStatus::ServiceUnavailable => Code::DependencyOverloaded,
            OverloadStatus::GatewayTimeout => Code::DependencyTimeout,
        });
        let hop = overload.hop.min(MAX_HOP);
        let retry = if hop == MAX_HOP { Retry::No } else { overload.retry };
        let mut values = Self {
            status: if code.is_registered() {
                code.status()
            } else {
                overload.status
            },
            code,
            retry,
            applied: overload.applied,
            after: None,
            max: None,
            scope: Some(overload.scope).filter(|scope| *scope != Scope::Request),
            state: overload.state.filter(|_| audience == Audience::Trusted),
            tier: overload.tier,
            hop,
        };
        (values.after, values.max) = values.window(overload);
        values
    }

    /// True where `Retry-After` belongs (SRV-10).
    pub(super) fn invites_back(&self) -> bool {
        self.applied == Applied::No || self.retry != Retry::No
    }

    fn window(&self, overload: &Overload) -> (Option<u32>, Option<u32>) {
        let (after, width) = match overload.hint {
            Hint::Absent if self.invites_back() => (DEFAULT_AFTER_MS, None),
            Hint::Absent => return (None, None),
            Hint::After { delay, .. } => (ms(delay), None),
            Hint::Window { delay, max } => (ms(delay), Some(ms(max).saturating_sub(ms(delay)))),
        };
        // The end of an exhausted quota is a hint as well (SRV-23); the window keeps its width.
        let quotas = if self.code == Code::RateLimited {
            overload.quotas.as_slice()
        } else {
            &[]
        };
        let exhausted = quotas
            .iter()
            .filter(|quota| quota.remaining == 0)
            .map(|quota| quota.reset_seconds)
            .max();
        let after = after
            .max(ms(Duration::from_secs(exhausted.unwrap_or(0))))
            .clamp(1, ms(MAX_HINT));
        let max = width.map(|width| after + width.min(ms(MAX_WINDOW)));
        (Some(after), max)
    }
}

/// Whole milliseconds, rounded up, saturating.
pub(super) fn ms(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

/// Milliseconds rounded up to two significant digits, so that the figure tells little and still holds (SRV-19,
/// SEC-07); at most 24 h, because no deadline can be longer.
pub(super) fn coarse(duration: Duration) -> u32 {
    let ms = ms(duration.min(MAX_HINT));
    let digits = ms.checked_ilog10().map_or(1, |log| log + 1);
    let step = 10_u32.pow(digits.saturating_sub(2));
    (ms.div_ceil(step) * step).min(self::ms(MAX_HINT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_figures_have_two_digits_and_never_shrink() {
        for (fine, expected) in [
            (0, 0),
            (7, 7),
            (99, 99),
            (100, 100),
            (101, 110),
            (1234, 1300),
            (1300, 1300),
            (99_001, 100_000),
            (80_000_001, 81_000_000),
            (86_000_001, 86_400_000),
            (u64::MAX, 86_400_000),
        ] {
            assert_eq!(coarse(Duration::from_millis(fine)), expected, "{fine}");
        }
    }

    #[test]
    fn parts_of_a_millisecond_round_up_and_years_saturate() {
        assert_eq!(ms(Duration::from_nanos(1)), 1);
        assert_eq!(ms(Duration::from_millis(7)), 7);
        assert_eq!(ms(Duration::MAX), u32::MAX);
    }
}
