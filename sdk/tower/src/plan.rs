//! One request, as it will be sent again and again.
//!
//! Everything that is the same on each attempt is settled here once: whom it goes to, whether it may be sent again,
//! what it says about itself. What changes from attempt to attempt (deadline, attempt, effective tier) is written
//! into each copy.

use std::time::Duration;

use holdoff_contract::{RequestFields, Tenant, field_name};
use holdoff_policy::{CallSpec, Incoming, Replay, Safety, Send};
use http::request::Parts;
use http::{HeaderValue, Request};

use crate::body::ReplayBody;
use crate::options::{AttemptContext, CallOptions, Progress};
use crate::origin::Origin;

/// What a layer adds to calls that do not say it themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    pub(crate) deadline: Option<Duration>,
    pub(crate) tier: Option<holdoff_contract::Tier>,
    pub(crate) tenant: Option<Tenant>,
    /// Origins that Overload-Tenant may go to.
    pub(crate) trusted: Vec<Origin>,
}

/// A call, ready to be sent any number of times.
pub(crate) struct Plan<B> {
    parts: Parts,
    body: Option<B>,
    fields: RequestFields,
    /// A key that the caller wrote into the headers: it goes out as it stands.
    own_keys: Vec<HeaderValue>,
    replay: Replay,
    incoming: Option<Incoming>,
    progress: Option<Progress>,
}

impl<B: ReplayBody> Plan<B> {
    pub(crate) fn new(request: Request<B>, options: CallOptions, defaults: &Defaults) -> Self {
        let (parts, body) = request.into_parts();
        let said = RequestFields::read(&parts.headers);
        let own_keys = match options.idempotency_key {
            Some(_) => Vec::new(),
            None => parts
                .headers
                .get_all(field_name::IDEMPOTENCY_KEY)
                .iter()
                .cloned()
                .collect(),
        };
        let trusted = defaults.trusted.iter().any(|origin| origin.is_of(&parts.uri));
        let tenant = options.tenant.or(said.tenant).or_else(|| defaults.tenant.clone());
        let fields = RequestFields {
            deadline: options.deadline.or(said.deadline).or(defaults.deadline),
            tier: options.tier.or(said.tier).or(defaults.tier),
            task_class: options.task_class.or(said.task_class),
            tenant: tenant.filter(|_| trusted),
            attempt: None,
            cost: options.cost.or(said.cost),
            idempotency_key: options.idempotency_key.or(said.idempotency_key),
        };
        let replay = if body.can_replay() {
            Replay::Bytes
        } else {
            Replay::Once
        };
        Self {
            parts,
            body: Some(body),
            fields,
            own_keys,
            replay,
            incoming: options.incoming,
            progress: options.progress,
        }
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    pub(crate) fn spec(&self) -> CallSpec {
        let safety = if self.parts.method.is_idempotent() {
            Safety::Idempotent
        } else if self.fields.idempotency_key.is_some() {
            Safety::Keyed
        } else {
            Safety::Unsafe
        };
        CallSpec {
            safety,
            replay: self.replay,
            deadline: self.fields.deadline,
            tier: self.fields.tier,
            another_instance: false,
            incoming: self.incoming,
        }
    }

    /// The request of one attempt. `None` only for the second send of a body that is sent once, which the policy
    /// does not ask for.
    pub(crate) fn request(&mut self, send: &Send) -> Option<Request<B>> {
        let copy = self.body.as_ref()?.replay();
        let body = match copy {
            Some(copy) => copy,
            None => self.body.take()?,
        };
        let mut parts = self.parts.clone();
        self.fields.deadline = send.time_left;
        self.fields.tier = send.tier;
        self.fields.attempt = Some(send.attempt);
        self.fields.write(&mut parts.headers);
        if !self.own_keys.is_empty() {
            parts.headers.remove(field_name::IDEMPOTENCY_KEY);
            for key in &self.own_keys {
                parts.headers.append(field_name::IDEMPOTENCY_KEY, key.clone());
            }
        }
        parts.extensions.insert(AttemptContext {
            number: send.number,
            time_left: send.time_left,
        });
        if let Some(progress) = &self.progress {
            progress.sending(send.number);
        }
        Some(Request::from_parts(parts, body))
    }
}
