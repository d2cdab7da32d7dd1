//! One request, as it will be sent again and again.
//!
//! Everything that is the same on each attempt is settled here once: whom it goes to, whether it may be sent again,
//! what it says about itself. What changes from attempt to attempt (deadline, attempt, effective tier) is written
//! into each copy.

use std::sync::Arc;
use std::time::Duration;

use holdoff_contract::vocabulary::Vocabulary;
use holdoff_contract::{RequestFields, Tenant, field_name};
use holdoff_policy::{CallSpec, CallerKey, Incoming, Instances, Policy, Replay, Safety, Send};
use http::{HeaderMap, HeaderValue};

use crate::caller::Callers;
use crate::carrier::Carrier;
use crate::clock;
use crate::context::Inbound;
use crate::dialect::Dialect;
use crate::instances::InstanceList;
use crate::options::{AttemptContext, CallOptions, Progress};
use crate::origin::Origin;
use crate::service::Shared;

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
    fn trusts(&self, asked: (&str, &str)) -> bool {
        self.trusted.iter().any(|origin| origin.parts() == asked)
    }

    /// Whether a call that says nothing about itself still has nothing to say.
    fn say_nothing(&self) -> bool {
        self.deadline.is_none() && self.tier.is_none() && self.tenant.is_none() && self.services.is_empty()
    }

    fn trusts_first<C: Carrier>(&self, carrier: &C) -> bool {
        let (scheme, authority) = carrier.origin();
        self.trusts((scheme, &authority))
    }

    /// The service with several instances that the request names one of.
    fn service<C: Carrier>(&self, carrier: &C, tenant: Option<&Tenant>) -> Option<Service> {
        if self.services.is_empty() {
            return None;
        }
        let (scheme, authority) = carrier.origin();
        self.services.iter().find_map(|list| {
            Some(Service {
                first: list.position(scheme, &authority)?,
                instances: Arc::clone(list),
                tenant: tenant.cloned(),
            })
        })
    }
}

/// What a call says about itself on each attempt.
pub(crate) struct Plan {
    safety: Option<Safety>,
    fields: RequestFields,
    /// A key that the caller wrote into the headers: it goes out as it stands.
    own_keys: Vec<HeaderValue>,
    replay: Replay,
    incoming: Option<Incoming>,
    progress: Option<Progress>,
    policy: Option<Arc<Policy>>,
    caller: Option<CallerKey>,
    /// Where the URL names one of several instances.
    service: Option<Service>,
    /// The fields of the attempt under way as the hook left them, which is called once an attempt.
    hooked: Option<Box<HeaderMap>>,
}

/// The instances of the service that is called.
struct Service {
    instances: Arc<InstanceList>,
    /// The place of the one that the URL names.
    first: u8,
    /// Whose work it is; said to trusted instances only.
    tenant: Option<Tenant>,
}

impl Plan {
    pub(crate) fn new<C: Carrier>(
        carrier: &C,
        options: Option<Box<CallOptions>>,
        defaults: &Defaults,
        dialect: Option<&dyn Dialect>,
    ) -> Self {
        let headers = carrier.headers();
        let inbound = Inbound::current();
        let replay = if carrier.can_replay() {
            Replay::Bytes
        } else {
            Replay::Once
        };
        match options {
            // Most calls say nothing about themselves.
            None if headers.is_empty() && inbound.is_none() && defaults.say_nothing() => Self {
                fields: RequestFields::default(),
                own_keys: Vec::new(),
                replay,
                safety: None,
                incoming: None,
                progress: None,
                policy: None,
                caller: defaults.callers.key(None, headers),
                service: None,
                hooked: None,
            },
            options => {
                let options = options.map_or_else(CallOptions::default, |options| *options);
                Self::settle(carrier, options, inbound, replay, defaults, dialect)
            }
        }
    }

    fn settle<C: Carrier>(
        carrier: &C,
        options: CallOptions,
        inbound: Option<Inbound>,
        replay: Replay,
        defaults: &Defaults,
        dialect: Option<&dyn Dialect>,
    ) -> Self {
        let headers = carrier.headers();
        let said = match dialect {
            Some(dialect) => dialect.request_fields(headers),
            None => RequestFields::read(headers),
        };
        let own_keys = match options.idempotency_key {
            None if RequestFields::are_among(headers) => headers
                .get_all(field_name::IDEMPOTENCY_KEY)
                .iter()
                .cloned()
                .collect(),
            _ => Vec::new(),
        };
        let tenant = options
            .tenant
            .or(said.tenant)
            .or_else(|| inbound.as_ref().and_then(Inbound::tenant_for_calls))
            .or_else(|| defaults.tenant.clone());
        let service = defaults.service(carrier, tenant.as_ref());
        let fields = RequestFields {
            deadline: options.deadline.or(said.deadline).or(defaults.deadline),
            tier: options.tier.or(said.tier).or(defaults.tier),
            task_class: options.task_class.or(said.task_class),
            tenant: tenant.filter(|_| defaults.trusts_first(carrier)),
            attempt: None,
            cost: options.cost.or(said.cost),
            idempotency_key: options.idempotency_key.or(said.idempotency_key),
        };
        let caller = options
            .caller
            .or_else(|| defaults.callers.key(fields.tenant.as_ref(), headers));
        Self {
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
            service,
            hooked: None,
        }
    }

    /// The policy of this call, where it has one of its own.
    pub(crate) fn policy(&self) -> Option<&Arc<Policy>> {
        self.policy.as_ref()
    }

    /// Whether the request can be sent again.
    pub(crate) fn replay(&self) -> Replay {
        self.replay
    }

    /// Hands scheme and authority of the destination, whose instances share a budget, to `look_up`.
    pub(crate) fn destination<C: Carrier, T>(&self, carrier: &C, look_up: impl FnOnce(&str, &str) -> T) -> T {
        if let Some((scheme, authority)) = self.service.as_ref().and_then(|service| service.instances.key()) {
            return look_up(scheme, authority);
        }
        let (scheme, authority) = carrier.origin();
        look_up(scheme, &authority)
    }

    pub(crate) fn spec<C: Carrier>(&self, carrier: &C) -> CallSpec {
        let safety = if let Some(safety) = self.safety {
            safety
        } else if carrier.method().is_idempotent() {
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
                Some(service) => Instances::new(service.instances.known(), service.first),
                None => Instances::ONE,
            },
            incoming: self.incoming,
            ..CallSpec::new(safety, self.replay)
        }
    }

    /// The words of whoever is asked by this attempt.
    pub(crate) fn vocabulary<'a, C: Carrier>(
        &self,
        carrier: &C,
        send: &Send,
        shared: &'a Shared,
    ) -> &'a Vocabulary {
        let asked = self
            .service
            .as_ref()
            .and_then(|service| service.instances.at(send.instance));
        if let Some((scheme, authority)) = asked {
            return shared.vocabularies.of(scheme, authority);
        }
        if let Some(only) = shared.vocabularies.only() {
            return only;
        }
        let (scheme, authority) = carrier.origin();
        shared.vocabularies.of(scheme, &authority)
    }

    /// Makes the request of one attempt, with what it says about itself. False only for the second send of a body that
    /// is sent once, which the policy does not ask for.
    pub(crate) fn begin<C: Carrier>(&mut self, carrier: &mut C, send: &Send, shared: &Shared) -> bool {
        let mut at = None;
        if let Some(service) = &self.service {
            let asked = service.instances.at(send.instance);
            let trusted = asked.is_some_and(|asked| shared.defaults.trusts(asked));
            self.fields.tenant = service.tenant.clone().filter(|_| trusted);
            at = asked.filter(|_| service.first != send.instance);
        }
        self.fields.deadline = send.time_left;
        self.fields.tier = send.tier;
        self.fields.attempt = Some(send.attempt);
        let context = AttemptContext {
            number: send.number,
            time_left: send.time_left,
        };
        let Some(headers) = carrier.next(context, at) else {
            return false;
        };
        write(&self.fields, &self.own_keys, headers, shared);
        if let Some(progress) = &self.progress {
            progress.sending(send.number);
        }
        shared.counters.attempt(send.number);
        if let Some(hook) = &shared.before_send {
            hook.call(headers, context);
            self.hooked = Some(Box::new(headers.clone()));
        }
        true
    }

    /// Writes the fields of the attempt under way again.
    pub(crate) fn write(&self, headers: &mut HeaderMap, shared: &Shared) {
        match &self.hooked {
            Some(hooked) => headers.clone_from(hooked),
            None => write(&self.fields, &self.own_keys, headers, shared),
        }
    }
}

fn write(fields: &RequestFields, own_keys: &[HeaderValue], headers: &mut HeaderMap, shared: &Shared) {
    match &shared.dialect {
        Some(dialect) => dialect.write(fields, headers),
        None => fields.write(headers),
    }
    if !own_keys.is_empty() {
        headers.remove(field_name::IDEMPOTENCY_KEY);
        for key in own_keys {
            headers.append(field_name::IDEMPOTENCY_KEY, key.clone());
        }
    }
}
