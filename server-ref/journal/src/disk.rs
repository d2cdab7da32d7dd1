//! The default store: one `redb` file.
//!
//! redb is a copy-on-write tree with one sync a transaction, checksums, and no log to replay: killed at any moment, it opens
//! at the last transaction that was complete. After a failed write it refuses everything until it is opened again,
//! so that is what this does, at most once a second.

use std::fmt;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};

use crate::{Change, Failed, JournalError, Record, RecordId, Store, Written, clock};

/// The records; another format gets another name.
const RECORDS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("records-1");
/// Memory for pages: 16 MiB. The live set is small; redb's own default of 1 GiB is for a database that is read.
const CACHE_BYTES: usize = 16 << 20;
/// Least time between two attempts to open a file that failed: 1 s.
const REOPEN_EVERY: Duration = Duration::from_secs(1);

type Open = Box<dyn FnMut() -> Result<Database, DatabaseError> + Send>;

/// Records in a file.
pub struct Disk {
    path: PathBuf,
    open: Open,
    state: State,
    /// Insertions that failed in their last step: they are taken back before anything else is written.
    doubtful: Vec<RecordId>,
}

enum State {
    Up(Database),
    Down { why: JournalError, since: Instant },
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

impl Disk {
    /// Opens the file, made if it is absent, and checks the whole of it.
    ///
    /// # Errors
    /// Why it cannot be used; a file that is not a sound journal is left as it is.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let is_new = !path.exists();
        let file = path.to_owned();
        let mut checked = false;
        let open = Box::new(move || {
            let mut builder = builder();
            // The whole file once; later openings are of the file that this process wrote.
            builder.set_check_integrity_on_open(!std::mem::replace(&mut checked, true));
            builder.create(&file)
        });
        let disk = Self::with(path, open)?;
        if is_new && let Some(folder) = path.parent() {
            // A file is as durable as its name in the folder.
            sync_folder(folder).map_err(|error| JournalError::io(path, &error))?;
        }
        Ok(disk)
    }

    fn with(path: &Path, mut open: Open) -> Result<Self, JournalError> {
        let database = attempt(path, || open().map_err(|error| fault(path, error)))?;
        let mut disk = Self {
            path: path.to_owned(),
            open,
            state: State::Up(database),
            doubtful: Vec::new(),
        };
        // Makes the table, and shows at once whether the file can be written.
        disk.apply(&[]).map_err(|failed| failed.why)?;
        Ok(disk)
    }

    /// The open database, opened again if that is due.
    fn up(&mut self) -> Result<(), JournalError> {
        let State::Down { why, since } = &self.state else {
            return Ok(());
        };
        if clock::now().saturating_duration_since(*since) < REOPEN_EVERY {
            return Err(why.clone());
        }
        let (path, open) = (&self.path, &mut self.open);
        match attempt(path, || open().map_err(|error| fault(path, error))) {
            Ok(database) => {
                self.state = State::Up(database);
                Ok(())
            }
            Err(why) => {
                self.down(&why);
                Err(why)
            }
        }
    }

    fn down(&mut self, why: &JournalError) {
        self.state = State::Down {
            why: why.clone(),
            since: clock::now(),
        };
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), Failed> {
        self.up()?;
        let State::Up(database) = &self.state else {
            return Err(JournalError::Closed.into());
        };
        let path = &self.path;
        let done = attempt_failed(path, || write(path, database, &self.doubtful, changes));
        match &done {
            Ok(()) => self.doubtful.clear(),
            Err(failed) => {
                if failed.written == Written::Unknown {
                    // Bounded: until these are gone no other transaction gets to its last step.
                    self.doubtful
                        .extend(changes.iter().filter_map(|change| match change {
                            Change::Insert(id, _) => Some(*id),
                            Change::Update(..) | Change::Remove(_) => None,
                        }));
                }
                let why = failed.why.clone();
                self.down(&why);
            }
        }
        done
    }
}

impl Store for Disk {
    fn load(&mut self) -> Result<Vec<Record>, JournalError> {
        self.up()?;
        let State::Up(database) = &self.state else {
            return Err(JournalError::Closed);
        };
        let path = &self.path;
        attempt(path, || {
            let read = database.begin_read().map_err(|error| fault(path, error))?;
            let table = read.open_table(RECORDS).map_err(|error| fault(path, error))?;
            let rows = table.iter().map_err(|error| fault(path, error))?;
            rows.map(|row| {
                let (id, record) = row.map_err(|error| fault(path, error))?;
                Ok((RecordId(id.value()), record.value().to_vec()))
            })
            .collect()
        })
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), Failed> {
        if !self.doubtful.is_empty() {
            // Alone, so that the doubtful ones stay bounded by one batch.
            self.commit(&[])?;
        }
        self.commit(changes)
    }
}

/// One transaction, one sync.
fn write(path: &Path, database: &Database, doubtful: &[RecordId], changes: &[Change]) -> Result<(), Failed> {
    let transaction = database.begin_write().map_err(|error| fault(path, error))?;
    {
        let mut table = transaction
            .open_table(RECORDS)
            .map_err(|error| fault(path, error))?;
        for id in doubtful {
            table.remove(id.0).map_err(|error| fault(path, error))?;
        }
        for change in changes {
            match change {
                Change::Insert(id, record) | Change::Update(id, record) => {
                    let old = table.insert(id.0, record.as_slice());
                    old.map_err(|error| fault(path, error))?;
                }
                Change::Remove(id) => {
                    table.remove(id.0).map_err(|error| fault(path, error))?;
                }
            }
        }
    }
    transaction.commit().map_err(|error| Failed {
        why: fault(path, error),
        written: Written::Unknown,
    })
}

fn sync_folder(folder: &Path) -> std::io::Result<()> {
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    File::open(folder)?.sync_all()
}

/// Runs it; a panic over a broken file is a finding about the file.
fn attempt<T>(path: &Path, run: impl FnOnce() -> Result<T, JournalError>) -> Result<T, JournalError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(panicked(path)))
}

fn attempt_failed(path: &Path, run: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        Err(Failed {
            why: panicked(path),
            written: Written::Unknown,
        })
    })
}

fn panicked(path: &Path) -> JournalError {
    JournalError::Corrupt {
        path: path.to_owned(),
        detail: "the database panicked over it".to_owned(),
    }
}

fn fault(path: &Path, error: impl Into<redb::Error>) -> JournalError {
    let error = error.into();
    let (path, detail) = (path.to_owned(), error.to_string());
    match error {
        redb::Error::DatabaseAlreadyOpen => JournalError::InUse { path },
        redb::Error::Corrupted(_)
        | redb::Error::RepairAborted
        | redb::Error::UpgradeRequired(_)
        | redb::Error::TableTypeMismatch { .. } => JournalError::Corrupt { path, detail },
        redb::Error::Io(error) => JournalError::io(&path, &error),
        _ => JournalError::Io { path, detail },
    }
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
