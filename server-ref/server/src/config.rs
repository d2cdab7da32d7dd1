//! What the server is told: the profile of admission, who callers are, its own limits.
//!
//! One YAML map (or TOML table, or JSON object) holds all of it: the keys of [`holdoff_admission::Profile`] beside the
//! server's own `server`, `observe`, `anonymous` and `identities`. [`schema::KEYS`] lists them with units, ranges and defaults.
//! Unknown keys are refused, since a misspelt limit is no limit; every mistake is named with key, value, limit and place.
//!
//! ```
//! let config = holdoff_server::ServerConfig::from_yaml(
//!     "
//! workers: 2
//! classes:
//!   lint: { mean_ms: 50, p95_ms: 80, deadline_ms: 1000 }
//! anonymous: { tiers: [non-sheddable, deferrable] }
//! identities:
//!   secret-token: { tenant: team-a, tiers: [critical, deferrable] }
//! server: { max_duration_ms: 10000 }
//! ",
//! )?;
//! assert_eq!(config.profile.workers, 2);
//! # Ok::<(), holdoff_server::ConfigError>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use holdoff_admission::profile::TierName;
use holdoff_admission::{Profile, ProfileError};
use holdoff_admission_tower::{Identity, Tiers};
use holdoff_contract::{Tenant, Tier};
use serde::Deserialize;

mod check;
#[cfg(test)]
mod check_tests;
mod file;
mod limits;
pub mod schema;
#[cfg(test)]
mod schema_tests;
mod tree;

pub use check::{Fault, Mistake};
pub(crate) use file::load_vocabulary;
pub use file::{LoadError, LoadFault, MAX_PROFILE_BYTES};
pub use limits::Limits;
pub(crate) use limits::in_range;
pub use tree::At;

/// Where the server listens unless it is told otherwise.
pub const DEFAULT_ADDR: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4100);
/// Most identities a configuration may hold.
pub const MAX_IDENTITIES: usize = 4096;

/// Everything a [`crate::Server`] is started with.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Listening address; port 0 takes a free one. Default 127.0.0.1:4100: nothing is open to a network by accident.
    pub addr: SocketAddr,
    /// A listener of its own for metrics and health. Default none: they are on the main one.
    pub metrics_addr: Option<SocketAddr>,
    /// What admission is told.
    pub profile: Profile,
    /// Callers without a known token.
    pub anonymous: Rights,
    /// Callers by bearer token.
    pub identities: BTreeMap<Token, Rights>,
    /// The server's own limits.
    pub limits: Limits,
    /// Where non-sheddable tasks are kept across restarts; made if absent. Default none: then `/v1/tasks` takes no
    /// non-sheddable work, since its 202 would promise what a crash breaks.
    pub data: Option<PathBuf>,
    /// What is written down about requests, and who may look in.
    pub observe: crate::Observe,
    /// Switches the test fixtures on. Default off: they let anybody stop the server.
    pub fixtures: bool,
    /// Seed of drawn service times. Default none: from the system.
    pub seed: Option<u64>,
}

/// The keys that are not the profile's.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Own {
    server: Limits,
    observe: crate::Observe,
    anonymous: Rights,
    identities: BTreeMap<Token, Rights>,
}

/// A bearer token. Its debug form does not show it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

/// What a caller may do.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rights {
    /// Whose work it is: 1 to 128 printable ASCII characters. Default anonymous.
    pub tenant: Option<String>,
    /// Tiers it may use; another one is lowered (SRQ-06). Default non-sheddable and deferrable: critical is given.
    pub tiers: Option<Vec<TierName>>,
    /// It is told state and predicted wait, and, without a `tenant` here, its `Overload-Tenant` counts. Default no.
    pub trusted: bool,
}

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nothing is declared: most likely the wrong file, and in any case no bound that somebody chose.
    #[error(
        "declares nothing; a profile has one key at least (`workers: 4`, say), and without a profile the defaults hold"
    )]
    Empty,
    /// Not YAML or not TOML, or more than a profile needs of them.
    #[error("{}{why}", place(*at))]
    Syntax {
        /// Where.
        at: Option<At>,
        /// What was found.
        why: String,
    },
    /// Keys and values that are wrong.
    #[error("{}", lines(named, *more))]
    Mistakes {
        /// The first sixteen, in the order of the text.
        named: Vec<Mistake>,
        /// How many there are beside these.
        more: usize,
    },
}

fn place(at: Option<At>) -> String {
    at.map(|at| format!("{at}: ")).unwrap_or_default()
}

fn lines(named: &[Mistake], more: usize) -> String {
    let mut lines: Vec<String> = named.iter().map(Mistake::to_string).collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n  ")
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl std::borrow::Borrow<str> for Token {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Token {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Token {
    fn from(token: &str) -> Self {
        Self(token.to_owned())
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            addr: DEFAULT_ADDR,
            metrics_addr: None,
            profile: Profile::default(),
            anonymous: Rights::default(),
            identities: BTreeMap::new(),
            limits: Limits::default(),
            data: None,
            observe: crate::Observe::default(),
            fixtures: false,
            seed: None,
        }
    }
}

impl ServerConfig {
    /// Reads YAML; addresses and switches stay at their defaults.
    ///
    /// # Errors
    /// Everything that is wrong, with place, key, value and limit.
    pub fn from_yaml(text: &str) -> Result<Self, ConfigError> {
        Self::from_tree(&tree::yaml(text)?)
    }

    /// Reads the same as TOML.
    ///
    /// # Errors
    /// As [`ServerConfig::from_yaml`].
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Self::from_tree(&tree::toml(text)?)
    }

    /// Reads the same as a JSON value. `{}` is the default configuration: a program says so on purpose.
    ///
    /// # Errors
    /// As [`ServerConfig::from_yaml`], without places.
    pub fn from_json(value: &serde_json::Value) -> Result<Self, ConfigError> {
        if value.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(Self::default());
        }
        Self::from_tree(&tree::json(value))
    }

    fn from_tree(root: &tree::Node) -> Result<Self, ConfigError> {
        let (config, mistakes) = Self::read_tree(root)?;
        check::all(mistakes)?;
        Ok(config)
    }

    /// The configuration, with what is wrong about it although each value fits its own key.
    fn read_tree(root: &tree::Node) -> Result<(Self, Vec<Mistake>), ConfigError> {
        if root.is_empty() {
            return Err(ConfigError::Empty);
        }
        let mut map = check::check(root)?;
        let mut own = serde_json::Map::new();
        for key in ["server", "observe", "anonymous", "identities"] {
            own.extend(map.remove(key).map(|value| (key.to_owned(), value)));
        }
        // The schema has looked at every key and type, and a test holds it against these structs; should they differ, this says so.
        let differs = |error: serde_json::Error| ConfigError::Syntax {
            at: None,
            why: crate::shown::escaped(&error.to_string()),
        };
        let own: Own = serde_json::from_value(own.into()).map_err(differs)?;
        let config = Self {
            profile: serde_json::from_value(map.into()).map_err(differs)?,
            anonymous: own.anonymous,
            identities: own.identities,
            limits: own.server,
            observe: own.observe,
            ..Self::default()
        };
        let mistakes = config.faults().into_iter();
        let mistakes = mistakes.map(|fault| check::located(root, fault)).collect();
        Ok((config, mistakes))
    }

    /// Checks every range, the profile's too.
    ///
    /// # Errors
    /// The first value outside its range.
    pub fn validate(&self) -> Result<(), ProfileError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// Every value outside its range, the profile's first; none where the configuration can be used.
    #[must_use]
    pub fn faults(&self) -> Vec<ProfileError> {
        let mut faults = self.profile.faults();
        self.limits.faults(&mut faults);
        let unknown = |class: &&String| !self.profile.classes.contains_key(*class);
        if let Some(class) = self.limits.burn.iter().find(unknown) {
            let limit = "a list of names that are under classes".to_owned();
            faults.push(out_of_range("server.burn", format!("{class:?}"), limit));
        }
        self.observe.faults(&mut faults);
        self.anonymous.faults("anonymous", &mut faults);
        if self.identities.len() > MAX_IDENTITIES {
            let limit = format!("at most {MAX_IDENTITIES} entries");
            faults.push(out_of_range("identities", self.identities.len(), limit));
        }
        for (position, (token, rights)) in self.identities.iter().enumerate() {
            // The token is a secret: the key says which entry, in the order of the tokens, not what it is.
            let key = format!("identities[{position}]");
            if token.0.is_empty() || token.0.len() > 512 || !token.0.bytes().all(|b| b.is_ascii_graphic()) {
                let limit = "1 to 512 printable ASCII characters".to_owned();
                faults.push(out_of_range(key.clone(), "(token)", limit));
            }
            rights.faults(&key, &mut faults);
        }
        faults
    }
}

impl Rights {
    fn faults(&self, key: &str, faults: &mut Vec<ProfileError>) {
        faults.extend(self.identity(key).err());
        let Some(tiers) = &self.tiers else { return };
        let again = (1..tiers.len()).any(|at| tiers[..at].contains(&tiers[at]));
        if tiers.is_empty() || again {
            let limit = schema::Kind::Tiers.range();
            faults.push(out_of_range(format!("{key}.tiers"), format!("{tiers:?}"), limit));
        }
    }

    /// The identity these rights stand for; `key` is where they were written.
    pub(crate) fn identity(&self, key: &str) -> Result<Identity, ProfileError> {
        let tenant = self.tenant.as_ref().map(Tenant::new).transpose();
        let tenant = tenant.map_err(|bad| {
            out_of_range(
                format!("{key}.tenant"),
                format!("{:?}", bad.value),
                "1 to 128 printable ASCII characters".to_owned(),
            )
        })?;
        let tiers = self.tiers.as_ref().map_or(Tiers::UNPRIVILEGED, |names| {
            let tiers: Vec<Tier> = names.iter().copied().map(Tier::from).collect();
            Tiers::of(&tiers)
        });
        Ok(Identity {
            tenant,
            tiers,
            trusted: self.trusted,
        })
    }
}

fn out_of_range(key: impl Into<String>, value: impl fmt::Display, limit: String) -> ProfileError {
    ProfileError {
        key: key.into(),
        value: value.to_string(),
        limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_that_is_shipped_is_usable() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiles");
        let mut read = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = std::fs::read_to_string(&path).unwrap();
                if let Err(error) = ServerConfig::from_yaml(&text) {
                    panic!("{}: {error}", path.display());
                }
                read += 1;
            }
        }
        assert!(read >= 3, "{read} profiles");
    }

    #[test]
    fn the_shipped_defaults_are_the_defaults() {
        let config = ServerConfig::from_yaml(include_str!("../../profiles/identities.yaml")).unwrap();
        assert_eq!(config.limits, Limits::default());
        assert_eq!(
            config.anonymous.identity("anonymous"),
            Rights::default().identity("anonymous")
        );
    }

    #[test]
    fn a_token_is_never_shown() {
        let yaml = "identities:\n  s3cret-token: {tenant: \"\"}\n";
        let error = ServerConfig::from_yaml(yaml).unwrap_err().to_string();
        assert!(
            error.contains("identities[0].tenant") && !error.contains("s3cret"),
            "{error}"
        );
        let config = ServerConfig::from_yaml("identities:\n  s3cret-token: {}\n").unwrap();
        assert!(!format!("{config:?}").contains("s3cret"));
    }
}
