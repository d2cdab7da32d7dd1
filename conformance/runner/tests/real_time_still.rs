//! A runner that is stopped in the middle of a measurement judges nobody by it, and a server that is slow by itself is caught all
//! the same. The runner is stopped for real, with SIGSTOP, by the server that it is judging.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// One request; its answer is to come within 100 ms, and the slack of an idle machine.
const CASE: &str = r"
schema: overload-cases/1
cases:
  - id: mine-quick
    title: An answer comes within 100 ms.
    requirements: [SEC-05]
    server:
      plain: true
      steps:
        - load: [{label: one, method: GET, path: /measured}]
      checks:
        - time: {of: one, max_ms: 100}
";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
/// How long the runner is stopped, or the server thinks: more than any slack that is measured on a machine which runs at all.
const LONG: Duration = Duration::from_millis(2500);

/// What goes wrong with the n-th request, from 1.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    /// The runner is stopped, and answered at once.
    Stops,
    /// The server thinks.
    Thinks,
    Nothing,
}

struct Judged {
    code: Option<i32>,
    case: Value,
    requests: u32,
}

/// Judges a server with which goes wrong what `wrong` says of each request.
async fn judged(wrong: fn(u32) -> Wrong) -> Judged {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("case.yaml"), CASE).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, report) = (
        format!("http://{}", listener.local_addr().unwrap()),
        dir.path().join("report.json"),
    );
    let mut runner = Command::new(env!("CARGO_BIN_EXE_holdoff-conformance"))
        .args(["server", "--url", &url, "--seed", "1", "--report"])
        .arg(&report)
        .arg("--cases")
        .arg(dir.path())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pid = runner.id().unwrap();
    let requests = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&requests);
    let server = async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, pid, Arc::clone(&seen), wrong));
        }
    };
    let code = tokio::select! {
        () = server => None,
        ended = runner.wait() => ended.unwrap().code(),
    };
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    Judged {
        code,
        case: report["cases"][0].clone(),
        requests: requests.load(Ordering::Relaxed),
    }
}

async fn serve(mut stream: TcpStream, pid: u32, requests: Arc<AtomicU32>, wrong: fn(u32) -> Wrong) {
    // Somebody who only looks whether we listen says nothing, and who looks whether we answer asks for something else.
    let mut head = [0; 4096];
    let read = stream.read(&mut head).await.unwrap_or(0);
    if read == 0 {
        return;
    }
    if !head[..read].starts_with(b"GET /measured ") {
        stream.write_all(ANSWER).await.unwrap();
        return;
    }
    let wrong = wrong(requests.fetch_add(1, Ordering::Relaxed) + 1);
    if wrong == Wrong::Thinks {
        tokio::time::sleep(LONG).await;
    }
    if wrong == Wrong::Stops {
        signal(pid, "-STOP").await;
        // The signal is only on its way yet: a thread that happens to run goes on until another has taken it.
        while !is_stopped(pid) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    stream.write_all(ANSWER).await.unwrap();
    if wrong == Wrong::Stops {
        tokio::time::sleep(LONG).await;
        signal(pid, "-CONT").await;
    }
}

/// Whether the process has come to a stop: the state behind its name, as the system tells it.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
}

async fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status().await;
    assert!(sent.unwrap().success(), "kill {name} {pid}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_was_stopped_in_a_measurement_plays_the_case_again() {
    let judged = judged(|n| if n == 1 { Wrong::Stops } else { Wrong::Nothing }).await;
    assert_eq!(judged.case["verdict"], "pass", "{:#}", judged.case);
    assert_eq!((judged.code, judged.requests), (Some(0), 2), "{:#}", judged.case);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_is_stopped_in_every_play_says_so_and_passes_nobody() {
    let judged = judged(|_| Wrong::Stops).await;
    assert_eq!(judged.case["verdict"], "untestable", "{:#}", judged.case);
    let reason = judged.case["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("missing: a machine that keeps time") && reason.contains("time of one"),
        "{reason}"
    );
    // Nothing was verified, which is no pass either.
    assert_eq!((judged.code, judged.requests), (Some(3), 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_slow_by_itself_fails_and_at_once() {
    let judged = judged(|_| Wrong::Thinks).await;
    assert_eq!(judged.case["verdict"], "fail", "{:#}", judged.case);
    assert_eq!((judged.code, judged.requests), (Some(1), 1));
}
