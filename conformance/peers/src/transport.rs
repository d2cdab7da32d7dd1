//! What the tower client stands on: a plain hyper client, and in a mutant something that changes what goes through.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
#[cfg(not(feature = "mutants"))]
use futures_util::TryFutureExt as _;
use holdoff::tower::{BoxError, Once, ReplayBody};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::Service;

/// A request body: in memory, or a stream that is sent once.
pub enum Payload {
    /// Replayed byte for byte.
    Bytes(Full<Bytes>),
    /// Sent once.
    Stream(Once<Full<Bytes>>),
}

impl Payload {
    /// A payload with this text.
    pub fn new(text: String, stream: bool) -> Self {
        let full = Full::new(Bytes::from(text));
        if stream {
            Self::Stream(Once::new(full))
        } else {
            Self::Bytes(full)
        }
    }
}

impl ReplayBody for Payload {
    fn replay(&self) -> Option<Self> {
        match self {
            Self::Bytes(full) => Some(Self::Bytes(full.clone())),
            Self::Stream(_) => None,
        }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Bytes(full) => Pin::new(full).poll_frame(cx),
            Self::Stream(once) => Pin::new(once).poll_frame(cx),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Bytes(full) => full.size_hint(),
            // A stream's length is not known: chunked on the wire.
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// A plain HTTP/1.1 client; retries of hyper's own pool are off (CLI-18).
#[derive(Clone)]
pub struct Transport {
    client: Client<HttpConnector, Payload>,
    #[cfg(feature = "mutants")]
    mutation: Option<mutation::Mutation>,
}

impl Transport {
    /// An honest transport.
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .retry_canceled_requests(false)
            .build(connector);
        Self {
            client,
            #[cfg(feature = "mutants")]
            mutation: None,
        }
    }
}

impl Default for Transport {
    fn default() -> Self {
        Self::new()
    }
}

/// The future of one send.
pub type SendFuture = Pin<Box<dyn Future<Output = Result<Response<Incoming>, BoxError>> + Send>>;

impl Service<Request<Payload>> for Transport {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = SendFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    #[cfg(not(feature = "mutants"))]
    fn call(&mut self, request: Request<Payload>) -> SendFuture {
        Box::pin(self.client.request(request).map_err(Into::into))
    }

    #[cfg(feature = "mutants")]
    fn call(&mut self, mut request: Request<Payload>) -> SendFuture {
        if let Some(mutation) = &self.mutation {
            mutation.request(&mut request);
        }
        let mutation = self.mutation.clone();
        let sent = self.client.request(request);
        Box::pin(async move {
            let mut response = sent.await?;
            if let Some(mutation) = mutation {
                mutation.read(&mut response).await;
                mutation.response(&mut response);
            }
            Ok(response)
        })
    }
}

#[cfg(feature = "mutants")]
pub use mutation::Mutation;

#[cfg(feature = "mutants")]
mod mutation {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use holdoff::tower::AttemptContext;
    use holdoff_contract::field_name;
    use http::{HeaderValue, Request, Response};
    use http_body_util::BodyExt as _;
    use hyper::body::Incoming;

    use super::{Payload, Transport};
    use crate::clock;
    use crate::mutant::client::ClientMutant;

    /// The most of one body that is read by a mutant that reads everything.
    const MOST: usize = 64 << 20;
    /// The longest that it reads.
    const LONGEST: Duration = Duration::from_secs(8);

    /// A broken rule, at the edge of one client.
    #[derive(Clone)]
    pub struct Mutation {
        mutant: ClientMutant,
        hint_cap: Duration,
        sends: Arc<AtomicU64>,
        first_deadline: Arc<Mutex<Option<HeaderValue>>>,
    }

    impl Transport {
        /// This transport, breaking a rule.
        #[must_use]
        pub fn mutated(mut self, mutant: ClientMutant, hint_cap: Duration) -> Self {
            let (sends, first_deadline) = (Arc::default(), Arc::default());
            self.mutation = Some(Mutation {
                mutant,
                hint_cap,
                sends,
                first_deadline,
            });
            self
        }
    }

    impl Mutation {
        pub(super) fn request(&self, request: &mut Request<Payload>) {
            let number = self.sends.fetch_add(1, Ordering::Relaxed);
            let first = request
                .extensions()
                .get::<AttemptContext>()
                .is_none_or(|attempt| attempt.number == 1);
            let mut kept = self.first_deadline.lock().unwrap_or_else(PoisonError::into_inner);
            if first {
                *kept = request.headers().get(field_name::OVERLOAD_DEADLINE_MS).cloned();
            }
            self.mutant.request(request.headers_mut(), kept.as_ref(), number);
            self.mutant.restore(request);
        }

        /// Reads the body of a refusal to its end, where that is what the mutant does: up to [`MOST`] and [`LONGEST`], for a
        /// mutant must not take the machine along.
        pub(super) async fn read(&self, response: &mut Response<Incoming>) {
            if self.mutant != ClientMutant::SwallowsBodies || response.status().is_success() {
                return;
            }
            let mut read = 0;
            let all = async {
                while let Some(Ok(frame)) = response.body_mut().frame().await {
                    read += frame.data_ref().map_or(0, |data| data.len());
                    if read > MOST {
                        return;
                    }
                }
            };
            let _ = tokio::time::timeout(LONGEST, all).await;
        }

        pub(super) fn response<B>(&self, response: &mut Response<B>) {
            let mut status = response.status();
            self.mutant
                .response(&mut status, response.headers_mut(), self.hint_cap, clock::wall());
            *response.status_mut() = status;
        }
    }
}
