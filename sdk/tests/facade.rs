//! The facade has what a program needs, and it works together over a real socket.
#![cfg(all(feature = "reqwest", feature = "tower"))]
#![allow(clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use holdoff::{Applied, Client, Code, Error, Hint, Policy, Retry, StopReason, Tier};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers each connection's requests with these, one after the other, and then closes.
async fn server(answers: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let Ok((mut stream, _)) = listener.accept().await else {
            return;
        };
        let mut request = [0; 4096];
        for answer in answers {
            // A request of this test is one small packet.
            if !matches!(stream.read(&mut request).await, Ok(1..))
                || stream.write_all(answer.as_bytes()).await.is_err()
            {
                return;
            }
        }
    });
    format!("http://{address}/work")
}

const REFUSED: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\
    overload-signal: v=1, code=queue_full, retry=after, applied=no, after=100, max=200\r\n\r\n";
const SERVED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone";

#[tokio::test]
async fn real_time_a_program_written_for_reqwest_gets_its_answer_after_a_refusal() {
    async fn fetch(client: &Client, url: &str) -> Result<String, Box<dyn std::error::Error>> {
        let response = client.get(url).send().await?;
        Ok(response.error_for_status()?.text().await?)
    }
    let url = server(&[REFUSED, SERVED]).await;
    assert_eq!(fetch(&Client::new(), &url).await.unwrap(), "done");
}

#[tokio::test]
async fn real_time_a_refusal_is_told_with_all_that_the_server_said() {
    let url = server(&[REFUSED]).await;
    let policy = Policy::builder()
        .max_attempts_scheduled(1)
        .max_attempts(1)
        .build()
        .unwrap();
    let client = Client::builder()
        .policy(policy)
        .default_tier(Tier::Critical)
        .build()
        .unwrap();
    let error: Error = client
        .get(url)
        .deadline(Duration::from_secs(5))
        .send()
        .await
        .unwrap_err();
    assert_eq!(error.why(), Some(StopReason::AttemptsExhausted));
    let overload = error.overload().unwrap();
    assert_eq!(
        (overload.code.as_ref(), overload.retry, overload.applied),
        (Some(&Code::QueueFull), Retry::After, Applied::No)
    );
    assert!(matches!(overload.hint, Hint::Window { delay, .. } if delay == Duration::from_millis(100)));
}
