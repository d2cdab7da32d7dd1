//! The burst test of the admission article, over the wire: does this server do what it says, on this machine, now?
//!
//! Seven steps on a server of its own, on a free port of loopback: two long tasks of tenant A take both workers; a burst of
//! short tasks of A and B comes; A reaches its budget and is told so, B is not blocked; a task with too short a deadline is
//! refused with a stable reason and guidance; everything accepted is done; admission is open again, without a restart.
//! Beside the verdicts stand the figures that an operator records: prediction error, start delay, accepted work that missed
//! its deadline, refused work that would have succeeded (ADM-24, DEMANDS A10 and A11).

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{Server, ServerConfig, StartError, clock};

/// Callers' tokens.
const A: &str = "burst-test-token-a";
const B: &str = "burst-test-token-b";
/// Short tasks of each tenant in the burst.
const BURST_OF_A: usize = 36;
const BURST_OF_B: usize = 6;
/// A tenant's budget of queued work, in short tasks: what is accepted of A's burst. One long task is as much.
const BUDGET: usize = 20;
const SHORT_MS: u64 = 50;
const LONG_MS: u64 = BUDGET as u64 * SHORT_MS;
/// Time that the callers of the burst have: three times what its tasks need.
const DEADLINE_MS: u64 = 5_000;
/// Longest wait for a step: twenty times what it takes.
const STEP_LIMIT: Duration = Duration::from_secs(20);
/// Most bytes of an answer that are read.
const MAX_ANSWER: usize = 1 << 20;

/// One step: what must be seen, and what was.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is done.
    pub name: &'static str,
    /// What must be seen.
    pub expected: String,
    /// What was seen.
    pub seen: String,
    /// Whether it holds.
    pub held: bool,
}

/// Figures of the run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Difference of predicted and measured wait, median and 95th percentile.
    pub prediction_error: (Duration, Duration),
    /// Time from admission to start, the same.
    pub start_delay: (Duration, Duration),
    /// Accepted tasks.
    pub accepted: usize,
    /// Accepted tasks that missed their deadline.
    pub missed: u64,
    /// Refused tasks.
    pub refused: usize,
    /// Refused tasks that would have been in time had they cost the others nothing: an upper bound.
    pub would_have_succeeded: u64,
    /// Of these, as many as idle workers could have done.
    pub avoidable: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seven steps.
    pub steps: Vec<Step>,
    /// The figures.
    pub figures: Figures,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum BurstError {
    /// The server does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The test's own profile is not usable: a fault of this program.
    #[error(transparent)]
    Config(#[from] crate::ConfigError),
    /// An answer did not come, or is not one.
    #[error("{what}: {why}")]
    Answer {
        /// What was asked.
        what: String,
        /// What was wrong.
        why: String,
    },
}

impl Report {
    /// True when every step holds.
    pub fn held(&self) -> bool {
        self.steps.iter().all(|step| step.held)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            let verdict = if step.held { "held  " } else { "FAILED" };
            writeln!(f, "{verdict} {}. {}", number + 1, step.name)?;
            writeln!(f, "          expected  {}", step.expected)?;
            writeln!(f, "          seen      {}", step.seen)?;
        }
        let ms = |(p50, p95): (Duration, Duration)| {
            format!("p50 {} ms, p95 {} ms", p50.as_millis(), p95.as_millis())
        };
        let of = &self.figures;
        writeln!(
            f,
            "prediction error (wait)              {}",
            ms(of.prediction_error)
        )?;
        writeln!(f, "start delay                          {}", ms(of.start_delay))?;
        writeln!(
            f,
            "accepted tasks that missed           {} of {}",
            of.missed, of.accepted
        )?;
        writeln!(
            f,
            "refused that would have succeeded    at most {} of {}, {} of them in time that workers stood idle",
            of.would_have_succeeded, of.refused, of.avoidable
        )
    }
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
    took: Duration,
}

impl Answer {
    fn text(&self, member: &str) -> &str {
        self.body[member].as_str().unwrap_or_default()
    }

    fn ms(&self, member: &str) -> Option<Duration> {
        self.body[member].as_u64().map(Duration::from_millis)
    }

    fn code(&self) -> &str {
        self.text("code")
    }

    /// A window to come back in, in the body, in the signal and in Retry-After.
    fn guides(&self) -> bool {
        let window = (self.ms("retry_after_ms"), self.ms("retry_after_max_ms"));
        self.text("retry") == "after"
            && self.text("applied") == "no"
            && matches!(window, (Some(after), Some(max)) if Duration::ZERO < after && after < max)
            && self.headers.contains_key("retry-after")
            && self.headers.contains_key("overload-signal")
    }
}

#[derive(Clone)]
struct Caller {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
}

impl Caller {
    async fn send(
        &self,
        token: &str,
        class: &str,
        ms: u64,
        deadline: Option<u64>,
    ) -> Result<Answer, BurstError> {
        let body = json!({"class": class, "duration_ms": ms}).to_string();
        let mut request = Request::post(format!("{}/v1/work", self.url))
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {token}"));
        if let Some(deadline) = deadline {
            request = request.header("overload-deadline-ms", deadline);
        }
        let request = request.body(Full::from(body));
        self.exchange(format!("a {class} task"), request).await
    }

    async fn metrics(&self) -> Result<String, BurstError> {
        let request = Request::get(format!("{}/metrics", self.url)).body(Full::default());
        let answer = self.exchange("the metrics".to_owned(), request).await?;
        Ok(answer.body.as_str().unwrap_or_default().to_owned())
    }

    async fn exchange(
        &self,
        what: String,
        request: http::Result<Request<Full<Bytes>>>,
    ) -> Result<Answer, BurstError> {
        let failed = |why: String| BurstError::Answer {
            what: what.clone(),
            why,
        };
        let request = request.map_err(|error| failed(error.to_string()))?;
        let sent = clock::now();
        let exchange = async {
            let response = self
                .client
                .request(request)
                .await
                .map_err(|error| error.to_string())?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            Ok((parts, body.map_err(|error| error.to_string())?.to_bytes()))
        };
        let (parts, body) = tokio::time::timeout(STEP_LIMIT, exchange)
            .await
            .map_err(|_| failed(format!("no answer in {STEP_LIMIT:?}")))?
            .map_err(failed)?;
        let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body: serde_json::from_slice(&body).unwrap_or_else(|_| text()),
            took: clock::now().saturating_duration_since(sent),
        })
    }
}

/// Runs the test.
///
/// # Errors
/// When the server does not start or an answer does not come; a step that does not hold is in the report.
pub async fn run() -> Result<Report, BurstError> {
    let mut config = ServerConfig::from_yaml(&format!(
        "
workers: 2
queue: 100
tiers: {{ critical: {{ reserved_workers: 0 }} }}
classes:
  long: {{ mean_ms: {LONG_MS}, p95_ms: {}, deadline_ms: 60000 }}
  short: {{ mean_ms: {SHORT_MS}, p95_ms: {}, deadline_ms: 15000 }}
tenants: {{ default: {{ queued_work_ms: {LONG_MS} }} }}
identities: {{ {A}: {{ tenant: a }}, {B}: {{ tenant: b }} }}
",
        LONG_MS * 2,
        SHORT_MS * 2,
    ))?;
    config.addr = ([127, 0, 0, 1], 0).into();
    config.seed = Some(1);
    let server = Server::bind(config).await?;
    let caller = Caller {
        client: Client::builder(TokioExecutor::new()).build_http(),
        url: server.url(),
    };
    let admission = server.admission().clone();
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.run(stop.clone().cancelled_owned()));
    let report = Run {
        caller,
        admission,
        steps: Vec::new(),
    }
    .play()
    .await;
    stop.cancel();
    // It ends by itself; a panic in it would have shown as a step that does not hold.
    let _ = running.await;
    report
}

struct Run {
    caller: Caller,
    admission: holdoff_admission_tower::Admission,
    steps: Vec<Step>,
}

impl Run {
    fn step(&mut self, name: &'static str, held: bool, expected: impl Into<String>, seen: impl Into<String>) {
        self.steps.push(Step {
            name,
            expected: expected.into(),
            seen: seen.into(),
            held,
        });
    }

    fn spawn(
        &self,
        set: &mut JoinSet<Result<Answer, BurstError>>,
        token: &'static str,
        class: &'static str,
        ms: u64,
    ) {
        let caller = self.caller.clone();
        set.spawn(async move { caller.send(token, class, ms, Some(DEADLINE_MS)).await });
    }

    async fn play(mut self) -> Result<Report, BurstError> {
        let (mut long, mut of_a, mut of_b) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        for _ in 0..2 {
            self.spawn(&mut long, A, "long", LONG_MS);
        }
        let busy = self.until(|snapshot| snapshot.busy == 2).await;
        self.step(
            "two long tasks of A on two workers",
            busy,
            "2 of 2 workers busy",
            format!("{} of 2", self.admission.snapshot().busy),
        );
        let burst = clock::now();
        for n in 0..BURST_OF_A {
            self.spawn(&mut of_a, A, "short", SHORT_MS);
            if n % (BURST_OF_A / BURST_OF_B) == 0 {
                self.spawn(&mut of_b, B, "short", SHORT_MS);
            }
        }
        // What is refused answers while the long tasks run; what was accepted waits for them.
        let waiting = u32::try_from(BUDGET + BURST_OF_B).unwrap_or(u32::MAX);
        let queued = self
            .until(|snapshot| snapshot.tiers.iter().map(|tier| tier.queued).sum::<u32>() == waiting)
            .await;
        let in_queue: u32 = self
            .admission
            .snapshot()
            .tiers
            .iter()
            .map(|tier| tier.queued)
            .sum();
        self.step(
            "a burst of short tasks of A and B",
            queued,
            format!("{BUDGET} of A's and {BURST_OF_B} of B's wait, within the bound of 100"),
            format!("{in_queue} wait"),
        );
        let hasty = self.caller.send(B, "short", SHORT_MS, Some(200)).await?;
        let again = self.caller.send(B, "short", SHORT_MS, Some(200)).await?;
        let mut early = Vec::new();
        for answer in [&hasty, &again] {
            early.push(format!(
                "{} {} retry={} min_deadline_ms={} in {} ms",
                answer.status.as_u16(),
                answer.code(),
                answer.text("retry"),
                answer.body["min_deadline_ms"],
                answer.took.as_millis()
            ));
        }
        let stable = [&hasty, &again].iter().all(|answer| {
            answer.status == StatusCode::SERVICE_UNAVAILABLE
                && answer.code() == "deadline_unattainable"
                && answer.text("retry") == "no"
                && answer
                    .ms("min_deadline_ms")
                    .is_some_and(|least| least > Duration::from_millis(200))
                && answer.headers.contains_key("retry-after")
        });
        let (long, of_a, of_b) = (all(long).await?, all(of_a).await?, all(of_b).await?);
        self.judge_burst(&of_a, &of_b);
        self.step(
            "a task with too short a deadline",
            stable,
            "twice 503 deadline_unattainable, retry=no, and the least deadline that would do",
            early.join("; "),
        );
        let done: Vec<&Answer> = long
            .iter()
            .chain(&of_a)
            .chain(&of_b)
            .filter(|answer| answer.status == 200)
            .collect();
        let empty = self
            .until(|snapshot| {
                snapshot.tickets == 0 && snapshot.estimated_work.is_zero() && snapshot.oldest_age.is_zero()
            })
            .await;
        let accepted = 2 + BUDGET + BURST_OF_B;
        self.step(
            "drain",
            empty && done.len() == accepted,
            format!("all {accepted} accepted tasks are done, and nothing is charged any more"),
            format!(
                "{} done, {} tickets left",
                done.len(),
                self.admission.snapshot().tickets
            ),
        );
        let after = self.caller.send(A, "short", SHORT_MS, None).await?;
        let at_once = after
            .ms("waited_ms")
            .is_some_and(|waited| waited < Duration::from_millis(SHORT_MS));
        self.step(
            "admission is open again, without a restart",
            after.status == 200 && at_once,
            "a task of A is accepted and starts at once",
            format!(
                "{} after {} ms of waiting",
                after.status.as_u16(),
                after.body["waited_ms"]
            ),
        );
        let refused = long.len() + of_a.len() + of_b.len() - done.len();
        let figures = self.figures(&done, refused, burst).await?;
        Ok(Report {
            steps: self.steps,
            figures,
        })
    }

    fn judge_burst(&mut self, of_a: &[Answer], of_b: &[Answer]) {
        let served = |answers: &[Answer]| answers.iter().filter(|answer| answer.status == 200).count();
        let limited = of_a
            .iter()
            .filter(|answer| answer.status == 429 && answer.code() == "tenant_limit" && answer.guides())
            .count();
        let slowest = of_a
            .iter()
            .filter(|answer| answer.status == 429)
            .map(|answer| answer.took)
            .max();
        self.step(
            "A reaches its budget",
            served(of_a) == BUDGET && limited == BURST_OF_A - BUDGET,
            format!(
                "{BUDGET} done, {} refused: 429 tenant_limit with a window",
                BURST_OF_A - BUDGET
            ),
            format!(
                "{} done, {limited} refused so, the slowest in {} ms",
                served(of_a),
                slowest.unwrap_or_default().as_millis()
            ),
        );
        self.step(
            "B is not blocked",
            served(of_b) == BURST_OF_B,
            format!("all {BURST_OF_B} of B's done"),
            format!("{} done", served(of_b)),
        );
    }

    /// Waits until the gauges say so; false when they do not in time.
    async fn until(&self, holds: impl Fn(&holdoff_admission::Snapshot) -> bool) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(2);
        let limit: Instant = clock::now() + STEP_LIMIT / 4;
        while clock::now() < limit {
            if holds(&self.admission.snapshot()) {
                return true;
            }
            clock::sleep(LOOK_EVERY).await;
        }
        false
    }

    async fn figures(&self, done: &[&Answer], refused: usize, burst: Instant) -> Result<Figures, BurstError> {
        let wait = |answer: &&Answer| Some((answer.ms("predicted_wait_ms")?, answer.ms("waited_ms")?));
        let waits: Vec<_> = done.iter().filter_map(wait).collect();
        // What would have become of refused work is known when its time is over, at the next tick.
        let known = burst + Duration::from_millis(DEADLINE_MS + 300);
        clock::sleep(known.saturating_duration_since(clock::now())).await;
        let page = self.caller.metrics().await?;
        let total = |name: &str, label: &str| -> u64 {
            let lines = page
                .lines()
                .filter(|line| line.starts_with(name) && line.contains(label));
            lines
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .sum()
        };
        let avoidable = total("overload_ghosts_total", "avoidable");
        Ok(Figures {
            prediction_error: quantiles(
                waits
                    .iter()
                    .map(|(predicted, waited)| predicted.abs_diff(*waited)),
            ),
            start_delay: quantiles(waits.iter().map(|(_, waited)| *waited)),
            accepted: done.len(),
            missed: total("overload_false_accepts_total", ""),
            refused,
            would_have_succeeded: avoidable + total("overload_ghosts_total", "in_time"),
            avoidable,
        })
    }
}

async fn all(mut set: JoinSet<Result<Answer, BurstError>>) -> Result<Vec<Answer>, BurstError> {
    let mut answers = Vec::new();
    while let Some(answer) = set.join_next().await {
        let lost = |error: tokio::task::JoinError| BurstError::Answer {
            what: "a task".to_owned(),
            why: error.to_string(),
        };
        answers.push(answer.map_err(lost)??);
    }
    Ok(answers)
}

/// Median and 95th percentile.
fn quantiles(times: impl Iterator<Item = Duration>) -> (Duration, Duration) {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    let at = |share: usize| {
        times
            .get(times.len().saturating_sub(1) * share / 100)
            .copied()
            .unwrap_or_default()
    };
    (at(50), at(95))
}
