//! The client.

use std::sync::Arc;

use holdoff_tower::carrier::Answered;
use holdoff_tower::{CallOptions, Counters, Error, OverloadLayer, ResponseBody};
use http::Method;
use reqwest::{IntoUrl, Request, Response, ResponseBuilderExt};

use crate::body::Answer;
use crate::invalid::Given;
use crate::parcel::{Maker, Parcel};
use crate::transport::{Redirects, Transport};
use crate::{ClientBuilder, RequestBuilder};

/// A `reqwest::Client` that obeys overload. Cheap to clone; clones share connections, retry budgets, hold-offs and
/// counters, so make one and keep it.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    transport: Transport,
    layer: OverloadLayer,
}

impl Client {
    /// A client with the contract's defaults over a new `reqwest::Client` with reqwest's defaults.
    ///
    /// # Panics
    /// Where `reqwest::Client::new` does: when no TLS backend can be initialised. [`ClientBuilder::build`] reports
    /// it instead.
    #[expect(
        clippy::expect_used,
        reason = "nothing that is set can be wrong; the rest is documented, as in reqwest"
    )]
    pub fn new() -> Self {
        Self::builder().build().expect("reqwest can be set up")
    }

    /// Sets up a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A client with the contract's defaults over a `reqwest::Client` that exists already.
    ///
    /// Two things cannot be changed on a finished reqwest client. Its own retries: build it with
    /// `.retry(reqwest::retry::never())`, since retries at two layers multiply (CLI-18; by default reqwest repeats
    /// what HTTP/2 and HTTP/3 servers say they never looked at); with `.max_retries_per_request(0)` behind it reqwest does
    /// not keep a copy of each request either, for a retry that never comes. And its redirects, which take headers along to
    /// other origins: so a wrapped client never sends `Overload-Tenant`. [`ClientBuilder::http`] takes your settings
    /// and needs neither care.
    pub fn wrap(client: reqwest::Client) -> Self {
        Self::over(
            Transport {
                client,
                redirects: Redirects::Theirs,
            },
            default_layer(),
        )
    }

    pub(crate) fn over(transport: Transport, layer: OverloadLayer) -> Self {
        Self {
            shared: Arc::new(Shared { transport, layer }),
        }
    }

    /// Starts a GET.
    pub fn get<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    /// Starts a POST. It is sent again only where the server said that nothing was done, or with an idempotency key.
    pub fn post<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// Starts a PUT.
    pub fn put<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// Starts a PATCH. It is sent again only where the server said that nothing was done, or with an idempotency key.
    pub fn patch<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// Starts a DELETE.
    pub fn delete<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }

    /// Starts a HEAD.
    pub fn head<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::HEAD, url)
    }

    /// Starts a request with any method.
    pub fn request<U: IntoUrl>(&self, method: Method, url: U) -> RequestBuilder {
        let given = Given::new(url.as_str());
        let http = &self.shared.transport.client;
        match url.into_url() {
            Ok(url) => RequestBuilder::new(self.clone(), http.request(method, url)),
            Err(_) => RequestBuilder::new(self.clone(), http.request(method, "")).fail(given.refused()),
        }
    }

    /// Makes the call that a reqwest request describes; its `timeout` is the deadline of the whole call.
    ///
    /// # Errors
    /// See [`RequestBuilder::send`].
    pub async fn execute(&self, request: Request) -> Result<Response, Error> {
        self.execute_with(request, CallOptions::new()).await
    }

    /// As [`Self::execute`], with the wishes of the call. A deadline in them wins over the request's `timeout`.
    ///
    /// # Errors
    /// See [`RequestBuilder::send`].
    pub async fn execute_with(&self, request: Request, mut options: CallOptions) -> Result<Response, Error> {
        options.deadline = options.deadline.or_else(|| request.timeout().copied());
        let mut parcel = self.parcel(request, Maker::Others);
        let options = Some(Box::new(options));
        Ok(handed_on(self.layer().carry(&mut parcel, options).await?))
    }

    #[inline(always)]
    pub(crate) fn parcel(&self, request: Request, maker: Maker) -> Parcel<'_> {
        Parcel::new(&self.shared.transport, request, maker)
    }

    pub(crate) fn layer(&self) -> &OverloadLayer {
        &self.shared.layer
    }

    /// The counts of all calls through this client and its clones.
    pub fn counters(&self) -> &Counters {
        self.shared.layer.counters()
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

/// As reqwest hands it on. Inlined, so that it is not moved from place to place.
#[inline(always)]
pub(crate) fn handed_on(answered: Answered<Response, Answer>) -> Response {
    match answered {
        Answered::AsItCame(response) => response,
        Answered::LookedInto(response) => into_reqwest(*response),
    }
}

/// reqwest's own response again: the one that came where nothing was read of its body.
#[cold]
fn into_reqwest(response: http::Response<ResponseBody<Answer>>) -> Response {
    let (parts, body) = response.into_parts();
    let body = match body.into_inner() {
        Ok(Answer::Whole(mut response)) => {
            *response.headers_mut() = parts.headers;
            *response.extensions_mut() = parts.extensions;
            return response;
        }
        Ok(opened) => ResponseBody::from(opened),
        Err(read) => read,
    };
    let url = body.get_ref().url().clone();
    let mut response = http::Response::from_parts(parts, reqwest::Body::wrap(body));
    if let Ok(carrier) = http::Response::builder().url(url).body(()) {
        response
            .extensions_mut()
            .extend(carrier.into_parts().0.extensions);
    }
    Response::from(response)
}

fn default_layer() -> OverloadLayer {
    OverloadLayer::builder()
        .classify(crate::transport::classify)
        .build()
}
