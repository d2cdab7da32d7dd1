//! The client commands of the adapter protocol, typed.

use std::time::Duration;

use holdoff_contract::vocabulary::Vocabulary;
use holdoff_contract::{Attempt, Tenant, Tier};
use holdoff_policy::{Policy, PolicyError};
use serde::Deserialize;
use serde_json::{Map, Value};

/// `configure`.
#[derive(Clone, Debug, Deserialize)]
pub struct Configure {
    /// Name that later commands use.
    pub client: String,
    /// Knobs; absent ones keep the implementation's defaults.
    #[serde(default)]
    pub policy: Option<PolicyKnobs>,
    /// Origins that may be told the tenant.
    #[serde(default)]
    pub trusted: Vec<String>,
    /// Whose calls.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Base URLs that are instances of one service.
    #[serde(default)]
    pub instances: Vec<String>,
    /// How the services called refuse in words of their own.
    #[serde(default)]
    pub vocabulary: Option<Vocabulary>,
}

/// `policy` of `configure` and `parse`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PolicyKnobs {
    pub(crate) max_attempts: Option<u32>,
    max_attempts_scheduled: Option<u32>,
    hint_cap_ms: Option<u64>,
    backoff_floor_ms: Option<u64>,
    backoff_base_ms: Option<u64>,
    backoff_cap_ms: Option<u64>,
    pub(crate) budget: Option<BudgetKnobs>,
    /// De-facto fields count.
    pub compat: Option<bool>,
    pub(crate) max_waiting: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct BudgetKnobs {
    pub(crate) capacity: Option<u32>,
}

/// `call`.
#[derive(Clone, Debug, Deserialize)]
pub struct CallCommand {
    /// Id of the command, for `cancel`.
    pub id: Value,
    /// Name from `configure`.
    pub client: String,
    /// What to send.
    pub request: Request,
    /// The request being answered.
    #[serde(default)]
    pub incoming: Option<IncomingRequest>,
}

/// `request` of `call`.
#[derive(Clone, Debug, Deserialize)]
pub struct Request {
    /// HTTP method.
    pub method: String,
    /// Absolute URL.
    pub url: String,
    /// Header fields: a string, or a list of strings for several lines.
    #[serde(default)]
    pub headers: Map<String, Value>,
    /// Body text.
    #[serde(default)]
    pub body: Option<String>,
    /// Send the body as a stream that cannot be replayed.
    #[serde(default)]
    pub stream: bool,
    /// Key of the operation.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// Time for the whole call.
    #[serde(default)]
    pub deadline_ms: Option<u64>,
    /// Tier.
    #[serde(default)]
    pub tier: Option<TierText>,
    /// Kind of work.
    #[serde(default)]
    pub task_class: Option<String>,
    /// Overrides the client's tenant.
    #[serde(default)]
    pub tenant: Option<String>,
}

/// A tier as text: checked by the SDK, so that a bad one shows how the SDK refuses it.
pub type TierText = String;

/// `incoming` of `call`.
#[derive(Clone, Debug, Deserialize)]
pub struct IncomingRequest {
    #[serde(default)]
    attempt: Option<u32>,
    #[serde(default)]
    deadline_ms: Option<u64>,
    #[serde(default)]
    tier: Option<String>,
    #[serde(default)]
    retry: bool,
}

impl IncomingRequest {
    /// As the policy wants it.
    ///
    /// # Errors
    /// When the tier is none.
    pub fn to_policy(&self) -> anyhow::Result<holdoff_policy::Incoming> {
        Ok(holdoff_policy::Incoming {
            attempt: Attempt::saturating(self.attempt.unwrap_or(1)),
            retries: self.retry,
            tier: self.tier.as_deref().map(str::parse::<Tier>).transpose()?,
            deadline: self.deadline_ms.map(Duration::from_millis),
        })
    }
}

impl PolicyKnobs {
    /// A policy with these knobs.
    ///
    /// # Errors
    /// When a knob is outside its range.
    pub fn build(&self) -> Result<Policy, PolicyError> {
        let mut builder = Policy::builder();
        if let Some(n) = self.max_attempts {
            builder = builder.max_attempts(n);
        }
        if let Some(n) = self.max_attempts_scheduled {
            builder = builder.max_attempts_scheduled(n);
        }
        if let Some(ms) = self.hint_cap_ms {
            builder = builder.hint_cap(Duration::from_millis(ms));
        }
        if let Some(ms) = self.backoff_floor_ms {
            builder = builder.backoff_floor(Duration::from_millis(ms));
        }
        if let Some(ms) = self.backoff_base_ms {
            builder = builder.backoff_base(Duration::from_millis(ms));
        }
        if let Some(ms) = self.backoff_cap_ms {
            builder = builder.backoff_cap(Duration::from_millis(ms));
        }
        if let Some(capacity) = self.budget.as_ref().and_then(|budget| budget.capacity) {
            builder = builder.budget_capacity(capacity);
        }
        if let Some(n) = self.max_waiting {
            builder = builder.max_waiting(n);
        }
        builder.build()
    }
}

impl Configure {
    /// The tenant, checked.
    ///
    /// # Errors
    /// When it is outside the grammar.
    pub fn tenant(&self) -> anyhow::Result<Option<Tenant>> {
        Ok(self.tenant.as_deref().map(Tenant::new).transpose()?)
    }
}

/// `parse`.
#[derive(Clone, Debug, Deserialize)]
pub struct ParseCommand {
    /// The response to read.
    pub response: ParsedResponse,
    /// Wall clock at receipt, unix seconds.
    pub now: u64,
    /// hint_cap_ms and compat.
    #[serde(default)]
    pub policy: PolicyKnobs,
    /// What the request was.
    #[serde(default)]
    pub request: ParsedRequest,
}

/// `response` of `parse`.
#[derive(Clone, Debug, Deserialize)]
pub struct ParsedResponse {
    /// HTTP status.
    pub status: u16,
    /// Header lines.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// Body text.
    #[serde(default)]
    pub body: Option<String>,
}

/// `request` of `parse`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ParsedRequest {
    /// Default true.
    pub idempotent: Option<bool>,
    /// Time for the whole call.
    pub deadline_ms: Option<u64>,
}
