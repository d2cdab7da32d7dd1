//! Cases are data: what is played, what must be seen, and which requirements that speaks for.
//!
//! A case file that is half understood would quietly test less than it says. So every key is known or refused,
//! every requirement id must exist, and an error names the file and the case.
//!
//! ```yaml
//! schema: overload-cases/1
//! cases:
//!   - id: CLI-06-retry-no
//!     title: A reject that says retry=no is not retried.
//!     requirements: [CLI-06]
//!     client: { ... }        # or `server: { ... }`, `relay: { ... }`
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::client_drive::ClientCase;
use crate::grpc_drive;
use crate::grpc_drive::spec::{GrpcClientCase, GrpcServerCase};
use crate::input;
use crate::pair_drive::PairCase;
use crate::relay_drive::RelayCase;
use crate::requirement::{Requirements, RequirementsError};
use crate::server_drive::ServerCase;

/// The case files built into the binary: path under `conformance/cases`, and text.
pub const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/embedded_cases.rs"));

/// The schema that every case file names in its first line.
pub const SCHEMA: &str = "overload-cases/1";

/// The longest a case may take; an adapter that hangs costs no more than this.
pub const MAX_LIMIT_MS: u64 = 120_000;

/// Most files and directories below a directory of cases.
const MAX_ENTRIES: usize = 10_000;

/// The time limit of a case that names none.
pub const DEFAULT_LIMIT_MS: u64 = 20_000;

/// How much a failing case weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// A failure makes the program not conformant.
    #[default]
    Must,
    /// A failure is a warning.
    Should,
}

/// Which side is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The program under test calls; the runner answers.
    Client,
    /// The program under test answers; the runner calls.
    Server,
    /// The program under test calls while it answers; the runner is at both ends.
    Relay,
    /// A client and a server under test meet; the runner is a witness between them.
    Both,
}

impl Role {
    /// The word used in reports and commands.
    pub fn word(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::Server => "server",
            Role::Relay => "relay",
            Role::Both => "both",
        }
    }
}

/// What is played and what must be seen, for one role.
#[derive(Debug, Clone)]
pub enum Body {
    /// See [`ClientCase`].
    Client(Box<ClientCase>),
    /// See [`ServerCase`].
    Server(Box<ServerCase>),
    /// See [`RelayCase`].
    Relay(Box<RelayCase>),
    /// See [`PairCase`].
    Pair(Box<PairCase>),
    /// See [`GrpcClientCase`].
    GrpcClient(Box<GrpcClientCase>),
    /// See [`GrpcServerCase`].
    GrpcServer(Box<GrpcServerCase>),
}

/// One case.
#[derive(Debug, Clone)]
pub struct Case {
    /// Unique over all files; what `--filter` matches.
    pub id: String,
    /// One sentence: what must be true.
    pub title: String,
    /// The requirement ids that it speaks for; never empty.
    pub requirements: Vec<String>,
    /// Those of them that the case can show broken and cannot show held: it sees that something is not done where it must not
    /// be, and a program that never does it looks the same. A pass says nothing about them.
    pub limits_only: Vec<String>,
    /// Those of them that only the metrics page shows; where none can be read, a pass says nothing about them.
    pub metrics_show: Vec<String>,
    /// How much a failure weighs; MUST by default.
    pub level: Level,
    /// Capabilities that the program must declare in `hello`; without them the case is not applicable.
    pub needs: Vec<String>,
    /// Where the case comes from: a field case id, a vector id.
    pub source: Option<String>,
    /// Why the case cannot be run (yet); it is then reported as untestable.
    pub excluded: Option<String>,
    /// True when the case measures time and therefore runs alone.
    pub timing: bool,
    /// The time limit in ms, 1..=[`MAX_LIMIT_MS`].
    pub limit_ms: u64,
    /// What is played and expected.
    pub body: Body,
    /// The file that the case was read from.
    pub file: String,
}

impl Case {
    /// Which side the case judges.
    pub fn role(&self) -> Role {
        match self.body {
            Body::Client(_) | Body::GrpcClient(_) => Role::Client,
            Body::Server(_) | Body::GrpcServer(_) => Role::Server,
            Body::Relay(_) => Role::Relay,
            Body::Pair(_) => Role::Both,
        }
    }
}

/// A case as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    id: String,
    title: String,
    requirements: Vec<String>,
    #[serde(default)]
    limits_only: Vec<String>,
    #[serde(default)]
    metrics_show: Vec<String>,
    #[serde(default)]
    level: Level,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    excluded: Option<String>,
    #[serde(default = "yes")]
    timing: bool,
    #[serde(default = "default_limit_ms")]
    limit_ms: u64,
    #[serde(default)]
    client: Option<Box<ClientCase>>,
    #[serde(default)]
    server: Option<Box<ServerCase>>,
    #[serde(default)]
    relay: Option<Box<RelayCase>>,
    #[serde(default)]
    pair: Option<Box<PairCase>>,
    #[serde(default)]
    grpc_client: Option<Box<GrpcClientCase>>,
    #[serde(default)]
    grpc_server: Option<Box<GrpcServerCase>>,
}

fn yes() -> bool {
    true
}

fn default_limit_ms() -> u64 {
    DEFAULT_LIMIT_MS
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    schema: String,
    cases: Vec<RawCase>,
}

/// Why the cases could not be loaded. Every one of these ends the runner with exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A directory or file could not be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// What was read.
        path: PathBuf,
        /// What the system said.
        error: input::Unread,
    },
    /// Not YAML, a key that is not known, a value of the wrong type.
    #[error("{file}: {message}")]
    Syntax {
        /// The case file.
        file: String,
        /// Where and what, in the words of the parser.
        message: String,
    },
    /// The file is well-formed, but a value in it is not allowed.
    #[error("{file}: case {case}: {message}")]
    Case {
        /// The case file.
        file: String,
        /// The case id.
        case: String,
        /// Which value, and what the limit is.
        message: String,
    },
    /// The requirement list itself is broken.
    #[error(transparent)]
    Requirements(#[from] RequirementsError),
    /// More than `MAX_ENTRIES` files and directories.
    #[error("{0}: more than {MAX_ENTRIES} files and directories below it, the most that is looked at")]
    TooMany(String),
    /// No case at all.
    #[error("{0}: no case file (*.yaml) there")]
    Empty(String),
}

/// All cases, checked against the requirement list.
#[derive(Debug, Clone)]
pub struct CaseSet {
    /// The cases in the order of their files.
    pub cases: Vec<Case>,
    /// The requirements that they speak for.
    pub requirements: Requirements,
}

/// Loads the cases that are built into the binary.
///
/// # Errors
/// A case file is broken; a test of this crate shows that none is.
pub fn load_embedded() -> Result<CaseSet, LoadError> {
    load(
        EMBEDDED
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned())),
    )
}

/// Loads every `*.yaml` under a directory instead.
///
/// # Errors
/// The directory cannot be read, holds no case, or a case file is broken.
pub fn load_dir(dir: &Path) -> Result<CaseSet, LoadError> {
    let mut paths = Vec::new();
    collect(dir, &mut paths, &mut 0)?;
    paths.sort();
    if paths.is_empty() {
        return Err(LoadError::Empty(dir.display().to_string()));
    }
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let text = input::text(&path, input::MAX_WRITTEN).map_err(|error| LoadError::Read {
            path: path.clone(),
            error,
        })?;
        files.push((path.display().to_string(), text));
    }
    load(files)
}

fn collect(dir: &Path, into: &mut Vec<PathBuf>, seen: &mut usize) -> Result<(), LoadError> {
    let read = |error: std::io::Error| LoadError::Read {
        path: dir.to_owned(),
        error: error.into(),
    };
    for entry in fs::read_dir(dir).map_err(read)? {
        let path = entry.map_err(read)?.path();
        // Links may lead back, so that a small tree has no end.
        *seen += 1;
        if *seen > MAX_ENTRIES {
            return Err(LoadError::TooMany(dir.display().to_string()));
        }
        if path.is_dir() {
            collect(&path, into, seen)?;
        } else if path.extension().is_some_and(|ext| ext == "yaml") {
            into.push(path);
        }
    }
    Ok(())
}

/// Loads cases from named texts.
///
/// # Errors
/// A text is not a case file, names a requirement that does not exist, or repeats an id.
pub fn load(files: impl IntoIterator<Item = (String, String)>) -> Result<CaseSet, LoadError> {
    let requirements = Requirements::load_embedded()?;
    let mut cases = Vec::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for (file, text) in files {
        let raw: RawFile = serde_saphyr::from_str(&text).map_err(|error| LoadError::Syntax {
            file: file.clone(),
            message: error.to_string(),
        })?;
        if raw.schema != SCHEMA {
            let message = format!("schema is {:?}; this runner reads {SCHEMA:?}", raw.schema);
            return Err(LoadError::Syntax { file, message });
        }
        for raw in raw.cases {
            let id = raw.id.clone();
            let fail = |message: String| LoadError::Case {
                file: file.clone(),
                case: id.clone(),
                message,
            };
            if let Some(other) = seen.insert(id.clone(), file.clone()) {
                return Err(fail(format!("the id is already used in {other}")));
            }
            cases.push(check(raw, &file, &requirements).map_err(fail)?);
        }
    }
    Ok(CaseSet { cases, requirements })
}

fn check(raw: RawCase, file: &str, requirements: &Requirements) -> Result<Case, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if raw.id.is_empty() || raw.id.len() > 80 || !raw.id.chars().all(plain) {
        return Err("id must be 1 to 80 of A-Z a-z 0-9 - _ . (it becomes part of a URL path)".to_owned());
    }
    if raw.title.trim().is_empty() {
        return Err("title is empty".to_owned());
    }
    if raw.requirements.is_empty() {
        return Err("requirements is empty; a case speaks for at least one".to_owned());
    }
    if let Some(unknown) = raw.requirements.iter().find(|id| requirements.get(id).is_none()) {
        return Err(format!("requirement {unknown:?} is not in requirements.toml"));
    }
    for (key, ids) in [
        ("limits_only", &raw.limits_only),
        ("metrics_show", &raw.metrics_show),
    ] {
        if let Some(other) = ids.iter().find(|id| !raw.requirements.contains(id)) {
            return Err(format!(
                "{key} names {other:?}, which is not among the requirements of the case"
            ));
        }
    }
    if !(1..=MAX_LIMIT_MS).contains(&raw.limit_ms) {
        return Err(format!(
            "limit_ms is {}; allowed are 1 to {MAX_LIMIT_MS}",
            raw.limit_ms
        ));
    }
    let mut needs = raw.needs;
    let body = one_body(
        raw.client,
        raw.server,
        raw.relay,
        raw.pair,
        raw.grpc_client,
        raw.grpc_server,
    )?;
    // A program that does not speak gRPC is not judged by what it says over it.
    if matches!(body, Body::GrpcClient(_) | Body::GrpcServer(_)) {
        needs.push(grpc_drive::CAPABILITY.to_owned());
    }
    Ok(Case {
        id: raw.id,
        title: raw.title,
        requirements: raw.requirements,
        limits_only: raw.limits_only,
        metrics_show: raw.metrics_show,
        level: raw.level,
        needs,
        source: raw.source,
        excluded: raw.excluded,
        timing: raw.timing,
        limit_ms: raw.limit_ms,
        body,
        file: file.to_owned(),
    })
}

/// The one body that a case has, checked.
fn one_body(
    client: Option<Box<ClientCase>>,
    server: Option<Box<ServerCase>>,
    relay: Option<Box<RelayCase>>,
    pair: Option<Box<PairCase>>,
    grpc_client: Option<Box<GrpcClientCase>>,
    grpc_server: Option<Box<GrpcServerCase>>,
) -> Result<Body, String> {
    let bodies = [
        client.map(Body::Client),
        server.map(Body::Server),
        relay.map(Body::Relay),
        pair.map(Body::Pair),
        grpc_client.map(Body::GrpcClient),
        grpc_server.map(Body::GrpcServer),
    ];
    let mut there = bodies.into_iter().flatten();
    let (Some(body), None) = (there.next(), there.next()) else {
        let names = "`client`, `server`, `relay`, `pair`, `grpc_client` and `grpc_server`";
        return Err(format!("exactly one of {names} must be there"));
    };
    match &body {
        Body::Client(body) => body.validate()?,
        Body::Server(body) => body.validate()?,
        Body::Relay(body) => body.validate()?,
        Body::Pair(body) => body.validate()?,
        Body::GrpcClient(body) => body.validate()?,
        Body::GrpcServer(body) => body.validate()?,
    }
    Ok(body)
}

/// An inclusive range, written as one number or as `[lo, hi]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "RawRange")]
pub struct Range {
    /// The least value that is in it.
    pub lo: u64,
    /// The greatest value that is in it.
    pub hi: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawRange {
    One(u64),
    Two([u64; 2]),
}

impl From<RawRange> for Range {
    fn from(raw: RawRange) -> Self {
        match raw {
            RawRange::One(n) => Range { lo: n, hi: n },
            RawRange::Two([lo, hi]) => Range { lo, hi },
        }
    }
}

impl Range {
    /// True when the value lies in the range.
    pub fn holds(self, value: u64) -> bool {
        (self.lo..=self.hi).contains(&value)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.lo == self.hi {
            write!(f, "{}", self.lo)
        } else {
            write!(f, "{} to {}", self.lo, self.hi)
        }
    }
}

#[cfg(test)]
mod tests;
