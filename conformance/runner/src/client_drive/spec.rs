//! The role-specific body of a client case.

use serde::Deserialize;

/// What is played to a client and what must be seen.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCase {}

impl ClientCase {
    /// Checks what the types cannot say, while the case file is loaded.
    ///
    /// # Errors
    /// A sentence that names the key, the value and the limit.
    pub fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}
