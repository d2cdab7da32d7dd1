//! When may the next attempt leave? The caller's judgement, without I/O, clock or entropy of its own.
//!
//! A caller that is refused has three bad habits: it comes back at once, it comes back together with everybody
//! else, and it comes back after anybody still waits for the answer. [`Call`] is a state machine that has none of
//! them: it is told what happened ([`Outcome`]) and answers what to do ([`Action`]). The adapter that holds it is
//! one loop:
//!
//! ```text
//! loop { match call.next_action(now, destination, rng) { WaitUntil(t) => sleep_until(t), Send(s) => .., Finish(f) => return f } }
//! ```
//!
//! The rules and their order are CONTRACT section 5. `now` and `rng` are arguments, so every rule is tested in
//! virtual time.

mod backoff;
mod budget;
mod call;
mod destination;
mod event;
mod give_up;
mod hold_off;
mod judge;
mod policy;
mod spec;

pub use backoff::Window;
pub use budget::{Budget, Price, Withdrawal};
pub use call::Call;
pub use destination::{Destination, Destinations};
pub use event::{Event, Events};
pub use give_up::{GiveUp, Refusal, StopReason};
pub use judge::{Progress, Retrial};
pub use policy::{Policy, PolicyBuilder, PolicyError};
pub use spec::{Action, CallSpec, Finish, Incoming, Instance, Outcome, Replay, Safety, Send};
