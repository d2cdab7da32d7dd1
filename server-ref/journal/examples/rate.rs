//! How many records a second become durable, beside what the disk itself allows.
//!
//! ```sh
//! cargo run --release -p holdoff-journal --example rate [DIR] [CALLERS] [SECONDS]
//! ```
//!
//! Callers insert a record each, wait until it is durable, and begin again. Then the same bytes in groups of the same size
//! are appended to a plain file, one `fdatasync` a group. Short rounds that alternate, so that a noisy disk is noisy for
//! both; the median counts. Exit code 0: the goal is reached, 1: it is missed.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a measurement for the terminal"
)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use holdoff_journal::{Journal, RecordId};

/// Bytes of a task's record.
const RECORD: usize = 300;
const ROUNDS: u128 = 21;
/// Durable acknowledgements a second to reach, or this share of what the disk allows where it is slower than that.
const GOAL: f64 = 5_000.0;
const SHARE: f64 = 0.8;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let folder = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let callers: usize = args
        .next()
        .map_or(64, |n| n.parse().expect("a number of callers"));
    let seconds: f64 = args.next().map_or(0.3, |n| n.parse().expect("seconds"));
    let time = Duration::from_secs_f64(seconds);
    let folder = tempfile::tempdir_in(folder).expect("a folder that can be written");
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let (journal, _) = Journal::open(&folder.path().join("rate.redb")).unwrap();
    let (mut durable, mut raw, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    println!(
        "{callers} callers, {RECORD} bytes a record, {ROUNDS} rounds of {seconds} s in {}",
        folder.path().display()
    );
    for round in 0..ROUNDS {
        let before = journal.stats();
        let began = Instant::now();
        runtime.block_on(insert(&journal, callers, round, began + time));
        let took = began.elapsed().as_secs_f64();
        let after = journal.stats();
        let changes = (after.changes - before.changes) as f64;
        let group = changes / (after.commits - before.commits) as f64;
        let rate = changes / took;
        let syncs = sync(folder.path(), group as usize * RECORD, time);
        let bound = syncs * group;
        println!(
            "  journal {rate:8.0}/s in groups of {group:4.1} | disk {syncs:6.0} syncs/s x {group:4.1} = {bound:8.0}/s | {:3.0} %",
            100.0 * rate / bound
        );
        durable.push(rate);
        raw.push(bound);
        ratios.push(rate / bound);
    }
    let (rate, share) = (median(&mut durable), median(&mut ratios));
    println!(
        "median: {rate:.0} durable acknowledgements a second; the disk allows {:.0} in such groups ({:.0} %)",
        median(&mut raw),
        100.0 * share
    );
    let reached = rate >= GOAL || share >= SHARE;
    let verdict = if reached { "reached" } else { "MISSED" };
    println!(
        "{verdict}: the goal is {GOAL} a second at 64 callers, or {:.0} % of what the disk allows",
        100.0 * SHARE
    );
    ExitCode::from(u8::from(!reached))
}

fn median(of: &mut [f64]) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

async fn insert(journal: &Journal, callers: usize, round: u128, until: Instant) {
    let mut all = tokio::task::JoinSet::new();
    for caller in 0..callers as u128 {
        let journal = journal.clone();
        all.spawn(async move {
            let mut n = 0;
            while Instant::now() < until {
                // In the order of time, as a task's id is.
                let id = RecordId((round << 64) | (n << 16) | caller);
                journal.insert(id, vec![b'x'; RECORD]).await.unwrap();
                n += 1;
            }
        });
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
}

/// Syncs a second of groups of `bytes`.
fn sync(folder: &Path, bytes: usize, time: Duration) -> f64 {
    let mut file = File::create(folder.join("raw")).unwrap();
    let group = vec![b'x'; bytes];
    let (began, mut syncs) = (Instant::now(), 0);
    while began.elapsed() < time {
        file.write_all(&group).unwrap();
        file.sync_data().unwrap();
        syncs += 1;
    }
    f64::from(syncs) / began.elapsed().as_secs_f64()
}
