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
use std::time::Duration;

use holdoff_admission::profile::TierName;
use holdoff_admission::{Profile, ProfileError};
use holdoff_admission_tower::{Identity, Tiers};
use holdoff_contract::{Tenant, Tier};
use serde::Deserialize;

mod check;
mod file;
pub mod schema;
#[cfg(test)]
mod schema_tests;
mod tree;

pub use check::{Fault, Mistake};
pub(crate) use file::load_vocabulary;
pub use file::{LoadError, LoadFault, MAX_PROFILE_BYTES};
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

/// The server's own limits.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest request body. 1..=1048576, default 65536; the profile's `max_bytes` where that is less.
    pub max_body_bytes: usize,
    /// Longest time for a body to arrive. 1..=60000, default 5000.
    pub body_ms: u64,
    /// Longest `duration_ms` of a task. 1..=86400000, default 600000 (10 min).
    pub max_duration_ms: u64,
    /// Ended tasks that can still be looked up; the oldest goes first. 1..=1000000, default 10000.
    pub ended_tasks: usize,
    /// Non-sheddable tasks that did not end well and can still be looked up (`GET /v1/dead-letters`); the oldest goes
    /// first. 1..=1000000, default 10000.
    pub dead_letters: usize,
    /// How long an Idempotency-Key stands for its operation. 1000..=604800000, default 86400000 (24 h, CONTRACT section 3).
    pub key_ms: u64,
    /// Keys of one tenant within that time; beyond it new keys get tenant_limit. 1..=10000000, default 100000.
    pub keys_per_tenant: usize,
    /// Keys of all tenants; beyond it new keys get queue_full. 1..=10000000, default 1000000 (some 300 bytes each).
    pub keys: usize,
    /// Non-sheddable work that has not started this long after its deadline is not run any more and becomes a dead
    /// letter. 0..=86400000, default none: late work still runs.
    pub late_ms: Option<u64>,
    /// Open connections; more wait in the listener's backlog. 1..=65536, default 4096.
    pub max_connections: usize,
    /// Longest time that a stop waits for accepted work. 0..=3600000, default 10000.
    pub drain_ms: u64,
    /// `grpc-timeout`, `connect-timeout-ms` and `x-envoy-expected-rq-timeout-ms` count as deadlines too (SRQ-04). Default
    /// no: for a server behind a hop that sets or strips them.
    pub foreign_deadlines: bool,
    /// A TOML file with the service's own words for its refusals (CLI-26, [`holdoff_contract::vocabulary`]), at most 1 MiB: they
    /// are said beside the contract's fields, for callers that know no others. Default none.
    pub vocabulary: Option<PathBuf>,
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
    /// Keys and values that are wrong, in the order of the text; the first sixteen.
    #[error("{}", lines(.0))]
    Mistakes(Vec<Mistake>),
}

fn place(at: Option<At>) -> String {
    at.map(|at| format!("{at}: ")).unwrap_or_default()
}

fn lines(mistakes: &[Mistake]) -> String {
    let lines: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
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

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 64 * 1024,
            body_ms: 5_000,
            max_duration_ms: 600_000,
            ended_tasks: 10_000,
            dead_letters: 10_000,
            key_ms: 86_400_000,
            keys_per_tenant: 100_000,
            keys: 1_000_000,
            late_ms: None,
            max_connections: 4_096,
            drain_ms: 10_000,
            foreign_deadlines: false,
            vocabulary: None,
        }
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
        if root.is_empty() {
            return Err(ConfigError::Empty);
        }
        let mut map = check::check(root).map_err(ConfigError::Mistakes)?;
        let mut own = serde_json::Map::new();
        for key in ["server", "observe", "anonymous", "identities"] {
            own.extend(map.remove(key).map(|value| (key.to_owned(), value)));
        }
        // The schema has looked at every key and type, and a test holds it against these structs; should they differ, this says so.
        let differs = |error: serde_json::Error| ConfigError::Syntax {
            at: None,
            why: error.to_string(),
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
        config.validate().map_err(|error| {
            let at = root.find(&error.key).and_then(|node| node.at);
            let what = Fault::Value(error);
            ConfigError::Mistakes(vec![Mistake { at, what }])
        })?;
        Ok(config)
    }

    /// Checks every range, the profile's too.
    ///
    /// # Errors
    /// The first value outside its range.
    pub fn validate(&self) -> Result<(), ProfileError> {
        self.profile.validate()?;
        self.limits.validate()?;
        self.observe.validate()?;
        self.anonymous.identity("anonymous")?;
        if self.identities.len() > MAX_IDENTITIES {
            let limit = format!("at most {MAX_IDENTITIES} entries");
            return Err(out_of_range("identities", self.identities.len(), limit));
        }
        for (position, (token, rights)) in self.identities.iter().enumerate() {
            // The token is a secret: the key says which entry, in the order of the tokens, not what it is.
            let key = format!("identities[{position}]");
            if token.0.is_empty() || token.0.len() > 512 || !token.0.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(out_of_range(
                    key,
                    "(token)",
                    "1 to 512 printable ASCII characters".to_owned(),
                ));
            }
            rights.identity(&key)?;
        }
        Ok(())
    }
}

impl Rights {
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

impl Limits {
    fn validate(&self) -> Result<(), ProfileError> {
        in_range("server.max_body_bytes", self.max_body_bytes as u64, 1, 1 << 20)?;
        in_range("server.body_ms", self.body_ms, 1, 60_000)?;
        in_range("server.max_duration_ms", self.max_duration_ms, 1, 86_400_000)?;
        in_range("server.ended_tasks", self.ended_tasks as u64, 1, 1_000_000)?;
        in_range("server.dead_letters", self.dead_letters as u64, 1, 1_000_000)?;
        in_range("server.key_ms", self.key_ms, 1_000, 604_800_000)?;
        in_range(
            "server.keys_per_tenant",
            self.keys_per_tenant as u64,
            1,
            10_000_000,
        )?;
        in_range("server.keys", self.keys as u64, 1, 10_000_000)?;
        in_range("server.late_ms", self.late_ms.unwrap_or(0), 0, 86_400_000)?;
        in_range("server.max_connections", self.max_connections as u64, 1, 65_536)?;
        in_range("server.drain_ms", self.drain_ms, 0, 3_600_000)
    }

    /// Longest time that a stop waits for accepted work.
    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}

pub(crate) fn in_range(key: &str, value: u64, least: u64, most: u64) -> Result<(), ProfileError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(out_of_range(
            key,
            value,
            format!("a whole number in {least}..={most}"),
        ))
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
