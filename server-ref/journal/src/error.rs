//! Why a record is not durable.

use std::path::{Path, PathBuf};

/// Why the journal does not take a change, or does not open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process (or another journal of this one) has the file.
    #[error("{}: is in use by another server; give each its own data directory", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// There is no room on the disk, or within the quota.
    #[error("{}: the disk is full; nothing that was durable is lost, new records are refused until there is room", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file or its file system cannot be written.
    #[error("{}: cannot be written ({detail}); nothing that was durable is lost", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What the system said.
        detail: String,
    },
    /// The file is not a journal, or a broken one. It is left as it is.
    #[error("{}: is not a sound journal ({detail}); it is left as it is: move it away or restore it, then start again", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// Any other failure of the disk.
    #[error("{}: {detail}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        detail: String,
    },
    /// One record is larger than [`crate::MAX_RECORD_BYTES`].
    #[error("the record has {bytes} bytes; the limit is {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
}

impl JournalError {
    /// From what the system said about this file.
    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let (path, detail) = (path.to_owned(), error.to_string());
        match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Self::Full { path },
            Kind::ReadOnlyFilesystem | Kind::PermissionDenied => Self::ReadOnly { path, detail },
            Kind::InvalidData | Kind::UnexpectedEof => Self::Corrupt { path, detail },
            _ => Self::Io { path, detail },
        }
    }

    /// A word for a metric label or a log field, from a closed set.
    pub fn label(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "in_use",
            Self::Full { .. } => "full",
            Self::ReadOnly { .. } => "read_only",
            Self::Corrupt { .. } => "corrupt",
            Self::Io { .. } => "io",
            Self::TooLarge { .. } => "too_large",
            Self::Closed => "closed",
        }
    }
}

/// Whether a change that failed can be on the disk all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// It cannot.
    No,
    /// The last step failed, so nobody knows until the file is opened again.
    Unknown,
}

/// A change that is not durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
#[must_use]
pub struct Failed {
    /// Why.
    #[source]
    pub why: JournalError,
    /// Whether it can be on the disk all the same.
    pub written: Written,
}

impl From<JournalError> for Failed {
    /// Nothing was written.
    fn from(why: JournalError) -> Self {
        Self {
            why,
            written: Written::No,
        }
    }
}
