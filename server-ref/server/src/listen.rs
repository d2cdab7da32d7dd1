//! Accepting connections within limits, and letting go of them.
//!
//! A client that sends its head byte by byte, or opens connections without end, must not take the server away from
//! the others: heads have a time limit and connections a number.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use holdoff_admission_tower::PeerAddress;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::clock;

/// Longest time for a request's head to arrive; an idle connection is closed after it too.
const HEAD_TIME: Duration = Duration::from_secs(60);
/// Most bytes buffered of a connection, and so the largest head: ten times what a caller of this contract sends.
const BUFFER_BYTES: usize = 32 * 1024;
/// Pause after a failed accept (out of file descriptors, say), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Longest time that open connections get to send what they are sending once the server stops.
pub(crate) const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Serves until `stop`, then closes: idle connections at once, busy ones within [`CLOSE_TIME`].
pub(crate) async fn serve(listener: TcpListener, router: Router, most: usize, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(most));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            _ = connections.join_next(), if !connections.is_empty() => continue,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                let (router, stop) = (router.clone(), stop.clone());
                connections.spawn(async move {
                    connection(stream, router, stop).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                clock::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let closed = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(CLOSE_TIME, closed).await.is_err() {
        tracing::warn!(open = connections.len(), "connections cut off");
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places)
        .acquire_owned()
        .await
        .map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // Small answers must not wait for Nagle; a socket that refuses this still works.
    let _ = stream.set_nodelay(true);
    Ok((stream, place))
}

async fn connection(stream: TcpStream, router: Router, stop: CancellationToken) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(BUFFER_BYTES);
    let address = stream.peer_addr().ok().map(|addr| PeerAddress(addr.ip()));
    // A router is always ready: it is the routes' business to refuse.
    let service = hyper::service::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        if let Some(address) = address {
            request.extensions_mut().insert(address);
        }
        router.clone().call(request)
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client that went away: everyday, and its place is given back already.
        tracing::trace!(%error, "connection ended");
    }
}
