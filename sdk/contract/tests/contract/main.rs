//! The tests of the contract crate over whole responses and requests.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod field_cases;
mod grpc;
mod hint_vectors;
mod propagating;
mod properties;
mod reading;
mod request_fields;
mod vocabulary;
mod wire;
mod writing;
