//! Work whose caller waits, under a key: done once, answered to everybody who asks with it.
//!
//! The first request under a key does the work. One that comes while it is under way waits for that answer, one that
//! comes later gets it again. What ended without an answer that stands (refused, overdue, its caller gone) frees the
//! key, and the next one does the work.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, watch};

use crate::app::App;
use crate::keys::Key;
use crate::tasks::Waiting;

/// Most requests that wait for the answer of another: 1024, a quarter of the connections.
const MAX_WAITING: usize = 1_024;
/// Largest answer that is kept: ours have some 150 bytes.
const MAX_ANSWER_BYTES: usize = 4_096;

/// An answer that stands.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    /// Keeps this response; gives it back to be sent.
    pub(crate) async fn keep(response: Response<Body>) -> (Option<Self>, Response<Body>) {
        let (parts, body) = response.into_parts();
        // Our own bodies are whole and in memory: reading one neither waits nor fails.
        let body = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let answer = (body.len() <= MAX_ANSWER_BYTES).then(|| Self {
            status: parts.status,
            headers: parts.headers.clone(),
            body: body.clone(),
        });
        (answer, Response::from_parts(parts, Body::from(body)))
    }

    pub(crate) fn to_response(&self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body.clone()));
        *response.status_mut() = self.status;
        response.headers_mut().clone_from(&self.headers);
        response
    }
}

/// The right to do the work of a key. Dropped without an answer, it frees the key.
pub(crate) struct Claim {
    app: App,
    key: Arc<Key>,
    tell: watch::Sender<Option<Arc<Answer>>>,
    taken: bool,
}

impl Claim {
    pub(crate) fn new(app: &App, key: &Arc<Key>) -> (Self, Waiting) {
        let (tell, waiting) = watch::channel(None);
        let claim = Self {
            app: App::clone(app),
            key: Arc::clone(key),
            tell,
            taken: true,
        };
        (claim, waiting)
    }

    /// Somebody else has the key: nothing to free.
    pub(crate) fn forgo(mut self) {
        self.taken = false;
    }

    /// This is the answer, from now on.
    pub(crate) fn answer(self, answer: Answer) {
        self.tell.send_replace(Some(Arc::new(answer)));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.taken {
            let stands = self.tell.borrow().is_some();
            self.app.tasks.settle(&self.key, stands);
        }
    }
}

/// What waiting for another request's answer came to.
pub(crate) enum Waited {
    Answer(Arc<Answer>),
    /// It ended without one: the key is free.
    Free,
    /// The caller's time is over.
    TooLong,
    /// Too many wait already.
    TooMany,
}

/// Bounds those who wait.
pub(crate) struct Waiters(Semaphore);

impl Waiters {
    pub(crate) fn new() -> Self {
        Self(Semaphore::new(MAX_WAITING))
    }

    /// Waits for the answer of the request that does the work.
    pub(crate) async fn wait(&self, mut first: Waiting, time: Duration) -> Waited {
        let Ok(_place) = self.0.try_acquire() else {
            return Waited::TooMany;
        };
        let answered = tokio::time::timeout(time, first.wait_for(Option::is_some)).await;
        match answered {
            Err(_) => Waited::TooLong,
            Ok(Err(_)) => Waited::Free,
            Ok(Ok(answer)) => answer.clone().map_or(Waited::Free, Waited::Answer),
        }
    }
}
