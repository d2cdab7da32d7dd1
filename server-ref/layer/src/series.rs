//! The series whose labels are closed sets, and how they are named.

use holdoff_contract::{Code, Overload, ServiceState, Tier};
use metrics::{Counter, Histogram, counter, histogram};

/// Decisions in the label: accept, defer, every registered code, and `other`.
pub(crate) const DECISIONS: usize = Code::REGISTERED.len() + 3;
pub(crate) const ACCEPT: usize = Code::REGISTERED.len();
pub(crate) const DEFER: usize = ACCEPT + 1;
const OTHER: usize = ACCEPT + 2;
pub(crate) const TIERS: usize = Tier::ALL.len();

pub(crate) fn decided(class: &str, tier: Tier, decision: usize) -> Counter {
    counter!("agent_admission_total", "decision" => decision_word(decision), "task_class" => class.to_owned(),
        "tenant_tier" => tier.as_str())
}

pub(crate) fn refused(tier: Tier, decision: usize) -> Counter {
    counter!("overload_queue_refused_total", "code" => decision_word(decision), "tier" => tier.as_str())
}

pub(crate) fn service(class: &str) -> Histogram {
    histogram!("agent_service_seconds", "task_class" => class.to_owned())
}

pub(crate) fn transition(from: ServiceState, to: ServiceState) -> Counter {
    counter!("overload_transitions_total", "from" => from.as_str(), "to" => to.as_str())
}

pub(crate) fn decision_of(code: &Code) -> usize {
    Code::REGISTERED
        .iter()
        .position(|known| known == code)
        .unwrap_or(OTHER)
}

fn decision_word(decision: usize) -> &'static str {
    match decision {
        ACCEPT => "accept",
        DEFER => "defer",
        _ => Code::REGISTERED
            .get(decision)
            .map_or("other", |code| Overload::new(code.clone()).code_label()),
    }
}
