//! The smallest client that keeps the contract's main promise, as an adapter for `holdoff-conformance client`.
//!
//! It shows what an adapter in any language looks like, and the runner's own tests use it, both as it stands and
//! with one `--fault` at a time, to show that the cases can be passed and can be failed:
//!
//! ```text
//! holdoff-conformance client --adapter "target/debug/examples/tiny_client"
//! holdoff-conformance client --adapter "target/debug/examples/tiny_client --fault early"
//! ```
#![expect(
    clippy::disallowed_methods,
    reason = "a whole program in one file reads its own clocks"
)]
#![expect(
    clippy::expect_used,
    reason = "one thread; a panic while the lock is held ends the program"
)]
#![expect(clippy::print_stdout, reason = "replies go to stdout")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

const BODY_LIMIT: usize = 65_536;
const FLOOR: u64 = 50;

/// What a response says about coming back.
#[derive(Default)]
struct Hint {
    overload: bool,
    delay: Option<u64>,
    max: Option<u64>,
    seconds: bool,
    retry: &'static str,
    applied: &'static str,
    code: Option<String>,
    hop: u64,
}

struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    at: Instant,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let fault = Arc::new(
        std::env::args()
            .skip_while(|arg| arg != "--fault")
            .nth(1)
            .unwrap_or_default(),
    );
    let mut policies: HashMap<String, Value> = HashMap::new();
    let calls: Arc<Mutex<HashMap<String, oneshot::Sender<()>>>> = Arc::default();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(command) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let id = command["id"].clone();
        let reply = match command["cmd"].as_str().unwrap_or_default() {
            "hello" => json!({"id": id, "protocol": 1, "role": "client", "contract_versions": [1],
                "implementation": {"name": "tiny-client", "version": "0"},
                "capabilities": ["deadline", "compat", "cancel", "stream_body"]}),
            "configure" => {
                let client = command["client"].as_str().unwrap_or_default();
                policies.insert(client.to_owned(), command["policy"].clone());
                json!({"id": id, "ok": true})
            }
            "call" => {
                let policy = policies
                    .get(command["client"].as_str().unwrap_or_default())
                    .cloned()
                    .unwrap_or_default();
                let (stop, stopped) = oneshot::channel();
                calls
                    .lock()
                    .expect("no holder panics")
                    .insert(id.to_string(), stop);
                let fault = Arc::clone(&fault);
                tokio::spawn(async move {
                    let start = Instant::now();
                    let mut result = tokio::select! {
                        result = call(&command["request"], &command["incoming"], &policy, &fault) => result,
                        Ok(()) = stopped => json!({"kind": "error", "why": "cancelled", "attempts": 1}),
                    };
                    result["elapsed_ms"] = json!(start.elapsed().as_millis() as u64);
                    println!("{}", json!({"id": command["id"], "result": result}));
                });
                continue;
            }
            "cancel" => {
                if let Some(stop) = calls
                    .lock()
                    .expect("no holder panics")
                    .remove(&command["call"].to_string())
                {
                    let _ = stop.send(());
                }
                json!({"id": id, "ok": true})
            }
            "stop" => {
                println!("{}", json!({"id": id, "ok": true}));
                return;
            }
            _ => json!({"id": id, "error": "unknown_command"}),
        };
        println!("{reply}");
    }
}

async fn call(request: &Value, incoming: &Value, policy: &Value, fault: &str) -> Value {
    let start = Instant::now();
    let knob = |name: &str, default: u64| policy[name].as_u64().unwrap_or(default);
    let (most, cap) = (knob("max_attempts", 3), knob("hint_cap_ms", 120_000));
    let (base, ceiling) = (knob("backoff_base_ms", 1000), knob("backoff_cap_ms", 20_000));
    let floor = knob("backoff_floor_ms", FLOOR);
    let deadline = request["deadline_ms"].as_u64();
    let safe = !matches!(request["method"].as_str(), Some("POST" | "PATCH"))
        || request["idempotency_key"].is_string();
    let (mut last, mut unplanned): (Option<Value>, u64) = (None, 0);
    let before = incoming["attempt"].as_u64().unwrap_or(1);
    let relay_may_not = incoming.is_object() && (before > 1 || incoming["retry"] != true);
    for attempt in 1.. {
        let left = deadline.map(|all| all.saturating_sub(start.elapsed().as_millis() as u64));
        let limit = Duration::from_millis(left.unwrap_or(60_000));
        let said = if fault == "stale-deadline" { deadline } else { left };
        let sent = tokio::time::timeout(limit, send(request, said, attempt.max(before))).await;
        let give_up = |why: &str, last: Option<Value>| {
            let mut result = last.unwrap_or_else(|| json!({"kind": "error"}));
            result["why"] = json!(why);
            result["attempts"] = json!(attempt);
            result
        };
        let (lo, hi, from) = match sent {
            Err(_) => return give_up("deadline_exceeded", last),
            Ok(Err(connected)) => {
                unplanned += 1;
                if (connected && !safe && fault != "replay") || unplanned >= most {
                    return give_up("transport", last);
                }
                (0, ceiling.min(50 << (attempt - 1).min(20)), Instant::now())
            }
            Ok(Ok(response)) => {
                let hint = read(&response);
                if !hint.overload {
                    return json!({"kind": "response", "status": response.status, "attempts": attempt});
                }
                let waited = response.at.elapsed().as_millis() as u64;
                let left_of = hint.delay.map(|delay| delay.saturating_sub(waited));
                last = Some(
                    json!({"kind": "overloaded", "status": response.status, "code": hint.code,
                    "retry": hint.retry, "applied": hint.applied, "hop": hint.hop, "retry_in_ms": left_of}),
                );
                unplanned += u64::from(hint.max.is_none());
                let delay = hint.delay.unwrap_or(0);
                let b = ceiling.min(base << (attempt - 1).min(20));
                let lo = if delay > 0 {
                    delay.max(floor)
                } else {
                    (b / 2).max(floor)
                };
                let width = (delay << (attempt - 1).min(20)) / 2;
                let own = delay + width.clamp(if hint.seconds { 1000 } else { 50 }, 5000);
                let hi = if delay > 0 {
                    hint.max.unwrap_or(own).max(lo + 50)
                } else {
                    b.max(lo)
                };
                // What is left now: the answer took its time too.
                let left = deadline.map(|all| all.saturating_sub(start.elapsed().as_millis() as u64));
                let waited = response.at.elapsed().as_millis() as u64;
                let time_left = left.map_or(u64::MAX, |left| left + waited).min(180_000);
                let why = match () {
                    () if hint.retry == "no" && fault != "ignore-no" => "retry_forbidden",
                    () if !safe && hint.applied != "no" && fault != "replay" => "not_safe",
                    () if request["stream"] == true => "not_replayable",
                    () if attempt >= 12 || unplanned >= most => "attempts_exhausted",
                    () if relay_may_not => "upstream_retries",
                    () if delay > cap && fault != "clamp" => "hint_too_long",
                    () if lo + 10 >= time_left => "deadline_before_hint",
                    () => "",
                };
                if !why.is_empty() {
                    return give_up(why, last);
                }
                let early = if fault == "early" {
                    lo * 8 / 10
                } else if fault == "clamp" {
                    lo.min(100)
                } else {
                    lo
                };
                let hi = match fault {
                    "no-jitter" | "clamp" => early,
                    // Always early: a draw that now and then lands in the window would be no fault to be caught.
                    "early" => lo * 95 / 100,
                    _ => hi,
                };
                (early, hi.min(time_left - 10), response.at)
            }
        };
        let wait = Duration::from_micros(rand::rng().random_range(lo * 1000..=hi.max(lo) * 1000));
        tokio::time::sleep_until((from + wait + Duration::from_micros(500)).into()).await;
    }
    unreachable!("the loop returns")
}

/// One attempt. The error says whether the connection was established.
async fn send(request: &Value, deadline: Option<u64>, attempt: u64) -> Result<Response, bool> {
    let url = url::Url::parse(request["url"].as_str().unwrap_or_default()).map_err(|_| false)?;
    let address = (
        url.host_str().unwrap_or_default().to_owned(),
        url.port().unwrap_or(80),
    );
    let mut stream = TcpStream::connect(address).await.map_err(|_| false)?;
    let body = request["body"].as_str().unwrap_or_default();
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\nOverload-Attempt: {attempt}\r\n",
        request["method"].as_str().unwrap_or("GET"),
        url.path(),
        url.authority(),
        body.len()
    );
    if let Some(ms) = deadline {
        head += &format!("Overload-Deadline-Ms: {ms}\r\n");
    }
    head += &format!(
        "Overload-Tier: {}\r\n",
        request["tier"].as_str().unwrap_or("deferrable")
    );
    if let Some(key) = request["idempotency_key"].as_str() {
        head += &format!("Idempotency-Key: \"{key}\"\r\n");
    }
    stream
        .write_all(format!("{head}\r\n{body}").as_bytes())
        .await
        .map_err(|_| true)?;
    let mut bytes = Vec::new();
    loop {
        let mut space = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut space);
        if let Ok(httparse::Status::Complete(end)) = head.parse(&bytes) {
            let status = head.code.unwrap_or(0);
            if status < 200 {
                bytes.drain(..end);
                continue;
            }
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            let headers: Vec<_> = head
                .headers
                .iter()
                .map(|h| (h.name.to_ascii_lowercase(), text(h.value)))
                .collect();
            let at = Instant::now();
            let mut body = bytes.split_off(end);
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let wanted = length
                .and_then(|(_, value)| value.parse().ok())
                .unwrap_or(usize::MAX);
            let rest = async {
                while body.len() < wanted.min(BODY_LIMIT + 1)
                    && matches!(stream.read_buf(&mut body).await, Ok(1..))
                {}
            };
            let _ = tokio::time::timeout(Duration::from_secs(1), rest).await;
            return Ok(Response {
                status,
                headers,
                body: text(&body),
                at,
            });
        }
        if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
            return Err(true);
        }
    }
}

/// CONTRACT section 4, as far as this client goes.
fn read(response: &Response) -> Hint {
    let field = |name: &'static str| {
        response
            .headers
            .iter()
            .filter(move |(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    };
    let mut hint = Hint {
        retry: "after",
        ..Hint::default()
    };
    let (mut millis, mut maxima, mut permission) = (Vec::new(), Vec::new(), Vec::new());
    let mut applied = Vec::new();
    let lines = field("overload-signal").collect::<Vec<_>>().join(", ");
    let signal: sfv::Dictionary = sfv::Parser::new(&lines).parse().unwrap_or_default();
    let item = |key: &str| match signal.get(key) {
        Some(sfv::ListEntry::Item(item)) => Some(&item.bare_item),
        _ => None,
    };
    let int = |key: &str| {
        item(key)
            .and_then(|i| i.as_integer())
            .and_then(|i| u64::try_from(i64::from(i)).ok())
    };
    let word = |key: &str| {
        item(key)
            .and_then(|i| i.as_token())
            .map(|t| t.as_str().to_owned())
    };
    let marked = int("v") == Some(1) && word("code").is_some();
    if marked {
        millis.extend(int("after"));
        maxima.extend(int("max"));
        permission.extend(word("retry"));
        applied.extend(word("applied"));
        hint.code = word("code");
        hint.hop = int("hop").unwrap_or(0);
    }
    let json = field("content-type").any(|v| v.to_ascii_lowercase().starts_with("application/problem+json"));
    let body: Value = serde_json::from_str(&response.body).unwrap_or_default();
    let counts = json
        && response.body.len() <= BODY_LIMIT
        && body["contract_version"] == 1
        && body["code"].is_string();
    if counts {
        millis.extend(body["retry_after_ms"].as_u64());
        maxima.extend(body["retry_after_max_ms"].as_u64());
        permission.extend(body["retry"].as_str().map(str::to_owned));
        applied.extend(body["applied"].as_str().map(str::to_owned));
        hint.code = hint.code.or(body["code"].as_str().map(str::to_owned));
    }
    for name in ["retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"] {
        millis.extend(field(name).filter_map(|v| v.trim().parse::<u64>().ok()));
    }
    if field("x-should-retry").any(|v| v == "false") || field("x-envoy-ratelimited").next().is_some() {
        permission.push("no".to_owned());
    }
    let digits = |v: &str| !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit());
    let to_ms = |v: &str| v.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1000);
    let date = field("date")
        .next()
        .and_then(|v| httpdate::parse_http_date(v).ok());
    let now =
        date.unwrap_or_else(|| UNIX_EPOCH + SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let seconds = field("retry-after")
        .flat_map(|line| match httpdate::parse_http_date(line.trim()) {
            Ok(at) => vec![at.duration_since(now).unwrap_or_default().as_millis() as u64],
            Err(_) => line
                .split(',')
                .map(str::trim)
                .filter(|v| digits(v))
                .map(to_ms)
                .collect(),
        })
        .max();
    hint.overload = matches!(response.status, 429 | 503) || (response.status == 504 && (marked || counts));
    hint.delay = millis.into_iter().max();
    if let Some(seconds) = seconds
        && hint.delay.is_none_or(|ms| seconds >= ms.saturating_add(1000))
    {
        (hint.delay, hint.seconds) = (Some(seconds), true);
    }
    hint.delay = hint.delay.map(|delay| delay.min(86_400_000));
    let delay = hint.delay.unwrap_or(0);
    hint.max = maxima
        .into_iter()
        .filter(|max| *max >= delay)
        .max()
        .map(|max| max.min(delay + 60_000));
    let known = |word: &String| matches!(word.as_str(), "after" | "elsewhere");
    if !permission.iter().all(known) || (response.status == 504 && permission.is_empty()) {
        hint.retry = "no";
    }
    hint.applied = if !applied.is_empty() && applied.iter().all(|word| word == "no") {
        "no"
    } else {
        "maybe"
    };
    hint
}
