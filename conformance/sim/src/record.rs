//! What is left of a run: every call, what was counted, and what happened over time.

use crate::Setup;
use crate::series::Series;
use crate::time::Nanos;
use crate::trace::Line;
use crate::workload::Arrival;

/// How one call went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallRecord {
    /// What it was.
    pub arrival: Arrival,
    /// Sends.
    pub attempts: u32,
    /// Worker time it took when it ran, at last; before that what it would have taken on arrival.
    pub took: Nanos,
    /// When it was answered in time; `None` = it failed.
    pub served: Option<Nanos>,
}

/// What was counted on the side of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accepted attempts, by tier.
    pub accepted: [u32; 3],
    /// Those of them that were answered in time.
    pub kept: [u32; 3],
    /// Refusals at the door.
    pub refused: u32,
    /// Worker time spent on tasks, and on those of them whose answer came too late.
    pub busy: Nanos,
    /// See `busy`.
    pub wasted: Nanos,
}

/// A task on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its start.
    pub from: Nanos,
    /// When its worker was free again.
    pub to: Nanos,
    /// Worker time it needed; the rest of the time its worker made no progress or rejected others.
    pub need: Nanos,
    /// Its caller still waited when it was done.
    pub kept: bool,
}

/// A finished run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What was simulated.
    pub setup: Setup,
    /// Every call, in order of arrival.
    pub calls: Vec<CallRecord>,
    /// Counts.
    pub counts: Counts,
    /// Over time.
    pub series: Series,
    /// When workers were busy, with what.
    pub spans: Vec<Span>,
    /// Retries of the product's callers that left before the end of their hint.
    pub early_retries: u32,
    /// The decisions, where they were asked for.
    pub trace: Vec<Line>,
}
