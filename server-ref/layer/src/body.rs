//! A response body that holds the permit until it has been sent: a worker that streams is a worker in use.
//!
//! So a client that reads slowly holds a worker; the limit on that is the server's own, on writing to a connection.
//! A body that is whole in memory has ended for this purpose as soon as it is handed over.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::Permit;

pin_project! {
    /// The body of an [`crate::AdmissionService`]: the inner service's, with the permit that pays for it, or a refusal.
    #[derive(Debug)]
    pub struct GuardBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = KindProj]
    enum Kind<B> {
        Served { #[pin] body: B, permit: Option<Permit>, failed: bool },
        Refused { body: Option<Bytes> },
    }
}

impl<B: Body> GuardBody<B> {
    /// Holds `permit` until `body` ends, fails or is dropped. `failed` says that the handler failed already.
    pub(crate) fn served(body: B, permit: Permit, failed: bool) -> Self {
        let mut permit = Some(permit);
        if body.is_end_stream() {
            end(&mut permit, failed);
        }
        Self {
            kind: Kind::Served { body, permit, failed },
        }
    }

    /// A body whose permit has ended already.
    pub(crate) fn bare(body: B) -> Self {
        Self {
            kind: Kind::Served {
                body,
                permit: None,
                failed: false,
            },
        }
    }

    pub(crate) fn refused(body: Bytes) -> Self {
        Self {
            kind: Kind::Refused {
                body: Some(body).filter(|body| !body.is_empty()),
            },
        }
    }
}

fn end(permit: &mut Option<Permit>, failed: bool) {
    if let Some(permit) = permit.take() {
        if failed {
            permit.failed();
        } else {
            permit.completed();
        }
    }
}

impl<B: Body<Data = Bytes>> Body for GuardBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Served {
                mut body,
                permit,
                failed,
            } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                match &frame {
                    // The last frame may be known to be the last: nobody is obliged to ask again.
                    Some(Ok(_)) if !body.is_end_stream() => {}
                    Some(Err(_)) => end(permit, true),
                    Some(Ok(_)) | None => end(permit, *failed),
                }
                Poll::Ready(frame)
            }
            KindProj::Refused { body } => Poll::Ready(body.take().map(|data| Ok(Frame::data(data)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Served { body, .. } => body.is_end_stream(),
            Kind::Refused { body } => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Served { body, .. } => body.size_hint(),
            Kind::Refused { body } => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
        }
    }
}
