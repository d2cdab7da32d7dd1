//! Programs under test: Holdoff's own client and server, and deliberately broken mutants of them.
//!
//! A conformance suite that only ever saw good programs proves nothing: perhaps its checks cannot fail. So the same
//! binaries that show our own client and server conformant can be asked, with `--mutant NAME`, to break one rule
//! each, and the suite has to notice. The adapter protocol is `conformance/contract/ADAPTER.md`.

pub mod protocol;
#[cfg(feature = "mutants")]
pub mod mutant;
