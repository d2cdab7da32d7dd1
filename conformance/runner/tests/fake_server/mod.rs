//! A small server that speaks the contract, written by hand for the suite's own tests, so that the suite is not tested
//! against the server that it is to judge. It can be made to break one rule at a time.
//!
//! Its adapter side listens on a TCP port; `adapter_command` joins that port to a process's stdin and stdout.

#![expect(clippy::unwrap_used, reason = "test support: a panic is a failed test")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The rule that a fake server breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    HttpDate,
    Status500,
    NoNoStore,
    BodyDisagrees,
    MaxBelowAfter,
    OneWindow,
    LongSignal,
    TwoRetryAfters,
    CodeOnValidation,
    StartsRejected,
    NeverRejects,
    Hangs,
    Garbage,
    CutsShort,
    EndlessBody,
    MiscountsRejects,
    Trailer,
    WaitsForBody,
    BodyOnHead,
    /// The caller's bucket of refusals is empty at the first request and fills again after [`EMPTY_FOR`].
    EmptyBucket,
    /// The same, and what is said meanwhile is no whole reject.
    EmptyBucketNoNoStore,
    /// It never fills.
    ThrottlesForever,
    /// It knows no contract: a plain 503 with a page for people, as a proxy in its own right sends it.
    KnowsNoContract,
    /// An odd tier is refused as if the caller were throttled; everything else is served.
    ThrottlesOddTiers,
}

/// How long [`Fault::EmptyBucket`] throttles.
const EMPTY_FOR: Duration = Duration::from_millis(700);

#[derive(Debug)]
struct Forced {
    code: String,
    after: u64,
    max: u64,
}

#[derive(Debug)]
struct State {
    fault: Fault,
    first: Option<std::time::Instant>,
    bound: usize,
    in_flight: usize,
    forced: VecDeque<Forced>,
    degraded: bool,
    accepts: u64,
    rejects: u64,
    starts: u64,
    place: u64,
}

type Shared = Arc<Mutex<State>>;

/// A running fake server.
pub(crate) struct FakeServer {
    pub(crate) url: String,
    control: String,
}

/// Starts a fake server with one fault. It ends with the runtime of the test.
pub(crate) async fn start(fault: Fault) -> FakeServer {
    let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let control = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fake = FakeServer {
        url: format!("http://{}", http.local_addr().unwrap()),
        control: control.local_addr().unwrap().port().to_string(),
    };
    let state = Arc::new(Mutex::new(State {
        fault,
        first: None,
        bound: 5,
        in_flight: 0,
        forced: VecDeque::new(),
        degraded: false,
        accepts: 0,
        rejects: 0,
        starts: 0,
        place: 0,
    }));
    let workers = Arc::new(Semaphore::new(1));
    let for_control = (Arc::clone(&state), fake.url.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = control.accept().await {
            tokio::spawn(talk(stream, Arc::clone(&for_control.0), for_control.1.clone()));
        }
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = http.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&state), Arc::clone(&workers)));
        }
    });
    fake
}

impl FakeServer {
    /// A command that speaks this server's adapter side.
    pub(crate) fn adapter_command(&self) -> String {
        let port = &self.control;
        format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3 & cat >&3; exec 3>&-; kill $!'")
    }
}

async fn talk(stream: TcpStream, state: Shared, url: String) {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let command: Value = serde_json::from_str(&line).unwrap();
        let mut reply = match command["cmd"].as_str().unwrap() {
            "hello" => json!({
                "protocol": 1, "role": "server", "implementation": {"name": "fake", "version": "0"},
                "contract_versions": [1], "capabilities": ["force_reject", "degraded"],
            }),
            "start" => json!({"url": url, "metrics_url": format!("{url}/metrics")}),
            "fixture" => fixture(&command, &state),
            _ => json!({"ok": true}),
        };
        reply["id"] = command["id"].clone();
        if write.write_all(format!("{reply}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

fn fixture(command: &Value, state: &Shared) -> Value {
    let mut state = state.lock().unwrap();
    match command["name"].as_str().unwrap() {
        "force_reject" => {
            for _ in 0..command["count"].as_u64().unwrap() {
                state.forced.push_back(Forced {
                    code: command["code"].as_str().unwrap().to_owned(),
                    after: command["after_ms"].as_u64().unwrap(),
                    max: command["max_ms"].as_u64().unwrap(),
                });
            }
        }
        "degraded" => state.degraded = command["on"].as_bool().unwrap(),
        _ => return json!({"error": "unknown_fixture"}),
    }
    json!({"ok": true})
}

struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body_so_far: Vec<u8>,
    length: usize,
}

async fn read_head(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut chunk = [0_u8; 4096];
    loop {
        let mut lines = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut lines);
        if let Ok(httparse::Status::Complete(used)) = request.parse(&bytes) {
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            let lines = request.headers.iter();
            let headers: Vec<_> = lines
                .map(|line| (line.name.to_lowercase(), text(line.value)))
                .collect();
            let length = headers.iter().find(|(name, _)| name == "content-length");
            return Some(Request {
                method: request.method?.to_owned(),
                path: request.path?.to_owned(),
                length: length.map_or(0, |(_, value)| value.parse().unwrap()),
                headers,
                body_so_far: bytes[used..].to_vec(),
            });
        }
        match stream.read(&mut chunk).await {
            Ok(n @ 1..) => bytes.extend_from_slice(&chunk[..n]),
            _ => return None,
        }
    }
}

async fn serve(mut stream: TcpStream, state: Shared, workers: Arc<Semaphore>) {
    let Some(mut request) = read_head(&mut stream).await else {
        return;
    };
    let fault = state.lock().unwrap().fault;
    let task_route = request.path == "/v1/work";
    match fault {
        Fault::Hangs if task_route => return std::future::pending().await,
        Fault::Garbage if task_route => return send(&mut stream, b"SMTP ready\r\n\r\n").await,
        Fault::CutsShort if task_route => {
            return send(&mut stream, b"HTTP/1.1 503 X\r\nContent-Length: 99\r\n\r\n{").await;
        }
        Fault::EndlessBody if task_route => {
            send(&mut stream, b"HTTP/1.1 503 X\r\n\r\n").await;
            while stream.write_all(&[b'x'; 65536]).await.is_ok() {}
            return;
        }
        _ => {}
    }
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/healthz") => return send(&mut stream, plain(200, "ok").as_bytes()).await,
        ("GET", "/metrics") => {
            let page = metrics(&state.lock().unwrap());
            return send(&mut stream, plain(200, &page).as_bytes()).await;
        }
        (_, "/v1/work") => {}
        _ => return send(&mut stream, plain(404, "{}").as_bytes()).await,
    }
    if throttles(&request, &mut state.lock().unwrap()) {
        let line = Forced {
            code: "retry_throttled".to_owned(),
            after: 100,
            max: 200,
        };
        let answer = reject(&mut state.lock().unwrap(), &line, &request.method);
        return send_and_drain(&mut stream, &answer).await;
    }
    let forced = state.lock().unwrap().forced.pop_front();
    if let Some(forced) = forced {
        if fault == Fault::WaitsForBody {
            read_body(&mut stream, &mut request).await;
        }
        let answer = reject(&mut state.lock().unwrap(), &forced, &request.method);
        return send_and_drain(&mut stream, &answer).await;
    }
    read_body(&mut stream, &mut request).await;
    let answer = work(&request, &state, &workers).await;
    send_and_drain(&mut stream, &answer).await;
}

/// Whether the edge refuses, before anything else is looked at.
fn throttles(request: &Request, state: &mut State) -> bool {
    let known = ["critical", "non-sheddable", "deferrable"];
    let odd = |(name, value): &(String, String)| name == "overload-tier" && !known.contains(&value.as_str());
    match state.fault {
        Fault::EmptyBucket | Fault::EmptyBucketNoNoStore => {
            let first = *state.first.get_or_insert_with(holdoff_conformance::clock::now);
            holdoff_conformance::clock::now().saturating_duration_since(first) < EMPTY_FOR
        }
        Fault::ThrottlesForever => true,
        Fault::ThrottlesOddTiers => request.headers.iter().any(odd),
        _ => false,
    }
}

async fn read_body(stream: &mut TcpStream, request: &mut Request) {
    let mut chunk = [0_u8; 4096];
    while request.body_so_far.len() < request.length {
        match stream.read(&mut chunk).await {
            Ok(n @ 1..) => request.body_so_far.extend_from_slice(&chunk[..n]),
            _ => return,
        }
    }
}

async fn work(request: &Request, state: &Shared, workers: &Semaphore) -> Vec<u8> {
    let task: Value = serde_json::from_slice(&request.body_so_far).unwrap_or_default();
    if !task["class"].is_string() || !task["payload"].is_string() {
        let signal = "Overload-Signal: v=1, code=queue_full, retry=no, applied=no\r\n";
        let code = state.lock().unwrap().fault == Fault::CodeOnValidation;
        return plain(422, "{}")
            .replacen("\r\n", &format!("\r\n{}", if code { signal } else { "" }), 1)
            .into();
    }
    let deadlines: Vec<&String> = request
        .headers
        .iter()
        .filter(|(name, _)| name == "overload-deadline-ms")
        .map(|(_, value)| value)
        .collect();
    {
        let mut state = state.lock().unwrap();
        let expired = matches!(deadlines.as_slice(), [only] if only.split(';').next() == Some("0"));
        let full = state.in_flight >= state.bound && state.fault != Fault::NeverRejects;
        if expired || full {
            state.place += 1;
            let after = if state.fault == Fault::OneWindow {
                1000
            } else {
                1000 + 40 * (state.place % 500)
            };
            let code = if expired { "deadline_expired" } else { "queue_full" };
            let line = Forced {
                code: code.to_owned(),
                after,
                max: after + after / 5,
            };
            if state.fault == Fault::StartsRejected {
                state.starts += 1;
            }
            return reject(&mut state, &line, &request.method);
        }
        state.in_flight += 1;
        state.accepts += 1;
    }
    let permit = workers.acquire().await.unwrap();
    state.lock().unwrap().starts += 1;
    tokio::time::sleep(Duration::from_millis(task["duration_ms"].as_u64().unwrap_or(0))).await;
    drop(permit);
    let mut state = state.lock().unwrap();
    state.in_flight -= 1;
    let cut = if state.degraded {
        "\r\nOverload-Signal: v=1, degraded\r\n"
    } else {
        "\r\n"
    };
    plain(200, "{}").replacen("\r\n", cut, 1).into()
}

fn reject(state: &mut State, line: &Forced, method: &str) -> Vec<u8> {
    let fault = state.fault;
    state.rejects += u64::from(fault != Fault::MiscountsRejects);
    if fault == Fault::KnowsNoContract {
        return plain(503, "<h1>503 Service Temporarily Unavailable</h1>").into();
    }
    let Forced { code, after, .. } = line;
    let max = if fault == Fault::MaxBelowAfter {
        after - 1
    } else {
        line.max
    };
    let retry = match code.as_str() {
        "draining" => "elsewhere",
        "deadline_unattainable" | "deadline_expired" => "no",
        _ => "after",
    };
    let own = matches!(code.as_str(), "tenant_limit" | "rate_limited" | "retry_throttled");
    let status = match (fault, own) {
        (Fault::Status500, _) => 500,
        (_, true) => 429,
        (_, false) => 503,
    };
    let mut signal = format!("v=1, code={code}, retry={retry}, applied=no, after={after}, max={max}");
    if fault == Fault::LongSignal {
        signal.push_str(&format!(", grease-{}=1", "g".repeat(600)));
    }
    let said = if fault == Fault::BodyDisagrees {
        after + 1
    } else {
        *after
    };
    let body = json!({
        "type": format!("urn:overload:v1:{code}"), "title": "Overloaded", "status": status, "contract_version": 1,
        "code": code, "retry": retry, "applied": "no", "retry_after_ms": said, "retry_after_max_ms": max,
    })
    .to_string();
    let seconds = after.div_ceil(1000);
    let retry_after = match fault {
        Fault::HttpDate => "Retry-After: Mon, 30 Nov 2026 18:00:00 GMT\r\n".to_owned(),
        Fault::TwoRetryAfters => format!("Retry-After: {seconds}\r\nRetry-After: {seconds}\r\n"),
        _ => format!("Retry-After: {seconds}\r\n"),
    };
    let cache = if matches!(fault, Fault::NoNoStore | Fault::EmptyBucketNoNoStore) {
        ""
    } else {
        "Cache-Control: no-store\r\n"
    };
    let head = format!(
        "HTTP/1.1 {status} Overloaded\r\nContent-Type: application/problem+json\r\n{cache}{retry_after}\
         retry-after-ms: {after}\r\nOverload-Signal: {signal}\r\nConnection: close\r\n"
    );
    let length = body.len();
    let text = match (method, fault) {
        ("HEAD", fault) if fault != Fault::BodyOnHead => format!("{head}Content-Length: {length}\r\n\r\n"),
        (_, Fault::Trailer) => format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\nOverload-Signal: {signal}\r\n\r\n"
        ),
        _ => format!("{head}Content-Length: {length}\r\n\r\n{body}"),
    };
    text.into_bytes()
}

fn metrics(state: &State) -> String {
    let State {
        accepts,
        rejects,
        starts,
        in_flight,
        ..
    } = state;
    format!(
        "agent_admission_total{{decision=\"accept\",task_class=\"other\",tenant_tier=\"deferrable\"}} {accepts}\n\
         agent_admission_total{{decision=\"reject_queue_full\",task_class=\"other\",tenant_tier=\"deferrable\"}} {rejects}\n\
         agent_task_start_delay_seconds_count {starts}\nagent_service_seconds_count{{task_class=\"other\"}} {starts}\n\
         agent_queue_estimated_work_seconds {in_flight}\n"
    )
}

fn plain(status: u16, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status} Plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

async fn send(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes).await;
}

/// Answers, then reads a bounded part of what the client still sends, so that it can read the answer.
async fn send_and_drain(stream: &mut TcpStream, bytes: &[u8]) {
    send(stream, bytes).await;
    let _ = stream.shutdown().await;
    let mut sink = [0_u8; 65536];
    let drain = async { while matches!(stream.read(&mut sink).await, Ok(1..)) {} };
    let _ = tokio::time::timeout(Duration::from_millis(100), drain).await;
}
