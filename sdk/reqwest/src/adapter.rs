//! For adapters of other reqwest stacks: what turns reqwest's types into those that `holdoff-tower` works on, and back.
//!
//! `holdoff-reqwest-middleware` is one. A program needs nothing of this.

pub use crate::body::Payload as Body;
pub use crate::invalid::told;
pub use crate::transport::{classify, into_http};
