//! Where the figures come from. A figure without its machine is a rumour, and one from a machine that was busy with
//! something else is a guess: so the header says both.

use std::process::Command;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::clock;

/// Processor time is counted by the kernel in hundredths of a second (USER_HZ, fixed for all Linux programs).
const TICK: Duration = Duration::from_millis(10);

/// What every report begins with.
#[derive(Clone, Debug, Serialize)]
pub struct Header {
    /// Processor, as it calls itself.
    pub cpu: String,
    /// Logical processors that this process may use.
    pub cores: usize,
    /// Kernel.
    pub kernel: String,
    /// Commit of the working tree, with `+` where files differ from it.
    pub commit: String,
    /// The command that made the report.
    pub command: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Load average over the last minute when it began.
    pub load_before: Option<f64>,
    /// Share of the machine's processor time that other programs used meanwhile, 0 to 1.
    pub others: Option<f64>,
}

/// A run under way.
#[derive(Debug)]
pub struct Started {
    at: Instant,
    load: Option<f64>,
    busy: Option<Duration>,
    own: Duration,
    /// Asked for now: somebody may commit while it runs.
    commit: String,
}

impl Started {
    /// Begins.
    pub fn now() -> Self {
        Self {
            at: clock::now(),
            load: load_average(),
            busy: busy(),
            own: clock::process_cpu(),
            commit: commit(),
        }
    }

    /// The header of what was measured since then.
    pub fn header(&self, command: String) -> Header {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let took = clock::now() - self.at;
        let own = clock::process_cpu().saturating_sub(self.own);
        let others = self.busy.zip(busy()).map(|(before, after)| {
            let others = after.saturating_sub(before).saturating_sub(own);
            others.as_secs_f64() / (took.as_secs_f64() * cores as f64)
        });
        Header {
            cpu: first(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            cores,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            commit: self.commit.clone(),
            command,
            seconds: took.as_secs_f64(),
            load_before: self.load,
            others,
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first `key : value` line.
fn first(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

fn load_average() -> Option<f64> {
    read("/proc/loadavg").split_whitespace().next()?.parse().ok()
}

/// Processor time that all programs have used.
fn busy() -> Option<Duration> {
    busy_of(&read("/proc/stat"))
}

/// From `cpu user nice system idle iowait irq softirq steal ..`.
fn busy_of(stat: &str) -> Option<Duration> {
    let fields: Vec<u32> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let [user, nice, system, _idle, _wait, irq, soft, steal, ..] = fields[..] else {
        return None;
    };
    Some(TICK * (user + nice + system + irq + soft + steal))
}

fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".into();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => head,
        _ => format!("{head}+"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_leaves_out_idling_and_waiting() {
        let stat = "cpu  100 20 30 9999 888 1 2 3 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(busy_of(stat), Some(Duration::from_millis(1560)));
        assert_eq!(busy_of(""), None);
        assert_eq!(busy_of("cpu 1 2"), None);
    }

    #[test]
    fn the_first_value_of_a_key_is_taken() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: Other\n";
        assert_eq!(first(text, "model name").as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(first(text, "flags"), None);
    }
}
