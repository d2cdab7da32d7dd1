//! What calls to one destination share: the retry budget, the number that waits, and the hold-offs. The table of
//! destinations is bounded and evicts the idle.
//!
//! A table that forgets a destination in trouble hands it a fresh, full budget and no hold-offs, so eviction could undo
//! both. An entry at rest (nobody waits, budget full, no hold-off, no call holds it) says nothing that a new one does not
//! say, so those may go at any time. Others go only when they have not been asked for in a long while. Where neither is
//! found, new destinations share one overflow entry: they bound each other, and the table stays bounded. Nothing is held
//! off there, since the word of one authority must not delay another (SEC-01).

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::hold_off::HoldOffs;
use crate::{Budget, Policy};

/// Shared state of one destination (scheme, host and port).
#[derive(Debug)]
pub struct Destination {
    pub(crate) budget: Budget,
    pub(crate) waiting: u32,
    /// It stands for several authorities: nothing is held off.
    pub(crate) is_overflow: bool,
    pub(crate) hold_offs: HoldOffs,
}

impl Destination {
    /// A destination at rest: budget full, nobody waiting, nothing held off.
    pub const fn new(policy: &Policy) -> Self {
        Self {
            budget: Budget::new(policy.budget_capacity),
            waiting: 0,
            is_overflow: false,
            hold_offs: HoldOffs::NONE,
        }
    }

    /// What destinations share that have no place of their own.
    fn overflow(policy: &Policy) -> Self {
        Self {
            is_overflow: true,
            ..Self::new(policy)
        }
    }

    /// Its retry budget.
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Calls that wait, for a retry or behind a hold-off.
    pub const fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Hold-offs in force at this instant.
    pub fn hold_offs(&self, now: Instant) -> u32 {
        self.hold_offs.active(now)
    }

    /// True when it says nothing that a new one does not say. A hold-off that has ended counts until a call comes by.
    pub const fn is_at_rest(&self) -> bool {
        self.waiting == 0 && self.budget.is_full() && self.hold_offs.is_empty()
    }
}

/// Bounded table of destinations, shared by the calls of one client: [`Self::get`] takes `&self`.
#[derive(Debug)]
pub struct Destinations {
    policy: Policy,
    limit: usize,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    entries: HashMap<Key, Entry>,
    overflow: Arc<Mutex<Destination>>,
    /// Look-ups so far: the table's own measure of time, since it reads no clock.
    lookups: u64,
    /// No sweep before this many look-ups, after one that found nothing to evict.
    sweep_from: u64,
}

#[derive(Debug)]
struct Entry {
    shared: Arc<Mutex<Destination>>,
    last_used: u64,
}

impl Destinations {
    /// Destinations kept at the same time by default: 1024, at most 256 kB while they are idle. A service calls tens of
    /// others.
    pub const DEFAULT_LIMIT: usize = 1024;

    /// After so many look-ups for each place of the table, an entry that nobody waits in or holds counts as idle even
    /// with a budget that is not full. A storm asks far more often than that.
    const IDLE_LOOKUPS: u64 = 16;

    /// An empty table for calls with this policy. Its budget capacity is that of every destination.
    pub fn new(policy: &Policy) -> Self {
        Self::with_limit(policy, Self::DEFAULT_LIMIT)
    }

    /// The same with another limit, at least 1. Beyond it, and the one overflow entry, nothing is kept.
    pub fn with_limit(policy: &Policy, limit: usize) -> Self {
        let table = Table {
            entries: HashMap::new(),
            overflow: Arc::new(Mutex::new(Destination::overflow(policy))),
            lookups: 0,
            sweep_from: 0,
        };
        Self {
            policy: policy.clone(),
            limit: limit.max(1),
            table: Mutex::new(table),
        }
    }

    /// The destination with this authority (`host:port`, lower case), made where it is new. Does not allocate for a
    /// known one.
    ///
    /// Hold the returned value for the whole call, so that the entry is not taken for idle. Its mutex is never locked
    /// in here, so the order of locks does not matter.
    pub fn get(&self, scheme: &str, authority: &str) -> Arc<Mutex<Destination>> {
        // A panic of another thread cannot leave the table half changed: a poisoned lock is used as it is.
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.lookups = table.lookups.saturating_add(1);
        let now = table.lookups;
        let parts = Parts { scheme, authority };
        if let Some(entry) = table.entries.get_mut(&parts as &dyn Named) {
            entry.last_used = now;
            return Arc::clone(&entry.shared);
        }
        if table.entries.len() >= self.limit {
            table.sweep(self.limit);
        }
        if table.entries.len() >= self.limit {
            return Arc::clone(&table.overflow);
        }
        let shared = Arc::new(Mutex::new(Destination::new(&self.policy)));
        let key = Key {
            scheme: scheme.into(),
            authority: authority.into(),
        };
        table.entries.insert(
            key,
            Entry {
                shared: Arc::clone(&shared),
                last_used: now,
            },
        );
        shared
    }

    /// Destinations in the table, without the overflow entry.
    pub fn len(&self) -> usize {
        self.table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entries
            .len()
    }

    /// True when no destination has been asked for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Table {
    /// Evicts every entry that may go.
    fn sweep(&mut self, limit: usize) {
        if self.lookups < self.sweep_from {
            return;
        }
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        let idle_before = self
            .lookups
            .saturating_sub(limit.saturating_mul(Destinations::IDLE_LOOKUPS));
        self.entries.retain(|_, entry| {
            // The table's lock is held, so an entry that only the table holds cannot be handed out meanwhile.
            let Some(alone) = Arc::get_mut(&mut entry.shared) else {
                return true;
            };
            let destination = alone.get_mut().unwrap_or_else(PoisonError::into_inner);
            let idle = destination.waiting == 0 && entry.last_used < idle_before;
            !(destination.is_at_rest() || idle)
        });
        let full = u64::try_from(self.entries.len()).unwrap_or(u64::MAX) >= limit;
        // A fruitless sweep is not repeated at once: a full table costs its visitors one look at an entry each.
        self.sweep_from = if full {
            self.lookups.saturating_add(limit)
        } else {
            0
        };
    }
}

/// A name in the table; [`Parts`] is the same, borrowed, so that looking up builds no string.
#[derive(Debug)]
struct Key {
    scheme: Box<str>,
    authority: Box<str>,
}

struct Parts<'a> {
    scheme: &'a str,
    authority: &'a str,
}

trait Named {
    fn name(&self) -> (&str, &str);
}

impl Named for Key {
    fn name(&self) -> (&str, &str) {
        (&self.scheme, &self.authority)
    }
}

impl Named for Parts<'_> {
    fn name(&self) -> (&str, &str) {
        (self.scheme, self.authority)
    }
}

impl<'a> Borrow<dyn Named + 'a> for Key {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

impl Hash for dyn Named + '_ {
    /// By the authority alone: it hardly ever has two schemes, and every call pays for the hash.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.name().1.as_bytes());
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Named + '_ {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self as &dyn Named).hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Key {}
