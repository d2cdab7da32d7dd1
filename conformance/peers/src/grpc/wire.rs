//! What the gRPC client stands on: tonic's channel, and in a mutant something that changes what goes through.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::TryFutureExt;
use holdoff::tower::BoxError;
use http::{Request, Response};
use tonic::body::Body;
use tonic::transport::Channel;
use tower::Service;

#[cfg(feature = "mutants")]
use crate::mutant::grpc::GrpcClientMutant;

/// A channel.
#[derive(Clone)]
pub struct Wire {
    channel: Channel,
    #[cfg(feature = "mutants")]
    mutant: Option<GrpcClientMutant>,
}

impl Wire {
    /// An honest one, connected when it is first used.
    ///
    /// # Errors
    /// When the base is no URI.
    pub fn new(base: &str) -> anyhow::Result<Self> {
        Ok(Self {
            channel: Channel::from_shared(base.to_owned())?.connect_lazy(),
            #[cfg(feature = "mutants")]
            mutant: None,
        })
    }

    /// This one, breaking a rule.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn mutated(mut self, mutant: Option<GrpcClientMutant>) -> Self {
        self.mutant = mutant;
        self
    }
}

impl Service<Request<Body>> for Wire {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.channel.poll_ready(cx).map_err(Into::into)
    }

    #[cfg(not(feature = "mutants"))]
    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.channel.call(request).map_err(Into::into))
    }

    #[cfg(feature = "mutants")]
    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mutant = self.mutant;
        if let Some(mutant) = mutant {
            mutant.request(request.headers_mut());
        }
        let answer = self.channel.call(request).map_err(Into::into);
        Box::pin(answer.map_ok(move |mut response| {
            if let Some(mutant) = mutant {
                mutant.response(response.headers_mut());
            }
            response
        }))
    }
}
