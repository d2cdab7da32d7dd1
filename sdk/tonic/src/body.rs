//! Request bodies that can be sent again, and answers that are safe to read.
//!
//! A tonic body is a stream of which nobody knows whether it can be made again. A unary call's is there at once and
//! over at once; so what is there at once is kept, and where that is all of it, within a limit, it can be replayed.
//! Anything else, a client stream that waits for its next message above all, is sent once (CLI-13).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use holdoff_tower::ReplayBody;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

use crate::details;

/// Frames that are looked at before a body counts as a stream. A unary call has one.
const MAX_FRAMES: usize = 64;

/// A request body under the loop.
#[derive(Debug)]
pub(crate) enum CallBody {
    /// All of it, replayed byte for byte.
    Whole(Option<Bytes>),
    /// The start of it that was there already, and the rest: sent once.
    Stream {
        start: VecDeque<Result<Frame<Bytes>, Status>>,
        rest: tonic::body::Body,
    },
}

impl CallBody {
    /// Keeps what is there at once. Never waits.
    pub(crate) async fn gather(mut body: tonic::body::Body, limit: usize) -> Self {
        let mut start = VecDeque::new();
        let mut bytes = 0_usize;
        while bytes <= limit && start.len() < MAX_FRAMES {
            let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await;
            match polled {
                Poll::Pending => return Self::Stream { start, rest: body },
                Poll::Ready(None) => return Self::all(start),
                Poll::Ready(Some(frame)) => {
                    let data = frame.as_ref().ok().and_then(Frame::data_ref).map(Bytes::len);
                    start.push_back(frame);
                    match data {
                        Some(length) => bytes = bytes.saturating_add(length),
                        // Trailers or a failure: nothing to be sent again.
                        None => return Self::Stream { start, rest: body },
                    }
                }
            }
        }
        Self::Stream { start, rest: body }
    }

    fn all(start: VecDeque<Result<Frame<Bytes>, Status>>) -> Self {
        let mut parts = start.into_iter().filter_map(|frame| frame.ok()?.into_data().ok());
        let first = parts.next().unwrap_or_default();
        let Some(second) = parts.next() else {
            return Self::Whole(Some(first).filter(|bytes| !bytes.is_empty()));
        };
        let mut whole = BytesMut::from(first);
        whole.extend_from_slice(&second);
        parts.for_each(|part| whole.extend_from_slice(&part));
        Self::Whole(Some(whole.freeze()).filter(|bytes| !bytes.is_empty()))
    }
}

impl ReplayBody for CallBody {
    fn replay(&self) -> Option<Self> {
        match self {
            Self::Whole(bytes) => Some(Self::Whole(bytes.clone())),
            Self::Stream { .. } => None,
        }
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream { start, rest } => match start.pop_front() {
                Some(frame) => Poll::Ready(Some(frame)),
                None => Pin::new(rest).poll_frame(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Stream { start, rest } => start.is_empty() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        // A tonic body does not say its length, and a gRPC request has no use for Content-Length.
        SizeHint::default()
    }
}

/// The body of an answer, with status details in its trailers only where they can be decoded.
#[derive(Debug)]
pub struct AnswerBody<B> {
    inner: B,
}

impl<B> AnswerBody<B> {
    pub(crate) fn new(inner: B) -> Self {
        Self { inner }
    }
}

impl<B: Body + Unpin> Body for AnswerBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.get_mut().inner).poll_frame(cx);
        polled.map_ok(|mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                details::scrub(trailers);
            }
            frame
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
