//! A server on a thread of its own, with a runtime of its own: callers and server then do not take turns on one
//! thread, and the server's processor time can be read apart from everybody else's.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use axum::Router;
use axum::serve::ListenerExt;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

use crate::clock;

/// A server that is up. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Host {
    /// Where it listens.
    pub(crate) addr: SocketAddr,
    handle: Handle,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Starts a server on a free port of loopback. `router` is called inside the server's runtime.
    ///
    /// # Errors
    /// When there is no port or no thread to be had, or `router` fails.
    pub(crate) fn start(
        router: impl FnOnce() -> anyhow::Result<Router> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let runtime = one_thread()?;
        let handle = runtime.handle().clone();
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("server".into()).spawn(move || {
            runtime.block_on(async move {
                let started = async {
                    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
                    Ok::<_, anyhow::Error>((listener.local_addr()?, listener, router()?))
                };
                let (listener, router) = match started.await {
                    Ok((addr, listener, router)) => {
                        let _ = tell.send(Ok(addr));
                        (listener, router)
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error));
                        return;
                    }
                };
                let listener = listener.tap_io(|socket| {
                    // As reqwest does on its side; without it a reply may wait for an acknowledgement.
                    let _ = socket.set_nodelay(true);
                });
                tokio::select! {
                    _ = axum::serve(listener, router) => {}
                    () = stopping.cancelled() => {}
                }
            });
            runtime.shutdown_background();
        })?;
        let addr = told.recv().context("the server's thread ended")??;
        Ok(Self {
            addr,
            handle,
            stop,
            thread: Some(thread),
        })
    }

    /// Base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Processor time that the server's thread has used.
    ///
    /// # Errors
    /// When the server has ended.
    pub(crate) async fn cpu(&self) -> anyhow::Result<Duration> {
        let read = self.handle.spawn(async { clock::thread_cpu() });
        read.await
            .map_err(|error| anyhow!("the server has ended: {error}"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been told on stderr.
            let _ = thread.join();
        }
    }
}

/// A runtime that runs on the thread that blocks on it.
///
/// # Errors
/// When the operating system refuses.
pub(crate) fn one_thread() -> anyhow::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")
}
