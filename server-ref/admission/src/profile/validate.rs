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

/// What is wrong with a profile, in the order of its keys.
#[derive(Default)]
struct Faults(Vec<ProfileError>);

impl Faults {
    /// Checks one number against its range.
    fn within<T: PartialOrd + Display>(&mut self, key: impl Display, value: T, range: RangeInclusive<T>) {
        self.beside(key, value, range, "");
    }

    /// The same where an end of the range comes from another key; `why` says which, and what it is.
    #[expect(clippy::needless_pass_by_value, reason = "ranges are written at the call")]
    fn beside<T: PartialOrd + Display>(
        &mut self,
        key: impl Display,
        value: T,
        range: RangeInclusive<T>,
        why: impl Display,
    ) {
        // NaN compares with nothing, so it is in no range.
        if range.contains(&value) {
            return;
        }
        let (least, most) = (range.start(), range.end());
        let why = why.to_string();
        let limit = if why.is_empty() {
            format!("in {least}..={most}")
        } else {
            format!("in {least}..={most} ({why})")
        };
        self.0.push(ProfileError {
            key: key.to_string(),
            value: value.to_string(),
            limit,
        });
    }

    /// Checks a name that is a key of `table`.
    fn named(&mut self, table: &str, name: &str, fits: bool, limit: &str) {
        if fits {
            return;
        }
        // As foreign text: cut, and with what cannot be printed escaped.
        let value: String = name.chars().take(64).collect();
        self.0.push(ProfileError {
            key: format!("{table}.{}", value.escape_debug()),
            value: format!("{value:?}"),
            limit: limit.to_owned(),
        });
    }
}

impl Profile {
    /// Checks every range.
    ///
    /// # Errors
    /// The first value outside its range, with its key, what was given and what is allowed.
    pub fn validate(&self) -> Result<(), ProfileError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// Every value that is outside its range, or breaks the limit that another one sets; none where the profile can be used.
    #[must_use]
    pub fn faults(&self) -> Vec<ProfileError> {
        let mut faults = Faults::default();
        self.check_whole(&mut faults);
        for tier in Tier::ALL {
            self.check_tier(*tier, &mut faults);
        }
        self.check_thresholds(&mut faults);
        faults.within("number of classes", self.classes.len(), 0..=MAX_CLASSES);
        for (name, class) in &self.classes {
            self.check_class(name, class, &mut faults);
        }
        faults.within("number of tenants", self.tenants.len(), 0..=MAX_NAMED_TENANTS);
        for (name, limits) in &self.tenants {
            self.check_tenant(name, limits, &mut faults);
        }
        faults.0
    }

    /// Most estimated work that may wait: a day for each worker.
    fn most_work(&self) -> u64 {
        DAY_MS * u64::from(self.workers.max(1))
    }

    fn check_work(&self, key: impl Display, work: Option<u64>, faults: &mut Faults) {
        if let Some(work) = work {
            let why = format!("{DAY_MS} for each of workers, which is {}", self.workers);
            faults.beside(key, work, 1..=self.most_work(), why);
        }
    }

    fn check_whole(&self, faults: &mut Faults) {
        faults.within("workers", self.workers, 1..=MAX_WORKERS);
        faults.within("queue", self.queue, 0..=MAX_DEPTH);
        faults.within("queue_bytes", self.queue_bytes, 1..=1 << 40);
        faults.within("max_bytes", self.max_bytes, 1..=1 << 32);
        self.check_work("queue_work_ms", self.queue_work_ms, faults);
        faults.within("backlog", self.backlog_limit(), 0..=MAX_DEPTH);
        faults.within("backlog_age_ms", self.backlog_age_ms, 1_000..=DAY_MS);
        faults.within("hold_ms", self.hold_ms, 0..=3_600_000);
        faults.within("ramp_ms", self.ramp_ms, 0..=3_600_000);
        faults.within("hint_floor_ms", self.hint_floor_ms, 50..=10_000);
        let floor = self.hint_floor_ms;
        faults.beside(
            "hint_ceiling_ms",
            self.hint_ceiling_ms,
            floor.max(1_000)..=DAY_MS,
            if floor > 1_000 {
                format!("at least hint_floor_ms, which is {floor}")
            } else {
                String::new()
            },
        );
        faults.within("max_deadline_ms", self.max_deadline_ms, 1..=DAY_MS);
        faults.within("margin_ms", self.margin_ms, 0..=60_000);
        faults.within("margin_share", self.margin_share, 0.0..=1.0);
        faults.within("shed_rate_alert", self.shed_rate_alert, 0.0..=1.0);
    }

    fn check_tier(&self, tier: Tier, faults: &mut Faults) {
        let limits = self.tier(tier);
        let key = |name: &str| format!("tiers.{tier}.{name}");
        let workers = self.workers;
        faults.within(key("queue"), self.queue_limit(tier), 0..=MAX_DEPTH);
        self.check_work(key("queued_work_ms"), limits.queued_work_ms, faults);
        let why = format!("at most workers, which is {workers}");
        faults.beside(key("slots"), limits.slots.unwrap_or(0), 0..=workers, why);
        if let Some(reserved) = limits.reserved_workers {
            let (most, why) = if tier == Tier::Critical {
                let why = format!("less than workers, which is {workers}");
                (workers.saturating_sub(1), why)
            } else {
                (0, "workers are reserved for tiers.critical alone".to_owned())
            };
            faults.beside(key("reserved_workers"), reserved, 0..=most, why);
        }
        faults.within(key("weight"), self.weight(tier), 0.01..=100.0);
        let greatest = self.wait_bounds(tier).1.as_millis() as u64;
        faults.within(key("max_wait_ms"), greatest, 1..=DAY_MS);
        let least = limits.min_wait_ms.unwrap_or(0);
        let why = format!("at most max_wait_ms, which is {greatest}");
        faults.beside(key("min_wait_ms"), least, 0..=greatest.min(3_600_000), why);
    }

    fn check_thresholds(&self, faults: &mut Faults) {
        let key = |name: &str| format!("thresholds.{name}");
        let (enter, shed, exit) = self.depths();
        faults.within(key("enter_depth"), enter, 1..=MOST_WAITING);
        // Its default is a quarter above enter_depth.
        let most = self.thresholds.shed_depth.map_or(shed, |_| MOST_WAITING);
        let why = format!("at least enter_depth, which is {enter}");
        faults.beside(key("shed_depth"), shed, enter..=most, why);
        let why = format!("less than enter_depth, which is {enter}");
        faults.beside(key("exit_depth"), exit, 0..=enter.saturating_sub(1), why);
        let t = &self.thresholds;
        let enter = t.enter_wait;
        faults.within(key("enter_wait"), enter, 0.01..=10.0);
        let why = format!("at least enter_wait, which is {enter}");
        faults.beside(key("shed_wait"), t.shed_wait, enter..=10.0, why);
        let why = format!("at most 0.99 x enter_wait, which is {enter}");
        faults.beside(key("exit_wait"), t.exit_wait, 0.0..=enter * 0.99, why);
    }

    fn check_class(&self, class_name: &str, class: &Class, faults: &mut Faults) {
        let bytes = class_name.as_bytes();
        let fits = (1..=64).contains(&bytes.len())
            && bytes[0].is_ascii_lowercase()
            && bytes
                .iter()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(b));
        let limit = "a name of 1 to 64 characters, a to z first, then a to z, 0 to 9, '.', '_' or '-'";
        faults.named("classes", class_name, fits, limit);
        let key = |name: &str| format!("classes.{class_name}.{name}");
        let (day, mean) = (DAY_MS as f64, class.mean_ms);
        faults.within(key("mean_ms"), mean, 0.001..=day);
        if let Some(p95) = class.p95_ms {
            let why = format!("at least half of mean_ms, which is {mean}");
            faults.beside(key("p95_ms"), p95, mean / 2.0..=day, why);
        }
        let (longest, whose) = match class.max_deadline_ms {
            Some(longest) => {
                faults.within(key("max_deadline_ms"), longest, 1..=DAY_MS);
                (longest, "its max_deadline_ms")
            }
            None => (self.max_deadline_ms, "the profile's max_deadline_ms"),
        };
        let why = format!("at most {whose}, which is {longest}");
        faults.beside(
            key("deadline_ms"),
            class.deadline_ms,
            1..=longest.min(DAY_MS),
            why,
        );
    }

    fn check_tenant(&self, tenant: &str, limits: &TenantLimits, faults: &mut Faults) {
        let fits = (1..=128).contains(&tenant.len()) && tenant.bytes().all(|b| (b' '..=b'~').contains(&b));
        let limit = "a name of 1 to 128 printable ASCII characters";
        faults.named("tenants", tenant, fits, limit);
        let key = |name: &str| format!("tenants.{tenant}.{name}");
        if let Some(active) = limits.active {
            faults.within(key("active"), active, 1..=MAX_WORKERS);
        }
        self.check_work(key("queued_work_ms"), limits.queued_work_ms, faults);
    }
}
