//! Work that no waiting would help.
//!
//! A caller that is told "too busy" comes back; one that is told "too big" does not. Mixing the two up sends work round
//! for ever, so what an empty server could not admit is told apart before the test.

use std::time::Duration;

use crate::{Controller, Work};

/// Work that an empty server could not admit either: a validation matter (400, 413, 422), never an overload (ADM-26).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; it must be {limit}")]
pub struct NeverAdmissible {
    /// `bytes` (413) or `charge_ms` (422).
    pub field: &'static str,
    /// What the work has.
    pub value: String,
    /// What is allowed, and by which key of the profile.
    pub limit: String,
}

impl Controller {
    /// Could an empty server admit this work? Ask before [`Controller::admit`] and answer 413 (`bytes`) or 422.
    ///
    /// # Errors
    /// When it could not: the payload is over `max_bytes`, or the charge is over the whole budget of the tenant or tier.
    pub fn validate(&self, work: &Work) -> Result<(), NeverAdmissible> {
        if work.bytes > self.profile.max_bytes {
            let limit = format!("at most {} (max_bytes)", self.profile.max_bytes);
            return Err(NeverAdmissible {
                field: "bytes",
                value: work.bytes.to_string(),
                limit,
            });
        }
        let charge = self.classes[usize::from(work.class.0)].charge(work.cost);
        let tenant = (
            self.tenants[work.tenant.0].work_limit,
            "the tenant's queued_work_ms",
        );
        let tier = (
            self.bounds.tier_work[work.tier.index()],
            "the tier's queued_work_ms",
        );
        let whole = (self.bounds.queue_work, "queue_work_ms");
        match [tenant, tier, whole]
            .into_iter()
            .find(|(limit, _)| charge > *limit)
        {
            None => Ok(()),
            Some((limit, key)) => Err(NeverAdmissible {
                field: "charge_ms",
                value: Duration::from_nanos(charge).as_millis().to_string(),
                limit: format!("at most {} ({key})", Duration::from_nanos(limit).as_millis()),
            }),
        }
    }
}
