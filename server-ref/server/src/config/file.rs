//! A profile from a file, whatever the file turns out to be.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use holdoff_contract::vocabulary::Vocabulary;

use super::{ConfigError, ServerConfig};

/// Largest profile that is read: 1 MiB, some hundred times what a large one has.
pub const MAX_PROFILE_BYTES: u64 = 1 << 20;

/// A file that is no usable profile. Its text names the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
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
    #[error("is a directory; a profile is a file, YAML or TOML (.toml)")]
    Directory,
    /// More than [`MAX_PROFILE_BYTES`].
    #[error("has more than {MAX_PROFILE_BYTES} bytes, the most that a profile may have")]
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
    /// Reads a profile: TOML where the name ends in `.toml`, else YAML (and so JSON).
    ///
    /// # Errors
    /// What is wrong with the file, with what it says, or with the vocabulary that it names; the text names the file.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let read = || {
            let text = read_text(path)?;
            let is_toml = path
                .extension()
                .is_some_and(|end| end.eq_ignore_ascii_case("toml"));
            Ok(if is_toml {
                Self::from_toml(&text)
            } else {
                Self::from_yaml(&text)
            }?)
        };
        let config: Self = read().map_err(|why| LoadError {
            path: path.to_owned(),
            why,
        })?;
        // The other file that it names is part of what it says.
        config
            .limits
            .vocabulary
            .as_deref()
            .map(load_vocabulary)
            .transpose()?;
        Ok(config)
    }
}

/// The words of a vocabulary, from their TOML file.
pub(crate) fn load_vocabulary(path: &Path) -> Result<Vocabulary, LoadError> {
    let read = || {
        let text = read_text(path)?;
        toml::from_str(&text).map_err(|error| {
            let at = error.span().map(|span| super::tree::position(&text, span.start));
            let why = error.message().to_owned();
            LoadFault::Config(ConfigError::Syntax { at, why })
        })
    };
    read().map_err(|why| LoadError {
        path: path.to_owned(),
        why,
    })
}

fn read_text(path: &Path) -> Result<String, LoadFault> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(LoadFault::Directory);
    }
    let mut bytes = Vec::new();
    // Bounded by reading, not by asking: a device has no size.
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
