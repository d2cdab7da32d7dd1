//! The ranges of a profile. A value outside is refused by its dotted key, never cut: a bound that silently became
//! another one is worse than none.

use std::fmt::Display;
use std::ops::RangeInclusive;

use holdoff_contract::Tier;

use super::{Class, MAX_CLASSES, MAX_NAMED_TENANTS, Profile, ProfileError, TenantLimits};

const DAY_MS: u64 = 86_400_000;
const MAX_WORKERS: u32 = 4_096;
const MAX_DEPTH: u32 = 100_000;
/// The queues of the three tiers at their deepest.
const MOST_WAITING: u32 = 3 * MAX_DEPTH;

/// Checks one number against its range.
#[expect(clippy::needless_pass_by_value, reason = "ranges are written at the call")]
fn within<T: PartialOrd + Display>(
    key: impl FnOnce() -> String,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), ProfileError> {
    // NaN compares with nothing, so it is in no range.
    if range.contains(&value) {
        return Ok(());
    }
    Err(ProfileError {
        key: key(),
        value: value.to_string(),
        limit: format!("in {}..={}", range.start(), range.end()),
    })
}

/// Checks a name that is a key of `table`.
fn named(table: &str, name: &str, fits: bool, limit: &str) -> Result<(), ProfileError> {
    if fits {
        return Ok(());
    }
    // As foreign text: cut, and with what cannot be printed escaped.
    let value: String = name.chars().take(64).collect();
    Err(ProfileError {
        key: format!("{table}.{}", value.escape_debug()),
        value: format!("{value:?}"),
        limit: limit.to_owned(),
    })
}

impl Profile {
    /// Checks every range.
    ///
    /// # Errors
    /// The first value outside its range, with its key, what was given and what is allowed.
    pub fn validate(&self) -> Result<(), ProfileError> {
        let key = |name: &'static str| move || name.to_owned();
        let most_work = DAY_MS * u64::from(self.workers.max(1));
        within(key("workers"), self.workers, 1..=MAX_WORKERS)?;
        within(key("queue"), self.queue, 0..=MAX_DEPTH)?;
        within(key("queue_bytes"), self.queue_bytes, 1..=1 << 40)?;
        within(key("max_bytes"), self.max_bytes, 1..=1 << 32)?;
        if let Some(work) = self.queue_work_ms {
            within(key("queue_work_ms"), work, 1..=most_work)?;
        }
        within(key("backlog"), self.backlog_limit(), 0..=MAX_DEPTH)?;
        within(key("backlog_age_ms"), self.backlog_age_ms, 1_000..=DAY_MS)?;
        within(key("hold_ms"), self.hold_ms, 0..=3_600_000)?;
        within(key("ramp_ms"), self.ramp_ms, 0..=3_600_000)?;
        within(key("hint_floor_ms"), self.hint_floor_ms, 50..=10_000)?;
        within(
            key("hint_ceiling_ms"),
            self.hint_ceiling_ms,
            self.hint_floor_ms.max(1_000)..=DAY_MS,
        )?;
        within(key("max_deadline_ms"), self.max_deadline_ms, 1..=DAY_MS)?;
        within(key("margin_ms"), self.margin_ms, 0..=60_000)?;
        within(key("margin_share"), self.margin_share, 0.0..=1.0)?;
        within(key("shed_rate_alert"), self.shed_rate_alert, 0.0..=1.0)?;
        for tier in Tier::ALL {
            self.validate_tier(*tier, most_work)?;
        }
        self.validate_thresholds()?;
        within(key("number of classes"), self.classes.len(), 0..=MAX_CLASSES)?;
        for (name, class) in &self.classes {
            validate_class(name, class)?;
        }
        within(
            key("number of tenants"),
            self.tenants.len(),
            0..=MAX_NAMED_TENANTS,
        )?;
        self.tenants
            .iter()
            .try_for_each(|(name, limits)| validate_tenant(name, limits, most_work))
    }

    fn validate_tier(&self, tier: Tier, most_work: u64) -> Result<(), ProfileError> {
        let limits = self.tier(tier);
        let key = |name: &'static str| move || format!("tiers.{tier}.{name}");
        within(key("queue"), self.queue_limit(tier), 0..=MAX_DEPTH)?;
        if let Some(work) = limits.queued_work_ms {
            within(key("queued_work_ms"), work, 1..=most_work)?;
        }
        within(key("slots"), limits.slots.unwrap_or(0), 0..=self.workers)?;
        if let Some(workers) = limits.reserved_workers {
            let most = if tier == Tier::Critical {
                self.workers - 1
            } else {
                0
            };
            within(key("reserved_workers"), workers, 0..=most)?;
        }
        within(key("weight"), self.weight(tier), 0.01..=100.0)?;
        let greatest = self.wait_bounds(tier).1.as_millis() as u64;
        within(key("max_wait_ms"), greatest, 1..=DAY_MS)?;
        within(
            key("min_wait_ms"),
            limits.min_wait_ms.unwrap_or(0),
            0..=greatest.min(3_600_000),
        )
    }

    fn validate_thresholds(&self) -> Result<(), ProfileError> {
        let key = |name: &'static str| move || format!("thresholds.{name}");
        let (enter, shed, exit) = self.depths();
        let t = &self.thresholds;
        within(key("enter_depth"), enter, 1..=MOST_WAITING)?;
        // Its default is a quarter above enter_depth.
        let most = t.shed_depth.map_or(shed, |_| MOST_WAITING);
        within(key("shed_depth"), shed, enter..=most)?;
        within(key("exit_depth"), exit, 0..=enter - 1)?;
        within(key("enter_wait"), t.enter_wait, 0.01..=10.0)?;
        within(key("shed_wait"), t.shed_wait, t.enter_wait..=10.0)?;
        within(key("exit_wait"), t.exit_wait, 0.0..=t.enter_wait * 0.99)
    }
}

fn validate_class(class_name: &str, class: &Class) -> Result<(), ProfileError> {
    let bytes = class_name.as_bytes();
    let fits = (1..=64).contains(&bytes.len())
        && bytes[0].is_ascii_lowercase()
        && bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(b));
    let limit = "a name of 1 to 64 characters, a to z first, then a to z, 0 to 9, '.', '_' or '-'";
    named("classes", class_name, fits, limit)?;
    let key = |name: &'static str| move || format!("classes.{class_name}.{name}");
    let day = DAY_MS as f64;
    within(key("mean_ms"), class.mean_ms, 0.001..=day)?;
    if let Some(p95) = class.p95_ms {
        within(key("p95_ms"), p95, class.mean_ms / 2.0..=day)?;
    }
    within(key("deadline_ms"), class.deadline_ms, 1..=DAY_MS)?;
    match class.max_deadline_ms {
        Some(limit) => within(key("max_deadline_ms"), limit, 1..=DAY_MS),
        None => Ok(()),
    }
}

fn validate_tenant(tenant: &str, limits: &TenantLimits, most_work: u64) -> Result<(), ProfileError> {
    let fits = (1..=128).contains(&tenant.len()) && tenant.bytes().all(|b| (b' '..=b'~').contains(&b));
    named(
        "tenants",
        tenant,
        fits,
        "a name of 1 to 128 printable ASCII characters",
    )?;
    let key = |name: &'static str| move || format!("tenants.{tenant}.{name}");
    if let Some(active) = limits.active {
        within(key("active"), active, 1..=MAX_WORKERS)?;
    }
    if let Some(work) = limits.queued_work_ms {
        within(key("queued_work_ms"), work, 1..=most_work)?;
    }
    Ok(())
}
