//! The server under test: a process of its own, started anew by each `start`, on a free port of loopback.
//!
//! A process, because a crash must be one: what survives `kill -9` is what a caller may rely on. This program starts
//! itself again with `--serve`; the child takes its configuration from a line on stdin, says where it listens on stdout, and
//! ends with its parent.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use holdoff_server::{Server, ServerConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::protocol::{Adapter, bad_command, unknown_command};

/// Longest time for the child to listen.
const START: Duration = Duration::from_secs(10);
/// Attempts to listen on the old port again after a crash, a tenth of a second apart.
const SAME_PORT: u32 = 30;

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

    /// Whether a fixture reaches the server. One that does not is a server that does not notice what happens to it.
    fn notices(&self, fixture: &str) -> bool {
        let _ = fixture;
        true
    }

    /// A last look at a fixture that reaches the server.
    fn fixture(&self, command: &mut Value) {
        let _ = command;
    }

    /// The URL of the metrics page that the suite is told.
    fn expose_metrics(
        &self,
        url: String,
        stop: CancellationToken,
    ) -> impl Future<Output = anyhow::Result<String>> + Send {
        let _ = stop;
        async move { Ok(url) }
    }

    /// A last look at the data between a crash and the next start.
    ///
    /// # Errors
    /// What the system says.
    fn crashed(&self, data: &Path) -> std::io::Result<()> {
        let _ = data;
        Ok(())
    }
}

/// Nothing stands between.
pub struct Open;

impl Edge for Open {}

/// What the child is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    profile: Value,
    addr: SocketAddr,
    metrics_addr: SocketAddr,
    data: PathBuf,
}

/// Where the child listens.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    addr: SocketAddr,
    metrics_url: String,
}

struct Running {
    child: Child,
    /// The child ends when this is closed.
    _stdin: ChildStdin,
    order: Order,
    url: String,
    _edge: DropGuard,
    _data: tempfile::TempDir,
}

/// The adapter around the reference server.
pub struct ServerAdapter<E> {
    edge: E,
    client: reqwest::Client,
    running: Mutex<Option<Running>>,
}

impl<E: Edge> ServerAdapter<E> {
    /// An adapter with nothing running.
    ///
    /// # Errors
    /// When there is no client for the fixtures.
    pub fn new(edge: E) -> anyhow::Result<Self> {
        Ok(Self {
            edge,
            client: reqwest::Client::builder().no_proxy().build()?,
            running: Mutex::new(None),
        })
    }

    async fn start(&self, command: &Value) -> anyhow::Result<Value> {
        let mut running = self.running.lock().await;
        // What a case left held would make a graceful stop wait for its whole bound.
        if let Some(mut before) = running.take() {
            before.child.kill().await?;
        }
        let mut profile = command.get("profile").cloned().unwrap_or_else(|| json!({}));
        self.edge.profile(&mut profile);
        let data = tempfile::tempdir()?;
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut order = Order {
            profile,
            addr: free,
            metrics_addr: free,
            data: data.path().to_owned(),
        };
        let (child, stdin, ready) = spawn(&order).await?;
        order.addr = ready.addr;
        order.metrics_addr = ready.metrics_url.parse::<url::Url>()?.socket_addrs(|| None)?[0];
        let stop = CancellationToken::new();
        let url = format!("http://{}", ready.addr);
        let exposed = self.edge.expose(url.clone(), stop.clone()).await?;
        let metrics_url = self.edge.expose_metrics(ready.metrics_url, stop.clone()).await?;
        *running = Some(Running {
            child,
            _stdin: stdin,
            order,
            url,
            _edge: stop.drop_guard(),
            _data: data,
        });
        Ok(json!({"url": exposed, "metrics_url": metrics_url}))
    }

    async fn fixture(&self, command: &Value) -> anyhow::Result<Value> {
        let name = command.get("name").and_then(Value::as_str).unwrap_or_default();
        let mut running = self.running.lock().await;
        let running = running.as_mut().context("fixture before start")?;
        if !self.edge.notices(name) {
            return Ok(json!({"ok": true}));
        }
        if name == "crash" {
            // SIGKILL: nothing in the server hears of it.
            running.child.kill().await?;
            self.edge.crashed(&running.order.data)?;
            (running.child, running._stdin, _) = spawn(&running.order).await?;
            return Ok(json!({"ok": true}));
        }
        let mut url = url::Url::parse(&running.url)?;
        url.set_path(&format!("/fixtures/{name}"));
        let mut command = command.clone();
        self.edge.fixture(&mut command);
        let request = self.client.post(url).json(&command);
        let response = request.timeout(START).send().await?;
        let status = response.status();
        if !status.is_success() {
            anyhow::bail!("{status}: {}", response.text().await?);
        }
        Ok(json!({"ok": true}))
    }
}

/// Starts the child and waits until it listens.
async fn spawn(order: &Order) -> anyhow::Result<(Child, ChildStdin, Ready)> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().context("the child has no stdin")?;
    let stdout = child.stdout.take().context("the child has no stdout")?;
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    stdin.write_all(&line).await?;
    let mut lines = BufReader::new(stdout).lines();
    let said = tokio::time::timeout(START, lines.next_line()).await??;
    let said = said.context("the server did not start")?;
    let ready = serde_json::from_str(&said).map_err(|_| anyhow::anyhow!("{said}"))?;
    Ok((child, stdin, ready))
}

/// The child: serves as it is told on stdin, until stdin is closed.
///
/// # Errors
/// When stdin or stdout fails. A configuration that cannot be used is said on stdout.
pub async fn serve_as_told() -> anyhow::Result<()> {
    let mut stdin = BufReader::new(tokio::io::stdin());
    let mut line = String::new();
    stdin.read_line(&mut line).await?;
    let mut stdout = tokio::io::stdout();
    let server = match bind(serde_json::from_str(&line)?).await {
        Ok(server) => server,
        Err(error) => {
            stdout.write_all(format!("{error:#}\n").as_bytes()).await?;
            return Ok(stdout.flush().await?);
        }
    };
    let ready = Ready {
        addr: server.addr(),
        metrics_url: server.metrics_url(),
    };
    stdout
        .write_all(format!("{}\n", serde_json::to_string(&ready)?).as_bytes())
        .await?;
    stdout.flush().await?;
    let mut rest = Vec::new();
    tokio::select! {
        () = server.run(std::future::pending()) => {}
        // Nothing more is said, so this ends with the parent.
        _ = stdin.read_to_end(&mut rest) => {}
    }
    Ok(())
}

/// After a crash the old port is asked for again, and the system may need a moment to give it.
async fn bind(order: Order) -> anyhow::Result<Server> {
    let mut config = ServerConfig::from_json(&order.profile)?;
    config.addr = order.addr;
    config.metrics_addr = Some(order.metrics_addr);
    config.data = Some(order.data);
    config.fixtures = true;
    config.seed = Some(1);
    let mut again = SAME_PORT;
    loop {
        match Server::bind(config.clone()).await {
            Err(holdoff_server::StartError::Listen { .. }) if order.addr.port() != 0 && again > 0 => {
                again -= 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            done => return Ok(done?),
        }
    }
}

impl<E: Edge> Adapter for ServerAdapter<E> {
    fn hello(&self) -> Value {
        json!({
            "role": "server",
            "implementation": {"name": "holdoff-server", "version": env!("CARGO_PKG_VERSION")},
            "contract_versions": [1],
            "capabilities": ["admission", "hold_workers", "freeze_controller", "force_state", "drain", "force_reject", "degraded",
                "trust", "panic_work", "crash", "idempotency", "retry_throttle", "admin_page", "openapi", "grease",
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
