//! What was promised must outlive the process that promised it.
//!
//! A server that answers 202 and keeps the work in memory loses it with the process, and its caller never learns. So a
//! record is made durable first and acknowledged afterwards ([`Journal::insert`] returns once it is on the disk). A sync
//! for each record would bound the service to the disk's sync rate; so one writer thread takes everything that waits
//! into one transaction with one sync (group commit), and 64 callers share it.
//!
//! The journal keeps bytes by id and knows nothing of tasks: what a record means is its owner's business. It is off the
//! async runtime: callers await, the thread blocks.
//!
//! # When the disk fails
//!
//! Full, read-only, corrupt or gone: the change fails with a typed [`JournalError`], nothing that was durable is lost, and
//! the file is opened again at most once a second until it works. [`Failed::written`] says whether the change can be on
//! the disk all the same; an insertion that can be is taken back before anything else is written.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use holdoff_journal::{Journal, RecordId};
//!
//! let dir = tempfile::tempdir()?;
//! let (journal, kept) = Journal::open(&dir.path().join("tasks.redb"))?;
//! assert!(kept.is_empty());
//! journal.insert(RecordId(1), b"promised".to_vec()).await?; // on the disk from here on
//! journal.close().await;
//!
//! let (_journal, kept) = Journal::open(&dir.path().join("tasks.redb"))?;
//! assert_eq!(kept, [(RecordId(1), b"promised".to_vec())]);
//! # Ok(()) }
//! ```

mod clock;
mod disk;
mod error;
mod store;
mod writer;

pub use disk::Disk;
pub use error::{Failed, JournalError, Written};
pub use store::{Change, Memory, Record, RecordId, Store};
pub use writer::{Journal, MAX_BATCH, MAX_QUEUED, MAX_RECORD_BYTES, Stats};
