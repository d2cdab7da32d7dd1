//! What a refusal costs the server beside what an accepted request costs it.
//!
//! On a machine where client and server share the processors, a rate says more about the client than about the server. So the
//! server runs in a process of its own, and what counts is how many requests it answers in a second of *its* processor
//! time: what its rate would be where it alone is the bound.
//!
//! What an accepted request costs depends on what is asked for, so there are several kinds, from no work at all (which leaves
//! HTTP itself: parsing a head, reading a body, writing an answer, which a refusal pays too) to a task that is kept on the disk. The goal is
//! held against work that takes time and against tasks that are kept. The others are printed to be known: more than half of what a
//! refusal costs is the kernel's, for a head that comes in and an answer that goes out, so work that is hardly more than that can cost no
//! three times as much.

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
anonymous: { tiers: [critical, non-sheddable, deferrable] }
server: { ended_tasks: 10000 }
";

/// One kind of request.
struct Kind {
    name: &'static str,
    path: &'static str,
    tier: &'static str,
    duration_ms: u32,
    wanted: &'static [&'static str],
    /// Held against the goal.
    judged: bool,
}

const REFUSED: Kind = Kind {
    name: "refused",
    path: "/v1/work",
    tier: "critical",
    duration_ms: 0,
    wanted: &["429", "503"],
    judged: false,
};

const ACCEPTED: [Kind; 4] = [
    Kind {
        name: "no work at all",
        path: "/v1/work",
        tier: "deferrable",
        duration_ms: 0,
        wanted: &["200"],
        judged: false,
    },
    Kind {
        name: "work of 5 ms",
        path: "/v1/work",
        tier: "deferrable",
        duration_ms: 5,
        wanted: &["200"],
        judged: true,
    },
    Kind {
        name: "a task of 5 ms",
        path: "/v1/tasks",
        tier: "deferrable",
        duration_ms: 5,
        wanted: &["202"],
        judged: false,
    },
    Kind {
        name: "a durable task of 5 ms",
        path: "/v1/tasks",
        tier: "non-sheddable",
        duration_ms: 5,
        wanted: &["202"],
        judged: true,
    },
];

pub(crate) async fn cost(verdicts: &mut Verdicts, time: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("profile.yaml");
    std::fs::write(&profile, PROFILE).unwrap();
    let data = folder.path().join("data");
    let mut command = child(&[profile.to_str().unwrap(), data.to_str().unwrap()]);
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
    if processor_ticks(&server).is_none() {
        verdicts.judge("refusals for accepted requests", "no /proc here", ">= 3", false);
        return;
    }
    let kinds = ACCEPTED.len() as u32;
    let each = time / (2 * ROUNDS);
    let mut rates: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); ACCEPTED.len()];
    // The first round warms up; each kind has refusals of its own beside it.
    for round in 0..=ROUNDS {
        for (kind, (accepted, refused)) in ACCEPTED.iter().zip(&mut rates) {
            let rate = [
                rate(&server, &address, kind, each * 2 / kinds).await,
                rate(&server, &address, &REFUSED, each * 2 / kinds).await,
            ];
            if round > 0 {
                accepted.push(rate[0]);
                refused.push(rate[1]);
            }
        }
    }
    for (kind, (mut accepted, mut refused)) in ACCEPTED.iter().zip(rates) {
        let mut ratios: Vec<f64> = refused.iter().zip(&accepted).map(|(no, yes)| no / yes).collect();
        let what = format!("refusals for: {}", kind.name);
        let ratio = median(&mut ratios);
        if kind.judged {
            verdicts.at_least(&what, ratio, 3.0);
        } else {
            println!("         {what:<44} {ratio:>16.4}   no goal");
        }
        println!(
            "         accepted {:.0}, refused {:.0} for a second of the server's processor time; medians of {ROUNDS} rounds, ratios {:.2} to {:.2}",
            median(&mut accepted),
            median(&mut refused),
            ratios[0],
            ratios[ratios.len() - 1],
        );
    }
    server.kill().await.unwrap();
}

/// Requests of this kind that are answered for a second of the server's processor time.
async fn rate(server: &Child, address: &str, kind: &'static Kind, time: Duration) -> f64 {
    let before = processor_ticks(server).unwrap_or(0);
    let answered = storm(address, kind, time).await;
    // What was accepted is done before the next kind begins.
    tokio::time::sleep(Duration::from_millis(u64::from(kind.duration_ms) * 4)).await;
    let spent = processor_ticks(server).unwrap_or(0).saturating_sub(before).max(1);
    // A tick of processor time is 10 ms on every Linux that there is.
    answered as f64 * 100.0 / spent as f64
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
async fn storm(address: &str, kind: &'static Kind, time: Duration) -> u64 {
    let end = Instant::now() + time;
    let lanes: Vec<_> = (0..CONNECTIONS)
        .map(|lane| tokio::spawn(lane_of(address.to_owned(), request(kind, lane), kind.wanted, end)))
        .collect();
    let mut answered = 0;
    for lane in lanes {
        answered += lane.await.unwrap();
    }
    answered
}

fn request(kind: &Kind, lane: usize) -> String {
    let Kind {
        path,
        tier,
        duration_ms,
        ..
    } = kind;
    let body = format!(r#"{{"duration_ms":{duration_ms}}}"#);
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nOverload-Task-Class: t\r\nOverload-Tier: {tier}\r\n\
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
