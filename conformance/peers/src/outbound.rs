//! What a relay's client stands on: the plain transport, with the relay's edge before it.

use std::task::{Context, Poll};

use holdoff::tower::BoxError;
use http::{Request, Response};
use hyper::body::Incoming;
use tower::Service;

use crate::relay::Edge;
use crate::transport::{Payload, SendFuture, Transport};

/// A transport whose requests an edge may change as they leave.
#[derive(Clone)]
pub struct Outbound<E> {
    edge: E,
    transport: Transport,
}

impl<E: Edge> Outbound<E> {
    /// A transport with this edge.
    pub fn new(edge: E) -> Self {
        Self {
            edge,
            transport: Transport::new(),
        }
    }
}

impl<E: Edge> Service<Request<Payload>> for Outbound<E> {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = SendFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.transport.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Payload>) -> SendFuture {
        self.edge.outbound(request.headers_mut());
        self.transport.call(request)
    }
}
