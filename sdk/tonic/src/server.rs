//! The layer for tonic servers: reads what callers say, and answers for dependencies.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use holdoff_contract::grpc::{self, STATUS};
use holdoff_contract::read::{Compat, Head, ReadOptions};
use holdoff_contract::write::Audience;
use holdoff_contract::{Applied, CalledAs, Overload, field_name};
use holdoff_tower::{Inbound, PassUp};
use http::{HeaderMap, Request, Response, header};
use tonic::Status;
use tower_layer::Layer;
use tower_service::Service;

use crate::clock;
use crate::status::{StatusExt as _, status};

/// For a tonic server (`Server::builder().layer(..)`):
///
/// - `grpc-timeout` and the contract's metadata become an [`Inbound`] in the request's extensions and around the
///   handler, where outgoing calls find it by themselves; a call whose deadline has passed is answered
///   deadline_expired and not run;
/// - a status that a call through [`crate::ClientLayer`] ended with, handed on by `?`, becomes the refusal for this
///   service's own caller: dependency_overloaded, aged, one hop further, never wider (CONTRACT section 6);
/// - a refusal that a layer below answered in HTTP (an admission layer) becomes one in gRPC.
///
/// What is no gRPC call passes with its context only.
#[derive(Clone, Debug)]
pub struct ServerLayer {
    settings: Settings,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    audience: Audience,
    called_as: CalledAs,
    reserve: Option<Duration>,
    retries: bool,
}

/// Made by [`ServerLayer`].
#[derive(Clone, Debug)]
pub struct ServerService<S> {
    inner: S,
    settings: Settings,
}

impl ServerLayer {
    /// For callers that nobody knows: their word about a tenant is not heard, and they are not told the state.
    pub fn new() -> Self {
        Self {
            settings: Settings {
                audience: Audience::Stranger,
                called_as: CalledAs::OwnService,
                reserve: None,
                retries: false,
            },
        }
    }

    /// For callers inside the trust domain only (SRQ-08, SEC-02). Make sure by other means that nobody else gets in.
    pub fn trusted() -> Self {
        let mut layer = Self::new();
        layer.settings.audience = Audience::Trusted;
        layer
    }

    /// With whose identity handlers call their dependencies; it decides what a 429 of theirs means (INT-10).
    /// Default: this service's own.
    #[must_use]
    pub fn called_as(mut self, called_as: CalledAs) -> Self {
        self.settings.called_as = called_as;
        self
    }

    /// Kept back of a caller's deadline for answering it. Default: that of [`Inbound`].
    #[must_use]
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.settings.reserve = Some(reserve);
        self
    }

    /// Lets calls made inside handlers be retried. Default: they are not (CONTRACT section 6.6).
    #[must_use]
    pub fn with_retries(mut self) -> Self {
        self.settings.retries = true;
        self
    }
}

impl Default for ServerLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for ServerLayer {
    type Service = ServerService<S>;

    fn layer(&self, inner: S) -> ServerService<S> {
        ServerService {
            inner,
            settings: self.settings,
        }
    }
}

impl<S, B, RB> Service<Request<B>> for ServerService<S>
where
    S: Service<Request<B>, Response = Response<RB>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    RB: Default + Send + 'static,
{
    type Response = Response<RB>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<RB>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let settings = self.settings;
        let is_grpc = is_grpc(request.headers());
        let inbound = settings.inbound(request.headers());
        if is_grpc && inbound.time_left().is_some_and(|left| left.is_zero()) {
            let refusal = Overload::deadline_expired(Applied::No);
            let response = status(&refusal, settings.audience).into_http();
            return Box::pin(std::future::ready(Ok(response)));
        }
        request.extensions_mut().insert(inbound.clone());
        let inner = &mut self.inner;
        let answer = inbound.clone().sync_scope(|| inner.call(request));
        Box::pin(async move {
            let response = inbound.clone().scope(answer).await?;
            Ok(
                match is_grpc.then(|| settings.refusal(&response, &inbound)).flatten() {
                    Some(refusal) => status(&refusal, settings.audience).into_http(),
                    None => response,
                },
            )
        })
    }
}

impl Settings {
    fn inbound(&self, headers: &HeaderMap) -> Inbound {
        let mut fields = grpc::read_request(headers);
        if self.audience == Audience::Stranger {
            fields.tenant = None;
        }
        let mut inbound = Inbound::new(fields);
        if let Some(reserve) = self.reserve {
            inbound = inbound.reserve(reserve);
        }
        if self.retries {
            inbound = inbound.with_retries();
        }
        inbound
    }

    /// The refusal that this answer has to become.
    fn refusal<B>(&self, response: &Response<B>, inbound: &Inbound) -> Option<Overload> {
        if let Some(error) = response
            .extensions()
            .get::<Status>()
            .and_then(|status| status.call_error())
        {
            let hop = PassUp {
                called_as: self.called_as,
                ..inbound.pass_up(false)
            };
            return error.for_caller(hop);
        }
        let headers = response.headers();
        if headers.contains_key(STATUS) || !headers.contains_key(field_name::OVERLOAD_SIGNAL) {
            return None;
        }
        let options = ReadOptions {
            now: clock::wall(),
            compat: Compat::Off,
        };
        Head::read(response.status(), headers, &options)
            .finish(None)
            .into_overload()
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}
