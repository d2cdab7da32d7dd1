//! The writer thread: everything that waits goes into one transaction.
//!
//! While one sync is under way the next callers queue up, and the sync after it is theirs together. So the batch grows
//! with the load by itself. But the callers of the sync before have only just been told and are about to come back:
//! taken at once, the next sync would be for half of them only. So the writer waits a moment for them, a small part of what a
//! sync takes, where there was more than one; a lone caller waits for its sync only.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::clock;
use crate::{Change, Disk, Failed, JournalError, Record, RecordId, Store, Written};

/// Most changes of one transaction: 1024. Many times the callers that one sync can have behind it.
pub const MAX_BATCH: usize = 1_024;
/// Most changes that wait for the writer: 4096. Beyond it callers wait for a place in the queue.
pub const MAX_QUEUED: usize = 4_096;
/// Largest record: 2 MiB, twice the largest payload of the reference server.
pub const MAX_RECORD_BYTES: usize = 2 << 20;
/// Bytes from which a transaction takes no more records.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// A handle on the writer; clones share it. The store is closed by [`Journal::close`], or with the last handle.
#[derive(Clone, Debug)]
pub struct Journal {
    queue: mpsc::Sender<Entry>,
    counts: Arc<Counts>,
}

/// What the writer has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Changes that became durable.
    pub changes: u64,
    /// Transactions they took: one sync each.
    pub commits: u64,
    /// Changes that failed.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct Counts {
    changes: AtomicU64,
    commits: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug)]
enum Entry {
    Change(Change, oneshot::Sender<Result<(), Failed>>),
    Close(oneshot::Sender<()>),
}

impl Journal {
    /// Opens the journal in this file, made if it is absent, and reads what it holds. Blocks.
    ///
    /// # Errors
    /// Why it cannot be used; a file that is not a sound journal is left as it is.
    pub fn open(path: &Path) -> Result<(Self, Vec<Record>), JournalError> {
        Self::start(Disk::open(path)?)
    }

    /// Starts a writer over this store, and reads what it holds. Blocks.
    ///
    /// # Errors
    /// The store cannot be read, or the system gives no thread.
    pub fn start(mut store: impl Store) -> Result<(Self, Vec<Record>), JournalError> {
        let kept = store.load()?;
        let (queue, entries) = mpsc::channel(MAX_QUEUED);
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        std::thread::Builder::new()
            .name("holdoff-journal".to_owned())
            .spawn(move || write_all(store, entries, &counted))
            .map_err(|error| JournalError::io(Path::new("journal thread"), &error))?;
        Ok((Self { queue, counts }, kept))
    }

    /// Keeps a new record. It is durable when this returns. Dropping the future does not take it back.
    ///
    /// # Errors
    /// Why it is not durable; it will not be there after a restart unless `written` says otherwise.
    pub async fn insert(&self, id: RecordId, record: Vec<u8>) -> Result<(), Failed> {
        self.change(Change::Insert(id, record)).await
    }

    /// Replaces a record, durably.
    ///
    /// # Errors
    /// Why it is not durable; the old content may stand.
    pub async fn update(&self, id: RecordId, record: Vec<u8>) -> Result<(), Failed> {
        self.change(Change::Update(id, record)).await
    }

    /// Forgets a record, durably.
    ///
    /// # Errors
    /// Why it may still be there.
    pub async fn remove(&self, id: RecordId) -> Result<(), Failed> {
        self.change(Change::Remove(id)).await
    }

    async fn change(&self, change: Change) -> Result<(), Failed> {
        if let Change::Insert(_, record) | Change::Update(_, record) = &change
            && record.len() > MAX_RECORD_BYTES
        {
            let (bytes, limit) = (record.len(), MAX_RECORD_BYTES);
            return Err(JournalError::TooLarge { bytes, limit }.into());
        }
        let (told, tell) = oneshot::channel();
        let entry = Entry::Change(change, told);
        self.queue.send(entry).await.map_err(|_| JournalError::Closed)?;
        // A writer that goes away with a change in its hands cannot say how far it came.
        let (why, written) = (JournalError::Closed, Written::Unknown);
        tell.await.unwrap_or(Err(Failed { why, written }))
    }

    /// Finishes what was asked before, then lets go of the file. Later changes fail with [`JournalError::Closed`].
    pub async fn close(&self) {
        let (closed, done) = oneshot::channel();
        if self.queue.send(Entry::Close(closed)).await.is_ok() {
            // An error means that the writer is gone already.
            let _ = done.await;
        }
    }

    /// What the writer has done so far.
    pub fn stats(&self) -> Stats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            changes: read(&self.counts.changes),
            commits: read(&self.counts.commits),
            failed: read(&self.counts.failed),
        }
    }
}

/// The moment that a writer waits is this part of the last sync ...
const PAUSE_SHARE: u32 = 16;
/// ... and at most this long. Under [`LEAST_PAUSE`], the grain of the system's timer, it does not wait.
const MOST_PAUSE: Duration = Duration::from_micros(500);
const LEAST_PAUSE: Duration = Duration::from_micros(50);

/// How long to wait for more, after a transaction of so many changes that took so long.
fn pause(last: (usize, Duration)) -> Option<Duration> {
    let (changes, took) = last;
    let pause = (took / PAUSE_SHARE).min(MOST_PAUSE);
    (changes > 1 && pause >= LEAST_PAUSE).then_some(pause)
}

fn size(change: &Change) -> usize {
    match change {
        Change::Insert(_, record) | Change::Update(_, record) => record.len(),
        Change::Remove(_) => 0,
    }
}

/// Writes until it is told to close or nobody holds the journal any more.
fn write_all<S: Store>(mut store: S, mut entries: mpsc::Receiver<Entry>, counts: &Counts) {
    let mut closing = None;
    let mut last = (0, Duration::ZERO);
    while closing.is_none()
        && let Some(first) = entries.blocking_recv()
    {
        let (mut changes, mut waiting, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut next = Some(first);
        if let Some(pause) = pause(last) {
            clock::sleep(pause);
        }
        while let Some(entry) = next {
            match entry {
                Entry::Change(change, told) => {
                    bytes += size(&change);
                    changes.push(change);
                    waiting.push(told);
                }
                Entry::Close(closed) => {
                    closing = Some(closed);
                    break;
                }
            }
            let room = changes.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES;
            next = if room { entries.try_recv().ok() } else { None };
        }
        if changes.is_empty() {
            continue;
        }
        let began = clock::now();
        let done = guarded(&mut store, &changes);
        last = (changes.len(), clock::now().saturating_duration_since(began));
        let n = changes.len() as u64;
        if done.is_ok() {
            counts.commits.fetch_add(1, Ordering::Relaxed);
            counts.changes.fetch_add(n, Ordering::Relaxed);
        } else {
            counts.failed.fetch_add(n, Ordering::Relaxed);
        }
        for told in waiting {
            // Nobody listens where the caller went away: the record is kept all the same.
            let _ = told.send(done.clone());
        }
    }
    drop(entries);
    drop(store);
    if let Some(closed) = closing {
        let _ = closed.send(());
    }
}

/// A database that panics over a broken file must not take the writer with it.
fn guarded<S: Store>(store: &mut S, changes: &[Change]) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(|| store.apply(changes))).unwrap_or_else(|_| {
        let (path, detail) = ("journal".into(), "the database panicked".to_owned());
        Err(Failed {
            why: JournalError::Corrupt { path, detail },
            written: Written::Unknown,
        })
    })
}
