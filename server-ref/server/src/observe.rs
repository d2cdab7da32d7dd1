//! What is written down about single requests, and who may look in.
//!
//! Metrics name no tenant: that would be a series for each. Yet an operator must be able to see which tenant was refused
//! yesterday, and to play a day again. So a sample of requests is logged with its tenant, and kept for as long as the
//! profile says and no longer; a trace holds every decision, with tenants as hashes, up to a size.

mod files;
mod probe;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use holdoff_admission::ProfileError;
use holdoff_admission_tower::{Record, Watch};
use serde::Deserialize;

use self::files::{TenantLog, Trace};
use crate::clock;
use crate::config::in_range;

/// Records that wait to be written; a slow disk costs records, never requests.
const WAITING: usize = 8_192;
/// Time after which what was written is flushed.
const FLUSH: Duration = Duration::from_millis(200);

/// Settings of the profile's `observe`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Observe {
    /// `GET /admin/admission` on the main listener too; it is always on a metrics listener of its own. Default no: it tells
    /// about callers.
    pub admin: bool,
    /// Directory of the sampled logs that name tenants, one JSON object a line, a file an hour. Default none.
    pub tenant_log: Option<PathBuf>,
    /// Requests logged in a second, at most. 1..=10000, default 10.
    pub tenant_log_per_second: u32,
    /// A file of the log is deleted after this. 1..=87600, default 72: three days.
    pub tenant_log_retention_hours: u32,
    /// File of the decision trace, one JSON object a line, tenants hashed. Default none.
    pub trace: Option<PathBuf>,
    /// The trace ends at this size. 1..=65536, default 256.
    pub trace_max_mb: u32,
}

impl Default for Observe {
    fn default() -> Self {
        Self {
            admin: false,
            tenant_log: None,
            tenant_log_per_second: 10,
            tenant_log_retention_hours: 72,
            trace: None,
            trace_max_mb: 256,
        }
    }
}

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{key} {}: cannot be written: {error}", crate::shown::path(path))]
pub struct ObserveError {
    /// Key of the profile or flag.
    pub key: &'static str,
    /// Which file or directory.
    pub path: PathBuf,
    /// What the system said.
    pub error: std::io::Error,
}

impl Observe {
    pub(crate) fn faults(&self, faults: &mut Vec<ProfileError>) {
        for (key, value, most) in [
            ("tenant_log_per_second", self.tenant_log_per_second, 10_000),
            (
                "tenant_log_retention_hours",
                self.tenant_log_retention_hours,
                87_600,
            ),
            ("trace_max_mb", self.trace_max_mb, 65_536),
        ] {
            in_range(&format!("observe.{key}"), u64::from(value), 1, most, faults);
        }
    }

    /// Opens what is to be written; `None` where nothing is.
    pub(crate) fn start(&self, now: Instant) -> Result<Option<Arc<Writer>>, ObserveError> {
        let failed = |key, path: &PathBuf| {
            let path = path.clone();
            move |error| ObserveError { key, path, error }
        };
        let trace = match &self.trace {
            Some(path) => {
                let most = u64::from(self.trace_max_mb) << 20;
                Some(Trace::create(path, most, now).map_err(failed("observe.trace", path))?)
            }
            None => None,
        };
        let log = match &self.tenant_log {
            Some(dir) => Some(TenantLog::open(dir, self, now).map_err(failed("observe.tenant_log", dir))?),
            None => None,
        };
        if trace.is_none() && log.is_none() {
            return Ok(None);
        }
        let (records, queue) = sync_channel(WAITING);
        std::thread::spawn(move || write(&queue, trace, log));
        Ok(Some(Arc::new(Writer {
            records,
            lost: AtomicU64::new(0),
        })))
    }
}

/// Hands records to the thread that writes.
pub(crate) struct Writer {
    records: SyncSender<Record>,
    lost: AtomicU64,
}

impl Watch for Writer {
    fn ended(&self, record: Record) {
        if self.records.try_send(record).is_err() {
            let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
            if lost.is_power_of_two() {
                tracing::warn!(
                    lost,
                    "records of requests are lost: they come faster than they can be written"
                );
            }
        }
    }
}

/// Writes until nobody sends any more. A failing file is given up, with a word; the server goes on.
fn write(queue: &Receiver<Record>, mut trace: Option<Trace>, mut log: Option<TenantLog>) {
    loop {
        let failed = match queue.recv_timeout(FLUSH) {
            Ok(record) => [
                trace.as_mut().and_then(|trace| trace.write(&record).err()),
                log.as_mut()
                    .and_then(|log| log.write(&record, clock::now()).err()),
            ],
            Err(RecvTimeoutError::Timeout) => [
                trace.as_mut().and_then(|trace| trace.flush().err()),
                log.as_mut().and_then(|log| log.flush().err()),
            ],
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let [trace_failed, log_failed] = failed;
        if let Some(error) = trace_failed {
            tracing::error!(%error, "the trace ends here");
            trace = None;
        }
        if let Some(error) = log_failed {
            tracing::error!(%error, "the tenant log ends here");
            log = None;
        }
    }
}
