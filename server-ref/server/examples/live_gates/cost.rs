//! What a refusal costs the server beside what an accepted request costs it.
//!
//! On a machine where client and server share the processors, a rate says more about the client than about the server. So the
//! server runs in a process of its own, and what counts is how many requests it answers in a second of *its* processor
//! time: what its rate would be where it alone is the bound. Accepted work takes no time at all, which makes the accepted request
//! as cheap as one can be.

use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

use crate::{Verdicts, child};

/// Connections, and requests that are sent at once on each.
const CONNECTIONS: usize = 16;
const AT_ONCE: usize = 16;
/// Rounds of each kind, in turn, so that a noisy machine is noisy for both.
const ROUNDS: u32 = 10;
const PROFILE: &str = "
workers: 4096
queue: 4096
classes: { t: { mean_ms: 1, p95_ms: 2, deadline_ms: 60000 } }
tiers: { critical: { slots: 0, queue: 0, reserved_workers: 0 } }
anonymous: { tiers: [critical, deferrable] }
";

pub(crate) async fn cost(verdicts: &mut Verdicts, time: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("profile.yaml");
    std::fs::write(&profile, PROFILE).unwrap();
    let mut command = child(&[profile.to_str().unwrap()]);
    let mut server = command
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let line = BufReader::new(server.stdout.take().unwrap())
        .lines()
        .next_line()
        .await
        .unwrap()
        .unwrap();
    let address = line.strip_prefix("listening on http://").unwrap().to_owned();
    let Some(ticks) = processor_ticks(&server) else {
        verdicts.judge("refusals for accepted requests", "no /proc here", ">= 3", false);
        return;
    };
    let each = time / (2 * ROUNDS);
    let (mut rates, mut last) = ([Vec::new(), Vec::new()], ticks);
    // The first round warms up.
    for round in 0..=ROUNDS {
        for (kind, tier) in ["deferrable", "critical"].into_iter().enumerate() {
            let wanted: &'static [&str] = if kind == 0 { &["200"] } else { &["429", "503"] };
            let answered = storm(&address, tier, wanted, each).await;
            let now = processor_ticks(&server).unwrap_or(last);
            let spent = now.saturating_sub(last).max(1);
            last = now;
            if round > 0 {
                // A tick of processor time is 10 ms on every Linux that there is.
                rates[kind].push(answered as f64 * 100.0 / spent as f64);
            }
        }
    }
    let mut ratios: Vec<f64> = rates[1]
        .iter()
        .zip(&rates[0])
        .map(|(refused, accepted)| refused / accepted)
        .collect();
    let [mut accepted, mut refused] = rates;
    println!(
        "         accepted {:.0}, refused {:.0} for a second of the server's processor time (medians of {ROUNDS} rounds)",
        median(&mut accepted),
        median(&mut refused)
    );
    verdicts.at_least("refusals for accepted requests", median(&mut ratios), 3.0);
    server.kill().await.unwrap();
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Processor time of the server so far, user and system.
fn processor_ticks(server: &Child) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id()?)).ok()?;
    // The name in parentheses may hold anything; the fields after it are numbers.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// Sends for so long; gives the number of answers, all of which must have this status.
async fn storm(address: &str, tier: &str, wanted: &'static [&str], time: Duration) -> u64 {
    let end = Instant::now() + time;
    let lanes: Vec<_> = (0..CONNECTIONS)
        .map(|lane| tokio::spawn(lane_of(address.to_owned(), request(tier, lane), wanted, end)))
        .collect();
    let mut answered = 0;
    for lane in lanes {
        answered += lane.await.unwrap();
    }
    answered
}

fn request(tier: &str, lane: usize) -> String {
    let body = r#"{"duration_ms":0}"#;
    format!(
        "POST /v1/work HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nOverload-Task-Class: t\r\nOverload-Tier: {tier}\r\n\
         X-Lane: {lane}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn lane_of(address: String, request: String, wanted: &'static [&str], end: Instant) -> u64 {
    let (mut answered, batch) = (0, request.repeat(AT_ONCE));
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let mut buffer = Vec::with_capacity(64 * 1024);
    while Instant::now() < end {
        stream.write_all(batch.as_bytes()).await.unwrap();
        let mut seen = 0;
        while seen < AT_ONCE {
            let read = stream.read_buf(&mut buffer).await.unwrap();
            assert!(read > 0, "the server closed a connection");
            while let Some(used) = answer(&buffer, wanted) {
                buffer.drain(..used);
                seen += 1;
            }
        }
        answered += seen as u64;
    }
    answered
}

/// Length of the first answer in the buffer, if all of it is there.
fn answer(buffer: &[u8], wanted: &[&str]) -> Option<usize> {
    let head = buffer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&buffer[..head]).unwrap();
    let status = text.split(' ').nth(1).unwrap_or_default();
    assert!(wanted.contains(&status), "wanted one of {wanted:?}, got {text}");
    let length = text.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse::<usize>()
            .ok()
    });
    let all = head + length.unwrap_or(0);
    (buffer.len() >= all).then_some(all)
}
