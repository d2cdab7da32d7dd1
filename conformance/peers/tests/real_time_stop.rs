//! The end of a client under test: `stop`, or the end of its stdin, cancels what waits and answers it (FC-DLN-05).

#![expect(clippy::unwrap_used, reason = "a test: what cannot be read fails it")]

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// For steps that must not hang: far beyond any of them.
const LONG: Duration = Duration::from_secs(20);

/// A server that refuses every request for 30 s and counts them; its URL.
async fn refusing() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/work", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut head = [0; 4096];
                while stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                    let refusal =
                        b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n";
                    stream.write_all(refusal).await.unwrap();
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    (url, requests)
}

fn start(program: &str) -> Child {
    Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Has three calls wait, ends the program as `last` says, and gives what it answered from then on.
async fn replies_after(program: &str, last: Option<Value>) -> Vec<Value> {
    let (url, requests) = refusing().await;
    let mut child = start(program);
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut say = json!({"id": "c", "cmd": "configure", "client": "c1"}).to_string();
    for id in 0..3 {
        let request = json!({"method": "GET", "url": url});
        say = format!(
            "{say}\n{}",
            json!({"id": id, "cmd": "call", "client": "c1", "request": request})
        );
    }
    stdin.write_all(format!("{say}\n").as_bytes()).await.unwrap();
    let configured = timeout(LONG, stdout.next_line()).await.unwrap().unwrap().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&configured).unwrap(),
        json!({"id": "c", "ok": true})
    );
    // All were refused; the answers are on their way or read, and either way each call must be answered.
    timeout(LONG, async {
        while requests.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    if let Some(last) = last {
        stdin.write_all(format!("{last}\n").as_bytes()).await.unwrap();
    }
    drop(stdin);
    let mut replies = Vec::new();
    while let Some(line) = timeout(LONG, stdout.next_line()).await.unwrap().unwrap() {
        replies.push(serde_json::from_str(&line).unwrap());
    }
    assert!(timeout(LONG, child.wait()).await.unwrap().unwrap().success());
    assert_eq!(requests.load(Ordering::SeqCst), 3, "nothing more is sent");
    replies
}

#[tokio::test]
async fn real_time_calls_that_wait_when_the_program_ends_are_cancelled_and_answered() {
    for program in [
        env!("CARGO_BIN_EXE_client-reqwest"),
        env!("CARGO_BIN_EXE_client-tower"),
    ] {
        let stop = json!({"id": "s", "cmd": "stop"});
        for last in [Some(stop.clone()), None] {
            let said_stop = last.is_some();
            let mut replies = replies_after(program, last).await;
            if said_stop {
                assert_eq!(replies.pop().unwrap(), json!({"id": "s", "ok": true}), "the last");
            }
            let mut ids: Vec<i64> = Vec::new();
            for reply in &replies {
                let result = &reply["result"];
                assert_eq!(
                    (&result["kind"], &result["why"]),
                    (&json!("error"), &json!("cancelled")),
                    "{reply}"
                );
                assert_eq!(result["attempts"], json!(1), "{reply}");
                ids.push(reply["id"].as_i64().unwrap());
            }
            ids.sort_unstable();
            assert_eq!(ids, [0, 1, 2], "{program}");
        }
    }
}
