//! One request, in reqwest's manner.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdoff_contract::{IdempotencyKey, TaskClass, Tenant, Tier};
use holdoff_policy::{CallerKey, Incoming, Policy};
use holdoff_tower::{BoxError, CallOptions, Error, Progress};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Response};
use serde::Serialize;

use crate::Client;
use crate::client::handed_on;
use crate::invalid::{self, ByHand, unbuilt};
use crate::parcel::Maker;

/// Builds a request and makes the call. A bad value is told by [`Self::send`], as reqwest does it.
#[derive(Debug)]
#[must_use = "a request does nothing until it is sent"]
pub struct RequestBuilder {
    client: Client,
    request: reqwest::RequestBuilder,
    /// Boxed, since most calls ask for nothing and a builder is moved about.
    options: Option<Box<CallOptions>>,
    invalid: Option<Error>,
}

impl RequestBuilder {
    pub(crate) fn new(client: Client, request: reqwest::RequestBuilder) -> Self {
        Self {
            client,
            request,
            options: None,
            invalid: None,
        }
    }

    fn map(mut self, change: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder) -> Self {
        self.request = change(self.request);
        self
    }

    fn options(&mut self) -> &mut CallOptions {
        self.options.get_or_insert_default()
    }

    fn set<T, V>(mut self, value: T, put: impl FnOnce(&mut CallOptions, V)) -> Self
    where
        T: TryInto<V>,
        T::Error: Into<BoxError>,
    {
        match value.try_into() {
            Ok(value) => put(self.options(), value),
            Err(error) => return self.fail(error),
        }
        self
    }

    /// Keeps the first error: the later ones may come of it.
    pub(crate) fn fail(mut self, error: impl Into<BoxError>) -> Self {
        self.invalid.get_or_insert_with(|| Error::request(error));
        self
    }

    /// Adds a header. A field of the contract counts as if its own method had been called (so `Overload-Tenant` goes to
    /// trusted origins only); with a value that its method would not take it is refused, and so is `Overload-Attempt`,
    /// since the client counts.
    pub fn header<K, V>(self, name: K, value: V) -> Self
    where
        HeaderName: TryFrom<K>,
        <HeaderName as TryFrom<K>>::Error: Into<http::Error>,
        HeaderValue: TryFrom<V>,
        <HeaderValue as TryFrom<V>>::Error: Into<http::Error>,
    {
        let Ok(name) = HeaderName::try_from(name) else {
            return self.fail(invalid::InvalidName);
        };
        let Ok(value) = HeaderValue::try_from(value) else {
            return self.fail(invalid::value(&name));
        };
        self.put(name, value)
    }

    fn put(mut self, name: HeaderName, value: HeaderValue) -> Self {
        match ByHand::read(&name, &value) {
            Ok(ByHand::Header) => self.map(|request| request.header(name, value)),
            Ok(ByHand::Field(said)) => {
                invalid::take_over(*said, self.options());
                self
            }
            Err(error) => self.fail(error),
        }
    }

    /// Adds headers, replacing those of the same names. They may be those of a request that is passed on: so a field of
    /// the contract that is malformed counts as absent and is not sent, as is `Overload-Attempt`.
    pub fn headers(self, headers: HeaderMap) -> Self {
        self.map(|request| request.headers(headers))
    }

    /// Sets HTTP basic authentication.
    pub fn basic_auth<U: Display, P: Display>(self, username: U, password: Option<P>) -> Self {
        self.map(|request| request.basic_auth(username, password))
    }

    /// Sets a bearer token.
    pub fn bearer_auth<T: Display>(self, token: T) -> Self {
        match HeaderValue::try_from(format!("Bearer {token}")) {
            Ok(mut value) => {
                value.set_sensitive(true);
                self.map(|request| request.header(AUTHORIZATION, value))
            }
            Err(_) => self.fail(invalid::value(&AUTHORIZATION)),
        }
    }

    /// Sets the body. One in memory can be sent again; one that is a stream is sent once (CLI-13).
    pub fn body<T: Into<Body>>(self, body: T) -> Self {
        self.map(|request| request.body(body))
    }

    /// Sets a `multipart/form-data` body and its content type. reqwest sends it as a stream, so it is sent once (CLI-13):
    /// a refusal comes back as `NotReplayable` with its hint, and the caller builds the form anew. Feature `multipart`.
    #[cfg(feature = "multipart")]
    pub fn multipart(self, form: reqwest::multipart::Form) -> Self {
        self.map(|request| request.multipart(form))
    }

    /// Adds to the query string.
    pub fn query<T: Serialize + ?Sized>(self, query: &T) -> Self {
        self.map(|request| request.query(query))
    }

    /// Sets a form body and its content type.
    pub fn form<T: Serialize + ?Sized>(self, form: &T) -> Self {
        self.map(|request| request.form(form))
    }

    /// Sets a JSON body and its content type.
    pub fn json<T: Serialize + ?Sized>(self, json: &T) -> Self {
        self.map(|request| request.json(json))
    }

    /// Sets the HTTP version.
    pub fn version(self, version: http::Version) -> Self {
        self.map(|request| request.version(version))
    }

    /// Time for the whole call, all attempts, all waits and the reading of the response's body included. It travels
    /// as `Overload-Deadline-Ms`, and replaces a timeout that the reqwest client has. At most 24 h, the most that the
    /// field can say: a longer one counts as 24 h. Zero ends the call before its first send. Default: the client's, else
    /// none.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.options().deadline = Some(deadline);
        self
    }

    /// The same as [`Self::deadline`], under reqwest's name: a time limit that each attempt had anew would not limit
    /// the call.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.deadline(timeout)
    }

    /// How much the work matters when not all of it can be done. Default: the client's, else not said (deferrable).
    pub fn tier(mut self, tier: Tier) -> Self {
        self.options().tier = Some(tier);
        self
    }

    /// The kind of work, `[a-z][a-z0-9._-]*`, at most 64 bytes: the server estimates its length by it.
    pub fn task_class<T>(self, class: T) -> Self
    where
        T: TryInto<TaskClass>,
        T::Error: Into<BoxError>,
    {
        self.set(class, |options, class| options.task_class = Some(class))
    }

    /// One key for this operation, 1 to 255 printable ASCII characters: the same on each attempt, so that a server
    /// which knows the key does the work once. Makes a POST safe to send again.
    pub fn idempotency_key<T>(self, key: T) -> Self
    where
        T: TryInto<IdempotencyKey>,
        T::Error: Into<BoxError>,
    {
        self.set(key, |options, key| options.idempotency_key = Some(key))
    }

    /// Whose work it is, 1 to 128 printable ASCII characters. Sent only to origins that the client trusts.
    pub fn tenant<T>(self, tenant: T) -> Self
    where
        T: TryInto<Tenant>,
        T::Error: Into<BoxError>,
    {
        self.set(tenant, |options, tenant| options.tenant = Some(tenant))
    }

    /// An estimate of the work, for the server to charge; one over 24 h counts as 24 h.
    pub fn cost(mut self, cost: Duration) -> Self {
        self.options().cost = Some(cost);
        self
    }

    /// The request that this call is made in answer to: its deadline and tier bind this call, and retries stay with
    /// one layer (CONTRACT section 6).
    pub fn incoming(mut self, incoming: Incoming) -> Self {
        self.options().incoming = Some(incoming);
        self
    }

    /// Says that the call changes nothing, whatever its method says (a search by POST, say), so that a request which
    /// it is made for need not say applied=maybe afterwards (INT-08).
    pub fn reads_only(mut self) -> Self {
        self.options().reads_only = true;
        self
    }

    /// When to try again and when to stop, for this call only. Default: the client's.
    pub fn policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.options().policy = Some(policy.into());
        self
    }

    /// Whose call it is, for what a server says of one caller only (scope tenant). Default: the tenant where it is
    /// sent, else the credential in the request.
    pub fn caller(mut self, caller: CallerKey) -> Self {
        self.options().caller = Some(caller);
        self
    }

    /// Has the call tell how far it is, for callers that may drop it before its end.
    pub fn progress(mut self, progress: &Progress) -> Self {
        self.options().progress = Some(progress.clone());
        self
    }

    /// The reqwest request, and the wishes that go with it: see [`Client::execute_with`].
    ///
    /// # Errors
    /// A bad URL, header, query, body, task class, key or tenant.
    pub fn build(self) -> Result<(reqwest::Request, CallOptions), Error> {
        match self.invalid {
            Some(error) => Err(error),
            None => {
                let options = self.options.map_or_else(CallOptions::new, |options| *options);
                Ok((self.request.build().map_err(unbuilt)?, options))
            }
        }
    }

    /// A copy of this builder; `None` where the body is a stream, or a value was bad.
    pub fn try_clone(&self) -> Option<Self> {
        match &self.invalid {
            Some(_) => None,
            None => Some(Self {
                client: self.client.clone(),
                request: self.request.try_clone()?,
                options: self.options.clone(),
                invalid: None,
            }),
        }
    }

    /// Makes the call: sends, waits and sends again as the policy says. A response that is not a refusal for
    /// overload is `Ok`, whatever its status.
    ///
    /// # Errors
    /// [`Error::is_request`] where the request could not be built, [`Error::is_overloaded`] where the server refused
    /// it, else a failure of the transport or the end of the deadline.
    pub fn send(self) -> impl Future<Output = Result<Response, Error>> + Send {
        let Self {
            client,
            request,
            options,
            invalid,
        } = self;
        async move {
            if let Some(error) = invalid {
                return Err(error);
            }
            let mut parcel = client.parcel(request.build().map_err(unbuilt)?, Maker::Builder);
            Ok(handed_on(client.layer().carry(&mut parcel, options).await?))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Client;

    #[test]
    fn the_future_of_a_call_stays_small_since_it_is_moved_when_it_is_awaited() {
        let call = Client::new().get("http://a.example/").send();
        let size = size_of_val(&call);
        // 1648 when this was written, 2976 before the futures around the transport's own were taken out.
        assert!(size <= 1792, "{size} bytes");
    }
}
