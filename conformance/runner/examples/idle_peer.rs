//! A peer that does nothing, in any role: it declares everything, agrees to everything and does none of it.
//!
//! No case may pass against it, whatever it says of its calls; `tests/real_time_idle.rs` sees to that.
//!
//! ```text
//! holdoff-conformance client --adapter "target/debug/examples/idle_peer client"
//! holdoff-conformance client --adapter "target/debug/examples/idle_peer client '{\"kind\":\"response\"}'"
//! ```
#![expect(clippy::print_stdout, reason = "replies go to stdout")]

use std::io::{BufRead as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

/// Everything that some case needs.
const CAPABILITIES: &[&str] = &[
    "deadline",
    "hold_off",
    "budget",
    "tier",
    "compat",
    "stream_body",
    "cancel",
    "incoming",
    "instances",
    "vocabulary",
    "tracing",
    "grpc",
    "admission",
    "hold_workers",
    "panic_work",
    "freeze_controller",
    "force_state",
    "drain",
    "force_reject",
    "degraded",
    "crash",
    "trust",
    "admin_page",
    "foreign_deadlines",
    "grease",
    "idempotency",
    "openapi",
    "own_limit",
    "replicas",
    "retry",
    "retry_throttle",
];

fn main() {
    let role = std::env::args().nth(1).unwrap_or_default();
    // What it says of every call that it did not make.
    let said: Value = std::env::args()
        .nth(2)
        .and_then(|said| serde_json::from_str(&said).ok())
        .unwrap_or_else(|| json!({"kind": "response", "status": 200, "attempts": 0, "elapsed_ms": 0}));
    // It listens, so that it can be reached, and hangs up on everybody.
    let url = TcpListener::bind(("127.0.0.1", 0)).ok().and_then(|listener| {
        let url = format!("http://{}", listener.local_addr().ok()?);
        std::thread::spawn(move || listener.incoming().for_each(drop));
        Some(url)
    });
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(command) = serde_json::from_str::<Value>(&line) else {
            return;
        };
        let mut reply = match command["cmd"].as_str() {
            Some("hello") => json!({
                "protocol": 1, "role": role, "implementation": {"name": "idle", "version": "0"},
                "contract_versions": [1], "capabilities": CAPABILITIES,
            }),
            Some("stop") => return,
            Some("call") => json!({"result": said}),
            _ => json!({"ok": true, "url": url, "metrics_url": url, "result": {}}),
        };
        reply["id"] = command["id"].clone();
        println!("{reply}");
        if std::io::stdout().flush().is_err() {
            return;
        }
    }
}
