//! Does it hold at scale, and is it better than what people use today? Overload rules that look right for one caller
//! go wrong for a hundred thousand, and nobody can afford to try that on a service.
//!
//! So this is a discrete-event simulator in virtual time. It drives the product's own [`holdoff_admission::Controller`]
//! and [`holdoff_policy::Call`] and repeats none of their rules. The same seed gives the same run, so that two policies are
//! compared on the same arrivals. What is reached is measured against a clairvoyant bound: the most work that any
//! scheduler could have finished in time, had it known everything (see [`bound`]).
//!
//! ```
//! use holdoff_sim::{Setup, scenario::Scenario};
//!
//! let mut scenario = Scenario::named("a2").ok_or("no such scenario")?;
//! scenario.workers = 4; // small, so that the example is quick
//! let run = holdoff_sim::run(&Setup::product(scenario, 1), holdoff_sim::clock::now())?;
//! assert_eq!(run.early_retries, 0);
//! assert!(run.report().goodput > 0.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bound;
pub mod caller;
pub mod cli;
pub mod clock;
pub mod controls;
pub mod door;
pub mod gates;
pub mod metrics;
mod plain;
mod plot;
mod present;
mod progress;
mod record;
mod relay;
pub mod replay;
pub mod scenario;
pub mod series;
pub mod time;
pub mod trace;
mod workers;
pub mod workload;
mod world;

use std::time::Instant;

use caller::ClientKind;
use door::{Admission, HintKind};
use scenario::Scenario;

pub use record::{CallRecord, Counts, Run, Span};

/// What to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// What happens.
    pub scenario: Scenario,
    /// Of all that is drawn.
    pub seed: u64,
    /// The server's rule.
    pub admission: Admission,
    /// What its refusals say.
    pub hint: HintKind,
    /// What callers do, but for the scenario's odd ones.
    pub clients: ClientKind,
    /// Keep a line for each decision.
    pub trace: bool,
}

impl Setup {
    /// The product on both sides.
    pub const fn product(scenario: Scenario, seed: u64) -> Self {
        Self {
            scenario,
            seed,
            admission: Admission::Holdoff,
            hint: HintKind::Own,
            clients: ClientKind::Holdoff,
            trace: false,
        }
    }
}

/// Simulates. The result depends on the setup alone: `origin` only gives virtual instants a place to stand.
///
/// # Errors
/// When the controller refuses the scenario's profile.
pub fn run(setup: &Setup, origin: Instant) -> Result<Run, holdoff_admission::ProfileError> {
    world::World::new(setup, time::Origin::new(origin)).map(world::World::run)
}
