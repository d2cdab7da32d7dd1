//! One line for each decision of a server, as JSON: what `replay` reads, and what a run can write.
//!
//! | member | unit | meaning |
//! |---|---|---|
//! | `t_ms` | ms, any origin | when the decision was made; lines need no order |
//! | `tenant` | text | a hash of the tenant, never its name; optional |
//! | `class` | text | task class |
//! | `tier` | critical, non-sheddable, deferrable | effective tier |
//! | `deadline_ms` | ms from `t_ms` | what was left of the caller's time |
//! | `decision` | accept, defer, reject | at the door |
//! | `code` | text | why it was refused, at the door or later in the queue; optional |
//! | `predicted_wait_ms` | ms | the predicted wait; optional |
//! | `started_ms` | ms, as `t_ms` | when it started; absent where it never did |
//! | `finished_ms` | ms, as `t_ms` | when its worker was free again; absent where it never started |
//! | `call` | number | the same for all attempts of a call; optional, without it each attempt is taken for a call |
//!
//! Other members are ignored. Numbers may have fractions.

use serde::{Deserialize, Serialize};

use holdoff_contract::Tier;

/// What was decided at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decided {
    /// It had a place.
    Accept,
    /// Put off until the state is normal.
    Defer,
    /// Refused.
    Reject,
}

/// A tier as a trace writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TierName {
    /// [`Tier::Critical`].
    Critical,
    /// [`Tier::NonSheddable`].
    NonSheddable,
    /// [`Tier::Deferrable`].
    Deferrable,
}

impl From<Tier> for TierName {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Critical => Self::Critical,
            Tier::NonSheddable => Self::NonSheddable,
            Tier::Deferrable => Self::Deferrable,
        }
    }
}

/// One decision. See the module for units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// When.
    pub t_ms: f64,
    /// Whose, hashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Kind.
    pub class: String,
    /// Importance.
    pub tier: TierName,
    /// Time left of the caller's.
    pub deadline_ms: f64,
    /// At the door.
    pub decision: Decided,
    /// Why refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Predicted wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_wait_ms: Option<f64>,
    /// Start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<f64>,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_ms: Option<f64>,
    /// Which call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u64>,
}

/// A hash for a tenant's name: FNV-1a, 64 bits, in hex.
pub fn tenant_hash(name: &str) -> String {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
