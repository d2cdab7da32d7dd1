//! Deliberately broken peers. Each breaks one rule, by changing what our own program says or hears at its edge, so
//! that everything else stays as it is and the case that notices is the one that is meant to.

pub mod client;
pub mod grpc;
mod proxy;
pub mod server;
