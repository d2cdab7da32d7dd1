//! Plays the steps of a case against a running server and keeps what was seen. Nothing is judged here.
//!
//! The server may be slow, dead or wrong at every point, so each request and each step has a limit, and what could not
//! be done is kept as such instead of being repeated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::ask::{One, ask};
use super::callers::Callers;
use super::look::brief;
use super::message::{Ask, Exchange, Forced, NoAnswer};
use super::page::Page;
use super::patience::{PATIENCE, ROUNDS, come_again, inconclusive};
use super::probe::{Address, exchange};
use super::reject::Reading;
use super::spec::{AwaitAnswers, AwaitMetric, Flood, ForcedSweep, Poll, Send, Step};
use crate::adapter::{Adapter, COMMAND_LIMIT};
use crate::clock;
use crate::lock::lock;
use crate::verdict::NotRun;

/// Connections open at once at most.
pub const MAX_OPEN: usize = 512;
/// One look at the metrics page takes no longer.
const SCRAPE_LIMIT: Duration = Duration::from_secs(2);
/// Between two looks while something is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Tasks followed by one poll step at most.
const MAX_POLLED: usize = 512;
/// Requests of the first wave of a flood; each wave doubles.
const FIRST_WAVE: u32 = 16;
/// Requests of the largest wave.
const LAST_WAVE: u32 = 512;
/// Between two waves.
const BETWEEN_WAVES: Duration = Duration::from_millis(250);
/// States of a task that has not ended. Whatever else a server names is an end.
const OPEN_STATES: &[&str] = &[
    "accepted", "deferred", "pending", "queued", "running", "started", "waiting",
];

/// What was seen.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Every exchange, in the order in which they ended.
    pub exchanges: Vec<Exchange>,
    /// Metrics pages by name; an error says why there is none.
    pub pages: BTreeMap<String, Result<Page, String>>,
    /// How the task behind each 202 ended, by label: its state, or why it is not known.
    pub ended: BTreeMap<String, Vec<Result<String, String>>>,
    /// Answers to probes that spoke about the caller or the load, and were waited out.
    pub aside: Vec<Exchange>,
    /// The looks at the metrics page that took all of their time: when they began, and how long that was.
    pub blank_pages: Vec<(Duration, Duration)>,
    /// When the machine stood still: from when to when, from the start of the case.
    pub stood: Vec<(Duration, Duration)>,
}

impl Evidence {
    /// How long the machine stood still in a time that began at `from` and took `length`.
    pub(super) fn stood_in(&self, from: Duration, length: Duration) -> Duration {
        let to = from + length;
        let shares = self
            .stood
            .iter()
            .map(|(began, ended)| (*ended).min(to).saturating_sub((*began).max(from)));
        shares.sum()
    }
}

/// Where the server under test is, and how it is told what to do.
#[derive(Debug)]
pub struct Stage<'a> {
    /// Its address.
    pub server: Address,
    /// Its metrics page, where there is one.
    pub metrics: Option<Address>,
    /// Its adapter, where there is one.
    pub adapter: Option<&'a Adapter>,
    /// Whom the runner plays towards it.
    pub callers: Callers,
}

/// One case being played.
#[derive(Debug)]
pub struct Play<'a> {
    stage: &'a Stage<'a>,
    begun: Instant,
    open: Arc<Semaphore>,
    seen: Arc<Mutex<Vec<Exchange>>>,
    background: JoinSet<()>,
    aside: Vec<Exchange>,
    blank_pages: Vec<(Duration, Duration)>,
    patience: Duration,
    rng: StdRng,
    pages: BTreeMap<String, Result<Page, String>>,
    ended: BTreeMap<String, Vec<Result<String, String>>>,
}

/// Plays all steps in order.
///
/// # Errors
/// A fixture was refused, or the adapter broke.
pub(super) async fn play(
    stage: &Stage<'_>,
    begun: Instant,
    steps: &[Step],
    seed: u64,
) -> Result<Evidence, NotRun> {
    let mut play = Play {
        stage,
        begun,
        open: Arc::new(Semaphore::new(MAX_OPEN)),
        seen: Arc::default(),
        background: JoinSet::new(),
        aside: Vec::new(),
        blank_pages: Vec::new(),
        patience: PATIENCE,
        rng: clock::rng(seed),
        pages: BTreeMap::new(),
        ended: BTreeMap::new(),
    };
    for step in steps {
        play.step(step).await?;
    }
    play.join().await;
    let exchanges = std::mem::take(&mut *lock(&play.seen));
    Ok(Evidence {
        exchanges,
        pages: play.pages,
        ended: play.ended,
        aside: play.aside,
        blank_pages: play.blank_pages,
        stood: Vec::new(),
    })
}

impl Play<'_> {
    async fn step(&mut self, step: &Step) -> Result<(), NotRun> {
        match step {
            Step::Fixture(members) => self.fixture(Value::Object(members.clone())).await?,
            Step::Load(sends) => {
                let mut all = JoinSet::new();
                for send in sends {
                    let asks = self.asks(send);
                    self.launch(send, asks, Duration::from_millis(send.every_ms), &mut all);
                }
                while all.join_next().await.is_some() {}
            }
            Step::Background(sends) => {
                let mut all = std::mem::take(&mut self.background);
                for send in sends {
                    let asks = self.asks(send);
                    self.launch(send, asks, Duration::from_millis(send.every_ms), &mut all);
                }
                self.background = all;
            }
            Step::Probe(sends) => self.probe(sends).await?,
            Step::Join => self.join().await,
            Step::AwaitAnswers(wanted) => self.await_answers(wanted).await,
            Step::WaitMs(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
            Step::Scrape(name) => {
                let page = self.page().await;
                self.pages.insert(name.clone(), page);
            }
            Step::AwaitMetric(wanted) => self.await_metric(wanted).await,
            Step::Forced(sweep) => self.forced(sweep).await?,
            Step::Flood(flood) => self.flood(flood).await,
            Step::Poll(poll) => self.poll(poll).await,
        }
        Ok(())
    }

    async fn join(&mut self) {
        while self.background.join_next().await.is_some() {}
    }

    async fn fixture(&self, mut command: Value) -> Result<(), NotRun> {
        let Some(adapter) = self.stage.adapter else {
            return Err(NotRun::NotApplicable("a bare URL has no fixtures".to_owned()));
        };
        command["cmd"] = Value::from("fixture");
        adapter.request(command, COMMAND_LIMIT).await?;
        Ok(())
    }

    /// The requests of a send, in order.
    fn asks(&self, send: &Send) -> Vec<Ask> {
        let deadline = send
            .deadline_from
            .as_deref()
            .map(|label| self.least_deadline(label));
        (0..send.n)
            .map(|i| ask(send, i, deadline, self.stage.callers))
            .collect()
    }

    fn one(&self, label: &str, ask: Ask) -> One {
        One {
            address: self.stage.server.clone(),
            label: label.to_owned(),
            ask,
            begun: self.begun,
            forced: None,
            seen: Arc::clone(&self.seen),
        }
    }

    /// One probe after another. A server that does not answer one is not asked the next.
    async fn probe(&mut self, sends: &[Send]) -> Result<(), NotRun> {
        for send in sends {
            for ask in self.asks(send) {
                let exchange = self.question(&send.label, ask).await?;
                let stop = exchange
                    .answer
                    .as_ref()
                    .map_or(true, |seen| come_again(seen).is_some());
                lock(&self.seen).push(exchange);
                if stop {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Asks until the answer is one about the request; see [`super::patience`].
    async fn question(&mut self, label: &str, ask: Ask) -> Result<Exchange, NotRun> {
        let mut rounds = 1;
        loop {
            let exchange = self.one(label, ask.clone()).exchange().await;
            let again = exchange.answer.as_ref().ok().and_then(come_again);
            let Some((after, max)) = again else {
                return Ok(exchange);
            };
            let wait = self.rng.random_range(after..=max.max(after));
            if rounds >= ROUNDS || wait > self.patience {
                return self.ordinary_is_served(exchange).await;
            }
            rounds += 1;
            self.patience -= wait;
            self.aside.push(exchange);
            tokio::time::sleep(wait).await;
        }
    }

    /// The refusal stands as the answer where the same caller's ordinary requests are all served.
    async fn ordinary_is_served(&mut self, refused: Exchange) -> Result<Exchange, NotRun> {
        for _ in 0..ROUNDS {
            let send = Send::ordinary();
            let control = self
                .one(&send.label, ask(&send, 0, None, self.stage.callers))
                .exchange()
                .await;
            if !control
                .answer
                .as_ref()
                .is_ok_and(|seen| (200..300).contains(&seen.status))
            {
                return Err(inconclusive(&format!(
                    "{} was refused to the end ({}), and so was an ordinary request ({}): that says nothing about the probe",
                    refused.label,
                    brief(&refused),
                    brief(&control)
                )));
            }
        }
        Ok(refused)
    }

    /// The largest `min_deadline_ms` of the rejects of a label; 0, which nothing meets, where none was given.
    fn least_deadline(&self, label: &str) -> u64 {
        let seen = lock(&self.seen);
        let rejects = seen.iter().filter(|exchange| exchange.label == label);
        let figures = rejects.filter_map(|exchange| {
            let answer = exchange.answer.as_ref().ok()?;
            u64::try_from(Reading::of(answer).body.integer("min_deadline_ms")?).ok()
        });
        figures.max().unwrap_or(0)
    }

    fn launch(&self, send: &Send, asks: Vec<Ask>, every: Duration, into: &mut JoinSet<()>) {
        let address = match (&self.stage.metrics, send.to_metrics) {
            (Some(metrics), true) => metrics.clone(),
            _ => self.stage.server.clone(),
        };
        let own = Arc::new(Semaphore::new(send.concurrency.unwrap_or(MAX_OPEN).min(MAX_OPEN)));
        let start = clock::now() + Duration::from_millis(send.at_ms);
        for (i, ask) in asks.into_iter().enumerate() {
            let due = start + every.saturating_mul(u32::try_from(i).unwrap_or(u32::MAX));
            let one = One {
                address: address.clone(),
                label: send.label.clone(),
                ask,
                begun: self.begun,
                forced: None,
                seen: Arc::clone(&self.seen),
            };
            let (own, open) = (Arc::clone(&own), Arc::clone(&self.open));
            into.spawn(async move {
                tokio::time::sleep_until(due.into()).await;
                // The semaphores are never closed, so that neither `acquire` can fail.
                let _own = own.acquire().await;
                let _open = open.acquire().await;
                one.run().await;
            });
        }
    }

    async fn forced(&mut self, sweep: &ForcedSweep) -> Result<(), NotRun> {
        for code in &sweep.codes {
            for after_ms in &sweep.after_ms {
                let forced = Forced {
                    code: code.clone(),
                    after_ms: *after_ms,
                    max_ms: after_ms + sweep.width_ms,
                };
                self.fixture(json!({
                    "name": "force_reject", "code": forced.code, "after_ms": forced.after_ms,
                    "max_ms": forced.max_ms, "count": sweep.send.n,
                }))
                .await?;
                for ask in self.asks(&sweep.send) {
                    let one = One {
                        address: self.stage.server.clone(),
                        label: sweep.send.label.clone(),
                        ask,
                        begun: self.begun,
                        forced: Some(forced.clone()),
                        seen: Arc::clone(&self.seen),
                    };
                    one.run().await;
                }
            }
        }
        Ok(())
    }

    /// Waves that double until the first refusal, each spread over its time, until enough was refused; then waits for what is still open, so that the next case finds an
    /// idle server. A caller leaves after `within_ms`, answered or not.
    async fn flood(&mut self, flood: &Flood) {
        let until = clock::now() + Duration::from_millis(flood.within_ms);
        let mut all = JoinSet::new();
        let (mut sent, mut wave) = (0, FIRST_WAVE);
        while clock::now() < until && sent < flood.at_most && self.refused(&flood.send.label) < flood.rejects
        {
            let send = Send {
                n: wave.min(flood.at_most - sent),
                at_ms: 0,
                leave_after_ms: Some(flood.within_ms),
                ..flood.send.clone()
            };
            let asks = (sent..sent + send.n)
                .map(|i| ask(&send, i, None, self.stage.callers))
                .collect();
            self.launch(&send, asks, BETWEEN_WAVES / send.n, &mut all);
            sent += send.n;
            // Once it refuses, it is overloaded: more at once would only measure how both share the machine.
            if self.refused(&flood.send.label) == 0 {
                wave = wave.saturating_mul(2).min(LAST_WAVE);
            }
            let next = clock::now() + BETWEEN_WAVES;
            while clock::now() < next && self.refused(&flood.send.label) < flood.rejects && !all.is_empty() {
                let _ = tokio::time::timeout(Duration::from_millis(20), all.join_next()).await;
            }
        }
        let rest = async { while all.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(Duration::from_millis(flood.within_ms), rest).await;
        all.shutdown().await;
    }

    fn refused(&self, label: &str) -> u32 {
        let seen = lock(&self.seen);
        let refused = seen.iter().filter(|exchange| {
            let answer = exchange.answer.as_ref();
            exchange.label == label && answer.is_ok_and(|answer| Reading::of(answer).is_reject(answer.status))
        });
        u32::try_from(refused.count()).unwrap_or(u32::MAX)
    }

    async fn page(&mut self) -> Result<Page, String> {
        let address = self.stage.metrics.as_ref().ok_or("there is no metrics page")?;
        let ask = Ask {
            method: "GET".to_owned(),
            limit: SCRAPE_LIMIT,
            ..Ask::default()
        };
        let (times, answer) = exchange(address, &ask).await;
        if let Err(NoAnswer::TimedOut(limit)) = answer {
            let began = times.done.saturating_duration_since(self.begun);
            self.blank_pages.push((began.saturating_sub(limit), limit));
        }
        match answer {
            Ok(seen) if seen.status == 200 => Ok(Page::parse(&String::from_utf8_lossy(&seen.body))),
            Ok(seen) => Err(format!("the metrics page answers {}", seen.status)),
            Err(error) => Err(format!("the metrics page: {error}")),
        }
    }

    async fn await_metric(&mut self, wanted: &AwaitMetric) {
        let until = clock::now() + Duration::from_millis(wanted.within_ms);
        loop {
            let page = self.page().await;
            let there = page.as_ref().is_ok_and(|page| {
                page.sum(&wanted.name, &wanted.labels).is_some_and(|sum| {
                    wanted.min.is_none_or(|min| sum >= min) && wanted.max.is_none_or(|max| sum <= max)
                })
            });
            self.pages.insert(wanted.scrape.clone(), page);
            if there || clock::now() >= until {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn await_answers(&self, wanted: &AwaitAnswers) {
        let until = clock::now() + Duration::from_millis(wanted.within_ms);
        let ended = || {
            lock(&self.seen)
                .iter()
                .filter(|exchange| exchange.label == wanted.of)
                .count()
        };
        while ended() < wanted.n && clock::now() < until {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn poll(&mut self, poll: &Poll) {
        let until = clock::now() + Duration::from_millis(poll.within_ms);
        let locations: Vec<String> = {
            let seen = lock(&self.seen);
            let accepted = seen.iter().filter(|exchange| exchange.label == poll.of);
            accepted
                .filter_map(|exchange| exchange.answer.as_ref().ok())
                .filter(|answer| answer.status == 202)
                .map(|answer| answer.lines("location").into_iter().next().unwrap_or_default())
                .take(MAX_POLLED)
                .collect()
        };
        let mut ends = Vec::new();
        for location in locations {
            ends.push(self.follow(&location, until).await);
        }
        self.ended.insert(poll.of.clone(), ends);
    }

    /// Looks at one Location until its task has ended.
    async fn follow(&self, location: &str, until: Instant) -> Result<String, String> {
        let path = match url::Url::parse(location) {
            Ok(url) => url.path().to_owned(),
            Err(_) if location.starts_with('/') => location.to_owned(),
            Err(_) => return Err(format!("Location is {location:?}")),
        };
        let ask = Ask {
            method: "GET".to_owned(),
            path,
            limit: SCRAPE_LIMIT,
            ..Ask::default()
        };
        loop {
            let (_, answer) = exchange(&self.stage.server, &ask).await;
            let state = match answer {
                Ok(seen) if seen.status == 200 => task_state(&seen.body),
                Ok(seen) => Err(format!("{} answers {}", ask.path, seen.status)),
                Err(error) => Err(format!("{}: {error}", ask.path)),
            };
            match state {
                Ok(state) if !OPEN_STATES.contains(&state.as_str()) => return Ok(state),
                Ok(state) if clock::now() >= until => return Err(format!("still {state:?}")),
                Err(why) if clock::now() >= until => return Err(why),
                _ => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }
}

fn task_state(body: &[u8]) -> Result<String, String> {
    let value: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let state = ["state", "status"]
        .into_iter()
        .find_map(|name| value.get(name).and_then(Value::as_str));
    state
        .map(str::to_lowercase)
        .ok_or_else(|| "the task has neither state nor status".to_owned())
}
