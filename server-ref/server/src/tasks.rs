//! Tasks behind a `Location`: bounded, with every end in sight.
//!
//! Live tasks are bounded by admission's queues and workers. Ended ones stay for those who poll, up to a limit; then the
//! one that ended first is forgotten. A task whose key still stands is not forgotten: a repeat must find it. Non-sheddable
//! work that did not end well stays as a dead letter of its owner, in a list of its own, so that a flood of good ends does
//! not wash it away.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdoff_contract::{Code, Tenant, Tier};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use uuid::Uuid;

use crate::config::Limits;
use crate::keys::{Key, KeyLimits, Keys, Print, Settled, Taken};
use crate::once::Answer;

/// Shortest and longest polling hint: fast enough to be of use, slow enough not to be load.
const POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// Most dead letters of one answer, the newest first.
pub(crate) const DEAD_LETTERS_SHOWN: usize = 100;

/// What a key that came before stands for, or why it cannot be taken.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// This task.
    Task(Box<View>),
    /// This task, once it is durable.
    Pending(Uuid, watch::Receiver<Standing>),
    /// Work whose caller waits, or waited.
    Work(Waiting),
    /// Another payload.
    Other,
    /// The tenant has as many keys as it may.
    TenantFull,
    /// There are as many keys as there may be.
    Full,
}

/// The answer of the first request under a key, once it has one. A closed channel: it got none, and nothing stands.
pub(crate) type Waiting = watch::Receiver<Option<Arc<Answer>>>;

/// Whether a task that must be durable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Pending,
    Durable,
}

#[derive(Clone, Debug)]
enum Holder {
    Task(Uuid),
    Work(Waiting),
}

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// A task to be entered.
#[derive(Clone, Debug)]
pub(crate) struct NewTask {
    pub(crate) class: String,
    pub(crate) tier: Tier,
    pub(crate) tenant: Option<Tenant>,
    pub(crate) key: Option<(Arc<Key>, Print)>,
    /// When it should be done: the base of the polling hint.
    pub(crate) expected_in: Duration,
    /// It has a record, which must be forgotten with it; while this is pending, nobody may be told of it.
    pub(crate) record: Option<watch::Receiver<Standing>>,
}

#[derive(Clone, Debug)]
struct Task {
    new: NewTask,
    state: State,
    code: Option<Code>,
    accepted: Instant,
    expected: Instant,
    waited: Option<Duration>,
    service: Option<Duration>,
    /// It is in the list of dead letters.
    dead: bool,
}

/// How a task ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) state: State,
    pub(crate) code: Option<Code>,
}

/// A task as its owner sees it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    pub(crate) id: Uuid,
    pub(crate) state: State,
    class: String,
    tier: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waited_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service_ms: Option<u64>,
    #[serde(skip)]
    pub(crate) poll_after: Option<Duration>,
}

pub(crate) struct Tasks {
    table: Mutex<Table>,
    most_ended: usize,
    most_dead: usize,
}

struct Table {
    tasks: HashMap<Uuid, Task>,
    keys: Keys<Holder>,
    /// Ended, without a key, not dead letters: the first goes first.
    ended: VecDeque<Uuid>,
    dead: VecDeque<Uuid>,
    live: usize,
    /// Forgotten tasks whose record must go too.
    forgotten: Vec<Uuid>,
}

impl Tasks {
    pub(crate) fn new(limits: &Limits) -> Self {
        let keys = Keys::new(KeyLimits {
            time: Duration::from_millis(limits.key_ms),
            all: limits.keys,
            tenant: limits.keys_per_tenant,
        });
        Self {
            table: Mutex::new(Table {
                tasks: HashMap::new(),
                keys,
                ended: VecDeque::new(),
                dead: VecDeque::new(),
                live: 0,
                forgotten: Vec::new(),
            }),
            most_ended: limits.ended_tasks,
            most_dead: limits.dead_letters,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters an accepted task, or says what its key stands for already.
    pub(crate) fn accept(&self, id: Uuid, new: NewTask, now: Instant) -> Result<View, Known> {
        let mut table = self.table();
        if let Some((key, print)) = &new.key {
            table.expire(now);
            let taken = table.keys.take(key, *print, now, Holder::Task(id));
            taken.map_err(|taken| table.known(taken, now))?;
        }
        let task = Task::new(new, now, now);
        let view = task.view(id, now);
        table.tasks.insert(id, task);
        table.live += 1;
        drop(table);
        Ok(view)
    }

    /// Puts back a task that was promised before a restart. Call in the order in which they were accepted.
    pub(crate) fn restore(&self, id: Uuid, new: NewTask, accepted: Instant, now: Instant) {
        let mut table = self.table();
        if let Some((key, print)) = &new.key {
            table.keys.put(key, *print, accepted, Holder::Task(id));
        }
        table.tasks.insert(id, Task::new(new, accepted, now));
        table.live += 1;
    }

    /// Its record could not be written: it never was.
    pub(crate) fn withdraw(&self, id: Uuid) {
        let mut table = self.table();
        if let Some(task) = table.tasks.remove(&id) {
            table.live -= 1;
            if let Some((key, _)) = task.new.key {
                table.keys.free(&key);
            }
        }
    }

    /// True when this key stands for something.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        self.table().keys.contains(key)
    }

    /// What this key stands for.
    pub(crate) fn known(&self, key: &Key, print: Print, now: Instant) -> Option<Known> {
        let mut table = self.table();
        table.expire(now);
        let taken = table.keys.get(key, print)?;
        Some(table.known(taken, now))
    }

    /// Gives a key to work whose caller waits, or says what it stands for already.
    pub(crate) fn claim(
        &self,
        key: &Arc<Key>,
        print: Print,
        now: Instant,
        waiting: Waiting,
    ) -> Result<(), Known> {
        let mut table = self.table();
        table.expire(now);
        let taken = table.keys.take(key, print, now, Holder::Work(waiting));
        taken.map_err(|taken| table.known(taken, now))
    }

    /// The work under this key has an answer that stands, or it has none and the key is free.
    pub(crate) fn settle(&self, key: &Key, stands: bool) {
        let mut table = self.table();
        if stands {
            table.keys.settle(key);
        } else {
            table.keys.free(key);
        }
    }

    pub(crate) fn started(&self, id: Uuid, now: Instant) {
        if let Some(task) = self.table().tasks.get_mut(&id) {
            task.state = State::Running;
            task.waited = Some(now.saturating_duration_since(task.accepted));
        }
    }

    /// What would be seen if the task ended so now.
    pub(crate) fn preview(&self, id: Uuid, now: Instant, end: &End) -> Option<View> {
        let mut task = self.table().tasks.get(&id)?.clone();
        task.end(now, end);
        Some(task.view(id, now))
    }

    /// Ends a task, and forgets the oldest ended ones beyond the limits.
    pub(crate) fn ended(&self, id: Uuid, now: Instant, end: &End) {
        let mut table = self.table();
        table.end(id, now, end);
        table.trim(self.most_ended, self.most_dead);
    }

    /// Puts back the times of a task that ended before a restart, after [`Tasks::ended`].
    pub(crate) fn restore_times(&self, id: Uuid, waited: Option<Duration>, service: Option<Duration>) {
        if let Some(task) = self.table().tasks.get_mut(&id) {
            (task.waited, task.service) = (waited, service);
        }
    }

    /// Tasks whose record must go, because they are forgotten.
    pub(crate) fn take_forgotten(&self) -> Vec<Uuid> {
        std::mem::take(&mut self.table().forgotten)
    }

    pub(crate) fn view(&self, id: Uuid, now: Instant) -> Option<View> {
        self.table().tasks.get(&id).map(|task| task.view(id, now))
    }

    /// The newest dead letters of this owner, and how many there are.
    pub(crate) fn dead_letters(&self, owner: Option<&Tenant>, now: Instant) -> (Vec<View>, usize) {
        let table = self.table();
        let all = table.dead.iter().rev().filter_map(|id| {
            let task = table.tasks.get(id)?;
            (task.new.tenant.as_ref() == owner).then_some((*id, task))
        });
        let mut shown = Vec::new();
        let mut count = 0;
        for (id, task) in all {
            count += 1;
            if shown.len() < DEAD_LETTERS_SHOWN {
                shown.push(task.view(id, now));
            }
        }
        (shown, count)
    }

    /// Tasks that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.table().live
    }
}

impl Table {
    fn known(&self, taken: Taken<Holder>, now: Instant) -> Known {
        match taken {
            Taken::By(Holder::Work(waiting)) => Known::Work(waiting),
            Taken::By(Holder::Task(id)) => match self.tasks.get(&id) {
                Some(task) => match &task.new.record {
                    Some(standing) if *standing.borrow() == Standing::Pending => {
                        Known::Pending(id, standing.clone())
                    }
                    _ => Known::Task(Box::new(task.view(id, now))),
                },
                // A key goes before its task, so this is not reached; another payload is the safe answer.
                None => Known::Other,
            },
            Taken::ByAnother => Known::Other,
            Taken::TenantFull => Known::TenantFull,
            Taken::Full => Known::Full,
        }
    }

    /// Lets go of the keys whose time is over; their tasks then age like any other.
    fn expire(&mut self, now: Instant) {
        for holder in self.keys.expire(now) {
            if let Holder::Task(id) = holder
                && let Some(task) = self.tasks.get_mut(&id)
            {
                task.new.key = None;
                if !task.dead {
                    self.ended.push_back(id);
                }
            }
        }
    }

    fn end(&mut self, id: Uuid, now: Instant, end: &End) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| !task.state.is_terminal()) else {
            return;
        };
        self.live -= 1;
        task.end(now, end);
        if let Some((key, _)) = task.new.key.clone() {
            let settled = if task.waited.is_none() {
                // Nothing was done, so the caller may have it done under the same key.
                self.keys.free(&key);
                Settled::Gone
            } else {
                self.keys.settle(&key)
            };
            if settled == Settled::Gone {
                task.new.key = None;
            }
        }
        task.dead = task.new.tier == Tier::NonSheddable && task.state != State::Done;
        if task.dead {
            self.dead.push_back(id);
        } else if task.new.key.is_none() {
            self.ended.push_back(id);
        }
    }

    fn trim(&mut self, most_ended: usize, most_dead: usize) {
        while self.dead.len() > most_dead
            && let Some(oldest) = self.dead.pop_front()
        {
            if let Some(task) = self.tasks.get_mut(&oldest) {
                task.dead = false;
                // Where its key still stands it goes with the key.
                if task.new.key.is_none() {
                    self.forget(oldest);
                }
            }
        }
        while self.ended.len() > most_ended
            && let Some(oldest) = self.ended.pop_front()
        {
            self.forget(oldest);
        }
    }

    fn forget(&mut self, id: Uuid) {
        if self
            .tasks
            .remove(&id)
            .is_some_and(|task| task.new.record.is_some())
        {
            self.forgotten.push(id);
        }
    }
}

impl Task {
    fn new(new: NewTask, accepted: Instant, now: Instant) -> Self {
        Self {
            expected: now.checked_add(new.expected_in).unwrap_or(now),
            new,
            state: State::Queued,
            code: None,
            accepted,
            waited: None,
            service: None,
            dead: false,
        }
    }

    fn end(&mut self, now: Instant, end: &End) {
        self.state = end.state;
        self.code.clone_from(&end.code);
        let since = now.saturating_duration_since(self.accepted);
        self.service = self.waited.map(|waited| since.saturating_sub(waited));
    }

    fn view(&self, id: Uuid, now: Instant) -> View {
        let left = self.expected.saturating_duration_since(now).clamp(POLL.0, POLL.1);
        View {
            id,
            state: self.state,
            class: self.new.class.clone(),
            tier: self.new.tier.as_str(),
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
#[path = "tasks_tests.rs"]
mod tests;
