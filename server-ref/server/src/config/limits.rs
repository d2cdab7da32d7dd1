//! The server's own limits.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use holdoff_admission::ProfileError;
use serde::Deserialize;

use super::out_of_range;

/// The server's own limits.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest request body. 1..=1048576, default 65536; the profile's `max_bytes` where that is less.
    pub max_body_bytes: usize,
    /// Longest time for a body to arrive. 1..=60000, default 5000.
    pub body_ms: u64,
    /// Longest `duration_ms` of a task. 1..=86400000, default 600000 (10 min).
    pub max_duration_ms: u64,
    /// Ended tasks that can still be looked up; the oldest goes first. 1..=1000000, default 10000.
    pub ended_tasks: usize,
    /// Non-sheddable tasks that did not end well and can still be looked up (`GET /v1/dead-letters`); the oldest goes
    /// first. 1..=1000000, default 10000.
    pub dead_letters: usize,
    /// How long an Idempotency-Key stands for its operation. 1000..=604800000, default 86400000 (24 h, CONTRACT section 3).
    pub key_ms: u64,
    /// Keys of one tenant within that time; beyond it new keys get tenant_limit. 1..=10000000, default 100000.
    pub keys_per_tenant: usize,
    /// Keys of all tenants; beyond it new keys get queue_full. 1..=10000000, default 1000000 (some 300 bytes each).
    pub keys: usize,
    /// Non-sheddable work that has not started this long after its deadline is not run any more and becomes a dead
    /// letter. 0..=86400000, default none: late work still runs.
    pub late_ms: Option<u64>,
    /// Open connections; more wait in the listener's backlog. 1..=65536, default 4096.
    pub max_connections: usize,
    /// Longest time that a stop waits for accepted work. 0..=3600000, default 10000.
    pub drain_ms: u64,
    /// `grpc-timeout`, `connect-timeout-ms` and `x-envoy-expected-rq-timeout-ms` count as deadlines too (SRQ-04). Default
    /// no: for a server behind a hop that sets or strips them.
    pub foreign_deadlines: bool,
    /// Classes whose work keeps a processor busy for its time; that of the others sleeps. Names under the profile's `classes`.
    /// Default none.
    pub burn: BTreeSet<String>,
    /// A TOML file with the service's own words for its refusals (CLI-26, [`holdoff_contract::vocabulary`]), at most 1 MiB: they
    /// are said beside the contract's fields, for callers that know no others. Default none.
    pub vocabulary: Option<PathBuf>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 64 * 1024,
            body_ms: 5_000,
            max_duration_ms: 600_000,
            ended_tasks: 10_000,
            dead_letters: 10_000,
            key_ms: 86_400_000,
            keys_per_tenant: 100_000,
            keys: 1_000_000,
            late_ms: None,
            max_connections: 4_096,
            drain_ms: 10_000,
            foreign_deadlines: false,
            burn: BTreeSet::new(),
            vocabulary: None,
        }
    }
}

impl Limits {
    pub(super) fn faults(&self, faults: &mut Vec<ProfileError>) {
        for (key, value, least, most) in [
            ("max_body_bytes", self.max_body_bytes as u64, 1, 1 << 20),
            ("body_ms", self.body_ms, 1, 60_000),
            ("max_duration_ms", self.max_duration_ms, 1, 86_400_000),
            ("ended_tasks", self.ended_tasks as u64, 1, 1_000_000),
            ("dead_letters", self.dead_letters as u64, 1, 1_000_000),
            ("key_ms", self.key_ms, 1_000, 604_800_000),
            ("keys_per_tenant", self.keys_per_tenant as u64, 1, 10_000_000),
            ("keys", self.keys as u64, 1, 10_000_000),
            ("late_ms", self.late_ms.unwrap_or(0), 0, 86_400_000),
            ("max_connections", self.max_connections as u64, 1, 65_536),
            ("drain_ms", self.drain_ms, 0, 3_600_000),
        ] {
            in_range(&format!("server.{key}"), value, least, most, faults);
        }
    }

    /// Longest time that a stop waits for accepted work.
    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}

/// Notes a value that is outside its range.
pub(crate) fn in_range(key: &str, value: u64, least: u64, most: u64, faults: &mut Vec<ProfileError>) {
    if !(least..=most).contains(&value) {
        faults.push(out_of_range(
            key,
            value,
            format!("a whole number in {least}..={most}"),
        ));
    }
}
