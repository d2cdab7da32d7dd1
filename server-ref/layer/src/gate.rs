//! From a request's head to a decision, and from a refusal to an answer.
//!
//! Handlers that must look at a request before they ask (its class stands in the body, say) use this; everybody else
//! gets it through [`crate::AdmissionLayer`].

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use holdoff_admission::{Caller, NeverAdmissible, Rejection};
use holdoff_contract::vocabulary::Vocabulary;
use holdoff_contract::write::{self, Advice, Audience};
use holdoff_contract::{
    Applied, Code, Extension, Overload, RequestFields, Retry, ServiceState, Tenant, Tier,
};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode};

use crate::{Admission, Ask, Denied, ForeignDeadlines, Identify, Identity, Place, RequestHead, clock};

/// The door: who asks, with which rights, and what they are told.
#[derive(Clone)]
pub struct Gate {
    admission: Admission,
    identify: Arc<dyn Identify>,
    default_tier: Tier,
    foreign_deadlines: ForeignDeadlines,
    /// Its hashes name callers inside; nobody outside can make or undo one.
    salt: RandomState,
    /// Requests seen, where unknown keys are sent on some of them.
    grease: Option<Arc<AtomicU64>>,
    /// The service's own words for its refusals, where it has some.
    vocabulary: Option<Arc<Vocabulary>>,
}

/// Where a connection comes from: a server leaves it in the request's extensions, so that anonymous callers are told apart at
/// the edge. Behind a proxy it is the proxy's; leave it out there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress(pub IpAddr);

/// A request that asks to be admitted, read from its head. What the head does not know (class, size) can be set in
/// [`Asked::ask`] before [`Gate::admit`].
#[derive(Clone, Debug)]
pub struct Asked {
    /// What the controller is asked.
    pub ask: Ask,
    /// The request's fields as they were sent.
    pub fields: RequestFields,
    /// Who asks.
    pub identity: Identity,
    method: Method,
    grease: Option<Extension>,
    vocabulary: Option<Arc<Vocabulary>>,
}

/// An answer to this caller in place of its work.
#[derive(Clone, Debug)]
#[must_use]
pub struct Refusal {
    /// Why; an overload has the decision's id.
    pub why: Denied,
    audience: Audience,
    with_body: bool,
    vocabulary: Option<Arc<Vocabulary>>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("default_tier", &self.default_tier)
            .finish_non_exhaustive()
    }
}

impl Gate {
    /// A gate where everybody is [`Identity::ANONYMOUS`] and the default tier is deferrable (CONTRACT section 3).
    pub fn new(admission: Admission) -> Self {
        Self {
            admission,
            identify: Arc::new(Identity::ANONYMOUS),
            default_tier: Tier::Deferrable,
            foreign_deadlines: ForeignDeadlines::default(),
            salt: RandomState::new(),
            grease: None,
            vocabulary: None,
        }
    }

    /// Takes identities from `identify`.
    #[must_use]
    pub fn identify(mut self, identify: impl Identify) -> Self {
        self.identify = Arc::new(identify);
        self
    }

    /// The tier of requests that name none; clamped to the caller's right like any other.
    #[must_use]
    pub fn default_tier(mut self, tier: Tier) -> Self {
        self.default_tier = tier;
        self
    }

    /// Whether the deadlines of other stacks count (SRQ-04).
    #[must_use]
    pub fn foreign_deadlines(mut self, foreign: ForeignDeadlines) -> Self {
        self.foreign_deadlines = foreign;
        self
    }

    /// Says refusals in the service's own words too, for callers that know no others (CLI-26): beside the contract's fields and
    /// never in their place. Callers of this SDK that declare the same vocabulary read them the same way. Default none.
    #[must_use]
    pub fn vocabulary(mut self, vocabulary: Vocabulary) -> Self {
        self.vocabulary = Some(Arc::new(vocabulary));
        self
    }

    /// Sends an unknown key (`grease-...`) on refusals of every fourth request, for test builds: a reader that cannot bear one would
    /// break with the first key that a later version adds (VER-05).
    #[must_use]
    pub fn grease(mut self, on: bool) -> Self {
        self.grease = on.then(Arc::default);
        self
    }

    /// The key for this request, if it gets one.
    fn grease_now(&self) -> Option<Extension> {
        let n = self.grease.as_ref()?.fetch_add(1, Ordering::Relaxed);
        let drawn = self.salt.hash_one(n);
        n.is_multiple_of(4).then(|| Extension {
            key: format!("grease-{:04x}", drawn & 0xffff),
            member: (drawn >> 32 & 0xffff).to_string(),
        })
    }

    /// The admission behind the gate.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Reads who asks for what. Nothing of it can fail: what is malformed is absent (CONTRACT section 3).
    pub fn read(&self, head: RequestHead<'_>) -> Asked {
        let fields = RequestFields::read(head.headers);
        let identity = self.identify.identify(head);
        let tenant = identity.tenant_for(fields.tenant.as_ref());
        let limits = self
            .admission
            .profile()
            .tenant(tenant.as_ref().map(Tenant::as_str));
        let claimed = identity.tiers.clamp(fields.tier.unwrap_or(self.default_tier));
        let ask = Ask {
            tier: limits.clamp(claimed),
            tenant,
            class: fields.task_class.clone(),
            deadline: self.foreign_deadlines.smallest(fields.deadline, head.headers),
            cost: fields.cost,
            bytes: 0,
            may_defer: false,
            caller: None,
        };
        let caller = self.caller(&ask, &fields, head);
        let ask = Ask {
            caller: Some(caller),
            ..ask
        };
        Asked {
            ask,
            fields,
            identity,
            method: head.method.clone(),
            // HEAD has the head that GET would have (SRV-22), so neither is greased.
            grease: Some(head.method)
                .filter(|method| !matches!(**method, Method::GET | Method::HEAD))
                .and_then(|_| self.grease_now()),
            vocabulary: self.vocabulary.clone(),
        }
    }

    /// The caller behind a request, for the edge: its tenant, else where its connection comes from.
    fn caller(&self, ask: &Ask, fields: &RequestFields, head: RequestHead<'_>) -> Caller {
        let address = head.extensions.get::<PeerAddress>();
        let name = ask.tenant.as_ref().map(Tenant::as_str);
        let id = self.salt.hash_one((name, address.filter(|_| name.is_none())));
        let key = fields.idempotency_key.as_ref();
        Caller {
            id,
            key: key.map(|key| self.salt.hash_one((id, key.as_str()))),
            attempt: fields.attempt.map(holdoff_contract::Attempt::get),
        }
    }

    /// Decides.
    ///
    /// # Errors
    /// The refusal, ready to be sent.
    pub fn admit(&self, asked: &Asked) -> Result<Place, Refusal> {
        self.admission.knock(&asked.ask).map_err(|denied| match denied {
            Denied::Overload(rejection) => asked.refusal(rejection),
            never @ Denied::Never(_) => asked.answer(never),
        })
    }
}

impl Asked {
    /// The answer has no body.
    pub(crate) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// Who reads the answer.
    pub fn audience(&self) -> Audience {
        if self.identity.trusted {
            Audience::Trusted
        } else {
            Audience::Stranger
        }
    }

    /// The answer to a rejection: gets the decision's id; the tier is told where the request named one (SRQ-06).
    pub fn refusal(&self, rejection: Rejection) -> Refusal {
        let mut overload = rejection.overload;
        overload.instance = Some(clock::decision_id());
        overload.tier = self.fields.tier.map(|_| self.ask.tier);
        overload.extensions.extend(self.grease.clone());
        tracing::debug!(
            code = overload.code_label(),
            tier = self.ask.tier.as_str(),
            instance = overload.instance.map(tracing::field::display),
            "rejected"
        );
        self.answer(Denied::Overload(Rejection { overload }))
    }

    fn answer(&self, why: Denied) -> Refusal {
        Refusal {
            why,
            audience: self.audience(),
            with_body: self.method != Method::HEAD,
            vocabulary: self.vocabulary.clone(),
        }
    }

    /// Marks a success: put off, cut down, and the tier that was used where the request named one (SRQ-06). `state` is
    /// told to trusted callers only, and only beside one of these.
    pub fn advise(&self, headers: &mut HeaderMap, deferred: bool, degraded: bool, state: ServiceState) {
        let state = (self.identity.trusted && (deferred || degraded)).then_some(state);
        let advice = Advice {
            deferred,
            degraded,
            state,
            tier: self.fields.tier.map(|_| self.ask.tier),
        };
        write::advise(headers, advice);
    }

    /// The answer to work whose deadline passed while it was running: something may have been done.
    pub fn overdue(&self) -> Refusal {
        let mut overload = Overload::new(Code::DeadlineExpired);
        overload.applied = Applied::Maybe;
        overload.retry = Retry::No;
        self.refusal(Rejection {
            overload: Box::new(overload),
        })
    }
}

impl Refusal {
    /// The whole answer: status, fields, and the body unless it is for HEAD (SRV-22).
    pub fn into_response(self) -> Response<Bytes> {
        let (status, headers, body) = match &self.why {
            Denied::Overload(rejection) => {
                let mut encoded = write::overload(&rejection.overload, self.audience);
                if let Some(vocabulary) = &self.vocabulary {
                    // A code without words of its own is said in the contract's alone.
                    let _ = vocabulary.write(&rejection.overload, &mut encoded, clock::wall());
                }
                (encoded.status, encoded.headers, encoded.body)
            }
            Denied::Never(never) => problem(never),
        };
        let mut response = Response::new(if self.with_body { body } else { Bytes::new() });
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

/// A validation problem: it says what is wrong and carries nothing of the contract (SRV-18).
fn problem(never: &NeverAdmissible) -> (StatusCode, HeaderMap, Bytes) {
    let status = match never.field {
        "bytes" => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let title = status.canonical_reason().unwrap_or("Invalid request");
    let NeverAdmissible { field, value, limit } = never;
    let code = status.as_u16();
    // All of it is our own words and numbers: nothing needs escaping.
    let head = format!(r#""type":"about:blank","title":"{title}","status":{code},"detail":"{never}""#);
    let body = format!(r#"{{{head},"field":"{field}","value":"{value}","limit":"{limit}"}}"#);
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    (status, headers, Bytes::from(body))
}
