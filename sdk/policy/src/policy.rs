//! The caller's knobs, each with its range, its default and the reason for it.

use std::time::Duration;

/// How a caller behaves when it is refused. Made by [`PolicyBuilder`]; the default is the contract's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(crate) max_attempts: u8,
    pub(crate) max_attempts_scheduled: u8,
    pub(crate) hint_cap: Duration,
    pub(crate) backoff_floor: Duration,
    pub(crate) backoff_base: Duration,
    pub(crate) backoff_cap: Duration,
    pub(crate) transport_base: Duration,
    pub(crate) max_wait_total: Duration,
    pub(crate) max_waiting: u32,
    pub(crate) budget_capacity: u32,
}

/// Builds a [`Policy`]; unset values keep their defaults.
#[derive(Clone, Debug, Default)]
pub struct PolicyBuilder {
    _todo: (),
}

/// A value outside its range, refused when the policy is built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; it must be {limit}")]
pub struct PolicyError {
    /// The knob.
    pub field: &'static str,
    /// What was given.
    pub value: String,
    /// What is allowed.
    pub limit: &'static str,
}
