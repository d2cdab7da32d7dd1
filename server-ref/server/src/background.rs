//! Tasks that nobody waits for, which must not outlive their server.
//!
//! A server that has stopped and still runs work in the background would write ends of tasks that the next one runs
//! again, and would keep the journal's file.

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// The tasks of one server.
#[derive(Debug, Default)]
pub(crate) struct Background {
    halt: CancellationToken,
    tasks: TaskTracker,
}

impl Background {
    /// Runs it beside everything else; `None` where the server stopped first.
    pub(crate) fn spawn<F>(&self, task: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        self.tasks
            .spawn(self.halt.clone().run_until_cancelled_owned(task))
    }

    /// Interrupts all of it, and waits until it is gone.
    pub(crate) async fn stop(&self) {
        self.halt.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Interrupts all of it when the guard is dropped.
    pub(crate) fn stop_on_drop(&self) -> DropGuard {
        self.halt.clone().drop_guard()
    }
}
