//! What `?` makes of an answer that came and cannot be used (feature `reqwest`).
#![cfg(feature = "reqwest")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use axum::response::IntoResponse;
use holdoff_axum::Problem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers one request with these bytes, and then hangs up or does not.
async fn server(answer: &'static str, hangs_up: bool) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert!(socket.read(&mut request).await.unwrap() > 0);
        socket.write_all(answer.as_bytes()).await.unwrap();
        if !hangs_up {
            std::future::pending::<()>().await;
        }
    });
    url
}

/// As a handler reads it.
async fn read(url: String) -> Result<String, Problem> {
    let client = reqwest::Client::builder().no_proxy();
    let answer = client
        .timeout(Duration::from_millis(300))
        .build()?
        .get(url)
        .send()
        .await?;
    Ok(answer.error_for_status()?.text().await?)
}

#[tokio::test]
async fn a_broken_answer_is_502_and_not_overload() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
    ] {
        let problem = read(server(answer, true).await).await.unwrap_err();
        assert_eq!(problem.overload(), None, "{answer}");
        assert!(!problem.to_string().contains("127.0.0.1"), "{problem}");
        let response = problem.into_response();
        assert_eq!(response.status(), 502, "{answer}");
        assert!(!response.headers().contains_key("overload-signal"), "{answer}");
    }
}

#[tokio::test]
async fn an_answer_whose_body_does_not_come_in_time_is_504_and_must_not_be_repeated() {
    let url = server("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", false).await;
    let response = read(url).await.unwrap_err().into_response();
    assert_eq!(response.status(), 504);
    let signal = response.headers()["overload-signal"].to_str().unwrap();
    assert!(
        signal.contains("code=dependency_timeout, retry=no, applied=maybe"),
        "{signal}"
    );
}
