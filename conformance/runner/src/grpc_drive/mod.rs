//! Judges gRPC clients and servers: the same contract in gRPC's words (CONTRACT section 7).
//!
//! A gRPC library tidies up what it sends, and understands only what it expects. So the runner speaks HTTP/2 itself:
//! it sets the head, the data and the trailers of an answer as the case says, leaves `grpc-status` out where a proxy
//! would, and sees whether a refusal really was Trailers-Only. The protobuf messages are defined here, from the
//! published formats.
//!
//! The test service is `overload.test.v1.Echo`. Every method of it is unary and takes and gives
//! `message Text { string value = 1; }`; each call of a case gets a method of its own, since calls are told apart by
//! path.

mod check;
mod client;
mod origin;
mod probe;
mod proto;
mod script;
mod server;
pub mod spec;

pub(crate) use client::run_case as run_client_case;
pub(crate) use server::run_case as run_server_case;

/// The name of the test service.
pub const SERVICE: &str = "overload.test.v1.Echo";

/// The capability that a program must declare for these cases.
pub const CAPABILITY: &str = "grpc";
