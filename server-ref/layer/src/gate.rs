//! From a request's head to a decision, and from a refusal to an answer.
//!
//! Handlers that must look at a request before they ask (its class stands in the body, say) use this; everybody else
//! gets it through [`crate::AdmissionLayer`].

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use holdoff_admission::{NeverAdmissible, Rejection};
use holdoff_contract::write::{self, Audience};
use holdoff_contract::{
    Applied, Code, Overload, RequestFields, Retry, ServiceState, Tenant, Tier, field_name,
};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode};

use crate::{Admission, Ask, Denied, Identify, Identity, Place, RequestHead, clock};

/// The door: who asks, with which rights, and what they are told.
#[derive(Clone)]
pub struct Gate {
    admission: Admission,
    identify: Arc<dyn Identify>,
    default_tier: Tier,
}

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
}

/// An answer to this caller in place of its work.
#[derive(Clone, Debug)]
#[must_use]
pub struct Refusal {
    /// Why; an overload has the decision's id.
    pub why: Denied,
    audience: Audience,
    with_body: bool,
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
            deadline: fields.deadline,
            cost: fields.cost,
            bytes: 0,
            may_defer: false,
        };
        Asked {
            ask,
            fields,
            identity,
            method: head.method.clone(),
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
        }
    }

    /// Marks a success: put off, cut down, and the tier that was used where the request named one (SRQ-06). `state` is
    /// told to trusted callers only, and only beside one of these.
    pub fn advise(&self, headers: &mut HeaderMap, deferred: bool, degraded: bool, state: ServiceState) {
        let state = (self.identity.trusted && (deferred || degraded)).then_some(state);
        write::advice(headers, deferred, degraded, state);
        if self.fields.tier.is_none() {
            return;
        }
        // Most successes say nothing else.
        let Some(said) = headers.get(field_name::OVERLOAD_SIGNAL) else {
            let alone = match self.ask.tier {
                Tier::Critical => "v=1, tier=critical",
                Tier::NonSheddable => "v=1, tier=non-sheddable",
                Tier::Deferrable => "v=1, tier=deferrable",
            };
            headers.insert(field_name::OVERLOAD_SIGNAL, HeaderValue::from_static(alone));
            return;
        };
        let signal = format!("{}, tier={}", said.to_str().unwrap_or("v=1"), self.ask.tier);
        if let Ok(signal) = HeaderValue::try_from(signal) {
            headers.insert(field_name::OVERLOAD_SIGNAL, signal);
        }
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
                let encoded = write::overload(&rejection.overload, self.audience);
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
