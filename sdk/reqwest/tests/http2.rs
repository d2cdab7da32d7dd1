//! What an HTTP/2 server says by its protocol about a request that it did not answer.
#![cfg(feature = "http2")]
#![allow(clippy::unwrap_used, reason = "test code")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdoff_policy::StopReason;
use holdoff_reqwest::{Client, reqwest};
use tokio::net::TcpListener;

/// Resets the first request with this reason, and answers 200 to later ones; counts them.
async fn resetting(reason: h2::Reason) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    tokio::spawn({
        let requests = Arc::clone(&requests);
        async move {
            while let Ok((stream, _)) = listener.accept().await {
                let requests = Arc::clone(&requests);
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((_, mut respond))) = connection.accept().await {
                        if requests.fetch_add(1, Ordering::Relaxed) == 0 {
                            respond.send_reset(reason);
                        } else {
                            respond.send_response(http::Response::new(()), true).unwrap();
                        }
                    }
                });
            }
        }
    });
    (address, requests)
}

fn client() -> Client {
    Client::builder()
        .http(reqwest::Client::builder().http2_prior_knowledge())
        .build()
        .unwrap()
}

#[tokio::test]
async fn real_time_a_stream_refused_unseen_is_sent_again_even_for_a_post() {
    let (address, requests) = resetting(h2::Reason::REFUSED_STREAM).await;
    let response = client()
        .post(format!("http://{address}/"))
        .body("x")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (response.status().as_u16(), requests.load(Ordering::Relaxed)),
        (200, 2)
    );
}

#[tokio::test]
async fn real_time_a_stream_reset_for_any_other_reason_may_have_been_applied() {
    let (address, requests) = resetting(h2::Reason::INTERNAL_ERROR).await;
    let error = client()
        .post(format!("http://{address}/"))
        .body("x")
        .send()
        .await
        .unwrap_err();
    assert_eq!(
        (error.why(), requests.load(Ordering::Relaxed)),
        (Some(StopReason::Transport), 1)
    );
}
