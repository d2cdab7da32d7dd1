//! Setting up a layer.

use std::sync::Arc;
use std::time::Duration;

use holdoff_contract::limits::MAX_DEADLINE;
use holdoff_contract::read::Compat;
use holdoff_contract::vocabulary::Vocabulary;
use holdoff_contract::{InvalidField, Tenant, Tier};
use holdoff_policy::{Destinations, Policy};
use http::HeaderMap;
use rand::Rng;

use crate::caller::Identify;
use crate::clock::Entropy;
use crate::dialect::Dialect;
use crate::error::{Classify, by_io_kind};
use crate::instances::InstanceList;
use crate::options::{AttemptContext, BeforeSend};
use crate::origin::Origin;
use crate::plan::Defaults;
use crate::service::{OverloadLayer, Shared};
use crate::telemetry::{Counters, Observer};
use crate::vocabulary::Vocabularies;

/// Builds an [`OverloadLayer`]; what is not set keeps the contract's default.
#[derive(Debug)]
#[must_use]
pub struct OverloadLayerBuilder {
    policy: Policy,
    compat: Compat,
    dialect: Option<Box<dyn Dialect>>,
    vocabularies: Vocabularies,
    defaults: Defaults,
    classify: Classify,
    entropy: Entropy,
    before_send: Option<BeforeSend>,
    counters: Counters,
}

impl Default for OverloadLayerBuilder {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            compat: Compat::default(),
            dialect: None,
            vocabularies: Vocabularies::default(),
            defaults: Defaults::default(),
            classify: by_io_kind,
            entropy: Entropy::Thread,
            before_send: None,
            counters: Counters::default(),
        }
    }
}

impl OverloadLayerBuilder {
    /// When to try again and when to stop. Default: the contract's (section 5).
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Whether the fields that others use count as hints. Default: they do (section 8).
    pub fn compat(mut self, compat: Compat) -> Self {
        self.compat = compat;
        self
    }

    /// The words of its own that a destination refuses with (CLI-26), where it has none by [`Self::vocabulary_of`].
    /// Default: none; the contract's fields and the de-facto ones are always read.
    pub fn vocabulary(mut self, vocabulary: Vocabulary) -> Self {
        self.vocabularies.set(None, vocabulary);
        self
    }

    /// The words of its own that this origin refuses with, and its unit of `x-ratelimit-reset`; once for each.
    pub fn vocabulary_of(mut self, origin: Origin, vocabulary: Vocabulary) -> Self {
        self.vocabularies.set(Some(origin), vocabulary);
        self
    }

    /// The deadline of calls that name none: 1 ms to 24 h, what the wire can say. Default: none, so that only waiting is
    /// bounded.
    ///
    /// # Errors
    /// When it is outside that range: with less, every call would end before it is sent.
    pub fn default_deadline(mut self, deadline: Duration) -> Result<Self, InvalidField> {
        const LEAST: Duration = Duration::from_millis(1);
        if !(LEAST..=MAX_DEADLINE).contains(&deadline) {
            return Err(InvalidField {
                field: "default_deadline",
                value: format!("{deadline:?}"),
                limit: "it must be 1 ms to 24 h",
            });
        }
        self.defaults.deadline = Some(deadline);
        Ok(self)
    }

    /// The tier of calls that name none. Default: not said, which is deferrable at the server.
    pub fn default_tier(mut self, tier: Tier) -> Self {
        self.defaults.tier = Some(tier);
        self
    }

    /// The tenant of calls that name none. Sent only to [`Self::trusted`] origins.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.defaults.tenant = Some(tenant);
        self
    }

    /// An origin that `Overload-Tenant` may be sent to (REQ-07); call it once for each. Default: none, the tenant
    /// is sent nowhere.
    pub fn trusted(mut self, origin: Origin) -> Self {
        if !self.defaults.trusted.contains(&origin) {
            self.defaults.trusted.push(origin);
        }
        self
    }

    /// For adapters: how requests are written and answers are read. Default: as plain HTTP.
    pub fn dialect(mut self, dialect: impl Dialect) -> Self {
        self.dialect = Some(Box::new(dialect));
        self
    }

    /// Origins that serve the same, so that retry=elsewhere leads from one to another (CLI-07); call it once for each
    /// service. Default: none known, and retry=elsewhere waits like `after`. An origin in two lists counts in the first.
    pub fn instances(mut self, instances: InstanceList) -> Self {
        self.defaults.services.push(Arc::new(instances));
        self
    }

    /// How the server tells callers apart that name no tenant: what it says of one (scope tenant) holds that one only.
    /// Default: [`by_authorization`](crate::by_authorization).
    pub fn identify(mut self, identify: Identify) -> Self {
        self.defaults.callers.identify = identify;
        self
    }

    /// What the errors of the service below mean. Default: [`by_io_kind`].
    pub fn classify(mut self, classify: Classify) -> Self {
        self.classify = classify;
        self
    }

    /// Called for each attempt, inside its span, with the fields that are about to be sent: the place where a tracer
    /// writes `traceparent`, so that the trace stays the same and every attempt is a parent of its own (REQ-09). A
    /// `traceparent` that the request carries goes out unchanged otherwise. Default: nothing is called.
    ///
    /// ```
    /// use holdoff_tower::{AttemptContext, OverloadLayer};
    /// use http::HeaderMap;
    ///
    /// let layer = OverloadLayer::builder()
    ///     .before_send(|fields: &mut HeaderMap, attempt: AttemptContext| {
    ///         // With OpenTelemetry: inject the context of `tracing::Span::current()` into `fields`.
    ///         fields.insert("x-attempt", attempt.number.into());
    ///     })
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn before_send(
        mut self,
        hook: impl Fn(&mut HeaderMap, AttemptContext) + Send + Sync + 'static,
    ) -> Self {
        self.before_send = Some(BeforeSend::new(hook));
        self
    }

    /// Told what the calls do, as it happens. Default: nobody. Counters and metrics are kept either way.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.counters = Counters::observed(observer);
        self
    }

    /// Draws jitter from a generator with this seed, so that a test can be repeated. Default: the thread's own.
    pub fn rng_seed(mut self, seed: u64) -> Self {
        self.entropy = Entropy::seeded(seed);
        self
    }

    /// Draws jitter from this generator. For tests: without real entropy callers line up.
    pub fn rng(mut self, rng: impl Rng + Send + 'static) -> Self {
        self.entropy = Entropy::given(rng);
        self
    }

    /// The layer.
    pub fn build(self) -> OverloadLayer {
        OverloadLayer {
            shared: Arc::new(Shared {
                destinations: Destinations::new(&self.policy),
                policy: Arc::new(self.policy),
                compat: self.compat,
                dialect: self.dialect,
                vocabularies: self.vocabularies,
                defaults: self.defaults,
                classify: self.classify,
                entropy: self.entropy,
                before_send: self.before_send,
                counters: self.counters,
            }),
        }
    }
}

impl OverloadLayer {
    /// A layer with the contract's defaults.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Sets up a layer.
    pub fn builder() -> OverloadLayerBuilder {
        OverloadLayerBuilder::default()
    }
}

impl Default for OverloadLayer {
    fn default() -> Self {
        Self::new()
    }
}
