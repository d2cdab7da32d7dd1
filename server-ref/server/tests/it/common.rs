//! One way to start a server and one way to ask it.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use holdoff_admission_tower::Admission;
use holdoff_contract::Overload;
use holdoff_contract::read::{Compat, Head, ReadOptions, Reading};
use holdoff_server::{Fixtures, Server, ServerConfig};
use http::{HeaderMap, StatusCode};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server with its fixtures on.
pub(crate) struct Peer {
    pub(crate) url: String,
    pub(crate) client: reqwest::Client,
    pub(crate) admission: Admission,
    pub(crate) fixtures: Fixtures,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Two workers, no reserve, one class `t` of 20 ms; `more` overrides.
pub(crate) fn profile(more: &Value) -> Value {
    let mut profile = json!({
        "workers": 2,
        "classes": {"t": {"mean_ms": 20, "p95_ms": 30, "deadline_ms": 5000}},
        "tiers": {"critical": {"reserved_workers": 0}},
    });
    for (key, value) in more.as_object().expect("an object") {
        profile[key] = value.clone();
    }
    profile
}

impl Peer {
    pub(crate) async fn start(more: Value) -> Self {
        Self::start_with(more, |_| {}).await
    }

    pub(crate) async fn start_with(more: Value, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig::from_json(&profile(&more)).expect("a usable profile");
        change(&mut config);
        config.addr = "127.0.0.1:0".parse().unwrap();
        config.fixtures = true;
        config.seed = Some(1);
        let server = Server::bind(config).await.expect("a free port");
        let (stop, stopped) = oneshot::channel();
        let url = server.url();
        let admission = server.admission().clone();
        let fixtures = server.fixtures().expect("switched on").clone();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let running = tokio::spawn(server.run(shutdown));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self {
            url,
            client,
            admission,
            fixtures,
            stop,
            running,
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(self.request(Method::GET, path)).await
    }

    /// `POST path` with this JSON.
    pub(crate) fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path).json(body)
    }

    /// `POST /v1/work` of class `t` that takes `ms`.
    pub(crate) fn work(&self, ms: u64) -> RequestBuilder {
        self.post("/v1/work", &json!({"class": "t", "duration_ms": ms}))
    }

    /// Sends in the background.
    pub(crate) fn spawn(&self, request: RequestBuilder) -> JoinHandle<Answer> {
        tokio::spawn(send(request))
    }

    /// Holds the workers and fills them.
    pub(crate) async fn occupy(&self) -> Vec<JoinHandle<Answer>> {
        self.fixtures.hold_workers(true);
        let workers = self.admission.snapshot().workers;
        let held = (0..workers).map(|_| self.spawn(self.work(1))).collect();
        self.until("all workers are busy", |snapshot| snapshot.busy == workers)
            .await;
        held
    }

    /// Waits until the gauges say so, or fails.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&holdoff_admission::Snapshot) -> bool) {
        let limit = now() + Duration::from_secs(4);
        loop {
            let snapshot = self.admission.snapshot();
            if holds(&snapshot) {
                return;
            }
            assert!(now() < limit, "not reached: {what}; {snapshot:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Nothing holds a place any more.
    pub(crate) async fn until_empty(&self) {
        self.until("every place is given back", |snapshot| {
            snapshot.tickets == 0
                && snapshot.busy == 0
                && snapshot.estimated_work.is_zero()
                && snapshot.oldest_age.is_zero()
                && snapshot
                    .tiers
                    .iter()
                    .all(|tier| tier.queued == 0 && tier.running == 0)
        })
        .await;
    }

    pub(crate) async fn metrics(&self) -> String {
        String::from_utf8(self.get("/metrics").await.body.to_vec()).expect("text")
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        self.running.await.expect("the server ends by itself");
    }
}

pub(crate) async fn send(request: RequestBuilder) -> Answer {
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status(), response.headers().clone());
    Answer {
        status,
        headers,
        body: response.bytes().await.expect("a body"),
    }
}

/// Asserts that there is neither a signal with a code nor a hint.
pub(crate) fn assert_no_overload(answer: &Answer) {
    assert_eq!(answer.headers.get("overload-signal"), None, "{answer:?}");
    assert_eq!(answer.headers.get("retry-after"), None, "{answer:?}");
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The refusal, read as a caller reads it.
    pub(crate) fn overload(&self) -> Overload {
        let options = ReadOptions {
            now: SystemTime::UNIX_EPOCH,
            compat: Compat::Off,
        };
        let head = Head::read(self.status, &self.headers, &options);
        match head.finish(Some(&self.body)) {
            Reading::Overload(overload, malformed) => {
                assert_eq!(malformed.sources, 0, "{self:?}");
                *overload
            }
            Reading::NotOverload => panic!("not an overload: {self:?}"),
        }
    }

    pub(crate) fn code(&self) -> String {
        self.overload()
            .code
            .map(|code| code.to_string())
            .unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

#[expect(clippy::disallowed_methods, reason = "real sockets are tested in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
