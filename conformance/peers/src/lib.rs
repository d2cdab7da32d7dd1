//! Programs under test: Holdoff's own client and server, and deliberately broken mutants of them.
//!
//! A conformance suite that only ever saw good programs proves nothing: perhaps its checks cannot fail. So the same
//! binaries that show our own client and server conformant can be asked, with `--mutant NAME`, to break one rule
//! each, and the suite has to notice. The adapter protocol is `conformance/contract/ADAPTER.md`.

pub mod client;
pub mod clock;
pub mod command;
pub mod grpc;
#[cfg(feature = "mutants")]
pub mod mutant;
pub mod parse;
pub mod protocol;
pub mod reply;
pub mod server;
pub mod transport;

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

/// Header lines from the `headers` member: a text, or a list of texts for several lines.
///
/// # Errors
/// When HTTP cannot carry a name or value.
pub fn headers(members: &Map<String, Value>) -> anyhow::Result<Vec<(HeaderName, HeaderValue)>> {
    let mut lines = Vec::new();
    for (name, value) in members {
        let name = HeaderName::from_bytes(name.as_bytes())?;
        let values = match value {
            Value::Array(values) => values.iter().collect(),
            value => vec![value],
        };
        for value in values {
            let text = value
                .as_str()
                .ok_or_else(|| anyhow::anyhow!("header {name} is not a text"))?;
            lines.push((name.clone(), HeaderValue::from_str(text)?));
        }
    }
    Ok(lines)
}
