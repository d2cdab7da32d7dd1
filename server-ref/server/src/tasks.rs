//! Tasks behind a `Location`: bounded, with every end in sight.
//!
//! Live tasks are bounded by admission's queues and workers. Ended ones stay for those who poll, up to a limit; then
//! the one that ended first is forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdoff_contract::{Code, Tier};
use serde::Serialize;
use uuid::Uuid;

/// Shortest and longest polling hint: fast enough to be of use, slow enough not to be load.
const POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Queued,
    Running,
    Done,
    Failed,
    Expired,
    Evicted,
}

impl State {
    pub(crate) fn is_terminal(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    class: String,
    tier: Tier,
    state: State,
    code: Option<Code>,
    accepted: Instant,
    /// When it should be done: the base of the polling hint.
    expected: Instant,
    waited: Option<Duration>,
    service: Option<Duration>,
}

/// A task as its owner sees it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    pub(crate) id: Uuid,
    pub(crate) state: State,
    class: String,
    tier: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_ms: Option<u64>,
    #[serde(skip)]
    pub(crate) poll_after: Option<Duration>,
}

pub(crate) struct Tasks {
    table: Mutex<Table>,
    most_ended: usize,
}

#[derive(Default)]
struct Table {
    tasks: HashMap<Uuid, Task>,
    ended: VecDeque<Uuid>,
}

impl Tasks {
    pub(crate) fn new(most_ended: usize) -> Self {
        Self {
            table: Mutex::default(),
            most_ended,
        }
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters an accepted task.
    pub(crate) fn accept(&self, id: Uuid, class: &str, tier: Tier, now: Instant, expected_in: Duration) {
        let task = Task {
            class: class.to_owned(),
            tier,
            state: State::Queued,
            code: None,
            accepted: now,
            expected: now.checked_add(expected_in).unwrap_or(now),
            waited: None,
            service: None,
        };
        self.table().tasks.insert(id, task);
    }

    pub(crate) fn started(&self, id: Uuid, now: Instant) {
        if let Some(task) = self.table().tasks.get_mut(&id) {
            task.state = State::Running;
            task.waited = Some(now.saturating_duration_since(task.accepted));
        }
    }

    /// Ends a task, and forgets the oldest ended one beyond the limit.
    pub(crate) fn ended(&self, id: Uuid, now: Instant, state: State, code: Option<Code>) {
        let mut table = self.table();
        let Some(task) = table.tasks.get_mut(&id) else {
            return;
        };
        if task.state.is_terminal() {
            return;
        }
        task.state = state;
        task.code = code;
        task.service = task.waited.map(|waited| {
            now.saturating_duration_since(task.accepted)
                .saturating_sub(waited)
        });
        table.ended.push_back(id);
        while table.ended.len() > self.most_ended {
            if let Some(oldest) = table.ended.pop_front() {
                table.tasks.remove(&oldest);
            }
        }
    }

    pub(crate) fn view(&self, id: Uuid, now: Instant) -> Option<View> {
        let table = self.table();
        let task = table.tasks.get(&id)?;
        let left = task.expected.saturating_duration_since(now).clamp(POLL.0, POLL.1);
        Some(View {
            id,
            state: task.state,
            class: task.class.clone(),
            tier: task.tier.as_str(),
            code: task.code.as_ref().map(ToString::to_string),
            waited_ms: task.waited.map(whole_ms),
            service_ms: task.service.map(whole_ms),
            poll_after: Some(left).filter(|_| !task.state.is_terminal()),
        })
    }

    /// Tasks that have not ended.
    pub(crate) fn live(&self) -> usize {
        let table = self.table();
        table.tasks.len() - table.ended.len()
    }
}

/// Milliseconds for a document; saturates far beyond any limit here.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn ended_tasks_are_forgotten_oldest_first_and_live_ones_never() {
        let tasks = Tasks::new(2);
        let now = clock::now();
        let ids: Vec<Uuid> = (0..4).map(|_| clock::task_id()).collect();
        for id in &ids {
            tasks.accept(*id, "x", Tier::Deferrable, now, Duration::ZERO);
        }
        for id in &ids[..3] {
            tasks.ended(*id, now, State::Done, None);
            tasks.ended(*id, now, State::Failed, None); // the first ending stands
        }
        assert!(tasks.view(ids[0], now).is_none());
        assert_eq!(tasks.view(ids[1], now).map(|task| task.state), Some(State::Done));
        assert_eq!(
            tasks.view(ids[3], now).map(|task| task.state),
            Some(State::Queued)
        );
        assert_eq!(tasks.live(), 1);
    }
}
