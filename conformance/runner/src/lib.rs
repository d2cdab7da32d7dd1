//! Judges any client or server against the overload contract, from outside, in any language.
//!
//! A library cannot prove that it obeys a contract by its own tests: both halves of a misreading agree with each
//! other. So this crate depends on no other crate of the workspace. It reads the contract's requirements, cases
//! and hint vectors as data, drives a program through the adapter protocol (or a server through its URL), and
//! lets two witnesses speak: its own wire log and the program's reply. A pass needs both.
//!
//! - [`case`] loads case files, [`requirement`] the numbered rules that they speak for, [`vector`] the hint vectors.
//! - [`adapter`] runs a program and talks newline-delimited JSON to it, with a bound on everything.
//! - [`server_drive`] plays a caller and judges a server; `client_drive` plays a server and judges a client;
//!   [`relay_drive`] plays both ends and judges what stands between them.
//! - [`pair_drive`] puts a client before a server and is the witness between them.
//! - `grpc_drive` does both in gRPC.
//! - [`verdict`] and [`report`] say what came out.
//! - [`survey`] plays the same few answers to many clients and measures them, without a verdict.

pub mod adapter;
pub mod baseline;
pub mod capability;
pub mod case;
pub mod cli;
pub mod client_drive;
pub mod clock;
pub mod grpc_drive;
pub mod input;
pub(crate) mod lock;
pub mod pair_drive;
pub mod peers;
pub mod relay_drive;
pub mod render;
pub mod report;
pub mod required;
pub mod requirement;
pub mod run;
pub mod score;
pub mod select;
pub mod server_drive;
pub mod slack;
pub(crate) mod still;
pub mod survey;
pub mod trace;
pub mod vector;
pub mod verdict;
pub(crate) mod words;
