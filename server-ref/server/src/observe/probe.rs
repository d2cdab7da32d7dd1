//! Can it be written? Asked before the start, without starting.
//!
//! Permissions, full disks and file systems of their own kind are not to be reasoned about: what is to be written is tried,
//! with something that leaves nothing behind.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{Observe, ObserveError};

impl Observe {
    /// The files and directories that could not be written now.
    pub(crate) fn probe(&self) -> Vec<ObserveError> {
        let failed = |key, path: &PathBuf, tried: io::Result<()>| {
            let path = path.clone();
            let failed = tried.err()?;
            Some(ObserveError {
                key,
                path,
                error: failed,
            })
        };
        let trace = self.trace.as_ref();
        let log = self.tenant_log.as_ref();
        [
            trace.and_then(|path| failed("observe.trace", path, file(path))),
            log.and_then(|path| failed("observe.tenant_log", path, directory(path))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// One that is there is opened and left as it is; one that is not is made and removed.
fn file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => File::options().append(true).open(path).map(drop),
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // A device or a pipe: opening it would be doing something with it.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::create_new(path)?;
            fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}

/// The start makes the directories that are missing, so the nearest one that is there must let something be made in it.
fn directory(path: &Path) -> io::Result<()> {
    let is_missing = |folder: &&Path| matches!(fs::metadata(folder), Err(error) if error.kind() == io::ErrorKind::NotFound);
    let here = Path::new(".");
    let there = path
        .ancestors()
        .map(|folder| {
            if folder.as_os_str().is_empty() {
                here
            } else {
                folder
            }
        })
        .find(|folder| !is_missing(folder))
        .unwrap_or(here);
    let made = there.join(format!(".holdoff-check-{}", std::process::id()));
    fs::create_dir(&made)?;
    fs::remove_dir(&made)
}
