//! What a service declares about itself: workers, tiers, classes, tenants, thresholds.
//!
//! A bound that nobody wrote down is a bound that nobody holds. Every queue, table and hint of the controller takes
//! its limit from here, so that an operator can read them in one place. Plain data with serde: the server reads it
//! from YAML, the conformance suite sends it as JSON, tests build it. Every key may be absent; unknown keys are
//! refused, since a misspelt bound is no bound. Durations are milliseconds with the unit in the key.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_contract::Tier;
use serde::Deserialize;

mod validate;

/// Name of the entry of [`Profile::tenants`] that holds for every tenant without an entry of its own.
pub const DEFAULT_TENANT: &str = "default";
/// Most task classes a profile may declare; `other` comes on top.
pub const MAX_CLASSES: usize = 64;
/// Most tenants with an entry of their own.
pub const MAX_NAMED_TENANTS: usize = 512;

/// A declared service. `Profile::default()` is a small development service.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// Tasks that run at once. 1..=4096, default 4: a laptop.
    pub workers: u32,
    /// Depth of the ingress queue: deferrable tasks that wait. 0..=100000, default 256. Beyond it `queue_full`; with 0
    /// nothing waits and the code is `concurrency_limit`. Critical and non-sheddable work have queues of their own,
    /// so that deferrable work can never take their places (B4); [`Profile::declared_depth`] is the sum.
    pub queue: u32,
    /// Payload bytes that wait, all tiers. 1..=2^40, default 64 MiB. The last quarter is for non-sheddable and
    /// critical, the last eighth for critical alone.
    pub queue_bytes: u64,
    /// Estimated work that waits, all tiers. 1..=86400000 ms a worker; default `workers` x 10 min, which is what the
    /// default wait bounds add up to. The last quarter and eighth are kept as those of the bytes are.
    pub queue_work_ms: Option<u64>,
    /// Largest payload of one task. 1..=2^32, default 1 MiB. A larger one is a validation error (413), not overload.
    pub max_bytes: u64,
    /// Deferred tasks (202 with outcome=defer) that wait for the state to be normal. 0..=100000, default = `queue`.
    pub backlog: Option<u32>,
    /// Longest time in the backlog; then the task ends as `evicted`. 1000..=86400000, default 600000 (10 min).
    pub backlog_age_ms: u64,
    /// Per tier: queue, budget, slots, wait bound.
    pub tiers: Tiers,
    /// Task classes by name. At most 64; none means one class `other` of 50 ms.
    pub classes: BTreeMap<String, Class>,
    /// Limits by tenant; the entry `default` holds for everybody without one.
    pub tenants: BTreeMap<String, TenantLimits>,
    /// When the state changes.
    pub thresholds: Thresholds,
    /// How long depth and wait must stay low before recovery starts. 0..=3600000, default 2000: longer than a
    /// burst's gaps, shorter than a human notices.
    pub hold_ms: u64,
    /// Length of the ramp that lets deferrable work back in. 0..=3600000, default 3000.
    pub ramp_ms: u64,
    /// Least hint. 50..=10000, default 50 (CONTRACT section 2).
    pub hint_floor_ms: u64,
    /// Greatest hint; there the window widens instead. 1000..=86400000, default 30000 (CONTRACT section 2).
    pub hint_ceiling_ms: u64,
    /// Longest deadline of any task; longer ones are cut (SRQ-03). 1..=86400000, default 3600000 (1 h). Each class's
    /// `deadline_ms` is within it, or within the class's own maximum.
    pub max_deadline_ms: u64,
    /// Safety margin of the deadline test. 0..=60000, default 20: dispatch and network of one machine room.
    pub margin_ms: u64,
    /// Safety margin as a share of p95; the larger of the two counts. 0..=1, default 0.05.
    pub margin_share: f64,
    /// Share of refused work over which the shed-rate alert fires after five minutes (ADM-23). 0..=1, default 0.05.
    pub shed_rate_alert: f64,
}

/// One entry a tier.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tiers {
    /// Refused for load only when its own budget is used.
    pub critical: TierLimits,
    /// Never discarded once accepted; bounded at the door.
    #[serde(rename = "non-sheddable")]
    pub non_sheddable: TierLimits,
    /// First to be refused.
    pub deferrable: TierLimits,
}

/// Budget of one tier.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TierLimits {
    /// Tasks of this tier that wait. 0..=100000. Default: `queue` for deferrable, half of it for non-sheddable, a
    /// quarter for critical, rounded up. Beyond it `tier_budget_exhausted`.
    pub queue: Option<u32>,
    /// Estimated work of this tier that waits. 1..=86400000 a worker. Default: no bound of its own below
    /// `queue_work_ms`.
    pub queued_work_ms: Option<u64>,
    /// Tasks of this tier that run at once. 0..=workers, default all. 0 closes the tier, idle server or not.
    pub slots: Option<u32>,
    /// Critical only: workers kept for it. 0..=workers-1, default one in ten, rounded down. Others borrow one only for
    /// work whose p95 fits critical's tightest slack (ADM-22).
    pub reserved_workers: Option<u32>,
    /// Share of the dispatch while other tiers wait too. 0.01..=100, default 0.5, 0.3, 0.2.
    pub weight: Option<f64>,
    /// Least wait bound W. 0..=3600000, default 50: below that the estimate is noise.
    pub min_wait_ms: Option<u64>,
    /// Greatest wait bound W. 1..=86400000, default 30000; non-sheddable 600000, since its own queue bounds it.
    pub max_wait_ms: Option<u64>,
}

/// A kind of task. Service times are priors: what is measured replaces them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Class {
    /// Mean service time. 0.001..=86400000, default 50.
    pub mean_ms: f64,
    /// 95th percentile. mean/2..=86400000, default twice the mean.
    pub p95_ms: Option<f64>,
    /// Deadline of a request that names none (SRQ-01). 1..=`max_deadline_ms`, default 5000.
    pub deadline_ms: u64,
    /// Longest deadline of this class. 1..=86400000, default the profile's.
    pub max_deadline_ms: Option<u64>,
}

/// Limits of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantLimits {
    /// Tasks of this tenant that run at once. 1..=4096, default no limit of its own. A tenant at this limit waits
    /// without holding up anybody else (ADM-03).
    pub active: Option<u32>,
    /// Estimated work of this tenant that waits. 1..=86400000 a worker; default no fixed limit. A charge above the
    /// whole of it is a validation error (ADM-26).
    pub queued_work_ms: Option<u64>,
    /// Tiers this tenant may use (SRQ-06); a request for another is lowered. Default: what the server's own rule says.
    pub tiers: Option<Vec<TierName>>,
}

/// A tier as a profile writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TierName {
    /// [`Tier::Critical`].
    Critical,
    /// [`Tier::NonSheddable`].
    NonSheddable,
    /// [`Tier::Deferrable`].
    Deferrable,
}

/// When the state changes. Two thresholds and a dwell time, since one threshold for both directions flips.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// Queued tasks from which the state is congested. 1..=300000, default half of `queue` (at least 1).
    pub enter_depth: Option<u32>,
    /// Queued tasks from which it is shedding. `enter_depth`..=300000, default 1.25 x `enter_depth`.
    pub shed_depth: Option<u32>,
    /// Queued tasks down to which it counts as low. 0..`enter_depth`, default a quarter of `queue`.
    pub exit_depth: Option<u32>,
    /// Predicted wait as a share of the deferrable wait bound from which the state is congested. 0.01..=10, default 0.5.
    pub enter_wait: f64,
    /// The share from which it is shedding. `enter_wait`..=10, default 0.9.
    pub shed_wait: f64,
    /// The share down to which it counts as low. 0..`enter_wait`, default 0.25.
    pub exit_wait: f64,
}

/// A value outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {value}; it must be {limit}")]
pub struct ProfileError {
    /// Dotted key, for instance `tiers.critical.reserved_workers`.
    pub key: String,
    /// What was given.
    pub value: String,
    /// What is allowed.
    pub limit: String,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            workers: 4,
            queue: 256,
            queue_bytes: 64 << 20,
            queue_work_ms: None,
            max_bytes: 1 << 20,
            backlog: None,
            backlog_age_ms: 600_000,
            tiers: Tiers::default(),
            classes: BTreeMap::new(),
            tenants: BTreeMap::new(),
            thresholds: Thresholds::default(),
            hold_ms: 2_000,
            ramp_ms: 3_000,
            hint_floor_ms: 50,
            hint_ceiling_ms: 30_000,
            max_deadline_ms: 3_600_000,
            margin_ms: 20,
            margin_share: 0.05,
            shed_rate_alert: 0.05,
        }
    }
}

impl Default for Class {
    fn default() -> Self {
        Self {
            mean_ms: 50.0,
            p95_ms: None,
            deadline_ms: 5_000,
            max_deadline_ms: None,
        }
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            enter_depth: None,
            shed_depth: None,
            exit_depth: None,
            enter_wait: 0.5,
            shed_wait: 0.9,
            exit_wait: 0.25,
        }
    }
}

impl From<TierName> for Tier {
    fn from(name: TierName) -> Self {
        match name {
            TierName::Critical => Self::Critical,
            TierName::NonSheddable => Self::NonSheddable,
            TierName::Deferrable => Self::Deferrable,
        }
    }
}

impl Class {
    /// Mean service time.
    pub fn mean(&self) -> Duration {
        millis(self.mean_ms)
    }

    /// 95th percentile; twice the mean where the profile says nothing.
    pub fn p95(&self) -> Duration {
        millis(self.p95_ms.unwrap_or(self.mean_ms * 2.0))
    }

    /// Deadline of a request that names none.
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }
}

impl TenantLimits {
    /// The tier a request of this tenant runs in when it asks for `asked`: the same, or the next lower one it may use
    /// (SRQ-06). A tenant that may use none of those runs as deferrable.
    pub fn clamp(&self, asked: Tier) -> Tier {
        let Some(allowed) = &self.tiers else { return asked };
        let mut lower = Tier::ALL.iter().copied().filter(|tier| *tier >= asked);
        lower
            .find(|tier| allowed.iter().any(|name| Tier::from(*name) == *tier))
            .unwrap_or(Tier::Deferrable)
    }
}

impl Profile {
    /// The limits of one tier, as written.
    pub fn tier(&self, tier: Tier) -> &TierLimits {
        match tier {
            Tier::Critical => &self.tiers.critical,
            Tier::NonSheddable => &self.tiers.non_sheddable,
            Tier::Deferrable => &self.tiers.deferrable,
        }
    }

    /// The limits of a tenant: its own entry, else `default`, else none.
    pub fn tenant(&self, name: Option<&str>) -> TenantLimits {
        name.and_then(|name| self.tenants.get(name))
            .or_else(|| self.tenants.get(DEFAULT_TENANT))
            .cloned()
            .unwrap_or_default()
    }

    /// Tasks of this tier that may wait.
    pub fn queue_limit(&self, tier: Tier) -> u32 {
        let by_default = match tier {
            Tier::Critical => self.queue.div_ceil(4),
            Tier::NonSheddable => self.queue.div_ceil(2),
            Tier::Deferrable => self.queue,
        };
        self.tier(tier).queue.unwrap_or(by_default)
    }

    /// Tasks that may wait, all tiers and the backlog: the bound that holds under any load (ADM-01).
    pub fn declared_depth(&self) -> u32 {
        let tiers = Tier::ALL.iter().map(|tier| self.queue_limit(*tier));
        tiers.fold(self.backlog_limit(), u32::saturating_add)
    }

    /// Deferred tasks that may wait.
    pub fn backlog_limit(&self) -> u32 {
        self.backlog.unwrap_or(self.queue)
    }

    /// Tasks of this tier that may run at once.
    pub fn slots(&self, tier: Tier) -> u32 {
        self.tier(tier).slots.unwrap_or(self.workers).min(self.workers)
    }

    /// Workers kept for critical work.
    pub fn reserved_workers(&self) -> u32 {
        self.tiers.critical.reserved_workers.unwrap_or(self.workers / 10)
    }

    /// Share of the dispatch of this tier.
    pub fn weight(&self, tier: Tier) -> f64 {
        let by_default = match tier {
            Tier::Critical => 0.5,
            Tier::NonSheddable => 0.3,
            Tier::Deferrable => 0.2,
        };
        self.tier(tier).weight.unwrap_or(by_default)
    }

    /// Least and greatest wait bound W of this tier.
    pub fn wait_bounds(&self, tier: Tier) -> (Duration, Duration) {
        let limits = self.tier(tier);
        let greatest = limits.max_wait_ms.unwrap_or(if tier == Tier::NonSheddable {
            600_000
        } else {
            30_000
        });
        let least = limits.min_wait_ms.unwrap_or(50).min(greatest);
        (Duration::from_millis(least), Duration::from_millis(greatest))
    }

    /// Estimated work that may wait, all tiers.
    pub fn queue_work(&self) -> Duration {
        Duration::from_millis(self.queue_work_ms.unwrap_or(u64::from(self.workers) * 600_000))
    }

    /// Estimated work of this tier that may wait.
    pub fn tier_work(&self, tier: Tier) -> Duration {
        self.tier(tier)
            .queued_work_ms
            .map_or(self.queue_work(), Duration::from_millis)
    }

    /// Depths at which the state becomes congested, shedding, low.
    pub fn depths(&self) -> (u32, u32, u32) {
        let enter = self.thresholds.enter_depth.unwrap_or((self.queue / 2).max(1));
        let shed = self
            .thresholds
            .shed_depth
            .unwrap_or(enter.saturating_add(enter.div_ceil(4)));
        let exit = self
            .thresholds
            .exit_depth
            .unwrap_or((self.queue / 4).min(enter - enter.min(1)));
        (enter, shed, exit)
    }

    /// Longest deadline of this class.
    pub fn max_deadline(&self, class: &Class) -> Duration {
        let limit = class.max_deadline_ms.unwrap_or(self.max_deadline_ms);
        Duration::from_millis(limit.max(class.deadline_ms))
    }

    /// What unknown classes get: the slowest prior of the profile (SRQ-07), so that an unknown name buys nothing.
    pub fn other_class(&self) -> Class {
        let slowest = self
            .classes
            .values()
            .max_by(|a, b| a.mean_ms.total_cmp(&b.mean_ms));
        slowest.cloned().unwrap_or_else(|| Class {
            deadline_ms: Class::default().deadline_ms.min(self.max_deadline_ms),
            ..Class::default()
        })
    }
}

/// Milliseconds with a fraction; what is no length is zero ([`Profile::validate`] has refused it).
pub(crate) fn millis(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default()
}
