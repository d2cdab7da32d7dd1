//! What to do with a request body that nobody will read.
//!
//! A client that is still sending when it is refused must be able to read the refusal: closing at once resets the
//! connection and loses the answer. Reading everything would let a refused client keep the server busy. So a bounded
//! part is read and thrown away, beside the answer, and then the body is dropped, which closes the connection
//! (CONTRACT section 2, SEC-05).

use std::time::Duration;

use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;

/// Most bytes read of a refused request's body: 64 KiB (CONTRACT section 2).
pub const DRAIN_BYTES: usize = 64 * 1024;
/// Longest time spent on it: 100 ms (CONTRACT section 2).
pub const DRAIN_TIME: Duration = Duration::from_millis(100);

/// Reads at most [`DRAIN_BYTES`] of `body` for at most [`DRAIN_TIME`], in a task of its own, and drops it. Nothing is
/// kept. A body that has ended, or whose sender waits for `100 Continue` (reading would invite it), is dropped at once.
pub fn drain<B>(headers: &HeaderMap, body: B)
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    if body.is_end_stream() || headers.contains_key(http::header::EXPECT) {
        return;
    }
    tokio::spawn(async move {
        // Running out of time is the expected end for a slow sender.
        let _ = tokio::time::timeout(DRAIN_TIME, read_away(body)).await;
    });
}

async fn read_away<B: Body>(body: B) {
    let mut body = std::pin::pin!(body);
    let mut left = DRAIN_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let read = frame.data_ref().map_or(0, bytes::Buf::remaining);
        match left.checked_sub(read) {
            Some(rest) if rest > 0 => left = rest,
            _ => return,
        }
    }
}
