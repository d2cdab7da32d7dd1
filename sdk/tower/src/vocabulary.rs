//! Which destination speaks which words of its own.
//!
//! A vocabulary belongs to a service, and a caller has several of those: the same status means overload at one and a
//! bug at another. So words are given per origin, or for all that have none of their own.

use holdoff_contract::vocabulary::Vocabulary;

use crate::origin::Origin;

/// The vocabularies of one layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vocabularies {
    of: Vec<(Origin, Vocabulary)>,
    others: Vocabulary,
}

impl Vocabularies {
    pub(crate) fn set(&mut self, origin: Option<Origin>, vocabulary: Vocabulary) {
        match origin {
            None => self.others = vocabulary,
            Some(origin) => {
                self.of.retain(|(known, _)| *known != origin);
                self.of.push((origin, vocabulary));
            }
        }
    }

    /// The words of everybody, where nobody has words of his own.
    pub(crate) fn only(&self) -> Option<&Vocabulary> {
        self.of.is_empty().then_some(&self.others)
    }

    /// The words of whoever is asked.
    pub(crate) fn of(&self, scheme: &str, authority: &str) -> &Vocabulary {
        let asked = (scheme, authority);
        let own = self.of.iter().find(|(origin, _)| origin.parts() == asked);
        own.map_or(&self.others, |(_, vocabulary)| vocabulary)
    }
}

/// A vocabulary file that cannot be used.
#[cfg(feature = "toml")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VocabularyFileError {
    /// The file cannot be read.
    #[error("vocabulary file {path:?}: {error}")]
    File {
        /// Its path.
        path: std::path::PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is no TOML, or not in the form of a [`holdoff_contract::vocabulary::Declaration`]: says line and column.
    #[error("vocabulary: {0}")]
    Form(#[from] toml::de::Error),
    /// A value is not allowed.
    #[error(transparent)]
    Value(#[from] holdoff_contract::vocabulary::VocabularyError),
}

/// Reads a vocabulary from TOML text; the form is shown in [`holdoff_contract::vocabulary`]. Feature `toml`.
///
/// # Errors
/// Says where the text is wrong, or names the entry, field, value and what is allowed.
///
/// ```
/// let vocabulary = holdoff_tower::vocabulary_from_toml(r#"
///     [[refusals]]
///     code = "queue_full"
///     status = [529]
///     delay = { header = "x-wait", unit = "ms" }
/// "#)?;
/// let layer = holdoff_tower::OverloadLayer::builder().vocabulary(vocabulary).build();
///
/// let wrong = "[[refusals]]\ncode = 'queue_full'\nstatus = [200]";
/// let error = holdoff_tower::vocabulary_from_toml(wrong).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"vocabulary, refusals[0] (queue_full): status is "200"; it must be 400 to 599"#
/// );
/// # Ok::<(), holdoff_tower::VocabularyFileError>(())
/// ```
#[cfg(feature = "toml")]
pub fn vocabulary_from_toml(text: &str) -> Result<Vocabulary, VocabularyFileError> {
    let declaration: holdoff_contract::vocabulary::Declaration = toml::from_str(text)?;
    Ok(declaration.build()?)
}

/// Reads a vocabulary from a TOML file; see [`vocabulary_from_toml`]. Feature `toml`.
///
/// # Errors
/// As [`vocabulary_from_toml`], and where the file cannot be read.
#[cfg(feature = "toml")]
pub fn vocabulary_from_file(path: impl AsRef<std::path::Path>) -> Result<Vocabulary, VocabularyFileError> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|error| VocabularyFileError::File {
        path: path.to_owned(),
        error,
    })?;
    vocabulary_from_toml(&text)
}
