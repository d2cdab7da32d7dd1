//! Every key of a profile: what it is, its unit, range and default.
//!
//! One table, so that the reader, the error messages, the shipped example files and `holdoff-server keys` cannot say
//! different things. What a value must be beside *other* values ([`Key::also`](field@Key::also)) is decided where they all are known, by
//! [`holdoff_admission::Profile::validate`].

use std::fmt;

/// A key of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Dotted path; `<tier>`, `<class>`, `<tenant>` and `<token>` stand for any name.
    pub path: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// Unit; empty where there is none.
    pub unit: &'static str,
    /// What holds where the key is left out.
    pub default: &'static str,
    /// What it must be beside other keys; empty where nothing.
    pub also: &'static str,
    /// What it is.
    pub says: &'static str,
}

/// Type and range of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number.
    Whole {
        /// Least.
        least: u64,
        /// Greatest.
        most: u64,
    },
    /// A number.
    Real {
        /// Least.
        least: f64,
        /// Greatest.
        most: f64,
    },
    /// `true` or `false`.
    Switch,
    /// The name of a tenant.
    Tenant,
    /// A path.
    Path,
    /// A list of tiers.
    Tiers,
    /// A list of task classes.
    Classes,
}

/// The names of the tiers.
pub const TIERS: [&str; 3] = ["critical", "non-sheddable", "deferrable"];

const DAY: u64 = 86_400_000;
const HOUR: u64 = 3_600_000;
/// 86400000 ms for each of 4096 workers.
const MOST_WORK: u64 = DAY * 4_096;
const PER_WORKER: &str = "at most 86400000 for each worker";

const fn key(
    path: &'static str,
    kind: Kind,
    unit: &'static str,
    default: &'static str,
    says: &'static str,
) -> Key {
    Key {
        path,
        kind,
        unit,
        default,
        also: "",
        says,
    }
}

const fn whole(least: u64, most: u64) -> Kind {
    Kind::Whole { least, most }
}

const fn real(least: f64, most: f64) -> Kind {
    Kind::Real { least, most }
}

impl Key {
    const fn beside(mut self, also: &'static str) -> Self {
        self.also = also;
        self
    }

    /// The range, what it must be beside others, and the default: how the example files document it.
    pub fn limits(&self) -> String {
        let mut text = self.kind.range();
        for (between, part) in [(" ", self.unit), (", ", self.also), ("; default ", self.default)] {
            if !part.is_empty() {
                text.push_str(between);
                text.push_str(part);
            }
        }
        text
    }

    /// What a value must be, for an error.
    pub(super) fn must_be(&self) -> String {
        let mut text = match self.kind {
            Kind::Whole { .. } => format!("a whole number in {}", self.kind.range()),
            Kind::Real { .. } => format!("a number in {}", self.kind.range()),
            _ => self.kind.range(),
        };
        if !self.unit.is_empty() {
            text = format!("{text} ({})", self.unit);
        }
        text
    }
}

impl Kind {
    pub(super) fn range(&self) -> String {
        match self {
            Self::Whole { least, most } => format!("{least}..={most}"),
            Self::Real { least, most } => format!("{least}..={most}"),
            Self::Switch => "true or false".to_owned(),
            Self::Tenant => "1 to 128 printable ASCII characters".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Tiers => format!("a list of one or more of {}, each once", TIERS.join(", ")),
            Self::Classes => "a list of names under classes, each once".to_owned(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.path, self.says, self.limits())
    }
}

/// Names that a file chooses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    /// How the table writes them.
    pub(super) stands_as: &'static str,
    pub(super) plural: &'static str,
    pub(super) must_be: &'static str,
    pub(super) fits: fn(&str) -> bool,
    /// Most entries.
    pub(super) most: usize,
    /// They are secrets, and are never shown.
    pub(super) secret: bool,
}

pub(super) const NAMES: [Names; 4] = [
    Names {
        stands_as: "<tier>",
        plural: "tiers",
        must_be: "one of critical, non-sheddable, deferrable",
        fits: |name| TIERS.contains(&name),
        most: TIERS.len(),
        secret: false,
    },
    Names {
        stands_as: "<class>",
        plural: "classes",
        must_be: "1 to 64 characters [a-z][a-z0-9._-]*",
        fits: |name| holdoff_contract::TaskClass::new(name).is_ok(),
        most: holdoff_admission::profile::MAX_CLASSES,
        secret: false,
    },
    Names {
        stands_as: "<tenant>",
        plural: "tenants",
        must_be: "1 to 128 printable ASCII characters",
        fits: |name| holdoff_contract::Tenant::new(name).is_ok(),
        most: holdoff_admission::profile::MAX_NAMED_TENANTS,
        secret: false,
    },
    Names {
        stands_as: "<token>",
        plural: "tokens",
        must_be: "1 to 512 printable ASCII characters without spaces",
        fits: |name| (1..=512).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic()),
        most: super::MAX_IDENTITIES,
        secret: true,
    },
];

/// Every key.
#[rustfmt::skip] // a table reads as a table
pub const KEYS: &[Key] = &[
    key("workers", whole(1, 4_096), "tasks", "4", "tasks that run at once"),
    key("queue", whole(0, 100_000), "tasks", "256", "deferrable tasks that wait; beyond it queue_full (with 0 concurrency_limit)"),
    key("queue_bytes", whole(1, 1 << 40), "bytes", "67108864", "payload that waits, all tiers; the last eighth is kept for critical"),
    key("queue_work_ms", whole(1, MOST_WORK), "ms", "workers x 600000", "estimated work that waits, all tiers").beside(PER_WORKER),
    key("max_bytes", whole(1, 1 << 32), "bytes", "1048576", "largest payload of one task; a larger one is 413, not overload"),
    key("backlog", whole(0, 100_000), "tasks", "queue", "deferred tasks (202, outcome=defer) that wait for normal"),
    key("backlog_age_ms", whole(1_000, DAY), "ms", "600000", "longest stay in the backlog; then the task ends as evicted"),
    key("hold_ms", whole(0, HOUR), "ms", "2000", "how long depth and wait must stay low before recovery starts"),
    key("ramp_ms", whole(0, HOUR), "ms", "3000", "how long recovery lets deferrable work back in"),
    key("hint_floor_ms", whole(50, 10_000), "ms", "50", "least hint"),
    key("hint_ceiling_ms", whole(1_000, DAY), "ms", "30000", "greatest hint; there the window widens instead").beside("at least hint_floor_ms"),
    key("max_deadline_ms", whole(1, DAY), "ms", "3600000", "longer deadlines are cut to this"),
    key("margin_ms", whole(0, 60_000), "ms", "20", "safety margin of the deadline test"),
    key("margin_share", real(0.0, 1.0), "of p95", "0.05", "the same as a share; the larger of the two counts"),
    key("shed_rate_alert", real(0.0, 1.0), "of requests", "0.05", "alert when more than this is refused for five minutes"),
    key("tiers.<tier>.queue", whole(0, 100_000), "tasks", "queue, for non-sheddable half of it, for critical a quarter", "tasks of this tier that wait"),
    key("tiers.<tier>.queued_work_ms", whole(1, MOST_WORK), "ms", "no bound below queue_work_ms", "estimated work of this tier that waits").beside(PER_WORKER),
    key("tiers.<tier>.slots", whole(0, 4_096), "tasks", "workers", "tasks of this tier that run at once; 0 closes it").beside("at most workers"),
    key("tiers.<tier>.reserved_workers", whole(0, 4_095), "workers", "workers / 10, rounded down", "kept for critical work").beside("less than workers, for critical alone"),
    key("tiers.<tier>.weight", real(0.01, 100.0), "shares", "0.5 critical, 0.3 non-sheddable, 0.2 deferrable", "share of the dispatch while other tiers wait too"),
    key("tiers.<tier>.min_wait_ms", whole(0, HOUR), "ms", "50", "least wait bound W").beside("at most max_wait_ms"),
    key("tiers.<tier>.max_wait_ms", whole(1, DAY), "ms", "30000, for non-sheddable 600000", "greatest wait bound W"),
    key("classes.<class>.mean_ms", real(0.001, DAY as f64), "ms", "50", "mean service time, until it is measured"),
    key("classes.<class>.p95_ms", real(0.0005, DAY as f64), "ms", "2 x mean_ms", "95th percentile of it").beside("at least mean_ms / 2"),
    key("classes.<class>.deadline_ms", whole(1, DAY), "ms", "5000", "deadline of a request that names none").beside("at most max_deadline_ms"),
    key("classes.<class>.max_deadline_ms", whole(1, DAY), "ms", "the profile's max_deadline_ms", "longest deadline of this class"),
    key("tenants.<tenant>.active", whole(1, 4_096), "tasks", "no limit of its own", "tasks of this tenant that run at once; the others do not wait for it"),
    key("tenants.<tenant>.queued_work_ms", whole(1, MOST_WORK), "ms", "no fixed limit", "estimated work of it that waits; beyond it tenant_limit").beside(PER_WORKER),
    key("tenants.<tenant>.tiers", Kind::Tiers, "", "what its identity says", "tiers it may use; a request for another is lowered"),
    key("thresholds.enter_depth", whole(1, 300_000), "tasks", "queue / 2", "queued tasks from which the state is congested"),
    key("thresholds.shed_depth", whole(1, 300_000), "tasks", "1.25 x enter_depth", "queued tasks from which it is shedding").beside("at least enter_depth"),
    key("thresholds.exit_depth", whole(0, 299_999), "tasks", "queue / 4", "queued tasks down to which it counts as low").beside("less than enter_depth"),
    key("thresholds.enter_wait", real(0.01, 10.0), "of W", "0.5", "predicted wait from which the state is congested"),
    key("thresholds.shed_wait", real(0.01, 10.0), "of W", "0.9", "predicted wait from which it is shedding").beside("at least enter_wait"),
    key("thresholds.exit_wait", real(0.0, 9.9), "of W", "0.25", "predicted wait down to which it counts as low").beside("at most 0.99 x enter_wait"),
    key("anonymous.tenant", Kind::Tenant, "", "nobody's", "whose work it is"),
    key("anonymous.tiers", Kind::Tiers, "", "non-sheddable, deferrable", "tiers they may use; a request for another is lowered"),
    key("anonymous.trusted", Kind::Switch, "", "false", "told state and predicted wait, and its Overload-Tenant counts"),
    key("identities.<token>.tenant", Kind::Tenant, "", "nobody's", "whose work it is"),
    key("identities.<token>.tiers", Kind::Tiers, "", "non-sheddable, deferrable", "tiers it may use; a request for another is lowered"),
    key("identities.<token>.trusted", Kind::Switch, "", "false", "told state and predicted wait, and its Overload-Tenant counts"),
    key("server.max_body_bytes", whole(1, 1 << 20), "bytes", "65536", "largest request body"),
    key("server.body_ms", whole(1, 60_000), "ms", "5000", "longest time for a body to arrive"),
    key("server.max_duration_ms", whole(1, DAY), "ms", "600000", "longest duration_ms of a task"),
    key("server.ended_tasks", whole(1, 1_000_000), "tasks", "10000", "ended tasks that can still be looked up"),
    key("server.dead_letters", whole(1, 1_000_000), "tasks", "10000", "the same for non-sheddable ones that did not end well"),
    key("server.late_ms", whole(0, DAY), "ms", "never: it still runs", "non-sheddable work this late at its turn is a dead letter"),
    key("server.key_ms", whole(1_000, 604_800_000), "ms", "86400000", "how long an Idempotency-Key stands for its operation"),
    key("server.keys_per_tenant", whole(1, 10_000_000), "keys", "100000", "of one tenant in that time; beyond it tenant_limit"),
    key("server.keys", whole(1, 10_000_000), "keys", "1000000", "of all tenants; beyond it queue_full"),
    key("server.max_connections", whole(1, 65_536), "connections", "4096", "open at once; more wait in the backlog of the listener"),
    key("server.drain_ms", whole(0, HOUR), "ms", "10000", "longest time that a stop waits for accepted work"),
    key("server.foreign_deadlines", Kind::Switch, "", "false", "grpc-timeout, connect-timeout-ms, x-envoy-expected-rq-timeout-ms count too"),
    key("server.burn", Kind::Classes, "", "none", "classes whose work keeps a processor busy for its time; that of the others sleeps"),
    key("server.vocabulary", Kind::Path, "", "none", "TOML file with the service's own words for its refusals, said beside the contract's; relative to the profile's directory"),
    key("observe.admin", Kind::Switch, "", "false", "GET /admin/admission on the main listener too"),
    key("observe.tenant_log", Kind::Path, "", "none", "directory of sampled logs that name tenants, JSON lines, a file an hour; relative to the working directory"),
    key("observe.tenant_log_per_second", whole(1, 10_000), "requests", "10", "logged in a second, at most"),
    key("observe.tenant_log_retention_hours", whole(1, 87_600), "h", "72", "a file of the log is deleted after this"),
    key("observe.trace", Kind::Path, "", "none", "file of every decision, tenants hashed, as --trace; relative to the working directory"),
    key("observe.trace_max_mb", whole(1, 65_536), "MiB", "256", "the trace ends at this size"),
];

/// The key of this pattern.
pub(super) fn key_of(pattern: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == pattern)
}

/// What may stand directly under this pattern, in the order of the table.
pub(super) fn children(pattern: &str) -> Vec<&'static str> {
    let mut children = Vec::new();
    for key in KEYS {
        let Some(rest) = under(key.path, pattern) else {
            continue;
        };
        let child = rest.split('.').next().unwrap_or(rest);
        if !children.contains(&child) {
            children.push(child);
        }
    }
    children
}

fn under<'p>(path: &'p str, pattern: &str) -> Option<&'p str> {
    if pattern.is_empty() {
        return Some(path);
    }
    path.strip_prefix(pattern)?.strip_prefix('.')
}

/// The kind of names that stand under this pattern, where the file chooses them.
pub(super) fn names_under(pattern: &str) -> Option<&'static Names> {
    let child = children(pattern).into_iter().next()?;
    NAMES.iter().find(|names| names.stands_as == child)
}
