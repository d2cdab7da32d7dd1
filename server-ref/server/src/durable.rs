//! Work that was promised and must outlive the process: its record, before the promise and after the end.
//!
//! Non-sheddable work is written before its 202 and again when it has ended; in between, an interruption is not an
//! outcome. So a restart finds every task that was acknowledged: those that have ended are looked up as before, the others
//! go back into the queue with their own deadlines. Work that was running when the process died runs again: at least
//! once, and once in effect where the work itself knows its key.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdoff_admission_tower::Ask;
use holdoff_contract::{Code, IdempotencyKey, TaskClass, Tenant, Tier};
use holdoff_journal::{Failed, Journal, JournalError, RecordId};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use uuid::Uuid;

use crate::app::App;
use crate::clock;
use crate::keys::{Key, Print};
use crate::submit::{self, Job};
use crate::tasks::{End, NewTask, Standing, State, View};

/// The journal's file in the data directory.
const FILE: &str = "tasks.redb";
/// Between two attempts to write the end of a task on a disk that fails.
const END_AGAIN: Duration = Duration::from_secs(1);

/// A non-sheddable task as it is kept. Times are on the wall clock: no other survives a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// The key and the print of its payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<(String, String)>,
    pub(crate) class: String,
    pub(crate) duration_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost_ms: Option<u64>,
    pub(crate) bytes: u64,
    /// Unix time.
    pub(crate) accepted_ms: u64,
    /// Unix time: when its caller stops waiting, as it was promised.
    pub(crate) deadline_ms: u64,
    /// How it ended; absent while it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<Ended>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ended {
    state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service_ms: Option<u64>,
}

/// A task that was found in the journal.
pub(crate) type Kept = (Uuid, Record);

/// A record that is no task: another version wrote it, or something else did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: record {id} is not a task of this version ({detail}); it is left as it is")]
pub struct BadRecord {
    /// The journal's file.
    pub path: String,
    /// Which record.
    pub id: Uuid,
    /// What is wrong with it.
    pub detail: String,
}

/// The journal of tasks.
pub(crate) struct Ledger {
    journal: Journal,
    /// The last write failed; said once, and again when it works.
    down: AtomicBool,
}

impl Ledger {
    /// Opens the journal in this directory, made if it is absent, and reads what it holds. Blocks.
    pub(crate) fn open(folder: &Path) -> Result<(Self, Vec<Kept>), crate::StartError> {
        let path = folder.join(FILE);
        std::fs::create_dir_all(folder).map_err(|error| crate::StartError::Data {
            path: folder.to_owned(),
            error,
        })?;
        let (journal, kept) = Journal::open(&path)?;
        let read = |(id, bytes): (RecordId, Vec<u8>)| {
            let id = Uuid::from_u128(id.0);
            let bad = |detail: String| BadRecord {
                path: crate::shown::path(&path),
                id,
                detail: crate::shown::escaped(&detail),
            };
            let record: Record = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
            record.task().map_err(bad)?;
            Ok((id, record))
        };
        let kept = kept.into_iter().map(read).collect::<Result<_, BadRecord>>()?;
        let down = AtomicBool::new(false);
        Ok((Self { journal, down }, kept))
    }

    /// Keeps a new task. It may be acknowledged when this returns.
    pub(crate) async fn insert(&self, id: Uuid, record: &Record) -> Result<(), Failed> {
        let done = self.journal.insert(RecordId(id.as_u128()), record.bytes()).await;
        self.note(done.as_ref().err());
        done
    }

    /// Keeps how a task ended. A disk that fails is tried again: the task is then run once more after a restart at worst.
    /// `show` is called once, when the end is kept or cannot be for now.
    pub(crate) async fn end(&self, id: Uuid, record: &Record, show: impl FnOnce()) {
        let mut show = Some(show);
        loop {
            let done = self.journal.update(RecordId(id.as_u128()), record.bytes()).await;
            self.note(done.as_ref().err());
            if let Some(show) = show.take() {
                show();
            }
            match done {
                Err(failed) if failed.why != JournalError::Closed => clock::sleep(END_AGAIN).await,
                _ => return,
            }
        }
    }

    /// Forgets tasks. One that cannot be forgotten now is forgotten after the next restart.
    pub(crate) async fn forget(&self, ids: Vec<Uuid>) {
        for id in ids {
            let done = self.journal.remove(RecordId(id.as_u128())).await;
            self.note(done.as_ref().err());
        }
    }

    /// Lets go of the file, with everything written that was asked for before.
    pub(crate) async fn close(&self) {
        self.journal.close().await;
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    fn note(&self, failed: Option<&Failed>) {
        match failed {
            Some(failed) if !self.down.swap(true, Ordering::Relaxed) => {
                tracing::error!(error = %failed, reason = failed.why.label(),
                    "the journal does not write: non-sheddable tasks are refused until it does");
            }
            None if self.down.swap(false, Ordering::Relaxed) => {
                tracing::info!("the journal writes again");
            }
            _ => {}
        }
    }
}

impl Record {
    /// Of a task that is about to be promised.
    pub(crate) fn new(ask: &Ask, class: &str, key: Option<&(Arc<Key>, Print)>, duration: Duration) -> Self {
        Self {
            tenant: ask.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()),
            key: key.map(|(key, print)| (key.key.as_str().to_owned(), format!("{:032x}", print.0))),
            class: class.to_owned(),
            duration_us: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            cost_ms: ask.cost.map(crate::tasks::whole_ms),
            bytes: ask.bytes,
            accepted_ms: 0,
            deadline_ms: 0,
            end: None,
        }
    }

    /// With its times, from the runtime's clock to the wall clock.
    pub(crate) fn at(mut self, now: Instant, deadline: Instant) -> Self {
        self.accepted_ms = clock::unix_ms();
        let left = crate::tasks::whole_ms(deadline.saturating_duration_since(now));
        self.deadline_ms = self.accepted_ms.saturating_add(left);
        self
    }

    /// The same, ended.
    pub(crate) fn ended(mut self, view: &View) -> Self {
        self.end = Some(Ended {
            state: view.state,
            code: view.code.clone(),
            waited_ms: view.waited_ms,
            service_ms: view.service_ms,
        });
        self
    }

    fn bytes(&self) -> Vec<u8> {
        // Numbers and our own strings: it always serializes.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_micros(self.duration_us)
    }

    /// The task that was promised.
    fn task(&self) -> Result<(Ask, NewTask), String> {
        let fault = |error: &dyn std::fmt::Display| error.to_string();
        let tenant = self.tenant.as_ref().map(Tenant::new).transpose();
        let tenant = tenant.map_err(|error| fault(&error))?;
        let key = self.key.as_ref().map(|(key, print)| {
            let key = IdempotencyKey::new(key).map_err(|error| fault(&error))?;
            let print = u128::from_str_radix(print, 16).map_err(|error| fault(&error))?;
            let tenant = tenant.clone();
            Ok::<_, String>((Arc::new(Key { tenant, key }), Print(print)))
        });
        let ask = Ask {
            tenant: tenant.clone(),
            class: TaskClass::new(&self.class).ok(),
            tier: Tier::NonSheddable,
            cost: self.cost_ms.map(Duration::from_millis),
            bytes: self.bytes,
            ..Ask::default()
        };
        let new = NewTask {
            class: self.class.clone(),
            tier: Tier::NonSheddable,
            tenant,
            key: key.transpose()?,
            expected_in: self.duration(),
            record: Some(watch::channel(Standing::Durable).1),
        };
        Ok((ask, new))
    }
}

/// This wall-clock time on the runtime's clock; the past as far as that clock goes.
fn instant(now: Instant, unix_now: u64, unix: u64) -> Instant {
    let at = if unix >= unix_now {
        now.checked_add(Duration::from_millis(unix - unix_now))
    } else {
        now.checked_sub(Duration::from_millis(unix_now - unix))
    };
    at.unwrap_or(now)
}

/// Puts back what a restart found, before anything new is let in.
pub(crate) fn restore(app: &App, kept: Vec<Kept>) {
    let (now, unix_now) = (clock::now(), clock::unix_ms());
    let (mut again, mut ended) = (0_usize, 0_usize);
    for (id, record) in kept {
        // Checked when it was read.
        let Ok((ask, new)) = record.task() else { continue };
        let accepted = instant(now, unix_now, record.accepted_ms);
        app.tasks.restore(id, new, accepted, now);
        if let Some(end) = &record.end {
            ended += 1;
            if end.waited_ms.is_some() {
                app.tasks.started(id, now);
            }
            let code: Option<Code> = end.code.as_ref().and_then(|code| code.parse().ok());
            let state = end.state;
            app.tasks.ended(id, now, &End { state, code });
            let time = |ms: Option<u64>| ms.map(Duration::from_millis);
            app.tasks
                .restore_times(id, time(end.waited_ms), time(end.service_ms));
            continue;
        }
        again += 1;
        let deadline = instant(now, unix_now, record.deadline_ms);
        let place = app.gate.admission().restore(&ask, deadline);
        submit::spawn(
            app,
            Job {
                id,
                class: record.class.clone(),
                duration: record.duration(),
                place,
                record: Some(record),
            },
        );
    }
    if again + ended > 0 {
        tracing::info!(queued = again, ended, "tasks of the last run are back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_the_same_after_it_was_written_and_read() {
        let key = Arc::new(Key {
            tenant: Tenant::new("t \"1\"").ok(),
            key: IdempotencyKey::new("k-1").unwrap(),
        });
        let ask = Ask {
            tenant: key.tenant.clone(),
            class: TaskClass::new("lint").ok(),
            tier: Tier::NonSheddable,
            cost: Some(Duration::from_millis(7)),
            bytes: 12,
            ..Ask::default()
        };
        let print = Print(u128::MAX - 1);
        let now = clock::now();
        let record = Record::new(
            &ask,
            "lint",
            Some(&(Arc::clone(&key), print)),
            Duration::from_micros(1_500),
        )
        .at(now, now + Duration::from_secs(9));
        let read: Record = serde_json::from_slice(&record.bytes()).unwrap();
        assert_eq!(read, record);
        assert_eq!(read.deadline_ms - read.accepted_ms, 9_000);
        let (asked, new) = read.task().unwrap();
        assert_eq!(asked, ask);
        assert_eq!(new.key, Some((key, print)));
        assert_eq!(read.duration(), Duration::from_micros(1_500));
    }

    #[test]
    fn a_time_on_the_wall_clock_is_found_again_on_the_runtimes_clock() {
        let now = clock::now() + Duration::from_secs(100);
        let ms = Duration::from_millis;
        assert_eq!(instant(now, 1_000, 1_250), now + ms(250));
        assert_eq!(instant(now, 1_000, 400), now - ms(600));
    }
}
