//! The disk as it fails: full, read-only, corrupt, taken, and broken in the last step.

use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex};

use redb::StorageBackend;

use super::*;
use crate::Journal;

fn insert(id: u128) -> Change {
    Change::Insert(RecordId(id), vec![id as u8; 100])
}

fn ids(store: &mut impl Store) -> Vec<u128> {
    store.load().unwrap().into_iter().map(|(id, _)| id.0).collect()
}

/// A disk in memory that can be told to fail.
#[derive(Clone, Debug, Default)]
struct Sick(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    bytes: Vec<u8>,
    writes: Option<ErrorKind>,
    syncs: Option<ErrorKind>,
    opened: u32,
}

impl Sick {
    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    fn disk(&self) -> Disk {
        let sick = self.clone();
        let open = Box::new(move || {
            sick.inner().opened += 1;
            builder().create_with_backend(sick.clone())
        });
        Disk::with(Path::new("sick.redb"), open).unwrap()
    }
}

impl StorageBackend for Sick {
    fn len(&self) -> Result<u64, Error> {
        Ok(self.inner().bytes.len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let at = offset as usize;
        let inner = self.inner();
        let bytes = inner.bytes.get(at..at + out.len());
        out.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<(), Error> {
        let mut inner = self.inner();
        if let Some(kind) = inner.writes.filter(|_| len as usize > inner.bytes.len()) {
            return Err(kind.into());
        }
        inner.bytes.resize(len as usize, 0);
        Ok(())
    }
    fn sync_data(&self) -> Result<(), Error> {
        self.inner().syncs.map_or(Ok(()), |kind| Err(kind.into()))
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut inner = self.inner();
        if let Some(kind) = inner.writes {
            return Err(kind.into());
        }
        let at = offset as usize;
        inner.bytes[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }
}

/// As if a second had passed since the failure.
fn let_it_reopen(disk: &mut Disk) {
    if let State::Down { since, .. } = &mut disk.state {
        *since = since.checked_sub(REOPEN_EVERY).unwrap();
    }
}

#[test]
fn what_was_applied_is_there_when_the_file_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j.redb");
    let mut disk = Disk::open(&path).unwrap();
    disk.apply(&[insert(2), insert(1), insert(3)]).unwrap();
    let update = Change::Update(RecordId(2), b"two".to_vec());
    disk.apply(&[Change::Remove(RecordId(3)), update]).unwrap();
    drop(disk);
    let mut disk = Disk::open(&path).unwrap();
    assert_eq!(ids(&mut disk), [1, 2]);
    assert_eq!(disk.load().unwrap()[1].1, b"two");
}

#[test]
fn a_file_that_another_journal_has_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j.redb");
    let _first = Disk::open(&path).unwrap();
    let error = Disk::open(&path).unwrap_err();
    assert_eq!(error, JournalError::InUse { path: path.clone() });
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}

#[test]
fn a_file_that_is_no_journal_is_corrupt_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j.redb");
    for garbage in [&b"not a database at all"[..], &[0; 8192]] {
        std::fs::write(&path, garbage).unwrap();
        let error = Disk::open(&path).unwrap_err();
        assert!(matches!(error, JournalError::Corrupt { .. }), "{error:?}");
        assert_eq!(std::fs::read(&path).unwrap(), garbage);
    }
}

#[test]
fn a_journal_whose_bytes_were_changed_is_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j.redb");
    let mut disk = Disk::open(&path).unwrap();
    let records: Vec<Change> = (1..200).map(insert).collect();
    disk.apply(&records).unwrap();
    drop(disk);
    let mut bytes = std::fs::read(&path).unwrap();
    let needle = [77; 100];
    let at = bytes.windows(100).position(|window| window == needle).unwrap();
    bytes[at + 50] = 0;
    std::fs::write(&path, &bytes).unwrap();
    let error = Disk::open(&path).unwrap_err();
    assert!(matches!(error, JournalError::Corrupt { .. }), "{error:?}");
}

#[test]
fn a_folder_that_is_not_there_or_not_a_folder_is_an_error_with_the_path() {
    let error = Disk::open(Path::new("/nowhere/at/all/j.redb")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all/j.redb"), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(Disk::open(&file.path().join("j.redb")).is_err());
}

#[test]
fn a_full_disk_refuses_new_records_loses_none_and_takes_records_again_when_there_is_room() {
    let sick = Sick::default();
    let mut disk = sick.disk();
    disk.apply(&[insert(1)]).unwrap();
    sick.inner().writes = Some(ErrorKind::StorageFull);
    let failed = disk.apply(&[insert(2)]).unwrap_err();
    assert!(matches!(failed.why, JournalError::Full { .. }), "{failed:?}");
    let opened = sick.inner().opened;
    let again = disk.apply(&[insert(3)]).unwrap_err();
    assert_eq!((again.why, again.written), (failed.why, Written::No));
    assert_eq!(sick.inner().opened, opened, "not opened again within a second");
    sick.inner().writes = None;
    let_it_reopen(&mut disk);
    disk.apply(&[insert(4)]).unwrap();
    assert_eq!(ids(&mut disk), [1, 4]);
}

#[test]
fn a_read_only_disk_is_told_from_a_full_one() {
    let sick = Sick::default();
    let mut disk = sick.disk();
    sick.inner().writes = Some(ErrorKind::ReadOnlyFilesystem);
    let failed = disk.apply(&[insert(2)]).unwrap_err();
    assert!(matches!(failed.why, JournalError::ReadOnly { .. }), "{failed:?}");
}

#[test]
fn an_insertion_whose_last_step_failed_is_taken_back_even_if_it_reached_the_disk() {
    let sick = Sick::default();
    let mut disk = sick.disk();
    disk.apply(&[insert(1)]).unwrap();
    sick.inner().syncs = Some(ErrorKind::Other);
    let update = Change::Update(RecordId(1), b"one".to_vec());
    let failed = disk.apply(&[insert(2), update]).unwrap_err();
    assert_eq!(failed.written, Written::Unknown);
    assert_eq!(disk.doubtful, [RecordId(2)], "an update is never taken back");
    sick.inner().syncs = None;
    let_it_reopen(&mut disk);
    disk.apply(&[insert(3)]).unwrap();
    assert_eq!(ids(&mut disk), [1, 3]);
    assert!(disk.doubtful.is_empty());
}

#[tokio::test]
async fn callers_share_transactions_and_each_is_told_the_truth() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j.redb");
    let (journal, kept) = Journal::open(&path).unwrap();
    assert!(kept.is_empty());
    let mut callers = tokio::task::JoinSet::new();
    for id in 0..200 {
        let journal = journal.clone();
        callers.spawn(async move { journal.insert(RecordId(id), vec![1; 50]).await });
    }
    while let Some(done) = callers.join_next().await {
        done.unwrap().unwrap();
    }
    let stats = journal.stats();
    assert_eq!((stats.changes, stats.failed), (200, 0));
    assert!(stats.commits < 100, "{stats:?}");
    journal.close().await;
    let late = journal.insert(RecordId(900), Vec::new()).await.unwrap_err();
    assert_eq!(late.why, JournalError::Closed);
    let (_journal, kept) = Journal::open(&path).unwrap();
    assert_eq!(kept.len(), 200);
}

#[tokio::test]
async fn a_record_over_the_limit_is_refused_with_the_limit_and_harms_nobody() {
    let (journal, _) = Journal::start(crate::Memory::default()).unwrap();
    let failed = journal
        .insert(RecordId(1), vec![0; crate::MAX_RECORD_BYTES + 1])
        .await
        .unwrap_err();
    assert!(matches!(failed.why, JournalError::TooLarge { .. }), "{failed:?}");
    journal.insert(RecordId(2), vec![0; 10]).await.unwrap();
    assert_eq!(journal.stats().changes, 1);
}

#[tokio::test]
async fn a_store_that_panics_fails_the_change_and_not_the_writer() {
    struct Panics(bool);
    impl Store for Panics {
        fn load(&mut self) -> Result<Vec<Record>, JournalError> {
            Ok(Vec::new())
        }
        fn apply(&mut self, _: &[Change]) -> Result<(), Failed> {
            assert!(std::mem::replace(&mut self.0, true), "the first time");
            Ok(())
        }
    }
    let (journal, _) = Journal::start(Panics(false)).unwrap();
    let failed = journal.insert(RecordId(1), Vec::new()).await.unwrap_err();
    assert_eq!(failed.written, Written::Unknown);
    journal.insert(RecordId(2), Vec::new()).await.unwrap();
}
