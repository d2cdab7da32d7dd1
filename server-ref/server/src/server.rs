//! A server's life: bind, run, drain, stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdoff_admission::ProfileError;
use holdoff_admission_tower::{Admission, ForeignDeadlines, Gate};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::app::{App, ByToken, Identities, Shared};
use crate::fixtures::Fixtures;
use crate::tasks::Tasks;
use crate::telemetry::Telemetry;
use crate::worker::Worker;
use crate::{ServerConfig, clock, listen, routes};

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A value of the configuration is outside its range.
    #[error(transparent)]
    Config(#[from] ProfileError),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {}", reason(source))]
    Listen {
        /// Which address.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A log or trace cannot be written.
    #[error(transparent)]
    Observe(#[from] crate::ObserveError),
    /// The metrics recorder cannot be built.
    #[error("cannot set up metrics")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "the port is in use; stop what uses it or choose another --listen".to_owned()
        }
        _ => error.to_string(),
    }
}

/// A bound server. It answers once [`Server::run`] is polled.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use holdoff_server::{Server, ServerConfig};
///
/// let config = ServerConfig { addr: "127.0.0.1:0".parse()?, ..ServerConfig::default() };
/// let server = Server::bind(config).await?;
/// println!("listening on {}", server.url());
/// server.run(std::future::ready(())).await; // a real one waits for a signal here
/// # Ok(()) }
/// ```
pub struct Server {
    app: App,
    listener: TcpListener,
    metrics_listener: Option<TcpListener>,
    addr: SocketAddr,
    metrics_addr: SocketAddr,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Binds the listeners and starts admission on the current runtime.
    ///
    /// # Errors
    /// A value outside its range, or an address that cannot be listened on.
    pub async fn bind(config: ServerConfig) -> Result<Self, StartError> {
        config.validate()?;
        let identities = Arc::new(Identities::new(&config)?);
        let telemetry = Telemetry::new()?;
        let (listener, addr) = listen_on(config.addr).await?;
        let (metrics_listener, metrics_addr) = match config.metrics_addr {
            Some(addr) => {
                let (listener, addr) = listen_on(addr).await?;
                (Some(listener), addr)
            }
            None => (None, addr),
        };
        let most = Duration::from_millis(config.limits.max_duration_ms);
        let worker = Arc::new(Worker::new(config.seed, most));
        let writer = config.observe.start(clock::now())?;
        let admission = Admission::start(config.profile, Some(telemetry.recorder))?;
        if let Some(writer) = writer {
            // Nobody else has this admission yet, so there is no other watcher.
            let _ = admission.watch(writer);
        }
        let fixtures = config
            .fixtures
            .then(|| Fixtures::new(admission.clone(), Arc::clone(&worker), Arc::clone(&identities)));
        let foreign = if config.limits.foreign_deadlines {
            ForeignDeadlines::Counted
        } else {
            ForeignDeadlines::Ignored
        };
        let app = Arc::new(Shared {
            gate: Gate::new(admission)
                .grease(config.fixtures)
                .identify(ByToken(identities))
                .foreign_deadlines(foreign),
            worker,
            tasks: Tasks::new(config.limits.ended_tasks),
            limits: config.limits,
            fixtures,
            page: telemetry.page,
            admin: config.observe.admin,
        });
        Ok(Self {
            app,
            listener,
            metrics_listener,
            addr,
            metrics_addr,
        })
    }

    /// The address that is listened on, with the real port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://` and the address.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Where the metrics are.
    pub fn metrics_url(&self) -> String {
        format!("http://{}/metrics", self.metrics_addr)
    }

    /// The admission behind the routes: its gauges, for a program that watches the server from inside.
    pub fn admission(&self) -> &Admission {
        self.app.admission()
    }

    /// The fixtures, where the configuration switched them on.
    pub fn fixtures(&self) -> Option<&Fixtures> {
        self.app.fixtures.as_ref()
    }

    /// Serves until `shutdown` completes, then drains: new work is refused with `draining` while accepted work
    /// finishes, for at most `limits.drain_ms`; then everything is closed.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let stop = CancellationToken::new();
        // However this future ends, the listeners and the upkeep stop with it.
        let _stop_on_drop = stop.clone().drop_guard();
        let most = self.app.limits.max_connections;
        let main = routes::main(&self.app, self.metrics_listener.is_none());
        let main = listen::serve(self.listener, main, most, stop.clone());
        let metrics_routes = routes::metrics_only(&self.app);
        let metrics_stop = stop.clone();
        let metrics = async move {
            if let Some(listener) = self.metrics_listener {
                listen::serve(listener, metrics_routes, most, metrics_stop).await;
            }
        };
        let app = self.app;
        let life = async {
            tokio::select! {
                () = shutdown => {}
                () = upkeep(&app) => {}
            }
            drain(&app).await;
            stop.cancel();
        };
        tokio::join!(main, metrics, life);
    }
}

async fn listen_on(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { addr, source };
    let listener = TcpListener::bind(addr).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Histograms keep every sample until somebody scrapes them or they are folded: without this, a server that nobody
/// scrapes grows.
async fn upkeep(app: &App) {
    const EVERY: Duration = Duration::from_secs(5);
    loop {
        clock::sleep(EVERY).await;
        app.page.run_upkeep();
    }
}

/// Refuses new work and waits for what was accepted.
async fn drain(app: &App) {
    const LOOK_EVERY: Duration = Duration::from_millis(10);
    app.admission().drain();
    let limit = app.limits.drain();
    tracing::info!(tickets = app.admission().snapshot().tickets, ?limit, "draining");
    let idle = async {
        while app.admission().snapshot().tickets > 0 {
            clock::sleep(LOOK_EVERY).await;
        }
    };
    match tokio::time::timeout(limit, idle).await {
        Ok(()) => tracing::info!("drained"),
        Err(_) => tracing::warn!(
            tickets = app.admission().snapshot().tickets,
            tasks = app.tasks.live(),
            "accepted work is cut off: it did not finish in time"
        ),
    }
}
