//! What happened over time, in bins of 100 ms: the stuff of the plots and of the return spike.

use holdoff_contract::ServiceState;

use crate::time::{MS, Nanos};

/// Length of a bin, and the period of the controller's tick.
pub const BIN: Nanos = 100 * MS;

/// One bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// First attempts.
    pub first: u32,
    /// Later attempts.
    pub again: u32,
    /// Refusals, at the door and in the queue.
    pub refused: u32,
    /// Worker time of tasks that were answered in time in this bin.
    pub done: Nanos,
    /// Tasks that wait, at the end of the bin.
    pub queued: u32,
    /// Age of the oldest of them.
    pub oldest: Nanos,
    /// State of admission, at the end of the bin; the worst of all replicas.
    pub state: ServiceState,
}

impl Default for Bin {
    fn default() -> Self {
        Self {
            first: 0,
            again: 0,
            refused: 0,
            done: 0,
            queued: 0,
            oldest: 0,
            state: ServiceState::Normal,
        }
    }
}

/// All bins of a run, from its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    bins: Vec<Bin>,
}

impl Series {
    /// The bin of this time; made where it is new.
    pub fn at(&mut self, t: Nanos) -> &mut Bin {
        let index = (t / BIN) as usize;
        if self.bins.len() <= index {
            self.bins.resize(index + 1, Bin::default());
        }
        &mut self.bins[index]
    }

    /// All bins.
    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }
}
