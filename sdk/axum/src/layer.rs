//! From a request's head to the context of its handler.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_core::response::{IntoResponse, Response};
use holdoff_contract::write::Audience;
use holdoff_contract::{Applied, CalledAs, Overload, RequestFields, Tier, field_name};
use holdoff_tower::Inbound;
use http::Request;
use http::request::Parts;
use tower_layer::Layer;
use tower_service::Service;

use crate::Problem;

/// What is believed of a caller, and told to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Inside the trust domain: its `Overload-Tenant` and its tier count as they stand, and it is told state, origin
    /// and predicted wait.
    Trusted,
    /// Anybody: its `Overload-Tenant` is removed, `critical` counts as non-sheddable, since that is a right that is
    /// given, and it is told none of the above (INT-15, SRQ-06, SRQ-08).
    Stranger,
}

type TrustBy = dyn Fn(&Parts) -> Trust + Send + Sync;

/// Reads what each caller said into an [`Inbound`] around the handler; see the crate's page.
///
/// The `Inbound` is also an extension of the request.
#[derive(Clone)]
#[must_use]
pub struct ContextLayer {
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    trust: Arc<TrustBy>,
    reserve: Option<Duration>,
    retries: bool,
    called_as: CalledAs,
    highest_tier: Tier,
}

/// A service whose requests have a context; made by [`ContextLayer`].
#[derive(Clone)]
pub struct ContextService<S> {
    inner: S,
    settings: Settings,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("reserve", &self.reserve)
            .field("retries", &self.retries)
            .field("called_as", &self.called_as)
            .field("highest_tier", &self.highest_tier)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ContextLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ContextLayer").field(&self.settings).finish()
    }
}

impl<S: fmt::Debug> fmt::Debug for ContextService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextService")
            .field("inner", &self.inner)
            .field("settings", &self.settings)
            .finish()
    }
}

impl Default for ContextLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl ContextLayer {
    /// A layer at the border: every caller is a stranger, dependencies are called with this service's own identity,
    /// nothing is retried here.
    pub fn new() -> Self {
        Self {
            settings: Settings {
                trust: Arc::new(|_| Trust::Stranger),
                reserve: None,
                retries: false,
                called_as: CalledAs::OwnService,
                highest_tier: Tier::Critical,
            },
        }
    }

    /// Every caller is inside the trust domain: for services that no stranger reaches. Default: none is.
    pub fn trust_all(self) -> Self {
        self.trust_by(|_| Trust::Trusted)
    }

    /// Tells callers apart, by a verified identity that a layer further out left in the extensions, say. Never by a
    /// field that anybody may write.
    pub fn trust_by(mut self, trust: impl Fn(&Parts) -> Trust + Send + Sync + 'static) -> Self {
        self.settings.trust = Arc::new(trust);
        self
    }

    /// What is kept back of the caller's deadline for answering it, so that a dependency which uses all that it was
    /// given does not make this service late. Default: 10 ms (CONTRACT section 6.1).
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.settings.reserve = Some(reserve);
        self
    }

    /// Lets this service retry its dependencies where its caller does not retry already; its refusals then say
    /// retry=no once it did. Default: it passes overload up at once, so that retries along a chain add and never
    /// multiply (CONTRACT section 6.6).
    pub fn with_retries(mut self) -> Self {
        self.settings.retries = true;
        self
    }

    /// With whose identity dependencies are called; for one of several use [`Problem::called_as`]. Default:
    /// [`CalledAs::OwnService`], so that a 429 which is this service's fault never blames its caller (INT-10).
    pub fn called_as(mut self, called_as: CalledAs) -> Self {
        self.settings.called_as = called_as;
        self
    }

    /// The highest tier that calls of this service have, whatever its caller's is: the service's own policy of
    /// CONTRACT section 6.2. Default: critical, no limit.
    pub fn highest_tier(mut self, tier: Tier) -> Self {
        self.settings.highest_tier = tier;
        self
    }
}

impl<S> Layer<S> for ContextLayer {
    type Service = ContextService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ContextService {
            inner,
            settings: self.settings.clone(),
        }
    }
}

impl Settings {
    /// The context of a request; its head loses what is not believed.
    fn read(&self, parts: &mut Parts) -> Inbound {
        let trust = (self.trust)(parts);
        let mut fields = RequestFields::read(&parts.headers);
        let (audience, allowed) = match trust {
            Trust::Trusted => (Audience::Trusted, Tier::Critical),
            Trust::Stranger => {
                fields.tenant = None;
                parts.headers.remove(field_name::OVERLOAD_TENANT);
                (Audience::Stranger, Tier::NonSheddable)
            }
        };
        // Tiers are ordered from the most important one down: the larger is the lower.
        fields.tier = fields.tier.map(|tier| tier.max(allowed).max(self.highest_tier));
        let mut inbound = Inbound::new(fields)
            .with_method(&parts.method)
            .with_called_as(self.called_as)
            .with_audience(audience);
        if let Some(reserve) = self.reserve {
            inbound = inbound.reserve(reserve);
        }
        if self.retries {
            inbound = inbound.with_retries();
        }
        parts.extensions.insert(inbound.clone());
        inbound
    }
}

/// The future of an answer.
pub type ContextFuture<E> = Pin<Box<dyn Future<Output = Result<Response, E>> + Send>>;

impl<S, B> Service<Request<B>> for ContextService<S>
where
    S: Service<Request<B>>,
    S::Response: IntoResponse,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = ContextFuture<S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let inbound = self.settings.read(&mut parts);
        if inbound.fields().deadline == Some(Duration::ZERO) {
            // Whatever the handler did would be for nobody (INT-12).
            let late = Problem::from(Overload::deadline_expired(Applied::No)).audience(inbound.audience());
            return Box::pin(std::future::ready(Ok(late.into_response())));
        }
        // Services may call already while they make their future, so that has to be in the scope as well.
        let future = inbound
            .clone()
            .sync_scope(|| self.inner.call(Request::from_parts(parts, body)));
        let answer = inbound.scope(future);
        Box::pin(async move { answer.await.map(IntoResponse::into_response) })
    }
}
