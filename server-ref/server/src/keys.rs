//! One key, one operation: (tenant, Idempotency-Key) for a declared time (ADM-20).
//!
//! A caller that did not hear the answer sends again; without a key it cannot know whether the work is done twice. A key
//! is somebody's memory here, so it is bounded, in all and for each tenant. A full table refuses *new* keys: forgetting an
//! old one early would break a promise that its caller still relies on.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdoff_contract::{IdempotencyKey, Tenant};
use sha2::{Digest, Sha256};

/// The key of an operation. The tenant is part of it, so that nobody meets somebody else's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) tenant: Option<Tenant>,
    pub(crate) key: IdempotencyKey,
}

/// What was asked for under a key, as a hash that stays the same across restarts and versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Print(pub(crate) u128);

impl Print {
    /// Of the parts in this order; their borders count.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let digest: [u8; 32] = hasher.finalize().into();
        // Half of the digest: 128 bits are beyond any collision by chance or effort that is worth a 422.
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        Self(u128::from_be_bytes(half))
    }
}

/// How many keys, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyLimits {
    pub(crate) time: Duration,
    pub(crate) all: usize,
    pub(crate) tenant: usize,
}

/// Why a key cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken<H> {
    /// It stands for this.
    By(H),
    /// It stands for another payload.
    ByAnother,
    /// This tenant has as many as it may.
    TenantFull,
    /// There are as many as there may be.
    Full,
}

/// Keys and what they stand for.
#[derive(Debug)]
pub(crate) struct Keys<H> {
    limits: KeyLimits,
    entries: HashMap<Arc<Key>, Entry<H>>,
    tenants: HashMap<Option<Tenant>, usize>,
    /// In the order of their time, with a serial number that tells a key from an earlier use of it.
    due: VecDeque<(Instant, u64, Arc<Key>)>,
    serial: u64,
}

#[derive(Debug)]
struct Entry<H> {
    print: Print,
    holder: H,
    serial: u64,
    /// Its operation has not ended: the key holds however old it is.
    live: bool,
    overdue: bool,
}

impl<H: Clone> Keys<H> {
    pub(crate) fn new(limits: KeyLimits) -> Self {
        Self {
            limits,
            entries: HashMap::new(),
            tenants: HashMap::new(),
            due: VecDeque::new(),
            serial: 0,
        }
    }

    /// What the key stands for.
    pub(crate) fn get(&self, key: &Key, print: Print) -> Option<Taken<H>> {
        let entry = self.entries.get(key)?;
        Some(if entry.print == print {
            Taken::By(entry.holder.clone())
        } else {
            Taken::ByAnother
        })
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.entries.contains_key(key)
    }

    /// Gives the key to this holder. Call [`Keys::expire`] first.
    pub(crate) fn take(
        &mut self,
        key: &Arc<Key>,
        print: Print,
        now: Instant,
        holder: H,
    ) -> Result<(), Taken<H>> {
        if let Some(taken) = self.get(key, print) {
            return Err(taken);
        }
        if self.tenants.get(&key.tenant).copied().unwrap_or(0) >= self.limits.tenant {
            return Err(Taken::TenantFull);
        }
        if self.entries.len() >= self.limits.all {
            return Err(Taken::Full);
        }
        self.put(key, print, now, holder);
        Ok(())
    }

    /// Gives the key to this holder, over the limits if need be: what was promised before a restart is kept. Call in the
    /// order of `since`.
    pub(crate) fn put(&mut self, key: &Arc<Key>, print: Print, since: Instant, holder: H) {
        self.serial += 1;
        let entry = Entry {
            print,
            holder,
            serial: self.serial,
            live: true,
            overdue: false,
        };
        let until = since.checked_add(self.limits.time).unwrap_or(since);
        self.due.push_back((until, self.serial, Arc::clone(key)));
        if self.entries.insert(Arc::clone(key), entry).is_none() {
            *self.tenants.entry(key.tenant.clone()).or_default() += 1;
        }
    }

    /// The operation ended: the key goes when its time is over, or at once if it is.
    pub(crate) fn settle(&mut self, key: &Key) -> Settled {
        let Some(entry) = self.entries.get_mut(key) else {
            return Settled::Gone;
        };
        entry.live = false;
        if entry.overdue {
            self.free(key);
            return Settled::Gone;
        }
        Settled::Kept
    }

    /// Takes the key back: nothing was done under it.
    pub(crate) fn free(&mut self, key: &Key) {
        if self.entries.remove(key).is_none() {
            return;
        }
        if let Some(count) = self.tenants.get_mut(&key.tenant) {
            *count -= 1;
            if *count == 0 {
                self.tenants.remove(&key.tenant);
            }
        }
        // A freed key leaves its place in `due`; without this a caller that is evicted again and again would fill it.
        if self.due.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.due
                .retain(|(_, serial, key)| entries.get(key).is_some_and(|entry| entry.serial == *serial));
        }
    }

    /// Lets go of the keys whose time is over; these are their holders.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<H> {
        let mut gone = Vec::new();
        while let Some((until, serial, key)) = self.due.front()
            && *until <= now
        {
            let (serial, key) = (*serial, Arc::clone(key));
            self.due.pop_front();
            let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.serial == serial) else {
                continue;
            };
            if entry.live {
                entry.overdue = true;
            } else {
                gone.push(entry.holder.clone());
                self.free(&key);
            }
        }
        gone
    }
}

/// What became of a key whose operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It stands until its time is over.
    Kept,
    /// It is free.
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const TIME: Duration = Duration::from_secs(60);

    fn keys() -> Keys<u32> {
        Keys::new(KeyLimits {
            time: TIME,
            all: 5,
            tenant: 3,
        })
    }

    fn key(tenant: &str, name: &str) -> Arc<Key> {
        Arc::new(Key {
            tenant: Tenant::new(tenant).ok(),
            key: IdempotencyKey::new(name).unwrap(),
        })
    }

    #[test]
    fn a_key_stands_for_one_thing_until_its_time_is_over() {
        let (mut keys, now, k) = (keys(), clock::now(), key("a", "k"));
        keys.take(&k, Print(1), now, 7).unwrap();
        assert_eq!(keys.take(&k, Print(1), now, 8), Err(Taken::By(7)));
        assert_eq!(keys.take(&k, Print(2), now, 8), Err(Taken::ByAnother));
        keys.take(&key("b", "k"), Print(2), now, 9).unwrap();
        assert_eq!(keys.settle(&k), Settled::Kept);
        assert_eq!(keys.expire(now + TIME / 2), Vec::<u32>::new());
        assert_eq!(keys.expire(now + TIME), [7], "b's operation has not ended");
        keys.take(&k, Print(2), now + TIME, 10).unwrap();
        assert_eq!(
            keys.settle(&key("b", "k")),
            Settled::Gone,
            "its time was over already"
        );
        assert_eq!(keys.entries.len(), 1);
    }

    #[test]
    fn keys_are_bounded_for_each_tenant_and_in_all_and_none_is_forgotten_early() {
        let (mut keys, now) = (keys(), clock::now());
        for n in 0..3 {
            keys.take(&key("a", &n.to_string()), Print(1), now, n).unwrap();
        }
        assert_eq!(
            keys.take(&key("a", "x"), Print(1), now, 9),
            Err(Taken::TenantFull)
        );
        for n in 0..2 {
            keys.take(&key("b", &n.to_string()), Print(1), now, n).unwrap();
        }
        assert_eq!(keys.take(&key("c", "x"), Print(1), now, 9), Err(Taken::Full));
        assert_eq!(keys.get(&key("a", "0"), Print(1)), Some(Taken::By(0)));
        keys.free(&key("a", "0"));
        keys.take(&key("c", "x"), Print(1), now, 9).unwrap();
    }

    #[test]
    fn keys_that_are_freed_again_and_again_leave_nothing_behind() {
        let (mut keys, now, k) = (keys(), clock::now(), key("a", "k"));
        for n in 0..10_000 {
            keys.take(&k, Print(1), now, n).unwrap();
            keys.free(&k);
        }
        assert!(keys.due.len() < 100, "{}", keys.due.len());
        assert!(keys.tenants.is_empty());
        keys.take(&k, Print(1), now, 1).unwrap();
        keys.settle(&k);
        assert_eq!(keys.expire(now + TIME), [1], "only its last use counts");
    }

    #[test]
    fn a_print_is_the_same_for_the_same_parts_only() {
        assert_eq!(Print::of(&[b"ab", b"c"]), Print::of(&[b"ab", b"c"]));
        assert_ne!(Print::of(&[b"ab", b"c"]), Print::of(&[b"a", b"bc"]));
        // Kept in journals: it must never change.
        assert_eq!(
            Print::of(&[b"tasks"]).0,
            0x8423_5af2_169d_43b1_1541_8d0e_d78c_0c41
        );
    }
}
