//! Refuse work at the door of any tower service, with a hint.
//!
//! A service that queues without a bound answers everybody late; one that drops without a word is asked again at
//! once. This crate puts [`holdoff_admission::Controller`] in front of real work: it keeps the places of what waits,
//! starts it when a worker is free, answers what is refused in the words of the contract, and gives every place back
//! exactly once, whatever ends it.
//!
//! Three ways in, from bare to ready-made:
//! - [`Admission`]: for workers that speak no HTTP. `admission.enter(&ask).await` is a [`Permit`] or a refusal.
//! - [`Gate`]: for handlers that decide themselves when to ask: who is asking, with which rights, and the answer to
//!   a refusal.
//! - [`AdmissionLayer`]: for a tower or axum service over `http::Request`.
//!
//! What handlers call in turn stands behind a [`Bulkhead`], one for each dependency. Who has neither tower nor tokio uses
//! [`holdoff_admission::Controller`] bare: it decides, and its caller waits, starts and ticks.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use holdoff_admission_tower::{Admission, Ask, Denied, Profile};
//!
//! let admission = Admission::start(Profile::default(), None)?;
//! match admission.enter(&Ask::default()).await {
//!     Ok(permit) => permit.completed(), // do the work first, of course
//!     Err(refusal) => println!("{refusal}"),
//! }
//! # Ok(()) }
//! ```

//! # Metrics
//!
//! Through the `metrics` facade, to the recorder given to [`Admission::start`] or the process's own. Labels come from
//! closed sets; no tenant is ever one (SEC-03).
//!
//! | name | labels |
//! |---|---|
//! | `agent_admission_total` | `decision` (accept, defer, a code), `task_class`, `tenant_tier` |
//! | `agent_queue_estimated_work_seconds`, `agent_queue_oldest_age_seconds` | |
//! | `agent_task_start_delay_seconds` | |
//! | `agent_service_seconds` | `task_class` |
//! | `agent_deadline_miss_total` | `stage` (door, queue, running) |
//! | `overload_state` | `state`: 1 for the one it is in |
//! | `overload_transitions_total` | `from`, `to` |
//! | `overload_queue_depth`, `overload_queue_limit`, `overload_running` | `tier` |
//! | `overload_queue_refused_total` | `code`, `tier`: taken out before it started |
//! | `overload_shed_rate`, `overload_staleness_seconds`, `overload_backlog_depth` | |
//! | `overload_workers`, `overload_workers_busy`, `overload_tickets` | |
//! | `overload_prediction_error_seconds`, `overload_hint_seconds`, `overload_decision_seconds` | |
//! | `overload_estimate_error_seconds` | `task_class`, `of` (wait, service) |
//! | `overload_time_in_queue_p99_seconds`, `overload_shed_rate_alert_threshold` | |
//! | `overload_wait_bound_seconds` | `tier` |
//! | `overload_class_deadline_seconds` | `task_class` |
//! | `overload_bulkhead_calls`, `overload_bulkhead_limit` | `bulkhead`, `of` (running, waiting) |
//! | `overload_bulkhead_refused_total` | `bulkhead` |
//! | `overload_hint_outcomes_total` | `outcome` (honoured, early, late, no_return) |
//! | `overload_ghosts_total` | `tier`, `outcome` (missed, in_time, avoidable): refused work, and what would have become of it |
//! | `overload_false_accepts_total` | `stage` (queue, running): accepted work that was not done in time |
//!
//! Every series of these sets is there from the start, at zero, but for `agent_admission_total` of a profile of 20 classes and
//! more: those come with the first decision of their kind. Histograms show from their first sample on.
//!
//! # One request at a time
//!
//! [`Admission::watch`] hands every ended request to a [`Watch`]: for a trace to be played again, or sampled logs.
//! [`Admission::transitions`] and [`Admission::worst_callers`] are for a page that an operator looks at.

mod admission;
mod ask;
mod body;
mod bulkhead;
mod clock;
mod deadline;
mod drain;
mod gate;
mod identity;
mod meters;
mod place;
mod reckoning;
mod record;
mod series;
mod service;

pub use admission::Admission;
pub use ask::{Ask, Denied};
pub use body::GuardBody;
pub use bulkhead::{Bulkhead, Call};
pub use deadline::ForeignDeadlines;
pub use drain::{DRAIN_BYTES, DRAIN_TIME, drain};
pub use gate::{Asked, Gate, PeerAddress, Refusal};
pub use holdoff_admission::{Profile, ProfileError};
pub use identity::{Identify, Identity, RequestHead, Tiers};
pub use meters::SharedRecorder;
pub use place::{Permit, Place, Run};
pub use reckoning::Transition;
pub use record::{Record, Verdict, Watch};
pub use service::{AdmissionLayer, AdmissionService, Classify, Overrun};
