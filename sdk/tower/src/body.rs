//! Bodies that can be sent again, and bodies that were looked into.
//!
//! A stream that was sent once is empty the second time, and a retry with an empty body is a different request.
//! So a body says itself whether it can be sent again byte for byte ([`ReplayBody`]); what cannot is sent once
//! (CLI-13). On the way back, telling a marked 504 from a plain one may need the start of its body; the reader of a
//! plain one must still get all of it ([`ResponseBody`]).

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Empty, Full};
use pin_project_lite::pin_project;

/// A request body that knows whether it can be sent again.
pub trait ReplayBody: Sized {
    /// A body that sends the same bytes; `None` where that is not certain. Must answer the same each time it is
    /// asked before the body is sent.
    fn replay(&self) -> Option<Self>;

    /// Whether [`Self::replay`] has one to give; for bodies where that costs less than making it.
    fn can_replay(&self) -> bool {
        self.replay().is_some()
    }
}

impl ReplayBody for Full<Bytes> {
    fn replay(&self) -> Option<Self> {
        Some(self.clone())
    }
}

impl<D: bytes::Buf> ReplayBody for Empty<D> {
    fn replay(&self) -> Option<Self> {
        Some(Self::new())
    }
}

impl ReplayBody for String {
    fn replay(&self) -> Option<Self> {
        Some(self.clone())
    }
}

impl ReplayBody for () {
    fn replay(&self) -> Option<Self> {
        Some(())
    }
}

pin_project! {
    /// A body of any kind that is sent once: no retry after anything that may have read from it.
    #[derive(Clone, Debug)]
    pub struct Once<B> {
        #[pin]
        inner: B,
    }
}

impl<B> Once<B> {
    /// Wraps a stream.
    pub fn new(inner: B) -> Self {
        Self { inner }
    }

    /// The stream.
    pub fn into_inner(self) -> B {
        self.inner
    }
}

impl<B> ReplayBody for Once<B> {
    fn replay(&self) -> Option<Self> {
        None
    }
}

impl<B: Body> Body for Once<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.project().inner.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

pin_project! {
    /// The body of a response that is handed on: the transport's own, with what was read of it put back in front.
    #[derive(Debug)]
    pub struct ResponseBody<B: Body> {
        seen: Seen<B::Error>,
        #[pin]
        rest: B,
    }
}

/// What was read of a body before it was known to be no refusal.
#[derive(Debug)]
pub(crate) struct Seen<E> {
    pub(crate) bytes: Bytes,
    /// Trailers that were looked into.
    pub(crate) trailers: Option<Box<HeaderMap>>,
    /// The error that reading ended with.
    pub(crate) error: Option<E>,
}

impl<E> Default for Seen<E> {
    fn default() -> Self {
        Self {
            bytes: Bytes::new(),
            trailers: None,
            error: None,
        }
    }
}

impl<E> Seen<E> {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.trailers.is_none() && self.error.is_none()
    }
}

impl<B: Body> ResponseBody<B> {
    pub(crate) fn new(seen: Seen<B::Error>, rest: B) -> Self {
        Self { seen, rest }
    }

    /// The transport's own body, of which some may have been read.
    pub fn get_ref(&self) -> &B {
        &self.rest
    }

    /// The transport's own body, where nothing was read from it.
    ///
    /// # Errors
    /// The body unchanged, where some of it was read: it has to go on being read through this type.
    pub fn into_inner(self) -> Result<B, Self> {
        if self.seen.is_empty() {
            Ok(self.rest)
        } else {
            Err(self)
        }
    }
}

/// A body that nothing was read from.
impl<B: Body> From<B> for ResponseBody<B> {
    fn from(rest: B) -> Self {
        Self::new(Seen::default(), rest)
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if !this.seen.bytes.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.seen.bytes)))));
        }
        if let Some(trailers) = this.seen.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(*trailers))));
        }
        if let Some(error) = this.seen.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        this.rest.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.seen.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let seen = self.seen.bytes.len() as u64;
        let rest = self.rest.size_hint();
        let mut whole = SizeHint::new();
        whole.set_lower(rest.lower().saturating_add(seen));
        if let Some(upper) = rest.upper() {
            whole.set_upper(upper.saturating_add(seen));
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn a_body_in_memory_sends_the_same_bytes_again_and_a_stream_does_not() {
        let full = Full::new(Bytes::from_static(b"work"));
        assert_eq!(full.replay().unwrap().size_hint().exact(), Some(4));
        assert!(Once::new(full).replay().is_none());
        assert!(Empty::<Bytes>::new().replay().is_some());
    }

    #[tokio::test]
    async fn what_was_read_comes_first_and_then_the_rest() {
        let seen = Seen {
            bytes: Bytes::from_static(b"ab"),
            ..Seen::default()
        };
        let body = ResponseBody::new(seen, Full::new(Bytes::from_static(b"cd")));
        assert_eq!(body.size_hint().exact(), Some(4));
        let body = body.into_inner().expect_err("some of it was read");
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcd");
    }
}
