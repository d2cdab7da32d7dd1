//! The server's judgement, as the simulator sees it: the product's own controller, or a rule people use today.
//!
//! The baselines exist to be compared with and to fail: a gate that every rule passes measures nothing. They are small
//! and share one queue; the product is driven through the same trait and is not copied.

mod baseline;
mod hinter;
mod product;

use std::time::Duration;

use holdoff_admission::Ending;
use holdoff_contract::{Overload, ServiceState, Tier};

pub use baseline::{Baseline, Rule};
pub use hinter::{HintKind, Hinter};
pub use product::{Edge, Product};

use crate::scenario::Scenario;
use crate::time::{Nanos, Origin};
use crate::workload::Class;

/// An attempt at the door.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Whose.
    pub tenant: u16,
    /// Kind.
    pub class: Class,
    /// Importance.
    pub tier: Tier,
    /// What the caller says is left of its time; `None` where it says nothing.
    pub time_left: Option<Duration>,
    /// Who sends it, as far as the server can tell its callers apart.
    pub caller: u16,
    /// The call; its attempts share an Idempotency-Key.
    pub call: u32,
    /// Which attempt of it.
    pub attempt: u32,
}

/// The answer at the door.
#[derive(Debug)]
pub enum Verdict {
    /// It has a place with this key. The low 32 bits are a dense index.
    Accepted {
        /// For [`Door::finish`] and [`Turn`].
        key: u64,
        /// The wait that was predicted.
        predicted: Nanos,
    },
    /// Refused.
    Refused(Box<Overload>),
}

/// What to do with queued work now.
#[derive(Debug)]
pub enum Turn {
    /// Start it.
    Start(u64),
    /// Refuse it; its place is given back already.
    Refuse(u64, Box<Overload>),
}

/// What a door looks like from outside, for the plots.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Work that waits, in tasks.
    pub queued: u32,
    /// Age of the oldest that waits.
    pub oldest: Nanos,
    /// State of admission; a baseline has none and says normal.
    pub state: ServiceState,
}

/// A rule of admission with its queue.
pub trait Door {
    /// Decides on an attempt.
    fn admit(&mut self, now: Nanos, ask: Ask) -> Verdict;
    /// The next thing to do; call until `None` after each change and at [`Door::next_expiry`].
    fn next(&mut self, now: Nanos) -> Option<Turn>;
    /// An accepted attempt ended.
    fn finish(&mut self, now: Nanos, key: u64, ending: Ending);
    /// Called every 100 ms.
    fn tick(&mut self, now: Nanos);
    /// When queued work expires next.
    fn next_expiry(&self) -> Option<Nanos>;
    /// For the plots.
    fn look(&self, now: Nanos) -> Look;
}

/// The rules of admission by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Admission {
    /// The product's controller, with the edge before it
    Holdoff,
    /// The product's controller without the edge
    NoEdge,
    /// A bounded first-in-first-out queue
    Fifo,
    /// CoDel: a queue that was not empty for long keeps nothing old
    Codel,
    /// As many at once as there are workers, no queue
    Limit,
    /// Predicted wait against the deadline, one mean for all tasks
    PredictedMean,
    /// The same with a p95 for each class, and no probes
    PredictedClass,
}

impl Admission {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holdoff => "holdoff",
            Self::NoEdge => "no-edge",
            Self::Fifo => "fifo",
            Self::Codel => "codel",
            Self::Limit => "limit",
            Self::PredictedMean => "predicted-mean",
            Self::PredictedClass => "predicted-class",
        }
    }

    /// A door for one replica of the scenario.
    ///
    /// # Errors
    /// When the controller refuses the profile.
    pub fn door(
        self,
        scenario: &Scenario,
        hint: HintKind,
        origin: Origin,
    ) -> Result<Box<dyn Door>, holdoff_admission::ProfileError> {
        let rule = match self {
            Self::Holdoff => return Ok(Box::new(Product::new(scenario, hint, Edge::On, origin)?)),
            Self::NoEdge => return Ok(Box::new(Product::new(scenario, hint, Edge::Off, origin)?)),
            Self::Fifo => Rule::Bounded,
            Self::Codel => Rule::Codel,
            Self::Limit => Rule::Limit,
            Self::PredictedMean => Rule::PredictedMean,
            Self::PredictedClass => Rule::PredictedClass,
        };
        Ok(Box::new(Baseline::new(rule, hint, scenario.workers)))
    }
}
