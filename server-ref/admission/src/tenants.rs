//! Whose work it is: a bounded table.
//!
//! Tenants are made up by callers, so a table of them is a way to fill memory. 1024 have a slot of their own; what
//! comes beyond shares 64 slots by hash, and an idle slot is given away. A name is kept for look-up only and never
//! leaves this module.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::TenantId;
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

/// A tenant's part of one lane.
#[derive(Clone, Debug)]
pub(crate) struct SubQueue {
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) len: u32,
    pub(crate) work: Nanos,
    /// Work served so far, in the lane's virtual time: the least goes next.
    pub(crate) tag: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    /// Tasks that run, and most that may.
    pub(crate) running: u32,
    pub(crate) active_limit: u32,
    /// Charges of what runs and of what waits, and most that may wait.
    pub(crate) running_work: Nanos,
    pub(crate) queued_work: Nanos,
    pub(crate) work_limit: Nanos,
    pub(crate) tickets: u32,
    pub(crate) lanes: [SubQueue; LANES],
    /// End of its own line, a tier.
    pub(crate) line: [Nanos; 3],
    /// Critical work it may still send while others wait.
    pub(crate) critical: Bucket,
    seen: Nanos,
    epoch: u64,
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
    names: HashMap<Box<str>, u32>,
    owners: Vec<Option<Box<str>>>,
    default: TenantLimits,
    sweep: usize,
    epoch: u64,
    /// Tenants seen in this epoch, and in the last one but not in this.
    current: u32,
    previous: u32,
}

impl Tenant {
    fn new(limits: &TenantLimits, declared: bool) -> Self {
        let empty = SubQueue {
            head: NONE,
            tail: NONE,
            len: 0,
            work: 0,
            tag: 0,
        };
        Self {
            running: 0,
            active_limit: limits.active.unwrap_or(u32::MAX),
            running_work: 0,
            queued_work: 0,
            work_limit: limits
                .queued_work_ms
                .map_or(Nanos::MAX, |ms| ms.saturating_mul(1_000_000)),
            tickets: 0,
            lanes: [empty.clone(), empty.clone(), empty.clone(), empty],
            line: [0; 3],
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
        } = Self::new(limits, true);
        self.active_limit = active_limit;
        self.work_limit = work_limit;
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
            slots: vec![Tenant::new(&default, true); 1 + SHARED],
            names: HashMap::new(),
            owners: vec![None; 1 + SHARED],
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
        self.slots.push(Tenant::new(limits, declared));
        self.owners.push(Some(name.into()));
        self.names.insert(name.into(), index);
        index
    }

    /// The slot of this name.
    pub(crate) fn find(&mut self, name: Option<&str>, now: Nanos) -> TenantId {
        let Some(name) = name else {
            return TenantId(ANONYMOUS);
        };
        let index = match self.names.get(name) {
            Some(index) => *index,
            None if self.slots.len() < 1 + SHARED + NAMED => {
                let limits = self.default.clone();
                self.add(name, &limits, false)
            }
            None => self.reclaim(name, now).unwrap_or_else(|| shared(name)),
        };
        self.slots[index as usize].seen = now;
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
            let idle = slot.tickets == 0 && !slot.declared && now.saturating_sub(slot.seen) >= IDLE;
            if idle {
                let tags = slot.lanes.clone();
                // The tags stay, so that a new name buys no turn that the old one had used.
                self.slots[index] = Tenant {
                    lanes: tags,
                    ..Tenant::new(&self.default, false)
                };
                if let Some(old) = self.owners[index].replace(name.into()) {
                    self.names.remove(&old);
                }
                self.names.insert(name.into(), index as u32);
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
        for (slot, owner) in self.slots.iter_mut().zip(&self.owners) {
            let declared = owner
                .as_ref()
                .is_some_and(|name| profile.tenants.contains_key(&**name));
            slot.limit(&profile.tenant(owner.as_deref()));
            slot.declared = owner.is_none() || declared;
        }
        for name in profile
            .tenants
            .keys()
            .filter(|name| *name != crate::profile::DEFAULT_TENANT)
        {
            // In a full table it may have to share a slot: then the defaults hold for it, as for any stranger.
            let index = self.find(Some(name), now).0 as usize;
            if self.owners[index].as_deref() == Some(name.as_str()) {
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
    fn an_idle_tenant_takes_at_most_256_bytes_and_its_name_and_the_table_holds_no_more_than_it_can_use() {
        let slot = size_of::<Tenant>() + size_of::<Option<Box<str>>>() + size_of::<(Box<str>, u32)>();
        assert!(slot <= 256, "{slot}");
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
            tenants[id.0].tickets = u32::from(n % 2 == 0);
        }
        let id = tenants.find(Some("new"), IDLE);
        assert!(id.0 > SHARED as u32);
        assert_eq!(tenants[id.0].tickets, 0);
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
