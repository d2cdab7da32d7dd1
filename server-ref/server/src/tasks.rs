//! Tasks behind a `Location`: bounded, with every end in sight.
//!
//! Live tasks are bounded by admission's queues and workers. Ended ones stay for those who poll, up to a limit; then
//! the one that ended first is forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdoff_contract::{Code, IdempotencyKey, Tenant, Tier};
use serde::Serialize;
use uuid::Uuid;

/// Shortest and longest polling hint: fast enough to be of use, slow enough not to be load.
const POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// How long a key stands for its task (CONTRACT section 3).
const KEY_TIME: Duration = Duration::from_secs(24 * 3600);

/// The key of an operation. The tenant is part of it, so that nobody meets somebody else's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) tenant: Option<Tenant>,
    pub(crate) key: IdempotencyKey,
}

/// What a key that came before stands for.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// The same payload: this task.
    Same(Box<View>),
    /// Another payload.
    Other(Key),
}

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
    key: Option<Key>,
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
    /// Never more than there are tasks: a key leaves with its task.
    keys: HashMap<Key, (u64, Uuid)>,
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

    /// Enters an accepted task, or says what its key stands for already.
    pub(crate) fn accept(
        &self,
        id: Uuid,
        class: &str,
        tier: Tier,
        now: Instant,
        expected_in: Duration,
        key: Option<(Key, u64)>,
    ) -> Result<View, Known> {
        let mut table = self.table();
        if let Some((key, print)) = &key {
            if let Some(known) = table.known(key, *print, now) {
                return Err(known);
            }
            table.keys.insert(key.clone(), (*print, id));
        }
        let task = Task {
            key: key.map(|(key, _)| key),
            class: class.to_owned(),
            tier,
            state: State::Queued,
            code: None,
            accepted: now,
            expected: now.checked_add(expected_in).unwrap_or(now),
            waited: None,
            service: None,
        };
        let view = task.view(id, now);
        table.tasks.insert(id, task);
        Ok(view)
    }

    /// True when this key stands for a task.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        self.table().keys.contains_key(key)
    }

    /// What this key stands for.
    pub(crate) fn known(&self, key: &Key, print: u64, now: Instant) -> Option<Known> {
        self.table().known(key, print, now)
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
        let since = now.saturating_duration_since(task.accepted);
        task.service = task.waited.map(|waited| since.saturating_sub(waited));
        // Nothing was done, so the caller may have it done under the same key.
        let freed = if task.waited.is_none() {
            task.key.take()
        } else {
            None
        };
        if let Some(key) = freed {
            table.free(&key, id);
        }
        table.ended.push_back(id);
        while table.ended.len() > self.most_ended {
            if let Some(oldest) = table.ended.pop_front() {
                table.forget(oldest);
            }
        }
    }

    pub(crate) fn view(&self, id: Uuid, now: Instant) -> Option<View> {
        self.table().tasks.get(&id).map(|task| task.view(id, now))
    }

    /// Tasks that have not ended.
    pub(crate) fn live(&self) -> usize {
        let table = self.table();
        table.tasks.len() - table.ended.len()
    }
}

impl Table {
    fn known(&self, key: &Key, print: u64, now: Instant) -> Option<Known> {
        let (first, id) = self.keys.get(key)?;
        let task = self.tasks.get(id)?;
        if now.saturating_duration_since(task.accepted) > KEY_TIME {
            return None;
        }
        let same = *first == print;
        Some(if same {
            Known::Same(Box::new(task.view(*id, now)))
        } else {
            Known::Other(key.clone())
        })
    }

    fn forget(&mut self, id: Uuid) {
        if let Some(key) = self.tasks.remove(&id).and_then(|task| task.key) {
            self.free(&key, id);
        }
    }

    /// Frees a key of this task. After its time a key can stand for a younger task: that one keeps it.
    fn free(&mut self, key: &Key, id: Uuid) {
        if self.keys.get(key).is_some_and(|(_, owner)| *owner == id) {
            self.keys.remove(key);
        }
    }
}

impl Task {
    fn view(&self, id: Uuid, now: Instant) -> View {
        let left = self.expected.saturating_duration_since(now).clamp(POLL.0, POLL.1);
        View {
            id,
            state: self.state,
            class: self.class.clone(),
            tier: self.tier.as_str(),
            code: self.code.as_ref().map(ToString::to_string),
            waited_ms: self.waited.map(whole_ms),
            service_ms: self.service.map(whole_ms),
            poll_after: Some(left).filter(|_| !self.state.is_terminal()),
        }
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
            assert!(
                tasks
                    .accept(*id, "x", Tier::Deferrable, now, Duration::ZERO, None)
                    .is_ok()
            );
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

    #[test]
    fn a_key_stands_for_one_task_until_its_time_is_over_or_nothing_was_done() {
        let tasks = Tasks::new(8);
        let now = clock::now();
        let key = Key {
            tenant: None,
            key: IdempotencyKey::new("k").unwrap(),
        };
        let enter = |print: u64, now: Instant| {
            let (id, key) = (clock::task_id(), Some((key.clone(), print)));
            tasks
                .accept(id, "x", Tier::Deferrable, now, Duration::ZERO, key)
                .map(|view| view.id)
        };
        let first = enter(1, now).unwrap();
        assert!(matches!(enter(1, now), Err(Known::Same(view)) if view.id == first));
        assert!(matches!(enter(2, now), Err(Known::Other(_))));
        tasks.ended(first, now, State::Evicted, None);
        let second = enter(2, now).expect("nothing was done under the key");
        tasks.started(second, now);
        tasks.ended(second, now, State::Done, None);
        assert!(matches!(enter(2, now), Err(Known::Same(view)) if view.id == second));
        let later = now + KEY_TIME + Duration::from_secs(1);
        let third = enter(1, later).expect("its time is over");
        for _ in 0..8 {
            let id = clock::task_id();
            assert!(
                tasks
                    .accept(id, "x", Tier::Deferrable, later, Duration::ZERO, None)
                    .is_ok()
            );
            tasks.ended(id, later, State::Done, None);
        }
        assert!(tasks.view(second, later).is_none(), "forgotten");
        assert!(
            matches!(enter(1, later), Err(Known::Same(view)) if view.id == third),
            "the younger one keeps it"
        );
    }
}
