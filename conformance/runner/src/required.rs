//! The frozen list of a contract version: what is scored, and what is only told (VER-06).
//!
//! A suite that grows would fail today what it passed yesterday, and nobody could keep a claim. So the cases that
//! decide about v1 are listed once, in `conformance/contract/requirements/v1.toml`. A case that was written later
//! runs and is told with all its figures; it does not change the conclusion. Cases read from a directory of one's
//! own are all scored: they make no claim about the contract.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::requirement::Requirements;

/// The list of contract version 1, as built into the binary.
pub const V1: &str = include_str!("../../contract/requirements/v1.toml");

const SCHEMA: &str = "overload-required/1";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    contract_version: u32,
    requirements: BTreeSet<String>,
    cases: BTreeSet<String>,
}

/// What decides about one contract version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Required {
    /// The name that a report gives, `requirements/v1`.
    pub name: String,
    requirements: BTreeSet<String>,
    cases: BTreeSet<String>,
}

/// Why a frozen list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RequiredError {
    /// Not TOML, or a key that is not known.
    #[error("requirements/v1.toml: {0}")]
    Syntax(#[from] toml::de::Error),
    /// Another schema than this runner knows.
    #[error("requirements/v1.toml: schema {0:?}, version {1}; this runner reads {SCHEMA:?}, version 1")]
    Schema(String, u32),
    /// A row that the contract does not have.
    #[error("requirements/v1.toml: requirement {0:?} is not in requirements.toml")]
    Unknown(String),
}

impl Required {
    /// Reads a list.
    ///
    /// # Errors
    /// Not such a list, or it names a requirement that does not exist.
    pub fn parse(text: &str, requirements: &Requirements) -> Result<Self, RequiredError> {
        let file: File = toml::from_str(text)?;
        if file.schema != SCHEMA || file.contract_version != 1 {
            return Err(RequiredError::Schema(file.schema, file.contract_version));
        }
        if let Some(unknown) = file.requirements.iter().find(|id| requirements.get(id).is_none()) {
            return Err(RequiredError::Unknown(unknown.clone()));
        }
        Ok(Self {
            name: format!("requirements/v{}", file.contract_version),
            requirements: file.requirements,
            cases: file.cases,
        })
    }

    /// The list that is built into the binary.
    ///
    /// # Errors
    /// As [`Required::parse`]; a test of this crate shows that it does not happen.
    pub fn v1(requirements: &Requirements) -> Result<Self, RequiredError> {
        Self::parse(V1, requirements)
    }

    /// True when a case is scored: it is on the list, and speaks for at least one row that is.
    pub fn scores(&self, case: &str, speaks_for: &[String]) -> bool {
        self.cases.contains(case) && speaks_for.iter().any(|id| self.requirements.contains(id))
    }

    /// The frozen rows.
    pub fn requirements(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(String::as_str)
    }

    /// The frozen cases, vectors under `vector/`.
    pub fn cases(&self) -> impl Iterator<Item = &str> {
        self.cases.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;
    use crate::vector::Vectors;

    fn all() -> (case::CaseSet, Required) {
        let set = case::load_embedded().unwrap();
        let required = Required::v1(&set.requirements).unwrap();
        (set, required)
    }

    #[test]
    fn nothing_on_the_frozen_list_has_gone_away() {
        let (set, required) = all();
        let vectors = Vectors::load_embedded(&set.requirements).unwrap();
        let mut have: BTreeSet<String> = set.cases.iter().map(|case| case.id.clone()).collect();
        have.extend(
            vectors
                .vectors
                .iter()
                .map(|vector| format!("vector/{}", vector.id)),
        );
        let gone: Vec<&str> = required.cases().filter(|id| !have.contains(*id)).collect();
        assert!(gone.is_empty(), "a frozen case cannot be taken back: {gone:?}");
        assert_eq!(required.requirements().count(), 170);
    }

    #[test]
    fn a_case_that_is_not_on_the_list_or_speaks_only_for_later_rows_is_not_scored() {
        let (_, required) = all();
        let rows = |id: &str| vec![id.to_owned()];
        assert!(required.scores("stop-retry-no", &rows("CLI-06")));
        assert!(!required.scores("written-next-year", &rows("CLI-06")));
        assert!(!required.scores("stop-retry-no", &rows("CLI-99")));
    }

    #[test]
    fn a_list_that_names_an_unknown_row_or_key_is_refused() {
        let (set, _) = all();
        let text = |rows: &str, more: &str| {
            format!(
                "schema = \"{SCHEMA}\"\ncontract_version = 1\nrequirements = [{rows}]\ncases = []\n{more}"
            )
        };
        let parse = |text: &str| Required::parse(text, &set.requirements);
        assert!(parse(&text("\"CLI-01\"", "")).is_ok());
        assert!(matches!(parse(&text("\"CLI-99\"", "")), Err(RequiredError::Unknown(id)) if id == "CLI-99"));
        assert!(matches!(
            parse(&text("", "more = 1")),
            Err(RequiredError::Syntax(_))
        ));
    }
}
