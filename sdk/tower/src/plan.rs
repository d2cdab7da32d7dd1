//! One request, as it will be sent again and again.
//!
//! Everything that is the same on each attempt is settled here once: whom it goes to, whether it may be sent again,
//! what it says about itself. What changes from attempt to attempt (deadline, attempt, effective tier) is written
//! into each copy.

use std::sync::Arc;
use std::time::Duration;

use holdoff_contract::{RequestFields, Tenant, field_name};
use holdoff_policy::{CallSpec, CallerKey, Incoming, Instances, Policy, Replay, Safety, Send};
use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, Request, Uri};

use crate::body::ReplayBody;
use crate::caller::Callers;
use crate::clock;
use crate::context::Inbound;
use crate::dialect::Dialect;
use crate::instances::InstanceList;
use crate::options::{AttemptContext, CallOptions, Progress};
use crate::origin::{self, Origin};

/// What a layer adds to calls that do not say it themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    pub(crate) deadline: Option<Duration>,
    pub(crate) tier: Option<holdoff_contract::Tier>,
    pub(crate) tenant: Option<Tenant>,
    /// Origins that Overload-Tenant may go to.
    pub(crate) trusted: Vec<Origin>,
    /// Services with several instances.
    pub(crate) services: Vec<Arc<InstanceList>>,
    pub(crate) callers: Callers,
}

impl Defaults {
    fn trusts(&self, uri: &Uri) -> bool {
        self.trusted.iter().any(|origin| origin.is_of(uri))
    }
}

/// A call, ready to be sent any number of times.
pub(crate) struct Plan<B> {
    safety: Option<Safety>,
    parts: Parts,
    body: Option<B>,
    fields: RequestFields,
    /// A key that the caller wrote into the headers: it goes out as it stands.
    own_keys: Vec<HeaderValue>,
    replay: Replay,
    incoming: Option<Incoming>,
    progress: Option<Progress>,
    policy: Option<Arc<Policy>>,
    caller: Option<CallerKey>,
    /// Whose work it is; said to trusted origins only.
    tenant: Option<Tenant>,
    /// The instances of the service, and the place of the one that the URL names.
    service: Option<(Arc<InstanceList>, u8)>,
}

impl<B: ReplayBody> Plan<B> {
    pub(crate) fn new(
        request: Request<B>,
        options: CallOptions,
        defaults: &Defaults,
        dialect: Option<&dyn Dialect>,
    ) -> Self {
        let (parts, body) = request.into_parts();
        let said = match dialect {
            Some(dialect) => dialect.request_fields(&parts.headers),
            None => RequestFields::read(&parts.headers),
        };
        let own_keys = match options.idempotency_key {
            Some(_) => Vec::new(),
            None => parts
                .headers
                .get_all(field_name::IDEMPOTENCY_KEY)
                .iter()
                .cloned()
                .collect(),
        };
        let trusted = defaults.trusts(&parts.uri);
        let inbound = Inbound::current();
        let tenant = options
            .tenant
            .or(said.tenant)
            .or_else(|| inbound.as_ref().and_then(Inbound::tenant_for_calls))
            .or_else(|| defaults.tenant.clone());
        let fields = RequestFields {
            deadline: options.deadline.or(said.deadline).or(defaults.deadline),
            tier: options.tier.or(said.tier).or(defaults.tier),
            task_class: options.task_class.or(said.task_class),
            tenant: tenant.clone().filter(|_| trusted),
            attempt: None,
            cost: options.cost.or(said.cost),
            idempotency_key: options.idempotency_key.or(said.idempotency_key),
        };
        let replay = if body.can_replay() {
            Replay::Bytes
        } else {
            Replay::Once
        };
        let caller = options
            .caller
            .or_else(|| defaults.callers.key(fields.tenant.as_ref(), &parts.headers));
        let service = defaults
            .services
            .iter()
            .find_map(|list| Some((Arc::clone(list), list.position(&parts.uri)?)));
        Self {
            parts,
            body: Some(body),
            fields,
            own_keys,
            replay,
            safety: options.safety,
            incoming: options
                .incoming
                .or_else(|| inbound.map(|inbound| inbound.incoming(clock::now()))),
            progress: options.progress,
            policy: options.policy,
            caller,
            tenant,
            service,
        }
    }

    /// The policy of this call, where it has one of its own.
    pub(crate) fn policy(&self) -> Option<&Arc<Policy>> {
        self.policy.as_ref()
    }

    /// Hands scheme and authority of the destination, whose instances share a budget, to `look_up`.
    pub(crate) fn destination<T>(&self, look_up: impl FnOnce(&str, &str) -> T) -> T {
        if let Some((scheme, authority)) = self.service.as_ref().and_then(|(list, _)| list.key()) {
            return look_up(scheme, authority);
        }
        let (scheme, authority) = origin::key(&self.parts.uri);
        look_up(scheme, &authority)
    }

    pub(crate) fn spec(&self) -> CallSpec {
        let safety = if let Some(safety) = self.safety {
            safety
        } else if self.parts.method.is_idempotent() {
            Safety::Idempotent
        } else if self.fields.idempotency_key.is_some() {
            Safety::Keyed
        } else {
            Safety::Unsafe
        };
        CallSpec {
            deadline: self.fields.deadline,
            tier: self.fields.tier,
            caller: self.caller,
            instances: match &self.service {
                Some((list, first)) => Instances::new(list.known(), *first),
                None => Instances::ONE,
            },
            incoming: self.incoming,
            ..CallSpec::new(safety, self.replay)
        }
    }

    /// The request of one attempt. `None` only for the second send of a body that is sent once, which the policy
    /// does not ask for.
    pub(crate) fn request(
        &mut self,
        send: &Send,
        defaults: &Defaults,
        dialect: Option<&dyn Dialect>,
    ) -> Option<Request<B>> {
        let copy = self.body.as_ref()?.replay();
        let body = match copy {
            Some(copy) => copy,
            None => self.body.take()?,
        };
        let mut parts = self.parts.clone();
        if let Some((list, first)) = &self.service
            && *first != send.instance
            && let Some(uri) = list.at(send.instance, &parts.uri)
        {
            self.fields.tenant = self.tenant.clone().filter(|_| defaults.trusts(&uri));
            parts.uri = uri;
            // It named the first one.
            parts.headers.remove(HOST);
        } else if self.service.is_some() {
            self.fields.tenant = self.tenant.clone().filter(|_| defaults.trusts(&parts.uri));
        }
        self.fields.deadline = send.time_left;
        self.fields.tier = send.tier;
        self.fields.attempt = Some(send.attempt);
        match dialect {
            Some(dialect) => dialect.write(&self.fields, &mut parts.headers),
            None => self.fields.write(&mut parts.headers),
        }
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
