//! What a service declares about itself: workers, tiers, classes, tenants, thresholds. Plain data with serde; the
//! server reads it from YAML, the tests build it.

/// A declared service. `Profile::default()` is a small development service.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    _todo: (),
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
