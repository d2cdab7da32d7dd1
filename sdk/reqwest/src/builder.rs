//! Setting up a client.

use std::sync::Arc;
use std::time::Duration;

use holdoff_contract::read::Compat;
use holdoff_contract::vocabulary::Vocabulary;
use holdoff_contract::{Tenant, Tier};
use holdoff_policy::Policy;
use holdoff_tower::{
    AttemptContext, BoxError, Error, Identify, InstanceList, Observer, Origin, OverloadLayer,
    OverloadLayerBuilder,
};
use http::HeaderMap;
use rand::Rng;

use crate::Client;
use crate::transport::{MAX_REDIRECTS, Redirects, Transport, classify, same_origin};

/// Builds a [`Client`]; what is not set keeps the contract's default. A bad value is told by [`Self::build`].
#[derive(Debug)]
#[must_use]
pub struct ClientBuilder {
    layer: OverloadLayerBuilder,
    http: reqwest::ClientBuilder,
    max_redirects: usize,
    trusts: bool,
    invalid: Option<Error>,
}

/// A wrapped client cannot keep `Overload-Tenant` from following redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "trusted is set for a wrapped reqwest::Client, which takes Overload-Tenant along on redirects to other \
     origins; hand over its reqwest::ClientBuilder with `http` instead"
)]
pub struct WrappedClientTrusted;

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            layer: OverloadLayer::builder().classify(classify),
            http: reqwest::Client::builder(),
            max_redirects: MAX_REDIRECTS,
            trusts: false,
            invalid: None,
        }
    }
}

impl ClientBuilder {
    /// When to try again and when to stop. Default: the contract's (section 5).
    pub fn policy(mut self, policy: Policy) -> Self {
        self.layer = self.layer.policy(policy);
        self
    }

    /// Whether the fields that others use count as hints. Default: they do (section 8).
    pub fn compat(mut self, compat: Compat) -> Self {
        self.layer = self.layer.compat(compat);
        self
    }

    /// The words of its own that a service refuses with (CLI-26), where it has none by [`Self::vocabulary_of`]. Default:
    /// none; the contract's fields and the de-facto ones are always read.
    pub fn vocabulary(mut self, vocabulary: Vocabulary) -> Self {
        self.layer = self.layer.vocabulary(vocabulary);
        self
    }

    /// The words of its own that this origin, such as `https://api.example`, refuses with, and its unit of
    /// `x-ratelimit-reset`; once for each.
    pub fn vocabulary_of(mut self, origin: impl AsRef<str>, vocabulary: Vocabulary) -> Self {
        match origin.as_ref().parse::<Origin>() {
            Ok(origin) => self.layer = self.layer.vocabulary_of(origin, vocabulary),
            Err(error) => self.fail(error),
        }
        self
    }

    /// The deadline of calls that name none: 1 ms to 24 h, what the wire can say. Default: none, so that only waiting
    /// is bounded (180 s).
    pub fn default_deadline(mut self, deadline: Duration) -> Self {
        match std::mem::take(&mut self.layer).default_deadline(deadline) {
            Ok(layer) => self.layer = layer,
            // The layer is gone, and never built.
            Err(error) => self.fail(error),
        }
        self
    }

    /// The tier of calls that name none. Default: not said, which is deferrable at the server.
    pub fn default_tier(mut self, tier: Tier) -> Self {
        self.layer = self.layer.default_tier(tier);
        self
    }

    /// The tenant of calls that name none: 1 to 128 printable ASCII characters. Sent only to [`Self::trusted`]
    /// origins.
    pub fn tenant<T>(mut self, tenant: T) -> Self
    where
        T: TryInto<Tenant>,
        T::Error: Into<BoxError>,
    {
        match tenant.try_into() {
            Ok(tenant) => self.layer = self.layer.tenant(tenant),
            Err(error) => self.fail(error),
        }
        self
    }

    /// An origin that `Overload-Tenant` may be sent to, such as `https://api.example:8443` (REQ-07); call it once
    /// for each. A path, query or credentials in it are refused. Default: none, the tenant is sent nowhere.
    pub fn trusted(mut self, origin: impl AsRef<str>) -> Self {
        match origin.as_ref().parse::<Origin>() {
            Ok(origin) => {
                self.layer = self.layer.trusted(origin);
                self.trusts = true;
            }
            Err(error) => self.fail(error),
        }
        self
    }

    /// Origins that serve the same, such as `["https://a.example", "https://b.example"]`: 2 to 16 of them, so that
    /// retry=elsewhere leads from one to another (CLI-07). A call goes first to the one that its URL names, and takes its
    /// fields along to the others. Call it once for each service. Default: none known, and retry=elsewhere waits.
    pub fn instances<T: AsRef<str>>(mut self, origins: impl IntoIterator<Item = T>) -> Self {
        let origins: Result<Vec<Origin>, _> = origins
            .into_iter()
            .map(|origin| origin.as_ref().parse())
            .collect();
        match origins.map(InstanceList::new) {
            Ok(Ok(list)) => self.layer = self.layer.instances(list),
            Ok(Err(error)) => self.fail(error),
            Err(error) => self.fail(error),
        }
        self
    }

    /// How servers tell callers apart that name no tenant: what one says of one caller (scope tenant) holds that one
    /// only. Default: by the request's `Authorization`; calls without it are one caller's, those with default headers
    /// of the reqwest client as well.
    pub fn identify(mut self, identify: Identify) -> Self {
        self.layer = self.layer.identify(identify);
        self
    }

    /// Told what the calls do, as it happens. Default: nobody. Counters and metrics are kept either way.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.layer = self.layer.observer(observer);
        self
    }

    /// The reqwest settings to build on: timeouts, TLS, proxies, default headers. Its `retry` and `redirect` are
    /// replaced: retries are made at one layer only (CLI-18), redirects by [`Self::max_redirects`]. A `timeout`
    /// in them limits each attempt of a call without a deadline; prefer [`Self::default_deadline`], which limits the
    /// call: short attempts under a long patience are what turns a stall into a collapse.
    pub fn http(mut self, http: reqwest::ClientBuilder) -> Self {
        self.http = http;
        self
    }

    /// Redirects followed by one attempt within an origin, and steps from one origin to another; 0 follows none.
    /// Default: 10, as reqwest has it.
    pub fn max_redirects(mut self, max: usize) -> Self {
        self.max_redirects = max;
        self
    }

    /// Called for each attempt, inside its span, with the fields that are about to be sent: the place where a tracer
    /// writes `traceparent` (REQ-09). Default: nothing is called, and a `traceparent` goes out as the request has it.
    pub fn before_send(
        mut self,
        hook: impl Fn(&mut HeaderMap, AttemptContext) + Send + Sync + 'static,
    ) -> Self {
        self.layer = self.layer.before_send(hook);
        self
    }

    /// Draws jitter from a generator with this seed, so that a test can be repeated. Default: the thread's own.
    pub fn rng_seed(mut self, seed: u64) -> Self {
        self.layer = self.layer.rng_seed(seed);
        self
    }

    /// Draws jitter from this generator. For tests: without real entropy callers line up.
    pub fn rng(mut self, rng: impl Rng + Send + 'static) -> Self {
        self.layer = self.layer.rng(rng);
        self
    }

    /// The client, over a reqwest client of its own.
    ///
    /// # Errors
    /// A tenant, origin, list of instances or default deadline outside its grammar or range, or what
    /// `reqwest::ClientBuilder::build` reports; the error's text names it.
    pub fn build(self) -> Result<Client, Error> {
        if let Some(error) = self.invalid {
            return Err(error);
        }
        let max = self.max_redirects;
        let (redirects, policy) = match max {
            0 => (Redirects::Theirs, reqwest::redirect::Policy::none()),
            _ => (Redirects::Ours { max }, same_origin(max)),
        };
        // A policy that repeats nothing still keeps a copy of each request, to be repeated; with no repeats it does not.
        let never = reqwest::retry::never().max_retries_per_request(0);
        let http = self.http.retry(never).redirect(policy);
        let client = http.build().map_err(Error::client)?;
        Ok(Client::over(Transport { client, redirects }, self.layer.build()))
    }

    /// The client, over a reqwest client that exists already; see [`Client::wrap`] for what that client must be.
    /// [`Self::http`] and [`Self::max_redirects`] have no effect.
    ///
    /// # Errors
    /// As [`Self::build`], and [`WrappedClientTrusted`] where trusted origins are set.
    pub fn wrap(self, client: reqwest::Client) -> Result<Client, Error> {
        if let Some(error) = self.invalid {
            return Err(error);
        }
        if self.trusts {
            return Err(Error::client(WrappedClientTrusted));
        }
        Ok(Client::over(
            Transport {
                client,
                redirects: Redirects::Theirs,
            },
            self.layer.build(),
        ))
    }

    /// Keeps the first error: the later ones may come of it.
    fn fail(&mut self, error: impl Into<BoxError>) {
        self.invalid.get_or_insert_with(|| Error::client(error));
    }
}
