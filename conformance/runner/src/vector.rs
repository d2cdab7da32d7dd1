//! The hint vectors: a response in, the decision out, judged through the adapter's `parse` command.

/// The vector file that is built into the binary.
pub const EMBEDDED: &str = include_str!("../../contract/hint-vectors.json");
