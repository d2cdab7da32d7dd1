//! The names of our metrics, in one place: docs/OPERATIONS.md lists the same, and a test holds the two together.

use metrics::Unit;

pub(crate) const ATTEMPTS: &str = "holdoff_attempts_total";
pub(crate) const RETRIES: &str = "holdoff_retries_total";
pub(crate) const EARLY_RETRIES: &str = "holdoff_early_retries_total";
pub(crate) const REFUSALS: &str = "holdoff_refusals_total";
pub(crate) const GAVE_UP: &str = "holdoff_gave_up_total";
pub(crate) const HINTS_MALFORMED: &str = "holdoff_hints_malformed_total";
pub(crate) const HINT_SECONDS: &str = "holdoff_hint_seconds";
pub(crate) const RETRY_DELAY: &str = "holdoff_retry_delay_seconds";
pub(crate) const HINT_COMPLIANCE: &str = "holdoff_hint_compliance_ratio";
pub(crate) const BUDGET_TOKENS: &str = "holdoff_budget_tokens";
pub(crate) const HELD_BACK: &str = "holdoff_held_back_total";
pub(crate) const HOLD_OFFS: &str = "holdoff_hold_offs";
pub(crate) const WAITING: &str = "holdoff_waiting_calls";

/// Tells the process's `metrics` recorder what our metrics mean and in what unit. Call it once, after the recorder is
/// installed; without it everything is counted all the same.
pub fn describe_metrics() {
    metrics::describe_counter!(ATTEMPTS, Unit::Count, "Requests sent, first sends and retries");
    metrics::describe_counter!(RETRIES, Unit::Count, "Retries sent");
    metrics::describe_counter!(
        EARLY_RETRIES,
        Unit::Count,
        "Retries sent before their hint had passed: a defect, stays 0"
    );
    metrics::describe_counter!(
        REFUSALS,
        Unit::Count,
        "Attempts that a server refused for overload"
    );
    metrics::describe_counter!(
        GAVE_UP,
        Unit::Count,
        "Calls that stopped without an answer, by reason"
    );
    metrics::describe_counter!(
        HINTS_MALFORMED,
        Unit::Count,
        "Hints of servers that were there and could not be used"
    );
    metrics::describe_histogram!(HINT_SECONDS, Unit::Seconds, "Least waits that servers asked for");
    metrics::describe_histogram!(RETRY_DELAY, Unit::Seconds, "Waits that were drawn before retries");
    metrics::describe_histogram!(
        HINT_COMPLIANCE,
        "Time waited over the least wait asked for: never below 1"
    );
    metrics::describe_histogram!(
        BUDGET_TOKENS,
        Unit::Count,
        "Tokens left in a destination's retry budget, after each change"
    );
    metrics::describe_counter!(
        HELD_BACK,
        Unit::Count,
        "Waits behind a hold-off that another call's refusal armed"
    );
    metrics::describe_histogram!(
        HOLD_OFFS,
        Unit::Count,
        "Hold-offs of a destination that are in force, after each change"
    );
    metrics::describe_gauge!(
        WAITING,
        Unit::Count,
        "Calls that wait, for a retry or behind a hold-off"
    );
}
