//! May this work join? The server's judgement, without I/O, clock or entropy of its own.
//!
//! A queue that takes everything answers nothing in time. [`Controller`] predicts, before work joins, when it would
//! be done; what cannot be done in time, or would take someone else's future, is refused at once with a code and a
//! window to come back in. It owns the order of the queues but not the work: the adapter keeps the payloads, asks
//! [`Controller::next_step`] what to start or refuse after every change, and reports every ending through
//! [`Controller::finish`].
//!
//! ```text
//! Work -> admit(now) -> Decision::{Accept(Ticket), Defer(Ticket), Reject(Rejection)}
//!      -> next_step(now) -> Step::{Start, Refuse} ... -> finish(now, ticket, ending)
//! ```
//!
//! `now` and `rng` are arguments; events come out, nothing is logged here.

mod answer;
mod ask;
mod bounds;
mod controller;
mod demand;
mod edge;
mod estimator;
mod event;
mod ghosts;
mod heap;
mod judge;
mod line;
mod never;
mod pool;
pub mod profile;
mod queues;
mod recent;
mod refuse;
mod reload;
mod slots;
mod snapshot;
mod state;
mod tenants;
mod wait;
mod work;

pub use answer::{Decision, Rejection, Step};
pub use controller::Controller;
pub use edge::{Caller, Compliance, HintOutcome};
pub use event::{Event, Events};
pub use ghosts::GhostOutcome;
pub use never::NeverAdmissible;
pub use profile::{Profile, ProfileError};
pub use snapshot::{ClassSnapshot, Snapshot, TierSnapshot};
pub use work::{ClassId, DeadlineOf, Ending, TenantId, Ticket, Work};
