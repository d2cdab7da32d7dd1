//! What a refusal says about coming back, other than the product's place in a virtual line.

use std::time::Duration;

use holdoff_contract::{Granularity, Hint};

use crate::time::{MS, Nanos, SECOND};

/// The kinds of hints by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HintKind {
    /// The rule's own: the product's window, 1 s for the baselines
    Own,
    /// Always 1 s
    Fixed,
    /// The time in which what waits now will be done
    Drain,
    /// One value for everybody that doubles while many are refused, as kube's tracker does
    Kube,
}

impl HintKind {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Fixed => "fixed",
            Self::Drain => "drain",
            Self::Kube => "kube",
        }
    }
}

/// Makes hints of one kind.
#[derive(Debug)]
pub struct Hinter {
    kind: HintKind,
    /// Kube: the value in seconds, when it may change next, refusals since it changed.
    value: u64,
    change_at: Nanos,
    refused: u64,
}

/// Greatest value of the tracker, seconds.
const KUBE_MAX: u64 = 8;
/// Refusals a second from which it doubles.
const KUBE_MANY: u64 = 3;

impl Hinter {
    /// A hinter that has seen nothing.
    pub const fn new(kind: HintKind) -> Self {
        Self {
            kind,
            value: 1,
            change_at: SECOND,
            refused: 0,
        }
    }

    /// The hint for one refusal while `backlog` is the time that what waits will take; `None` = the rule's own.
    pub fn hint(&mut self, now: Nanos, backlog: Nanos) -> Option<Hint> {
        let delay = match self.kind {
            HintKind::Own => return None,
            HintKind::Fixed => SECOND,
            HintKind::Drain => backlog.max(50 * MS),
            HintKind::Kube => self.track(now) * SECOND,
        };
        let granularity = if self.kind == HintKind::Drain {
            Granularity::Milliseconds
        } else {
            Granularity::Seconds
        };
        Some(Hint::After {
            delay: Duration::from_nanos(delay),
            granularity,
        })
    }

    fn track(&mut self, now: Nanos) -> u64 {
        if now >= self.change_at {
            if self.refused >= KUBE_MANY * self.value {
                self.value = (self.value * 2).min(KUBE_MAX);
            } else if self.refused < self.value {
                self.value = self.value.saturating_sub(1).max(1);
            }
            self.refused = 0;
            self.change_at = now + self.value * SECOND;
        }
        self.refused += 1;
        self.value
    }
}
