//! A badge: what a README can show, in the JSON of shields.io's endpoint badge.

use serde_json::json;

use super::{Conclusion, RequirementState, RunReport};

/// The badge of a run: the profile (or mode), and how many requirements held of those that were tested.
pub fn render(report: &RunReport) -> String {
    let count = |state: RequirementState| {
        report
            .requirements
            .iter()
            .filter(|line| line.state == state)
            .count()
    };
    let held = count(RequirementState::Pass);
    let tested = report.requirements.len() - count(RequirementState::NotTested);
    let (message, color) = match report.conclusion {
        Conclusion::Conformant if report.partial() => (format!("{held}/{tested} of a part"), "yellowgreen"),
        Conclusion::Conformant => (format!("conformant {held}/{tested}"), "brightgreen"),
        Conclusion::NotConformant => (format!("not conformant {held}/{tested}"), "red"),
        Conclusion::HarnessError => ("no conclusion".to_owned(), "lightgrey"),
        Conclusion::NothingVerified => ("nothing verified".to_owned(), "lightgrey"),
        Conclusion::Interrupted => ("interrupted".to_owned(), "lightgrey"),
    };
    let label = format!(
        "overload v{} {}",
        report.contract_version,
        report.profile.as_deref().unwrap_or(&report.mode)
    );
    format!(
        "{}\n",
        json!({"schemaVersion": 1, "label": label, "message": message, "color": color})
    )
}
