//! The same program again, in a process of its own: as a server, so that it shares neither memory nor locks with the
//! callers under measure, and as a caller, so that a tool can count what it does.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, ensure};
use axum::Router;
use axum::routing::{get, post};

use crate::host::Host;

/// The argument that makes this program the server that callers under measure call.
pub const SERVE: &str = "--serve-calls";

/// Answers every call with `ok` until standard input ends, which it does when whoever started it is gone. `told` is
/// called with the base URL.
///
/// # Errors
/// When there is no port to be had.
pub fn serve(told: impl FnOnce(&str)) -> anyhow::Result<()> {
    let host = Host::start(|| {
        Ok(Router::new()
            .route("/", get(async || "ok"))
            .route("/", post(async |_body: axum::body::Bytes| "ok")))
    })?;
    told(&host.url());
    let mut end = Vec::new();
    std::io::stdin().lock().take(1).read_to_end(&mut end)?;
    Ok(())
}

/// A server in a process of its own. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    /// Kept open: the server's standard output.
    _out: BufReader<ChildStdout>,
    url: String,
}

impl Server {
    /// Starts it, and waits until it listens.
    ///
    /// # Errors
    /// When this program cannot be started again, or does not say where it listens.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(SERVE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server's process")?;
        let mut out = BufReader::new(process.stdout.take().context("the server has no output")?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        let url = line.trim().to_owned();
        let server = Self {
            process,
            _out: out,
            url,
        };
        ensure!(
            server.url.starts_with("http://"),
            "the server's process does not say where it listens"
        );
        Ok(server)
    }

    /// Base URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Closing its input would do as well; either way it is gone afterwards.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
