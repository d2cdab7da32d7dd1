//! Reading the files that the user names.
//!
//! A path may lead to something that never ends (`/dev/zero`), or to a pipe that nobody writes to, whose opening does not
//! even hear a signal. So every file that the runner reads comes through here: a regular file, UTF-8, of a bounded size.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Most bytes of a file that is written by hand: cases, behaviours, a list of clients, a baseline. 4 MiB, a hundred times
/// what a large one has.
pub const MAX_WRITTEN: u64 = 4 << 20;
/// Most bytes of a file that the runner wrote: a report, a wire log. 256 MiB.
pub const MAX_RECORDED: u64 = 256 << 20;

/// Why a file is not read. The path is the caller's to name.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// The system does not let it be read, or it is not UTF-8.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A directory, a pipe, a socket, a device.
    #[error("is not a regular file")]
    NotAFile,
    /// Larger than what is read of its kind.
    #[error("has more than {0} bytes, the most that is read")]
    TooLarge(u64),
}

/// The text of a file of at most so many bytes.
///
/// # Errors
/// See [`Unread`].
pub fn text(path: &Path, most: u64) -> Result<String, Unread> {
    // Before it is opened: opening a pipe waits for a writer.
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        return Err(Unread::NotAFile);
    }
    if found.len() > most {
        return Err(Unread::TooLarge(most));
    }
    let mut text = String::new();
    // Bounded by reading too, and not by asking alone: some files of the system have no size, and any may grow.
    let read = File::open(path)?
        .take(most.saturating_add(1))
        .read_to_string(&mut text);
    match read {
        _ if text.len() as u64 > most => Err(Unread::TooLarge(most)),
        Ok(_) => Ok(text),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit_and_refused_beyond_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(text(&path, 5).unwrap(), "12345");
        let error = text(&path, 4).unwrap_err().to_string();
        assert_eq!(error, "has more than 4 bytes, the most that is read");
        assert!(matches!(text(dir.path(), 5), Err(Unread::NotAFile)));
    }
}
