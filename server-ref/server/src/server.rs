//! A server's life: bind, run, drain, stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdoff_admission::ProfileError;
use holdoff_admission_tower::{Admission, ForeignDeadlines, Gate};
use holdoff_journal::JournalError;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::app::{App, ByToken, Identities, Shared};
use crate::background::Background;
use crate::config::load_vocabulary;
use crate::durable::{self, BadRecord, Ledger};
use crate::fixtures::Fixtures;
use crate::once::Waiters;
use crate::reload::Reloader;
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
    #[error("{option} {addr}: {}", reason(error))]
    Listen {
        /// The option that says so: `--listen` or `--metrics-listen`.
        option: &'static str,
        /// Which address.
        addr: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// The data directory cannot be used.
    #[error("--data {}: {}", crate::shown::path(path), no_directory(path, error))]
    Data {
        /// Which directory.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The journal of tasks cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal holds something that is no task.
    #[error(transparent)]
    Record(#[from] BadRecord),
    /// A log or trace cannot be written.
    #[error(transparent)]
    Observe(#[from] crate::ObserveError),
    /// The service's own words cannot be used.
    #[error("server.vocabulary {0}")]
    Vocabulary(crate::LoadError),
    /// The metrics recorder cannot be built.
    #[error("cannot set up metrics")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
}

/// Why there is no directory to keep tasks in.
fn no_directory(path: &std::path::Path, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AlreadyExists if !path.is_dir() => {
            "is a file; it must be a directory, made if absent".to_owned()
        }
        _ => format!("the directory cannot be made: {error}"),
    }
}

fn reason(error: &std::io::Error) -> String {
    use std::io::ErrorKind as Kind;
    let why = match error.kind() {
        Kind::AddrInUse => "the port is in use; stop what uses it or choose another (0 takes a free one)",
        Kind::AddrNotAvailable => {
            "this machine has no such address; give one of its own, or 0.0.0.0 or [::] to listen on every address it has"
        }
        Kind::PermissionDenied => {
            "not allowed: a port below 1024 needs privileges; choose one from 1024 to 65535"
        }
        _ => return format!("cannot listen: {error}"),
    };
    why.to_owned()
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
    /// A value outside its range, an address that cannot be listened on, or a data directory that cannot be used.
    pub async fn bind(config: ServerConfig) -> Result<Self, StartError> {
        config.validate()?;
        let identities = Arc::new(Identities::new(&config)?);
        let words = config.limits.vocabulary.as_deref();
        let vocabulary = words.map(load_vocabulary).transpose();
        let vocabulary = vocabulary.map_err(StartError::Vocabulary)?;
        let telemetry = Telemetry::new()?;
        let (listener, addr) = listen_on("--listen", config.addr).await?;
        let (metrics_listener, metrics_addr) = match config.metrics_addr {
            Some(addr) => {
                let (listener, addr) = listen_on("--metrics-listen", addr).await?;
                (Some(listener), addr)
            }
            None => (None, addr),
        };
        let (ledger, kept) = open_ledger(config.data).await?;
        let most = Duration::from_millis(config.limits.max_duration_ms);
        let worker = Arc::new(Worker::new(config.seed, most, &config.limits.burn));
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
        let gate = Gate::new(admission)
            .grease(config.fixtures)
            .identify(ByToken(Arc::clone(&identities)))
            .foreign_deadlines(foreign);
        let app = Arc::new(Shared {
            gate: match vocabulary {
                Some(vocabulary) => gate.vocabulary(vocabulary),
                None => gate,
            },
            worker,
            tasks: Tasks::new(&config.limits),
            ledger,
            waiters: Waiters::new(),
            background: Background::default(),
            cut_off: CancellationToken::new(),
            identities,
            limits: config.limits,
            fixtures,
            page: telemetry.page,
            admin: config.observe.admin,
        });
        durable::restore(&app, kept);
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

    /// A handle that gives the running server another configuration.
    pub fn reloader(&self) -> Reloader {
        Reloader::new(&self.app)
    }

    /// The fixtures, where the configuration switched them on.
    pub fn fixtures(&self) -> Option<&Fixtures> {
        self.app.fixtures.as_ref()
    }

    /// Serves until `shutdown` completes, then drains: new work is refused with `draining` while accepted work
    /// finishes, for at most `limits.drain_ms`. Callers that still wait then are answered `draining` (applied=maybe where their
    /// work had begun), within a second, and everything is closed.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let stop = CancellationToken::new();
        // However this future ends, the listeners and the upkeep stop with it.
        let _stop_on_drop = stop.clone().drop_guard();
        let _halt_on_drop = self.app.background.stop_on_drop();
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
            // Everybody who still waits gets an answer; then the connections close.
            app.cut_off.cancel();
            stop.cancel();
        };
        tokio::join!(main, metrics, life);
        // Work that is kept is interrupted here and taken up by the next start; nothing of this server goes on.
        app.background.stop().await;
        if let Some(ledger) = &app.ledger {
            ledger.close().await;
        }
    }
}

/// The journal in this directory, with what it holds.
async fn open_ledger(folder: Option<PathBuf>) -> Result<(Option<Ledger>, Vec<durable::Kept>), StartError> {
    let Some(folder) = folder else {
        tracing::warn!(
            "no data directory: non-sheddable tasks are refused, since nothing kept would survive this process"
        );
        return Ok((None, Vec::new()));
    };
    let opened = tokio::task::spawn_blocking(move || Ledger::open(&folder)).await;
    // The journal catches the panics of its database; should one come through, it is a journal that does not open.
    let (ledger, kept) = opened.unwrap_or(Err(StartError::Journal(JournalError::Closed)))?;
    Ok((Some(ledger), kept))
}

async fn listen_on(option: &'static str, addr: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |error| StartError::Listen { option, addr, error };
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
        // A task has ended once its end is kept.
        while app.admission().snapshot().tickets > 0 || app.tasks.live() > 0 {
            clock::sleep(LOOK_EVERY).await;
        }
    };
    match tokio::time::timeout(limit, idle).await {
        Ok(()) => tracing::info!("drained"),
        Err(_) => tracing::warn!(
            tickets = app.admission().snapshot().tickets,
            tasks = app.tasks.live(),
            kept = app.ledger.is_some(),
            "accepted work is cut off: it did not finish in time; non-sheddable tasks are kept for the next start"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_listened_on_is_named_with_its_option_and_what_to_do() {
        use std::io::ErrorKind as Kind;
        for (kind, words) in [
            (Kind::AddrInUse, "in use"),
            (Kind::AddrNotAvailable, "no such address"),
            (Kind::PermissionDenied, "from 1024 to 65535"),
            (Kind::Other, "cannot listen: "),
        ] {
            let error = StartError::Listen {
                option: "--metrics-listen",
                addr: ([127, 0, 0, 1], 80).into(),
                error: kind.into(),
            };
            let said = error.to_string();
            assert!(
                said.starts_with("--metrics-listen 127.0.0.1:80: ") && said.contains(words),
                "{said}"
            );
            assert!(
                std::error::Error::source(&error).is_none(),
                "said once, not again as a cause"
            );
        }
    }
}
