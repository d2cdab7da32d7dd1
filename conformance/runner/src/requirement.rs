//! The numbered requirements of the contract: what a case may claim to speak for.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The contract's requirement list, as built into the binary.
pub const EMBEDDED: &str = include_str!("../../contract/requirements.toml");

const SCHEMA: &str = "overload-requirements/1";

/// One numbered requirement.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// The id that cases name, for instance `CLI-01`.
    pub id: String,
    /// `MUST`, `MUST NOT`, `SHOULD` or `SHOULD NOT`.
    pub level: String,
    /// `client`, `server`, `relay`, `both` or `suite`.
    pub role: String,
    /// The rule, as a sentence that continues the level.
    pub text: String,
    /// How a case can see it.
    pub observe: String,
}

impl Requirement {
    /// The whole sentence: level and text.
    pub fn sentence(&self) -> String {
        format!("{} {}: {}", self.id, self.level, self.text)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    contract_version: u32,
    requirement: Vec<Requirement>,
}

/// All requirements of one contract version, by id.
#[derive(Debug, Clone)]
pub struct Requirements {
    by_id: BTreeMap<String, Requirement>,
}

/// Why a requirement list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RequirementsError {
    /// Not TOML, or a key that is not known.
    #[error("requirements.toml: {0}")]
    Syntax(#[from] toml::de::Error),
    /// Another schema than this runner knows.
    #[error(
        "requirements.toml: schema {found:?}, contract version {version}; this runner reads {SCHEMA:?}, version 1"
    )]
    Schema {
        /// The schema that the file names.
        found: String,
        /// The contract version that the file names.
        version: u32,
    },
    /// The same id twice.
    #[error("requirements.toml: id {0} is there twice")]
    Twice(String),
}

impl Requirements {
    /// Reads a requirement list.
    ///
    /// # Errors
    /// The text is not such a list, or holds an id twice.
    pub fn parse(text: &str) -> Result<Self, RequirementsError> {
        let file: File = toml::from_str(text)?;
        if file.schema != SCHEMA || file.contract_version != 1 {
            return Err(RequirementsError::Schema {
                found: file.schema,
                version: file.contract_version,
            });
        }
        let mut by_id = BTreeMap::new();
        for requirement in file.requirement {
            let id = requirement.id.clone();
            if by_id.insert(id.clone(), requirement).is_some() {
                return Err(RequirementsError::Twice(id));
            }
        }
        Ok(Self { by_id })
    }

    /// The list that is built into the binary.
    ///
    /// # Errors
    /// As [`Requirements::parse`]; a test of this crate shows that it does not happen.
    pub fn load_embedded() -> Result<Self, RequirementsError> {
        Self::parse(EMBEDDED)
    }

    /// The requirement with this id.
    pub fn get(&self, id: &str) -> Option<&Requirement> {
        self.by_id.get(id)
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.by_id.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_list_reads_and_holds_every_requirement() {
        let all = Requirements::load_embedded().unwrap();
        assert_eq!(all.iter().count(), 170);
        assert_eq!(all.get("CLI-01").unwrap().level, "MUST");
    }

    #[test]
    fn an_id_that_is_there_twice_is_refused() {
        let one = "[[requirement]]\nid=\"A-1\"\nlevel=\"MUST\"\nrole=\"client\"\ntext=\"t\"\nobserve=\"o\"\n";
        let text = format!("schema=\"{SCHEMA}\"\ncontract_version=1\n{one}{one}");
        assert!(matches!(Requirements::parse(&text), Err(RequirementsError::Twice(id)) if id == "A-1"));
    }
}
