//! What admission is asked, and its no.

use std::time::{Duration, Instant};

use holdoff_admission::{Caller, Controller, DeadlineOf, NeverAdmissible, Rejection, Work};
use holdoff_contract::{TaskClass, Tenant, Tier};

/// A request for admission, in the caller's words. All trust decisions (tenant, tier right) are made before; what is
/// left open gets the profile's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whose work; `None` = anonymous.
    pub tenant: Option<Tenant>,
    /// Kind of work; `None` or unknown = the profile's `other` (SRQ-07).
    pub class: Option<TaskClass>,
    /// Effective tier.
    pub tier: Tier,
    /// What is left of the caller's time; `None` = the class's default, and never more than its maximum (SRQ-01,
    /// SRQ-03). Zero has run out.
    pub deadline: Option<Duration>,
    /// The caller's estimate of the cost; the charge stays within the class's [p50, p95] (ADM-10).
    pub cost: Option<Duration>,
    /// Payload size.
    pub bytes: u64,
    /// The work is answered with 202 anyway, so it can be run later (SRV-21).
    pub may_defer: bool,
    /// Who comes back early is stopped at the edge; `None` = of this caller nothing is remembered (ADM-13).
    pub caller: Option<Caller>,
}

impl Default for Ask {
    /// Anonymous deferrable work of an unknown class.
    fn default() -> Self {
        Self {
            tenant: None,
            class: None,
            tier: Tier::Deferrable,
            deadline: None,
            cost: None,
            bytes: 0,
            may_defer: false,
            caller: None,
        }
    }
}

/// Why there is no place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[must_use]
pub enum Denied {
    /// Overload: code, and when to come back.
    #[error("refused: {}", .0.overload.code_label())]
    Overload(Rejection),
    /// An empty server could not admit it either: the request's fault, a validation error without a code (ADM-26).
    #[error(transparent)]
    Never(NeverAdmissible),
}

impl Ask {
    /// What is asked for, in the controller's words, and the time it has.
    pub(crate) fn work(&self, controller: &mut Controller, now: Instant) -> (Work, Duration) {
        let class = controller.class(self.class.as_ref().map(TaskClass::as_str));
        let tenant = controller.tenant(self.tenant.as_ref().map(Tenant::as_str));
        let limit = controller.deadline(class, self.deadline);
        let work = Work {
            tenant,
            class,
            tier: self.tier,
            deadline: now.checked_add(limit).unwrap_or(now),
            deadline_of: if self.deadline.is_some() {
                DeadlineOf::Caller
            } else {
                DeadlineOf::Class
            },
            cost: self.cost,
            bytes: self.bytes,
            may_defer: self.may_defer,
        };
        (work, limit)
    }
}
