//! What the examples share: a load of callers that can be pointed at a server, and what it counts.

pub mod args;
pub mod chain;
pub mod load;
pub mod report;
pub mod storm;
pub mod tally;
pub mod watch;

/// The README's code compiles as it stands.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// So does that of docs/OPERATIONS.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/OPERATIONS.md")]
pub struct Operations;
