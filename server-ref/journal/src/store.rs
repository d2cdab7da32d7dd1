//! Where records are kept: one trait, so that a service can bring its own database.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Failed, JournalError};

/// A record's name. Ids that grow with time keep the disk's work small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub u128);

/// A name and what is kept under it.
pub type Record = (RecordId, Vec<u8>);

/// One change of the set of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new record: if it fails, it must not be there afterwards.
    Insert(RecordId, Vec<u8>),
    /// Another content: if it fails, the old one may stand.
    Update(RecordId, Vec<u8>),
    /// No longer needed; nothing where there is none.
    Remove(RecordId),
}

/// A set of records that survives the process. Driven by one thread, so everything may block.
pub trait Store: Send + 'static {
    /// Everything that is kept, in the order of ids.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn load(&mut self) -> Result<Vec<Record>, JournalError>;

    /// Makes all changes, or none. They are durable when this returns.
    ///
    /// # Errors
    /// Why none was made, and whether they can be there all the same.
    fn apply(&mut self, changes: &[Change]) -> Result<(), Failed>;
}

/// Records in memory, for tests: they survive a journal, as a disk does, where the value is cloned, and not the process.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<RecordId, Vec<u8>>,
    failing: Option<Failed>,
}

impl Memory {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every change fails so from now on; `None` lets them through again.
    pub fn fail(&self, failing: Option<Failed>) {
        self.state().failing = failing;
    }

    /// What is kept.
    pub fn records(&self) -> BTreeMap<RecordId, Vec<u8>> {
        self.state().records.clone()
    }
}

impl Store for Memory {
    fn load(&mut self) -> Result<Vec<Record>, JournalError> {
        Ok(self.records().into_iter().collect())
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), Failed> {
        let mut state = self.state();
        if let Some(failed) = &state.failing {
            return Err(failed.clone());
        }
        for change in changes {
            match change {
                Change::Insert(id, record) | Change::Update(id, record) => {
                    state.records.insert(*id, record.clone());
                }
                Change::Remove(id) => {
                    state.records.remove(id);
                }
            }
        }
        Ok(())
    }
}
