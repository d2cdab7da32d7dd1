//! The server over real sockets. What measures time is in `real_time`, which runs alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod api;
mod binary;
mod binary_check;
mod binary_input;
mod common;
mod deploy;
mod durability;
mod endings;
mod field_cases;
mod fixtures;
mod input;
mod input_strict;
mod kill9_real_time;
mod layer_in_axum;
mod observe;
mod overload;
mod real_time;
mod real_time_burst;
mod real_time_reach;
mod tasks;
mod telemetry;
mod words;
mod work;
