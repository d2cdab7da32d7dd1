//! The end of a program under test: asked for, waited for, and in the end forced.
//!
//! ADAPTER.md asks that `stop` is answered and that the program then ends. One that crashes there instead, or has to be
//! killed, was right in its cases; so that is no failure of any of them, but whoever runs it wants to know.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::process::Child;

use super::{Adapter, End, LAST_WORDS_LIMIT, STOP_LIMIT, end};
use crate::lock::lock;

/// The bad ends of the processes of one program: the first in full, and how many there were.
#[derive(Debug, Default)]
pub(crate) struct BadEnds(Mutex<Option<(String, usize)>>);

impl BadEnds {
    fn add(&self, how: String) {
        let mut seen = lock(&self.0);
        match seen.as_mut() {
            Some((_, count)) => *count += 1,
            None => *seen = Some((how, 1)),
        }
    }

    /// In one sentence; none where every process ended well.
    pub(crate) fn told(&self) -> Option<String> {
        let (how, count) = lock(&self.0).clone()?;
        let others = match count {
            1 => String::new(),
            _ => format!(" (the first of {count} of its processes that ended badly)"),
        };
        Some(format!("the adapter {how}{others}"))
    }
}

impl Adapter {
    /// Writes a bad end down there instead of nowhere.
    pub(super) fn tell_ends_to(&mut self, ends: &Arc<BadEnds>) {
        self.ends = Arc::clone(ends);
    }

    /// Ends the program: `stop`, then the end of its stdin, then a kill. Never waits longer than [`STOP_LIMIT`] twice. How it
    /// ended, where it did not as ADAPTER.md asks, is kept for the report.
    pub async fn stop(&self) {
        let answer = if self.is_alive() {
            self.request_stop().await
        } else {
            self.ended_untold().await
        };
        self.stdin.lock().await.take();
        let status = {
            let mut child = self.child.lock().await;
            let status = tokio::time::timeout(STOP_LIMIT, child.wait()).await;
            if status.is_err() {
                kill_group(&child);
                let _ = child.kill().await;
            }
            status
        };
        let bad = match (answer, status) {
            (Stopped::BySomebodyElse, _) => None,
            (Stopped::Badly(how), _) => Some(how),
            (Stopped::Answered, Err(_)) => Some(format!(
                "answered `stop`, but was still there {} ms later, and was killed",
                STOP_LIMIT.as_millis()
            )),
            (Stopped::Answered, Ok(Ok(status))) if !status.success() => {
                Some(format!("answered `stop`, but then ended with {}", status))
            }
            (Stopped::Answered, Ok(_)) => None,
        };
        if let Some(how) = bad {
            let stderr = self.last_words().await;
            self.ends.add(format!("{how}{stderr}"));
        }
    }

    async fn request_stop(&self) -> Stopped {
        let pending = match self.send(json!({"cmd": "stop"})).await {
            Ok(pending) => pending,
            Err(_) => return Stopped::Badly(format!("{} when `stop` came", self.last_breath().await)),
        };
        match tokio::time::timeout(STOP_LIMIT, pending.reply).await {
            Err(_) => Stopped::Badly(format!(
                "did not answer `stop` within {} ms",
                STOP_LIMIT.as_millis()
            )),
            Ok(Err(_)) => match self.how_it_ended() {
                Some(End::Broke(what)) => Stopped::Badly(format!("broke the protocol at `stop`: {what}")),
                Some(End::Killed) => Stopped::BySomebodyElse,
                _ => Stopped::Badly(format!(
                    "{} instead of answering `stop`",
                    self.last_breath().await
                )),
            },
            Ok(Ok(reply)) => match reply.get("error") {
                None | Some(serde_json::Value::Null) => Stopped::Answered,
                Some(error) => Stopped::Badly(format!("answered `stop` with the error {error}")),
            },
        }
    }

    /// A program that ended by itself, and no case was told of it.
    async fn ended_untold(&self) -> Stopped {
        let told = lock(&self.state).told;
        match self.how_it_ended() {
            Some(End::Closed) if !told => Stopped::Badly(format!(
                "{} before `stop`, while nothing was under way",
                self.last_breath().await
            )),
            Some(End::Broke(what)) if !told => Stopped::Badly(format!("broke the protocol: {what}")),
            _ => Stopped::BySomebodyElse,
        }
    }

    fn how_it_ended(&self) -> Option<End> {
        lock(&self.state).ended.clone()
    }

    /// Ends the process at once.
    pub(crate) async fn kill(&self) {
        end(&self.state, End::Killed); // first: its pipes close with it, and that is then no news
        self.stdin.lock().await.take();
        let mut child = self.child.lock().await;
        kill_group(&child);
        let _ = child.kill().await;
    }

    /// How a program ended that closed its pipes: the process itself may take a moment longer.
    pub(super) async fn last_breath(&self) -> String {
        let wait = async { self.child.lock().await.wait().await };
        match tokio::time::timeout(LAST_WORDS_LIMIT, wait).await {
            Ok(Ok(status)) => format!("ended ({status})"),
            Ok(Err(error)) => format!("ended (its exit status cannot be read: {error})"),
            Err(_) => "closed its pipes without ending".to_owned(),
        }
    }
}

/// What came of `stop`.
enum Stopped {
    Answered,
    Badly(String),
    /// This runner ended it, or the case in which it ended has told so.
    BySomebodyElse,
}

impl Drop for Adapter {
    fn drop(&mut self) {
        kill_group(self.child.get_mut());
    }
}

/// Kills a program and whatever it started. Does nothing once it has been reaped, so that no other process that got
/// its number is hit.
pub(super) fn kill_group(child: &Child) {
    #[cfg(unix)]
    if let Some(pid) = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
    #[cfg(not(unix))]
    let _ = child; // the leader alone is killed by its owner
}
