//! One running program for many cases, started again after it broke.

use std::sync::Arc;
use std::time::Duration;

use super::end::BadEnds;
use super::{Adapter, AdapterCommand, AdapterError, HELLO_LIMIT, MAX_RESTARTS, Tail};
use crate::case::Role;

/// Starts a program when it is needed and again after it broke, so that one bad case does not end the run.
#[derive(Debug)]
pub struct AdapterPool {
    command: AdapterCommand,
    role: Role,
    hello_limit: Duration,
    current: tokio::sync::Mutex<Shared>,
    ends: Arc<BadEnds>,
}

#[derive(Debug, Default)]
struct Shared {
    adapter: Option<Arc<Adapter>>,
    started: u32,
}

impl AdapterPool {
    /// A pool that has not started anything yet.
    pub fn new(command: AdapterCommand, role: Role) -> Self {
        Self {
            command,
            role,
            hello_limit: HELLO_LIMIT,
            current: tokio::sync::Mutex::default(),
            ends: Arc::default(),
        }
    }

    /// The same pool with another limit for `hello`; [`HELLO_LIMIT`] by default.
    #[must_use]
    pub fn with_hello_limit(mut self, limit: Duration) -> Self {
        self.hello_limit = limit;
        self
    }

    /// The running program; starts one when there is none or the last one broke, at most [`MAX_RESTARTS`] times.
    ///
    /// # Errors
    /// [`AdapterError::Start`], [`AdapterError::GivenUp`].
    pub async fn get(&self) -> Result<Arc<Adapter>, AdapterError> {
        let mut current = self.current.lock().await;
        if let Some(adapter) = current.adapter.as_ref().filter(|adapter| adapter.is_alive()) {
            return Ok(Arc::clone(adapter));
        }
        if let Some(dead) = current.adapter.take() {
            dead.stop().await;
        }
        if current.started > MAX_RESTARTS {
            return Err(AdapterError::GivenUp);
        }
        current.started += 1;
        let fresh = Arc::new(self.start_own().await?);
        current.adapter = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    /// A process of the caller's own, apart from the shared one. The caller stops it.
    ///
    /// # Errors
    /// [`AdapterError::Start`].
    pub async fn start_own(&self) -> Result<Adapter, AdapterError> {
        let mut adapter = Adapter::start(&self.command, self.role, self.hello_limit).await?;
        adapter.tell_ends_to(&self.ends);
        Ok(adapter)
    }

    /// How processes of this program ended that did not end as ADAPTER.md asks; to be asked after [`AdapterPool::stop`].
    pub fn bad_ends(&self) -> Option<String> {
        self.ends.told()
    }

    /// Kills the shared program (a case overran its limit) and hands back the end of its stderr.
    pub async fn discard(&self) -> Tail {
        match self.current.lock().await.adapter.take() {
            Some(adapter) => {
                adapter.kill().await;
                adapter.stderr_tail()
            }
            None => Tail::default(),
        }
    }

    /// Kills the shared program and whatever it started, without asking it to stop.
    pub async fn kill(&self) {
        let _ = self.discard().await;
    }

    /// Ends the shared program.
    pub async fn stop(&self) {
        if let Some(adapter) = self.current.lock().await.adapter.take() {
            adapter.stop().await;
        }
    }
}
