//! The files themselves.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdoff_admission_tower::{Record, Verdict};
use serde::Serialize;

use super::Observe;
use crate::clock;

/// Names of the tenant log's files: this, the hour since 1970, and the end.
const PREFIX: &str = "tenants-";
const SUFFIX: &str = ".jsonl";
const HOUR: u64 = 3_600;

/// One decision, as `holdoff-sim replay` reads it.
#[derive(Serialize)]
struct Line<'a> {
    t_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    class: &'a str,
    tier: &'static str,
    deadline_ms: f64,
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_wait_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_ms: Option<f64>,
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

fn class(record: &Record) -> &str {
    record.class.as_deref().unwrap_or("other")
}

/// A hash of a tenant's name: FNV-1a, the same in every run, so that two traces can be compared.
fn hashed(name: &str) -> String {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The decision trace.
pub(super) struct Trace {
    file: BufWriter<File>,
    left: u64,
    began: Instant,
}

impl Trace {
    pub(super) fn create(path: &Path, most: u64, began: Instant) -> io::Result<Self> {
        Ok(Self {
            file: BufWriter::new(File::create(path)?),
            left: most,
            began,
        })
    }

    pub(super) fn write(&mut self, record: &Record) -> io::Result<()> {
        let at = |t: Instant| ms(t.saturating_duration_since(self.began));
        let line = Line {
            t_ms: at(record.at),
            tenant: record.tenant.as_deref().map(hashed),
            class: class(record),
            tier: record.tier.as_str(),
            deadline_ms: ms(record.deadline),
            decision: record.decision.as_str(),
            code: record.code.as_ref().map(ToString::to_string),
            predicted_wait_ms: (record.decision == Verdict::Accept).then(|| ms(record.predicted_wait)),
            started_ms: record.started.map(at),
            finished_ms: record.started.map(|_| at(record.finished)),
        };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        let Some(left) = self.left.checked_sub(text.len() as u64) else {
            self.file.flush()?;
            return Err(io::Error::other("it has its full size (observe.trace_max_mb)"));
        };
        self.left = left;
        self.file.write_all(&text)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[derive(Serialize)]
struct Logged<'a> {
    unix_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    class: &'a str,
    tier: &'static str,
    deadline_ms: u64,
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    predicted_wait_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_ms: Option<u64>,
}

/// The sampled log that names tenants: a file an hour, each deleted when its time is over.
pub(super) struct TenantLog {
    dir: PathBuf,
    per_second: u32,
    retention_hours: u64,
    /// Both clocks at the start.
    began: Instant,
    began_unix: Duration,
    hour: u64,
    file: Option<BufWriter<File>>,
    second: u64,
    written: u32,
}

impl TenantLog {
    pub(super) fn open(dir: &Path, observe: &Observe, now: Instant) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let mut log = Self {
            dir: dir.to_owned(),
            per_second: observe.tenant_log_per_second,
            retention_hours: u64::from(observe.tenant_log_retention_hours),
            began: now,
            began_unix: clock::unix(),
            hour: 0,
            file: None,
            second: 0,
            written: 0,
        };
        log.turn(now)?;
        Ok(log)
    }

    fn unix(&self, t: Instant) -> Duration {
        self.began_unix + t.saturating_duration_since(self.began)
    }

    /// Begins another file with the hour, and deletes those whose time is over.
    fn turn(&mut self, now: Instant) -> io::Result<()> {
        let hour = self.unix(now).as_secs() / HOUR;
        if hour == self.hour && self.file.is_some() {
            return Ok(());
        }
        self.flush()?;
        let path = self.dir.join(format!("{PREFIX}{hour}{SUFFIX}"));
        let file = File::options().create(true).append(true).open(path)?;
        self.file = Some(BufWriter::new(file));
        self.hour = hour;
        for entry in fs::read_dir(&self.dir)?.flatten() {
            let name = entry.file_name();
            let old = hour_of(&name.to_string_lossy()).is_some_and(|then| then + self.retention_hours < hour);
            if old {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    pub(super) fn write(&mut self, record: &Record, now: Instant) -> io::Result<()> {
        self.turn(now)?;
        let unix = self.unix(record.at);
        let second = self.unix(now).as_secs();
        if second != self.second {
            (self.second, self.written) = (second, 0);
        }
        if self.written >= self.per_second {
            return Ok(());
        }
        self.written += 1;
        let whole = |time: Duration| time.as_millis() as u64;
        let line = Logged {
            unix_ms: whole(unix),
            tenant: record.tenant.as_deref(),
            class: class(record),
            tier: record.tier.as_str(),
            deadline_ms: whole(record.deadline),
            decision: record.decision.as_str(),
            code: record.code.as_ref().map(ToString::to_string),
            predicted_wait_ms: whole(record.predicted_wait),
            waited_ms: record
                .started
                .map(|started| whole(started.saturating_duration_since(record.at))),
            service_ms: record
                .started
                .map(|started| whole(record.finished.saturating_duration_since(started))),
        };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        match &mut self.file {
            Some(file) => file.write_all(&text),
            None => Ok(()),
        }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

fn hour_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use holdoff_contract::{Code, Tier};

    use super::*;

    fn record(at: Instant) -> Record {
        Record {
            at,
            tenant: Some("team-a\n".to_owned()),
            class: None,
            tier: Tier::Deferrable,
            deadline: Duration::from_secs(2),
            decision: Verdict::Reject,
            code: Some(Code::QueueFull),
            predicted_wait: Duration::ZERO,
            started: None,
            finished: at,
        }
    }

    fn lines(dir: &Path) -> Vec<(String, usize)> {
        let mut files: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                let text = fs::read_to_string(&path).unwrap();
                (
                    path.file_name().unwrap().to_string_lossy().into_owned(),
                    text.lines().count(),
                )
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn the_tenant_log_is_sampled_and_files_older_than_the_retention_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tenants-12.jsonl"), "old").unwrap();
        fs::write(dir.path().join("notes.txt"), "not ours").unwrap();
        let observe = Observe {
            tenant_log_per_second: 3,
            tenant_log_retention_hours: 2,
            ..Observe::default()
        };
        let now = clock::now();
        let mut log = TenantLog::open(dir.path(), &observe, now).unwrap();
        for _ in 0..10 {
            log.write(&record(now), now).unwrap();
        }
        log.flush().unwrap();
        let first = lines(dir.path());
        assert_eq!(first.len(), 2, "{first:?}");
        assert_eq!(first[1].1, 3);
        for hours in 1..=4 {
            let later = now + Duration::from_secs(hours * HOUR);
            log.write(&record(later), later).unwrap();
        }
        log.flush().unwrap();
        let names: Vec<_> = lines(dir.path()).into_iter().map(|(name, _)| name).collect();
        assert!(!names.contains(&first[1].0), "{names:?}");
        assert_eq!(names.len(), 1 + 3, "{names:?}");
    }

    #[test]
    fn the_trace_hashes_tenants_keeps_its_size_and_a_name_cannot_break_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.jsonl");
        let now = clock::now();
        let mut trace = Trace::create(&path, 1_000, now).unwrap();
        let full = (0..100).find_map(|_| trace.write(&record(now)).err());
        assert!(full.is_some_and(|error| error.to_string().contains("trace_max_mb")));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() <= 1_000 && text.lines().count() >= 4, "{text}");
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["decision"], "reject");
            assert_eq!(line["code"], "queue_full");
            assert_eq!(line["tenant"], hashed("team-a\n"));
            assert!(line.get("started_ms").is_none());
        }
        assert!(!text.contains("team-a"));
    }
}
