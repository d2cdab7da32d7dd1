//! Whose work it is: a bounded table.
//!
//! Tenants are made up by callers, so a table of them is a way to fill memory. 1024 have a slot of their own; what
//! comes beyond shares 64 slots by hash, and an idle slot is given away. A name is kept for look-up only and never
//! leaves this module. An idle one takes at most 256 bytes in all, so fields are ordered and sized for that.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};

use hashbrown::HashTable;
use holdoff_contract::Tier;

use crate::TenantId;
use crate::line::LINES;
use crate::profile::{Profile, TenantLimits};
use crate::slots::{NONE, Nanos};

/// Slots for tenants by name.
pub(crate) const NAMED: usize = 1_024;
/// Slots that the rest shares.
pub(crate) const SHARED: usize = 64;
/// Lanes: one a tier, and the backlog of deferred work.
pub(crate) const LANES: usize = 4;
/// An idle slot is given to another name after this.
const IDLE: Nanos = 60_000_000_000;
/// Slots looked at for an idle one, a look-up.
const SWEEP: usize = 8;
const ANONYMOUS: u32 = 0;

/// Unit of the time at which a tenant was seen last: 136 years in 32 bits.
const SEEN: Nanos = 1_000_000_000;

/// A tenant's part of one lane: its links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubQueue {
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) len: u32,
}

/// A tenant's part of one lane: its work. Apart from the links, which would leave a gap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// Charges that wait.
    pub(crate) work: Nanos,
    /// Work served so far, in the lane's virtual time: the least goes next.
    pub(crate) tag: u64,
}

#[derive(Debug)]
pub(crate) struct Tenant {
    /// `None` in the slots that are not one tenant's.
    owner: Option<Box<str>>,
    /// Tasks that run, and most that may.
    pub(crate) running: u32,
    pub(crate) active_limit: u32,
    /// Charges of what runs, and most that may wait.
    pub(crate) running_work: Nanos,
    pub(crate) work_limit: Nanos,
    pub(crate) turns: [Turn; LANES],
    /// End of its own line, a tier.
    pub(crate) line: [Nanos; LINES],
    /// Critical work it may still send while others wait.
    pub(crate) critical: Bucket,
    pub(crate) lanes: [SubQueue; LANES],
    /// In units of [`SEEN`].
    seen: u32,
    epoch: u32,
    declared: bool,
}

/// A token bucket on work, kept as the time until which what was taken is paid for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    spent_until: Nanos,
}

impl Bucket {
    /// Is there room for `work` at `rate` (workers), with at most `burst` of work saved up?
    pub(crate) fn holds(self, now: Nanos, work: Nanos, rate: f64, burst: Nanos) -> bool {
        let ahead = (self.spent_until.saturating_sub(now) as f64 * rate) as Nanos;
        ahead.saturating_add(work) <= burst
    }

    /// Takes the work out; the debt is bounded by `burst`, so that what was taken while there was room costs no more.
    pub(crate) fn take(&mut self, now: Nanos, work: Nanos, rate: f64, burst: Nanos) {
        let time = |work: Nanos| (work as f64 / rate) as Nanos;
        let until = self.spent_until.max(now).saturating_add(time(work));
        self.spent_until = until.min(now.saturating_add(time(burst)));
    }
}

#[derive(Debug)]
pub(crate) struct Tenants {
    slots: Vec<Tenant>,
    /// Slots by the hash of their owner's name.
    names: HashTable<u32>,
    hasher: RandomState,
    default: TenantLimits,
    sweep: usize,
    epoch: u32,
    /// Tenants seen in this epoch, and in the last one but not in this.
    current: u32,
    previous: u32,
}

impl Tenant {
    fn new(owner: Option<Box<str>>, limits: &TenantLimits, declared: bool) -> Self {
        let empty = SubQueue {
            head: NONE,
            tail: NONE,
            len: 0,
        };
        Self {
            owner,
            running: 0,
            active_limit: limits.active.unwrap_or(u32::MAX),
            running_work: 0,
            work_limit: limits
                .queued_work_ms
                .map_or(Nanos::MAX, |ms| ms.saturating_mul(1_000_000)),
            turns: [Turn::default(); LANES],
            lanes: [empty; LANES],
            line: [0; LINES],
            critical: Bucket::default(),
            seen: 0,
            epoch: 0,
            declared,
        }
    }

    fn limit(&mut self, limits: &TenantLimits) {
        let Self {
            active_limit,
            work_limit,
            ..
        } = Self::new(None, limits, true);
        self.active_limit = active_limit;
        self.work_limit = work_limit;
    }

    /// Charges of what waits.
    pub(crate) fn queued_work(&self) -> Nanos {
        self.turns.iter().map(|turn| turn.work).sum()
    }

    /// Charges of what waits in this tier and those above it; deferred work counts as deferrable.
    pub(crate) fn work_down_to(&self, tier: Tier) -> Nanos {
        let lanes = if tier == Tier::Deferrable {
            LANES
        } else {
            tier.index() + 1
        };
        self.turns[..lanes].iter().map(|turn| turn.work).sum()
    }

    /// Nothing of it waits or runs.
    fn is_idle(&self) -> bool {
        self.running == 0 && self.lanes.iter().all(|lane| lane.len == 0)
    }

    /// At its own limit of running tasks: it waits, nobody waits for it.
    pub(crate) fn at_active_limit(&self) -> bool {
        self.running >= self.active_limit
    }
}

impl Tenants {
    pub(crate) fn new(profile: &Profile) -> Self {
        let default = profile.tenant(None);
        let mut table = Self {
            slots: (0..=SHARED).map(|_| Tenant::new(None, &default, true)).collect(),
            names: HashTable::new(),
            hasher: RandomState::new(),
            default,
            sweep: 0,
            // Far enough from zero that no tenant counts as seen in the epoch before.
            epoch: 2,
            current: 0,
            previous: 0,
        };
        for name in profile
            .tenants
            .keys()
            .filter(|name| *name != crate::profile::DEFAULT_TENANT)
        {
            table.add(name, &profile.tenant(Some(name)), true);
        }
        table
    }

    fn add(&mut self, name: &str, limits: &TenantLimits, declared: bool) -> u32 {
        let index = self.slots.len() as u32;
        if self.slots.len() == self.slots.capacity() {
            // By halves and not beyond the table: doubling would hold twice of what can ever be used.
            let more = (1 + SHARED + NAMED).saturating_sub(self.slots.len());
            self.slots.reserve_exact(more.min(self.slots.len() / 2).max(1));
        }
        self.slots.push(Tenant::new(Some(name.into()), limits, declared));
        self.enter(name, index);
        index
    }

    fn enter(&mut self, name: &str, index: u32) {
        let Self {
            slots, names, hasher, ..
        } = self;
        let hash = |index: &u32| hasher.hash_one(slots[*index as usize].owner.as_deref());
        names.insert_unique(hasher.hash_one(Some(name)), index, hash);
    }

    fn known(&self, name: &str) -> Option<u32> {
        let is_its = |index: &u32| self.slots[*index as usize].owner.as_deref() == Some(name);
        self.names.find(self.hasher.hash_one(Some(name)), is_its).copied()
    }

    /// The slot of this name.
    pub(crate) fn find(&mut self, name: Option<&str>, now: Nanos) -> TenantId {
        let Some(name) = name else {
            return TenantId(ANONYMOUS);
        };
        let index = match self.known(name) {
            Some(index) => index,
            None if self.slots.len() < 1 + SHARED + NAMED => {
                let limits = self.default.clone();
                self.add(name, &limits, false)
            }
            None => self.reclaim(name, now).unwrap_or_else(|| shared(name)),
        };
        self.slots[index as usize].seen = (now / SEEN) as u32;
        TenantId(index)
    }

    /// Gives an idle slot to this name.
    fn reclaim(&mut self, name: &str, now: Nanos) -> Option<u32> {
        let first = 1 + SHARED;
        let named = self.slots.len() - first;
        for _ in 0..SWEEP {
            let index = first + self.sweep % named;
            self.sweep = (self.sweep + 1) % named;
            let slot = &self.slots[index];
            let since = now.saturating_sub(Nanos::from(slot.seen) * SEEN);
            if slot.is_idle() && !slot.declared && since >= IDLE {
                let old = self.hasher.hash_one(slot.owner.as_deref());
                if let Ok(entry) = self.names.find_entry(old, |at| *at as usize == index) {
                    entry.remove();
                }
                // The tags stay, so that a new name buys no turn that the old one had used.
                self.slots[index] = Tenant {
                    turns: slot.turns,
                    ..Tenant::new(Some(name.into()), &self.default, false)
                };
                self.enter(name, index as u32);
                return Some(index as u32);
            }
        }
        None
    }

    /// Takes another profile's limits. Gives the slots whose limit of running tasks changed sides, with their new side:
    /// true = at the limit.
    pub(crate) fn reload(&mut self, profile: &Profile, now: Nanos) -> Vec<(u32, bool)> {
        self.default = profile.tenant(None);
        let before: Vec<bool> = self.slots.iter().map(Tenant::at_active_limit).collect();
        for slot in &mut self.slots {
            let owner = slot.owner.as_deref();
            slot.declared = owner.is_none_or(|name| profile.tenants.contains_key(name));
            let limits = profile.tenant(owner);
            slot.limit(&limits);
        }
        for name in profile
            .tenants
            .keys()
            .filter(|name| *name != crate::profile::DEFAULT_TENANT)
        {
            // In a full table it may have to share a slot: then the defaults hold for it, as for any stranger.
            let index = self.find(Some(name), now).0 as usize;
            if self.slots[index].owner.as_deref() == Some(name.as_str()) {
                self.slots[index].limit(&profile.tenant(Some(name)));
                self.slots[index].declared = true;
            }
        }
        let changed = (0_u32..).zip(before.into_iter().zip(&self.slots));
        changed
            .filter(|(_, (before, slot))| *before != slot.at_active_limit())
            .map(|(index, (before, _))| (index, !before))
            .collect()
    }

    /// Counts the tenant as active in this epoch.
    pub(crate) fn touch(&mut self, tenant: TenantId) {
        let slot = &mut self.slots[tenant.0 as usize];
        if slot.epoch == self.epoch {
            return;
        }
        if slot.epoch + 1 == self.epoch {
            self.previous -= 1;
        }
        slot.epoch = self.epoch;
        self.current += 1;
    }

    /// Begins another epoch.
    pub(crate) fn rotate(&mut self) {
        self.epoch += 1;
        self.previous = self.current;
        self.current = 0;
    }

    /// Tenants that asked in this epoch or the one before; at least one.
    pub(crate) fn active(&self) -> u32 {
        (self.current + self.previous).max(1)
    }
}

fn shared(name: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    1 + (hasher.finish() % SHARED as u64) as u32
}

impl std::ops::Index<u32> for Tenants {
    type Output = Tenant;
    fn index(&self, index: u32) -> &Tenant {
        &self.slots[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Tenants {
    fn index_mut(&mut self, index: u32) -> &mut Tenant {
        &mut self.slots[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_made_up_names_stays_within_the_table() {
        let mut tenants = Tenants::new(&Profile::default());
        for n in 0..10_000 {
            tenants.find(Some(&format!("t{n}")), 0);
        }
        assert_eq!(tenants.slots.len(), 1 + SHARED + NAMED);
        assert_eq!(tenants.names.len(), NAMED);
        let late = tenants.find(Some("t9999"), 0);
        assert!((1..=SHARED as u32).contains(&late.0), "{late:?}");
    }

    #[test]
    fn the_table_of_tenants_holds_no_more_than_it_can_use() {
        let mut tenants = Tenants::new(&Profile::default());
        for n in 0..NAMED {
            tenants.find(Some(&format!("t{n}")), 0);
        }
        assert_eq!(tenants.slots.capacity(), 1 + SHARED + NAMED);
    }

    #[test]
    fn an_idle_slot_goes_to_another_name_and_a_busy_one_does_not() {
        let mut tenants = Tenants::new(&Profile::default());
        for n in 0..NAMED {
            let id = tenants.find(Some(&format!("t{n}")), 0);
            tenants[id.0].running = u32::from(n % 2 == 0);
        }
        let id = tenants.find(Some("new"), IDLE);
        assert!(id.0 > SHARED as u32);
        assert_eq!(tenants[id.0].running, 0);
        assert_eq!(tenants.names.len(), NAMED);
        assert_eq!(tenants.find(Some("new"), IDLE), id);
    }

    #[test]
    fn a_bucket_gives_its_burst_at_once_and_its_rate_after_that() {
        let mut bucket = Bucket::default();
        let (rate, burst, task) = (0.5, 1_000, 100);
        let mut take = |now| {
            let holds = bucket.holds(now, task, rate, burst);
            if holds {
                bucket.take(now, task, rate, burst);
            }
            holds
        };
        assert_eq!((0..20).filter(|_| take(5_000)).count(), 10);
        assert_eq!((0..20).filter(|_| take(5_400)).count(), 2);
        assert_eq!((0..20).filter(|_| take(99_000)).count(), 10);
    }

    #[test]
    fn active_tenants_are_those_of_this_epoch_and_the_last() {
        let mut tenants = Tenants::new(&Profile::default());
        assert_eq!(tenants.active(), 1);
        let (a, b) = (tenants.find(Some("a"), 0), tenants.find(Some("b"), 0));
        tenants.touch(a);
        tenants.touch(b);
        tenants.touch(a);
        assert_eq!(tenants.active(), 2);
        tenants.rotate();
        tenants.touch(a);
        assert_eq!(tenants.active(), 2);
        tenants.rotate();
        assert_eq!(tenants.active(), 1);
        tenants.rotate();
        assert_eq!(tenants.active(), 1);
    }
}
