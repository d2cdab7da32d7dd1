//! What the handlers share.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use holdoff_admission::ProfileError;
use holdoff_admission_tower::{Admission, Gate, Identify, Identity, RequestHead};
use http::header::AUTHORIZATION;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use crate::ServerConfig;
use crate::background::Background;
use crate::config::{Limits, MAX_IDENTITIES};
use crate::durable::Ledger;
use crate::fixtures::Fixtures;
use crate::once::Waiters;
use crate::tasks::Tasks;
use crate::worker::Worker;

/// One server's state; cheap to clone.
pub(crate) type App = Arc<Shared>;

pub(crate) struct Shared {
    pub(crate) gate: Gate,
    pub(crate) worker: Arc<Worker>,
    pub(crate) tasks: Tasks,
    /// Where non-sheddable tasks are kept; none without a data directory.
    pub(crate) ledger: Option<Ledger>,
    pub(crate) waiters: Waiters,
    pub(crate) background: Background,
    /// The drain is over: whoever still waits for an answer is told so now.
    pub(crate) cut_off: CancellationToken,
    pub(crate) limits: Limits,
    pub(crate) identities: Arc<Identities>,
    pub(crate) fixtures: Option<Fixtures>,
    pub(crate) page: PrometheusHandle,
    /// The admin route is on the main listener too.
    pub(crate) admin: bool,
}

impl Shared {
    pub(crate) fn admission(&self) -> &Admission {
        self.gate.admission()
    }
}

/// Bearer tokens and who they stand for. A reload replaces them; the trust fixture changes single ones.
#[derive(Debug)]
pub(crate) struct Identities(RwLock<Table>);

#[derive(Debug)]
struct Table {
    by_token: HashMap<String, Identity>,
    anonymous: Identity,
}

impl Identities {
    pub(crate) fn new(config: &ServerConfig) -> Result<Self, ProfileError> {
        let anonymous = config.anonymous.identity("anonymous")?;
        let by_token = config
            .identities
            .iter()
            .map(|(token, rights)| Ok((token.as_str().to_owned(), rights.identity("identities")?)))
            .collect::<Result<_, ProfileError>>()?;
        Ok(Self(RwLock::new(Table { by_token, anonymous })))
    }

    /// The identity of a token; an unknown or absent one is anonymous.
    pub(crate) fn get(&self, token: Option<&str>) -> Identity {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        token
            .and_then(|token| table.by_token.get(token))
            .unwrap_or(&table.anonymous)
            .clone()
    }

    /// Takes everybody's rights anew.
    pub(crate) fn replace(&self, with: Self) {
        let new = with.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// Fixture: gives a token, or everybody without one, these rights.
    ///
    /// # Errors
    /// When the table is full.
    pub(crate) fn set(&self, token: Option<&str>, identity: Identity) -> Result<(), TableFull> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(token) = token else {
            table.anonymous = identity;
            return Ok(());
        };
        if table.by_token.len() >= MAX_IDENTITIES && !table.by_token.contains_key(token) {
            return Err(TableFull);
        }
        table.by_token.insert(token.to_owned(), identity);
        Ok(())
    }
}

/// There are [`MAX_IDENTITIES`] already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {MAX_IDENTITIES} identities already, the most there may be")]
pub(crate) struct TableFull;

/// The gate's view of the shared table.
pub(crate) struct ByToken(pub(crate) Arc<Identities>);

impl Identify for ByToken {
    fn identify(&self, head: RequestHead<'_>) -> Identity {
        let field = head
            .headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let token = field.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        self.0.get(token)
    }
}
