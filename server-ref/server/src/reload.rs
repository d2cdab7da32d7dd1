//! Another configuration for a running server.
//!
//! A limit that is wrong is noticed under load, when a restart costs most. So the profile and the identities can be replaced
//! while the server works; one that cannot be used changes nothing.

use std::sync::{Arc, Weak};

use holdoff_admission::ProfileError;

use crate::ServerConfig;
use crate::app::{App, Identities, Shared};

/// A handle that gives a running server another configuration.
#[derive(Clone)]
pub struct Reloader(Weak<Shared>);

/// Why the old configuration stands.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReloadError {
    /// A value is outside its range.
    #[error(transparent)]
    Value(#[from] ProfileError),
    /// The server has stopped.
    #[error("the server has stopped")]
    Stopped,
}

/// What a reload did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Reloaded {
    /// Everything holds from now on.
    Whole,
    /// The profile and the identities hold from now on; the keys under `server` differ too, and hold from the next start.
    WithoutLimits,
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloader").finish_non_exhaustive()
    }
}

impl Reloader {
    pub(crate) fn new(app: &App) -> Self {
        Self(Arc::downgrade(app))
    }

    /// Replaces profile, identities and the rights of anonymous callers. Addresses, data directory, `observe` and switches
    /// stay.
    ///
    /// # Errors
    /// A value outside its range; then nothing has changed.
    pub fn reload(&self, config: &ServerConfig) -> Result<Reloaded, ReloadError> {
        let app = self.0.upgrade().ok_or(ReloadError::Stopped)?;
        config.validate()?;
        let identities = Identities::new(config)?;
        app.admission().reload(config.profile.clone())?;
        app.identities.replace(identities);
        Ok(if config.limits == app.limits {
            Reloaded::Whole
        } else {
            Reloaded::WithoutLimits
        })
    }
}
