//! Bodies on their way through the layer, with what reqwest would otherwise have to work out again.
//!
//! reqwest keeps to itself whether a body can be cloned, so where its requests go through a tower service (the
//! middleware) the two kinds are told apart once, when a call begins. On the way back, a response of reqwest's has more
//! in it than the `http` type that a refusal is read from, so it stays whole as long as nobody reads its body.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use holdoff_tower::ReplayBody;
use http_body::{Body as HttpBody, Frame, SizeHint};
use url::Url;

/// What is sent.
#[derive(Debug)]
pub enum Payload {
    /// In memory: each copy shares the bytes.
    Bytes(Bytes),
    /// A stream: sent once (CLI-13).
    Stream(reqwest::Body),
}

impl From<reqwest::Body> for Payload {
    fn from(body: reqwest::Body) -> Self {
        match body.as_bytes() {
            // One copy a call: reqwest shows its bytes, but does not share them.
            Some(bytes) => Self::Bytes(Bytes::copy_from_slice(bytes)),
            None => Self::Stream(body),
        }
    }
}

impl From<Payload> for reqwest::Body {
    fn from(payload: Payload) -> Self {
        match payload {
            Payload::Bytes(bytes) => Self::from(bytes),
            Payload::Stream(stream) => stream,
        }
    }
}

impl ReplayBody for Payload {
    fn replay(&self) -> Option<Self> {
        match self {
            Self::Bytes(bytes) => Some(Self::Bytes(bytes.clone())),
            Self::Stream(_) => None,
        }
    }
}

/// The body of a response: reqwest's whole response as long as nobody reads from it, so that it can be handed on as
/// it came.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Its head is elsewhere.
    Whole(reqwest::Response),
    /// Somebody has begun to read.
    Opened(reqwest::Body, Url),
}

impl Answer {
    /// Where the answer came from.
    pub(crate) fn url(&self) -> &Url {
        match self {
            Self::Whole(response) => response.url(),
            Self::Opened(_, url) => url,
        }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        if let Self::Whole(response) = &*self {
            let opened = Self::Opened(reqwest::Body::default(), response.url().clone());
            if let Self::Whole(response) = std::mem::replace(&mut *self, opened)
                && let Self::Opened(body, _) = &mut *self
            {
                *body = http::Response::from(response).into_body();
            }
        }
        match &mut *self {
            Self::Opened(body, _) => Pin::new(body).poll_frame(cx),
            Self::Whole(_) => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(response) => response
                .content_length()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Opened(body, _) => body.size_hint(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(response) => response.content_length() == Some(0),
            Self::Opened(body, _) => body.is_end_stream(),
        }
    }
}
