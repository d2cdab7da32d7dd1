//! The server under test: started anew by each `start`, on a free port of loopback.

use holdoff_server::{Fixtures, Server, ServerConfig};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::protocol::{Adapter, bad_command, unknown_command};

/// What stands between the server and its callers; a mutant puts something there.
pub trait Edge: Send + Sync + 'static {
    /// A last look at the profile before the server is started.
    fn profile(&self, profile: &mut Value) {
        let _ = profile;
    }

    /// The URL that callers are told, for a server at this one. What it starts ends with `stop`.
    fn expose(
        &self,
        url: String,
        stop: CancellationToken,
    ) -> impl Future<Output = anyhow::Result<String>> + Send {
        let _ = stop;
        async move { Ok(url) }
    }
}

/// Nothing stands between.
pub struct Open;

impl Edge for Open {}

struct Running {
    fixtures: Option<Fixtures>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// The adapter around the reference server.
pub struct ServerAdapter<E> {
    edge: E,
    running: Mutex<Option<Running>>,
}

impl<E: Edge> ServerAdapter<E> {
    /// An adapter with nothing running.
    pub fn new(edge: E) -> Self {
        Self {
            edge,
            running: Mutex::new(None),
        }
    }

    async fn start(&self, command: &Value) -> anyhow::Result<Value> {
        let mut running = self.running.lock().await;
        if let Some(before) = running.take() {
            before.end().await;
        }
        let mut profile = command.get("profile").cloned().unwrap_or_else(|| json!({}));
        self.edge.profile(&mut profile);
        let mut config = ServerConfig::from_json(&profile)?;
        config.addr = ([127, 0, 0, 1], 0).into();
        config.metrics_addr = Some(config.addr);
        config.fixtures = true;
        config.seed = Some(1);
        let server = Server::bind(config).await?;
        let stop = CancellationToken::new();
        let url = self.edge.expose(server.url(), stop.clone()).await?;
        let reply = json!({"url": url, "metrics_url": server.metrics_url()});
        let fixtures = server.fixtures().cloned();
        let task = tokio::spawn(server.run(stop.clone().cancelled_owned()));
        *running = Some(Running { fixtures, stop, task });
        Ok(reply)
    }

    async fn fixture(&self, command: &Value) -> anyhow::Result<Value> {
        let name = command.get("name").and_then(Value::as_str).unwrap_or_default();
        let running = self.running.lock().await;
        let fixtures = running.as_ref().and_then(|running| running.fixtures.as_ref());
        fixtures
            .ok_or_else(|| anyhow::anyhow!("fixture before start"))?
            .apply(name, command)?;
        Ok(json!({"ok": true}))
    }
}

impl Running {
    /// Ends at once: what a case left held would make a graceful stop wait for its whole bound.
    async fn end(self) {
        self.stop.cancel();
        self.task.abort();
        // Aborted, or already over: both are an end.
        let _ = self.task.await;
    }
}

impl<E: Edge> Adapter for ServerAdapter<E> {
    fn hello(&self) -> Value {
        json!({
            "role": "server",
            "implementation": {"name": "holdoff-server", "version": env!("CARGO_PKG_VERSION")},
            "contract_versions": [1],
            "capabilities": ["hold_workers", "freeze_controller", "force_state", "drain", "force_reject", "degraded",
                "trust", "panic_work", "retry_throttle", "admin_page", "openapi", "grease",
                "foreign_deadlines"],
        })
    }

    async fn answer(&self, cmd: &str, command: Value) -> Value {
        let answer = match cmd {
            "start" => self.start(&command).await,
            "fixture" => self.fixture(&command).await,
            _ => return unknown_command(),
        };
        answer.unwrap_or_else(|error| bad_command(format!("{error:#}")))
    }
}
