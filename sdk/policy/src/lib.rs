//! When may the next attempt leave? The caller's judgement, without I/O, clock or entropy of its own.
//!
//! A caller that is refused has three bad habits: it comes back at once, it comes back together with everybody
//! else, and it comes back after anybody still waits for the answer. [`Call`] is a state machine that has none of
//! them: it is told what happened ([`Outcome`]) and answers what to do ([`Action`]). The adapter that holds it is
//! one loop, here over a service in memory, in virtual time:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::{Duration, Instant};
//!
//! use holdoff_contract::{Code, Hint, Overload};
//! use holdoff_policy::{Action, Call, CallSpec, Destinations, Finish, Outcome, Policy, Replay, Safety};
//! use rand_pcg::Pcg64Mcg;
//!
//! let policy = Arc::new(Policy::builder().max_attempts(2).build()?);
//! let destinations = Destinations::new(&policy);
//! let mut rng = Pcg64Mcg::new(7);
//!
//! // Refused once, with the window [1740 ms, 2300 ms] to come back in; then served.
//! let (delay, max) = (Duration::from_millis(1740), Duration::from_millis(2300));
//! let refusal = Overload { hint: Hint::Window { delay, max }, ..Overload::new(Code::QueueFull) };
//! let mut service = [Outcome::Overload(Box::new(refusal)), Outcome::Success].into_iter();
//!
//! let started = Instant::now();
//! let mut now = started;
//! let shared = destinations.get("http", "service.example:80");
//! let deadline = Some(Duration::from_secs(5));
//! let spec = CallSpec { deadline, ..CallSpec::new(Safety::Idempotent, Replay::Bytes) };
//! let mut call = Call::new(Arc::clone(&policy), spec, now);
//! let finish = loop {
//!     // A real adapter locks for this line only, and not while it sleeps or sends.
//!     let mut destination = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
//!     match call.next_action(now, &mut destination, &mut rng, &mut ()) {
//!         Action::Send(send) => {
//!             assert!(send.time_left.is_some(), "the limit of this attempt");
//!             now += Duration::from_millis(3);
//!             let outcome = service.next().unwrap_or(Outcome::Answered);
//!             call.on_outcome(now, now, outcome, &mut destination, &mut rng, &mut ());
//!         }
//!         Action::WaitUntil(until) => now = until,
//!         Action::Finish(finish) => break finish,
//!     }
//! };
//! assert_eq!(finish, Finish::Deliver);
//! assert_eq!(call.attempts(), 2);
//! assert!((delay..=max).contains(&call.waited()));
//! # Ok::<(), holdoff_policy::PolicyError>(())
//! ```
//!
//! An adapter that drops a call unfinished must [`Call::cancel`] it. Timers may fire early: [`Call`] then answers the
//! same instant again, so that a wait is never shorter than the hint.
//!
//! The rules and their order are CONTRACT section 5. `now` and `rng` are arguments, so every rule is tested in
//! virtual time. What happened comes out as [`Event`]s; this crate logs and counts nothing.

mod backoff;
mod budget;
mod call;
mod destination;
mod event;
mod give_up;
mod hold_off;
mod instances;
mod judge;
mod policy;
mod spec;

pub use backoff::Window;
pub use budget::{Budget, Price, Withdrawal};
pub use call::Call;
pub use destination::{Destination, Destinations};
pub use event::{Event, Events};
pub use give_up::{GiveUp, Refusal, StopReason};
pub use hold_off::CallerKey;
pub use instances::Instances;
pub use judge::{Progress, Retrial};
pub use policy::{Policy, PolicyBuilder, PolicyError};
pub use spec::{Action, CallSpec, Finish, Incoming, Instance, Outcome, Replay, Safety, Send};
