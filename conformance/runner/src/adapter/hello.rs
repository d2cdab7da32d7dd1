//! What a program says about itself, and whether that is an introduction at all.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::PROTOCOL;
use crate::case::Role;

/// What a program says about itself.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Hello {
    /// The protocol version; must be [`super::PROTOCOL`].
    pub protocol: u64,
    /// `client`, `server` or `relay`.
    pub role: String,
    /// Name and version, for the report.
    pub implementation: Implementation,
    /// The contract versions that it speaks; must hold 1.
    #[serde(default)]
    pub contract_versions: Vec<u64>,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

/// Name and version of a program under test.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
pub struct Implementation {
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
    /// How it is configured, in its own words; a survey shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
}

impl Hello {
    /// Reads the answer to `hello`.
    ///
    /// # Errors
    /// It is none, or of another protocol, role or contract than was asked for; says which.
    pub(super) fn read(reply: Map<String, Value>, role: Role) -> Result<Self, String> {
        let hello: Hello = serde_json::from_value(Value::Object(reply))
            .map_err(|error| format!("its answer to `hello` is not one: {error}"))?;
        if hello.protocol != PROTOCOL {
            return Err(format!(
                "it speaks protocol {}; this runner speaks {PROTOCOL}",
                hello.protocol
            ));
        }
        if hello.role != role.word() {
            return Err(format!(
                "its role is {:?}; asked for was {:?}",
                hello.role,
                role.word()
            ));
        }
        if !hello.contract_versions.contains(&1) {
            return Err(format!(
                "contract_versions is {:?}; 1 is not among them",
                hello.contract_versions
            ));
        }
        Ok(hello)
    }
}
