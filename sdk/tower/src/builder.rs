//! Setting up a layer.

use std::sync::Arc;
use std::time::Duration;

use holdoff_contract::read::Compat;
use holdoff_contract::{Tenant, Tier};
use holdoff_policy::{Destinations, Policy};
use rand::Rng;

use crate::clock::Entropy;
use crate::error::{Classify, by_io_kind};
use crate::origin::Origin;
use crate::plan::Defaults;
use crate::service::{OverloadLayer, Shared};
use crate::telemetry::{Counters, Observer};

/// Builds an [`OverloadLayer`]; what is not set keeps the contract's default.
#[derive(Debug)]
#[must_use]
pub struct OverloadLayerBuilder {
    policy: Policy,
    compat: Compat,
    defaults: Defaults,
    classify: Classify,
    entropy: Entropy,
    counters: Counters,
}

impl Default for OverloadLayerBuilder {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            compat: Compat::default(),
            defaults: Defaults::default(),
            classify: by_io_kind,
            entropy: Entropy::Thread,
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

    /// The deadline of calls that name none. Default: none, so that only waiting is bounded.
    pub fn default_deadline(mut self, deadline: Duration) -> Self {
        self.defaults.deadline = Some(deadline);
        self
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

    /// What the errors of the service below mean. Default: [`by_io_kind`].
    pub fn classify(mut self, classify: Classify) -> Self {
        self.classify = classify;
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
                defaults: self.defaults,
                classify: self.classify,
                entropy: self.entropy,
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
