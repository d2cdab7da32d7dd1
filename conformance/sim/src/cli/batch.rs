//! Many runs, some at a time: each result is written as it comes, so that what is interrupted keeps what it finished.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use anyhow::Context as _;

use super::args::{Jobs, Out};
use crate::metrics::Report;
use crate::present::{self, Csv};
use crate::progress::Progress;
use crate::{Setup, clock, plot};

/// Simulates all of them; reports in the order of the setups, without those that the CSV file holds already.
///
/// # Errors
/// For the first run or file that fails; what was finished before is in the CSV file.
pub(super) fn simulate(setups: &[Setup], out: &Out, resume: bool, jobs: Jobs) -> anyhow::Result<Vec<Report>> {
    let mut csv = out.csv.as_ref().map(|path| Csv::open(path, resume)).transpose()?;
    let todo: Vec<&Setup> = setups
        .iter()
        .filter(|setup| !csv.as_ref().is_some_and(|csv| csv.holds(setup)))
        .collect();
    let mut progress = Progress::new(todo.len() as u64);
    let mut reports: Vec<Option<Report>> = vec![None; todo.len()];
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (send, results) = mpsc::channel();
        for _ in 0..jobs.count().min(todo.len()) {
            let (send, next, todo) = (send.clone(), &next, &todo);
            scope.spawn(move || {
                while let Some((at, setup)) = take(next, todo) {
                    if send.send((at, one(setup, out.svg.as_deref()))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for (at, report) in results {
            let kept = report.and_then(|report| {
                csv.as_mut().map_or(Ok(()), |csv| csv.add(todo[at], &report))?;
                Ok(report)
            });
            if kept.is_err() {
                // What has begun ends; nothing more begins.
                next.store(todo.len(), Ordering::Relaxed);
            }
            let report = kept?;
            progress.done(&report);
            reports[at] = Some(report);
        }
        Ok::<(), anyhow::Error>(())
    })?;
    progress.end();
    let reports: Vec<Report> = reports.into_iter().flatten().collect();
    if let Some(path) = &out.json {
        present::write_json(path, &reports)?;
    }
    Ok(reports)
}

fn take<'a>(next: &AtomicUsize, todo: &[&'a Setup]) -> Option<(usize, &'a Setup)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, *todo.get(at)?))
}

fn one(setup: &Setup, pictures: Option<&Path>) -> anyhow::Result<Report> {
    let run = crate::run(setup, clock::now())?;
    let report = run.report();
    if let Some(dir) = pictures {
        plot::write(&picture(dir, setup)?, &run, &report)?;
    }
    Ok(report)
}

/// The file of this run's picture; its directory is made.
pub(super) fn picture(dir: &Path, setup: &Setup) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    let name = format!(
        "{}-{}-{}-{}-{}.svg",
        setup.scenario.name,
        setup.admission.name(),
        setup.hint.name(),
        setup.clients.name(),
        setup.seed
    );
    Ok(dir.join(name))
}
