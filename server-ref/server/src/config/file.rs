//! A profile from a file, whatever the file turns out to be.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use holdoff_contract::vocabulary::Vocabulary;

use super::check::{self, Fault, Mistake};
use super::{ConfigError, ServerConfig, tree};
use crate::ObserveError;

/// Largest profile that is read: 1 MiB, some hundred times what a large one has.
pub const MAX_PROFILE_BYTES: u64 = 1 << 20;

/// A file that is no usable profile. Its text names the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", crate::shown::path(path))]
pub struct LoadError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: LoadFault,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum LoadFault {
    /// The system does not let it be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// A directory.
    #[error("is a directory; it must be a file of text")]
    Directory,
    /// A named pipe, a socket, a device: opening one may wait for ever, and reading one may never end.
    #[error("is not a regular file; a pipe can be given as /dev/stdin")]
    NotAFile,
    /// More than [`MAX_PROFILE_BYTES`].
    #[error("has more than {MAX_PROFILE_BYTES} bytes, the most that is read")]
    TooLarge,
    /// Not text.
    #[error("is not UTF-8 text: byte 0x{byte:02x} on line {line} (at offset {offset})")]
    NotText {
        /// The first byte that is not UTF-8.
        byte: u8,
        /// Its line, from 1.
        line: usize,
        /// Its place in the file, from 0.
        offset: usize,
    },
    /// Not a usable profile.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl ServerConfig {
    /// Reads a profile: TOML where the name ends in `.toml`, else YAML (and so JSON). `server.vocabulary` is a path relative to
    /// the profile's directory, and is read too; the configuration has it made whole.
    ///
    /// # Errors
    /// What is wrong with the file, with what it says, or with the vocabulary that it names; the text names the file.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        Self::read(path, |_| Vec::new())
    }

    /// Reads a profile, and sees whether what it says can be done here: whether the files under `observe` can be written.
    /// What is there is not changed; what is not is made and taken away again.
    ///
    /// # Errors
    /// As [`ServerConfig::load`], and the files that cannot be written.
    pub fn check(path: &Path) -> Result<Self, LoadError> {
        Self::read(path, |config| config.observe.probe())
    }

    fn read(path: &Path, probe: impl FnOnce(&Self) -> Vec<ObserveError>) -> Result<Self, LoadError> {
        let read = || -> Result<Self, LoadFault> {
            let text = read_text(path)?;
            let is_toml = path
                .extension()
                .is_some_and(|end| end.eq_ignore_ascii_case("toml"));
            let root = if is_toml {
                tree::toml(&text)
            } else {
                tree::yaml(&text)
            }?;
            let (mut config, mut mistakes) = Self::read_tree(&root)?;
            let mut unusable = |key: &'static str, path: &Path, why: String| {
                let (at, path) = (root.find(key).and_then(|node| node.at), path.to_owned());
                let what = Fault::File { key, path, why };
                mistakes.push(Mistake { at, what });
            };
            // The other file that it names is part of what it says.
            if let Some(words) = &mut config.limits.vocabulary {
                *words = beside(path, words);
                if let Err(error) = load_vocabulary(words) {
                    unusable("server.vocabulary", &error.path, error.why.to_string());
                }
            }
            for failed in probe(&config) {
                let why = format!("cannot be written: {}", failed.error);
                unusable(failed.key, &failed.path, why);
            }
            check::all(mistakes)?;
            Ok(config)
        };
        read().map_err(|why| LoadError {
            path: path.to_owned(),
            why,
        })
    }
}

/// What a profile names, from where the profile lies; one that comes through a pipe lies in the working directory.
fn beside(profile: &Path, named: &Path) -> PathBuf {
    match profile.parent() {
        Some(folder) if !is_stream(profile) => folder.join(named),
        _ => named.to_owned(),
    }
}

/// The process's own open files: a pipe among them is open already, so opening it again does not wait for a writer.
fn is_stream(path: &Path) -> bool {
    ["/dev/stdin", "/dev/fd", "/proc/self/fd"]
        .iter()
        .any(|own| path.starts_with(own))
}

/// The words of a vocabulary, from their TOML file.
pub(crate) fn load_vocabulary(path: &Path) -> Result<Vocabulary, LoadError> {
    let read = || {
        let text = read_text(path)?;
        toml::from_str(&text).map_err(|error| {
            let at = error.span().map(|span| tree::position(&text, span.start));
            let why = crate::shown::escaped(&error.message().replace('\n', ", "));
            LoadFault::Config(ConfigError::Syntax { at, why })
        })
    };
    read().map_err(|why| LoadError {
        path: path.to_owned(),
        why,
    })
}

fn read_text(path: &Path) -> Result<String, LoadFault> {
    // Before it is opened: a pipe that nobody writes to would keep us there.
    let found = std::fs::metadata(path)?;
    if found.is_dir() {
        return Err(LoadFault::Directory);
    }
    if !found.is_file() && !is_stream(path) {
        return Err(LoadFault::NotAFile);
    }
    let mut bytes = Vec::new();
    // Bounded by reading, not by asking: a stream has no size.
    let file = File::open(path)?;
    file.take(MAX_PROFILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_PROFILE_BYTES {
        return Err(LoadFault::TooLarge);
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        let before = &error.as_bytes()[..offset];
        LoadFault::NotText {
            byte: error.as_bytes().get(offset).copied().unwrap_or_default(),
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            offset,
        }
    })
}
