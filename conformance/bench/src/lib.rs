//! Holdoff side by side with what people use today, in one run: what a call costs, what a decision costs, what a server
//! can still do, and what happens when it is too much.
//!
//! Figures of different runs cannot be compared on a machine that does other things too, so everything here takes turns
//! with what it is compared to, many times, and what is reported are the ratios. docs/BENCHMARKS.md says what each
//! figure means and holds the last results.

pub mod calls;
pub mod child;
mod clock;
pub mod decide;
mod host;
pub mod instructions;
pub mod machine;
pub mod report;
pub mod route;
pub mod serve;
pub mod stats;
pub mod storm;
mod wire;
