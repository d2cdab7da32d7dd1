//! The overload contract: one vocabulary and all its encodings, for both sides of the wire.
//!
//! A refusal that is only a status code leaves the caller guessing: was anything done, may I come back, when?
//! So both sides guess differently. Here both sides share one value, [`Overload`], and this crate alone knows
//! how it is written ([`write`]) and read ([`read`]): the `Overload-Signal` field, the problem+json body,
//! `Retry-After` and the fields other people already use. What a caller says about its work travels as
//! [`RequestFields`].
//!
//! No clock, no I/O, no entropy: a wall clock is an argument where an HTTP-date needs one. Foreign input never
//! panics and never allocates beyond the limits in [`limits`].
//!
//! The wire contract itself is `conformance/contract/CONTRACT.md`; section numbers below refer to it.

mod code;
mod fields;
pub mod limits;
mod overload;
mod propagate;
pub mod read;
mod words;
pub mod write;

pub use code::{Code, GrpcCode, InvalidCode};
pub use fields::{
    Attempt, IdempotencyKey, InvalidField, RequestFields, TaskClass, Tenant, header as field_name,
};
pub use overload::{BodyMember, Extension, Granularity, Hint, Overload, OverloadStatus, PolicyQuota};
pub use propagate::{CalledAs, Relay};
pub use words::{Applied, Retry, Scope, ServiceState, Tier, UnknownWord};
