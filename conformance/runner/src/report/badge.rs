//! A badge: what a README can show, in the JSON of shields.io's endpoint badge.

use serde_json::json;

use super::{Conclusion, RequirementState, RunReport};

/// The badge of a run: the profile (or mode), how many requirements held of those that were tested, and how many were not
/// tested. The brightest green is for a run that left out nothing that can be tested.
pub fn render(report: &RunReport) -> String {
    let held = report.count(RequirementState::Pass);
    let not_tested = report.count(RequirementState::NotTested);
    let tested = report.requirements.len() - not_tested;
    // What no case speaks for cannot be tested from outside, whatever the program declares.
    let could_be =
        |line: &&super::RequirementLine| line.state == RequirementState::NotTested && !line.cases.is_empty();
    let whole = !report.requirements.iter().any(|line| could_be(&line));
    let (words, color) = match report.conclusion {
        Conclusion::Conformant if report.partial() => (format!("{held}/{tested} of a part"), "yellowgreen"),
        // Cases of one's own make no claim about the contract.
        Conclusion::Conformant if report.required.is_none() => {
            (format!("{held}/{tested} of own cases"), "yellowgreen")
        }
        Conclusion::Conformant if whole => (format!("conformant {held}/{tested}"), "brightgreen"),
        Conclusion::Conformant => (format!("conformant {held}/{tested}"), "green"),
        Conclusion::KnownFailures => (
            format!("conformant but for {} known, {held}/{tested}", report.excused()),
            "yellow",
        ),
        Conclusion::NotConformant => (format!("not conformant {held}/{tested}"), "red"),
        Conclusion::HarnessError => ("no conclusion".to_owned(), "lightgrey"),
        Conclusion::NothingVerified => ("nothing verified".to_owned(), "lightgrey"),
        Conclusion::Interrupted => ("interrupted".to_owned(), "lightgrey"),
    };
    let left = match report.conclusion {
        Conclusion::HarnessError | Conclusion::NothingVerified | Conclusion::Interrupted => String::new(),
        Conclusion::Conformant if report.partial() => String::new(),
        _ if report.partial() => " of a part".to_owned(),
        _ if not_tested > 0 => format!(", {not_tested} not tested"),
        _ => String::new(),
    };
    let label = format!(
        "overload v{} {}",
        report.contract_version,
        report.profile.as_deref().unwrap_or(&report.mode)
    );
    let message = format!("{words}{left}");
    format!(
        "{}\n",
        json!({"schemaVersion": 1, "label": label, "message": message, "color": color})
    )
}
