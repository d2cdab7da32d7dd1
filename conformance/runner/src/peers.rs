//! Our own peers and their mutants, as data: what `self` runs, and what the traceability page names.

use std::collections::BTreeSet;

use clap::ValueEnum as _;
use serde::Deserialize;

use crate::case::Role;
use crate::select::Profile;

/// The list that is built into the binary.
pub const EMBEDDED: &str = include_str!("../../peers/peers.toml");

const SCHEMA: &str = "overload-peers/1";

/// A peer that must conform.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The binary.
    pub program: String,
    /// What it is judged as.
    pub mode: Role,
    /// Only these cases; empty for all.
    #[serde(default)]
    pub filter: Vec<String>,
    /// The profile that is asked for.
    #[serde(default)]
    profile: Option<String>,
}

/// A peer that breaks rules on purpose, started with `--mutant NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// The binary.
    pub program: String,
    /// What it is judged as.
    pub mode: Role,
    /// Its name.
    pub name: String,
    /// The requirements that it breaks: a case of each must fail.
    pub breaks: Vec<String>,
    /// What it does wrong.
    pub about: String,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    schema: String,
    /// Those that must conform.
    #[serde(rename = "reference")]
    pub references: Vec<Reference>,
    /// Those that must be caught.
    #[serde(rename = "mutant")]
    pub mutants: Vec<Mutant>,
}

/// Why the list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// Not TOML, or a key or value that is not known.
    #[error("peers.toml: {0}")]
    Syntax(#[from] toml::de::Error),
    /// Another schema.
    #[error("peers.toml: schema {0:?}; this runner reads {SCHEMA:?}")]
    Schema(String),
    /// An entry says something that cannot be.
    #[error("peers.toml: {0}")]
    Entry(String),
}

impl Peers {
    /// Reads a list.
    ///
    /// # Errors
    /// See [`PeersError`].
    pub fn parse(text: &str) -> Result<Self, PeersError> {
        let peers: Self = toml::from_str(text)?;
        if peers.schema != SCHEMA {
            return Err(PeersError::Schema(peers.schema));
        }
        let mut seen = BTreeSet::new();
        for mutant in &peers.mutants {
            let name = format!("{} {}", mutant.program, mutant.name);
            if mutant.breaks.is_empty() {
                return Err(PeersError::Entry(format!("{name} breaks nothing")));
            }
            if !seen.insert(name.clone()) {
                return Err(PeersError::Entry(format!("{name} is there twice")));
            }
        }
        for reference in &peers.references {
            reference.profile()?;
        }
        Ok(peers)
    }

    /// The list that is built into the binary.
    ///
    /// # Errors
    /// As [`Peers::parse`]; a test shows that it does not happen.
    pub fn load_embedded() -> Result<Self, PeersError> {
        Self::parse(EMBEDDED)
    }
}

impl Reference {
    /// The profile that is asked for.
    ///
    /// # Errors
    /// The file names one that there is not.
    pub fn profile(&self) -> Result<Option<Profile>, PeersError> {
        let Some(name) = &self.profile else {
            return Ok(None);
        };
        Profile::from_str(name, false)
            .map(Some)
            .map_err(|why| PeersError::Entry(format!("{}: profile {name:?}: {why}", self.program)))
    }
}

impl Mutant {
    /// True when `program name` or a requirement contains the text.
    pub fn is(&self, text: &str) -> bool {
        format!("{} {}", self.program, self.name).contains(text)
            || self.breaks.iter().any(|id| id.contains(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_list_reads_and_holds_twenty_mutants_and_more() {
        let peers = Peers::load_embedded().unwrap();
        assert!(peers.mutants.len() >= 20 && peers.references.len() >= 5);
        assert!(peers.mutants.iter().any(|mutant| mutant.is("client-tower early")));
    }

    #[test]
    fn an_entry_that_breaks_nothing_is_there_twice_or_has_an_unknown_profile_is_refused() {
        let reference = |more: &str| {
            format!(
                "schema = \"{SCHEMA}\"\nmutant = []\n[[reference]]\nprogram = \"p\"\nmode = \"client\"\n{more}"
            )
        };
        let mutant = |breaks: &str| {
            format!(
                "[[mutant]]\nprogram = \"p\"\nmode = \"client\"\nname = \"m\"\nbreaks = {breaks}\nabout = \"a\"\n"
            )
        };
        let mutants = |all: &str| format!("schema = \"{SCHEMA}\"\nreference = []\n{all}");
        let error = |text: &str| Peers::parse(text).unwrap_err().to_string();
        assert!(Peers::parse(&reference("")).is_ok());
        assert!(error(&reference("profile = \"moon\"\n")).contains("moon"));
        assert!(error(&mutants(&mutant("[]"))).contains("breaks nothing"));
        assert!(error(&mutants(&mutant("[\"CLI-01\"]").repeat(2))).contains("twice"));
        assert!(error(&reference("more = 1\n")).contains("more"));
        assert!(error(&reference("").replace(SCHEMA, "x")).contains("schema"));
    }
}
