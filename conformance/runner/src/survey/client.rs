//! The programs of a survey: a list in a file, and one program that is met and played to.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::ByBehaviour;
use super::behaviour::Behaviour;
use super::measure::Measured;
use crate::adapter::{Adapter, AdapterCommand, AdapterError};
use crate::case::Role;
use crate::client_drive::{self, ClientCase};
use crate::input;
use crate::run::RunContext;

/// The schema that a list of programs names.
const SCHEMA: &str = "overload-clients/1";
/// How long a program may take to start and say `hello`.
const HELLO_LIMIT: Duration = Duration::from_secs(30);

/// A list of programs, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientList {
    schema: String,
    clients: Vec<Listed>,
}

/// One program of a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    /// The command that starts it.
    pub(super) command: String,
    /// Its configuration, where the program does not say it.
    #[serde(default)]
    configuration: Option<String>,
    /// Whether it is looked at every time, or only when asked for.
    #[serde(default)]
    list: When,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum When {
    #[default]
    Always,
    Nightly,
}

impl ClientList {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = input::text(path, input::MAX_WRITTEN).with_context(|| path.display().to_string())?;
        let list: ClientList = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        let schema = &list.schema;
        anyhow::ensure!(
            schema == SCHEMA,
            "{}: schema is {schema:?}; this runner reads {SCHEMA:?}",
            path.display()
        );
        Ok(list)
    }

    pub(super) fn take(self, nightly: bool) -> impl Iterator<Item = Listed> {
        self.clients
            .into_iter()
            .filter(move |client| nightly || client.list == When::Always)
    }
}

/// What was seen of one program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Surveyed {
    /// What it calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// How it is configured.
    pub configuration: String,
    /// What it declares.
    pub capabilities: Vec<String>,
    /// The command that starts it.
    pub command: String,
    /// Why it was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The measurements, by behaviour id.
    pub measured: ByBehaviour,
    /// Why a behaviour was not measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_measured: BTreeMap<String, String>,
}

impl Surveyed {
    /// True when every behaviour was measured.
    pub fn is_whole(&self) -> bool {
        self.failed.is_none() && self.not_measured.is_empty()
    }

    /// True when the client has a setting for the time of a whole call: it keeps a deadline as the contract says, or it
    /// says that it has some such setting (`call_time`, which no case asks for).
    pub fn limits_calls(&self) -> bool {
        let has = |capability: &String| matches!(capability.as_str(), "deadline" | "call_time");
        self.capabilities.iter().any(has)
    }
}

impl Listed {
    pub(super) fn of_command(command: String) -> Self {
        Self {
            command,
            configuration: None,
            list: When::Always,
        }
    }

    /// Starts the program once to learn what it is. One that does not start is left out and says why.
    pub(super) async fn meet(&self) -> Result<Surveyed, AdapterError> {
        let command = AdapterCommand::parse(&self.command)?;
        let mut met = Surveyed {
            name: String::new(),
            version: String::new(),
            configuration: String::new(),
            capabilities: Vec::new(),
            command: self.command.clone(),
            failed: None,
            measured: BTreeMap::new(),
            not_measured: BTreeMap::new(),
        };
        match Adapter::start(&command, Role::Client, HELLO_LIMIT).await {
            Ok(adapter) => {
                let hello = adapter.hello();
                met.name.clone_from(&hello.implementation.name);
                met.version.clone_from(&hello.implementation.version);
                met.capabilities.clone_from(&hello.capabilities);
                let said = hello.implementation.configuration.clone();
                met.configuration = self.configuration.clone().or(said).unwrap_or_default();
                adapter.stop().await;
            }
            Err(error) => met.failed = Some(error.to_string()),
        }
        Ok(met)
    }

    /// Plays one behaviour to a process of its own.
    pub(super) async fn play(
        &self,
        behaviour: &Behaviour,
        body: &ClientCase,
        context: &RunContext,
    ) -> Result<Measured, String> {
        let command = AdapterCommand::parse(&self.command).map_err(|error| error.to_string())?;
        let adapter = Adapter::start(&command, Role::Client, HELLO_LIMIT)
            .await
            .map_err(|error| error.to_string())?;
        let limit = Duration::from_millis(behaviour.limit_ms);
        let played = client_drive::observe(&behaviour.id, body, limit, &adapter, context).await;
        adapter.stop().await;
        let played = played.map_err(|error| error.to_string())?;
        Measured::from_played(&played, limit)
    }
}
