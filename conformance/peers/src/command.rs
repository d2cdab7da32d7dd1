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

/// What the numbers among the knobs may be: the ranges of [`Policy::builder`], in the protocol's units.
const KNOBS: [(&str, u64, u64); 8] = [
    ("/max_attempts", 1, 255),
    ("/max_attempts_scheduled", 1, 255),
    ("/hint_cap_ms", 0, 86_400_000),
    ("/backoff_floor_ms", 1, 60_000),
    ("/backoff_base_ms", 0, 3_600_000),
    ("/backoff_cap_ms", 0, 3_600_000),
    ("/budget/capacity", 0, 1_000_000),
    ("/max_waiting", 0, 1_000_000),
];

/// Looks at the knobs of a command before its types are: the type of a number says neither which knob it is of nor what
/// that one may be.
///
/// # Errors
/// Names the knob, its value and its limit.
pub fn check_knobs(command: &Value) -> anyhow::Result<()> {
    let Some(policy) = command.get("policy").filter(|policy| !policy.is_null()) else {
        return Ok(());
    };
    for (at, least, most) in KNOBS {
        let Some(value) = policy.pointer(at).filter(|value| !value.is_null()) else {
            continue;
        };
        let fits = value
            .as_u64()
            .is_some_and(|number| (least..=most).contains(&number));
        let knob = at.replace('/', ".");
        anyhow::ensure!(
            fits,
            "policy{knob} is {value}; it must be a whole number in {least}..={most}"
        );
    }
    let compat = policy.get("compat").filter(|value| !value.is_null());
    if let Some(value) = compat.filter(|value| !value.is_boolean()) {
        anyhow::bail!("policy.compat is {value}; it must be true or false");
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(at: &str, value: &Value) -> Value {
        match at.strip_prefix("/budget/") {
            Some(name) => json!({"policy": {"budget": {name: value}}}),
            None => json!({"policy": {at.trim_start_matches('/'): value}}),
        }
    }

    #[test]
    fn a_knob_outside_its_range_is_refused_with_its_name_its_value_and_the_range() {
        for (at, least, most) in KNOBS {
            let knob = at.replace('/', ".");
            for value in [json!(-1), json!(1.5), json!("3"), json!(most + 1), json!(true)] {
                let said = check_knobs(&with(at, &value)).unwrap_err().to_string();
                let range = format!("{least}..={most}");
                assert_eq!(
                    said,
                    format!("policy{knob} is {value}; it must be a whole number in {range}")
                );
            }
        }
        let said = check_knobs(&json!({"policy": {"compat": 1}}))
            .unwrap_err()
            .to_string();
        assert_eq!(said, "policy.compat is 1; it must be true or false");
    }

    #[test]
    fn the_ends_of_each_range_are_what_the_policy_takes_too() {
        for (at, least, most) in KNOBS {
            for value in [least, most] {
                let command = with(at, &json!(value));
                check_knobs(&command).unwrap();
                let knobs: PolicyKnobs = serde_json::from_value(command["policy"].clone()).unwrap();
                assert!(knobs.build().is_ok(), "{at} {value}");
            }
            for beyond in [least.checked_sub(1), Some(most + 1)].into_iter().flatten() {
                let command = with(at, &json!(beyond));
                let knobs: PolicyKnobs = serde_json::from_value(command["policy"].clone()).unwrap();
                assert!(knobs.build().is_err(), "{at} {beyond}");
            }
        }
        check_knobs(&json!({"policy": null})).unwrap();
        check_knobs(&json!({"policy": {"hint_cap_ms": null, "compat": false}})).unwrap();
    }
}
