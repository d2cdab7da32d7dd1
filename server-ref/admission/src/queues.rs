//! What waits: a lane for each tier and one for the backlog, in each a sub-queue for each tenant.
//!
//! Tenants take turns on estimated work: the one that was served least goes next (start-time fair queueing, which
//! gives the turns of deficit round robin without a quantum that a long task would have to save up for). Tiers take
//! turns the same way, by weight. Inside a sub-queue the first to come is the first to go.

use std::mem;

use holdoff_contract::Tier;

use crate::heap::IndexedHeap;
use crate::slots::{NONE, Nanos, Place, Slot, Slots};
use crate::tenants::{LANES, Tenant, Tenants};
use crate::wait;

/// Time over which the inflow of a lane is smoothed.
const INFLOW_OVER: Nanos = 1_000_000_000;
/// Turns that critical work keeps while none of it waits, as time of the whole pool, 2 s. Without, what it does not use in one
/// moment is gone, so that a load of just its weight is more than it gets: at five times the load 3 % of it was refused.
const KEPT: f64 = 2e9;
/// The lane of deferred work.
pub(crate) const BACKLOG: usize = 3;

#[derive(Debug)]
struct Lane {
    len: u32,
    work: Nanos,
    /// Tasks of tenants that are at their own active limit: they wait for nobody but themselves.
    parked: u32,
    /// Tenants with a task that may start, by work served.
    ready: IndexedHeap,
    /// The tag that was served last: newcomers begin there.
    served: u64,
    /// The lane's own turn among lanes.
    pass: f64,
    weight: f64,
    /// Work given to it since the last measure, and the rate of it in workers.
    given: Nanos,
    inflow: f64,
    oldest: u32,
    newest: u32,
}

/// All lanes.
#[derive(Debug)]
pub(crate) struct Queues {
    lanes: [Lane; LANES],
    pass: f64,
    /// Turns that critical work keeps while none of it waits: see [`KEPT`].
    kept: f64,
    expiry: IndexedHeap,
    /// Payload bytes that wait.
    pub(crate) bytes: u64,
    /// Charges that wait.
    pub(crate) work: Nanos,
}

impl Queues {
    /// Lanes with these weights, for so many workers.
    pub(crate) fn new(weights: [f64; 3], workers: u32) -> Self {
        let lane = |weight| Lane {
            len: 0,
            work: 0,
            parked: 0,
            ready: IndexedHeap::default(),
            served: 0,
            pass: 0.0,
            weight,
            given: 0,
            inflow: 0.0,
            oldest: NONE,
            newest: NONE,
        };
        let lanes = [lane(weights[0]), lane(weights[1]), lane(weights[2]), lane(1.0)];
        Self {
            lanes,
            pass: 0.0,
            kept: KEPT * f64::from(workers),
            expiry: IndexedHeap::default(),
            bytes: 0,
            work: 0,
        }
    }

    /// Takes other weights for the turns of the tiers, and another number of workers.
    pub(crate) fn reweigh(&mut self, weights: [f64; 3], workers: u32) {
        self.kept = KEPT * f64::from(workers);
        for (lane, weight) in self.lanes.iter_mut().zip(weights) {
            lane.weight = weight;
        }
    }

    pub(crate) fn len(&self, lane: usize) -> u32 {
        self.lanes[lane].len
    }

    pub(crate) fn lane_work(&self, lane: usize) -> Nanos {
        self.lanes[lane].work
    }

    /// This lane, for the prediction of a wait.
    pub(crate) fn seen(&self, lane: usize, weight: f64) -> wait::Lane {
        let at = &self.lanes[lane];
        wait::Lane {
            work: at.work,
            tasks: at.len,
            tenants: at.ready.len(),
            inflow: at.inflow,
            weight,
        }
    }

    /// What this tenant has in this lane, for the prediction of a wait.
    pub(crate) fn own(&self, tenant: &Tenant, lane: usize) -> wait::Own {
        let turn = tenant.turns[lane];
        wait::Own {
            work: turn.work,
            lead: turn.tag.saturating_sub(self.lanes[lane].served),
        }
    }

    /// Measures what the lanes were given since the last call, `passed` ago.
    pub(crate) fn measure(&mut self, passed: Nanos) {
        if passed == 0 {
            return;
        }
        let weight = 1.0 - (-(passed as f64) / INFLOW_OVER as f64).exp();
        for lane in &mut self.lanes {
            let rate = mem::take(&mut lane.given) as f64 / passed as f64;
            lane.inflow += weight * (rate - lane.inflow);
        }
    }

    /// Tasks of this lane that could start if there were workers.
    pub(crate) fn startable(&self, lane: usize) -> u32 {
        self.lanes[lane].len - self.lanes[lane].parked
    }

    /// Lets a task wait however late it is.
    pub(crate) fn keep(&mut self, index: u32) {
        self.expiry.remove(index);
    }

    /// The first to have come of this lane.
    pub(crate) fn oldest(&self, lane: usize) -> Option<u32> {
        Some(self.lanes[lane].oldest).filter(|slot| *slot != NONE)
    }

    /// The next deadline of what waits, and whose.
    pub(crate) fn next_expiry(&self) -> Option<(Nanos, u32)> {
        self.expiry.peek()
    }

    /// Puts a task at the end of its sub-queue; `expires` where it does not wait for ever.
    pub(crate) fn push(
        &mut self,
        slots: &mut Slots,
        tenants: &mut Tenants,
        index: u32,
        lane: usize,
        expires: bool,
    ) {
        let slot = &mut slots[index];
        slot.place = Place::Queued(lane);
        let (charge, tenant_index) = (slot.charge, slot.tenant);
        self.bytes += slot.bytes;
        self.work += charge;
        if expires {
            self.expiry.push(index, slot.deadline);
        }
        let tenant = &mut tenants[tenant_index];
        let parked = tenant.at_active_limit();
        let (sub, turn) = (&mut tenant.lanes[lane], &mut tenant.turns[lane]);
        sub.len += 1;
        turn.work += charge;
        let before = mem::replace(&mut sub.tail, index);
        (slot.prev, slot.next) = (before, NONE);
        let was_empty = before == NONE;
        if was_empty {
            sub.head = index;
            turn.tag = turn.tag.max(self.lanes[lane].served);
        }
        let tag = turn.tag;
        slot.older = mem::replace(&mut self.lanes[lane].newest, index);
        slot.newer = NONE;
        let older = slot.older;
        if !was_empty {
            slots[before].next = index;
        }
        let at = &mut self.lanes[lane];
        at.len += 1;
        at.work += charge;
        at.given += charge;
        if older == NONE {
            at.oldest = index;
        } else {
            slots[older].newer = index;
        }
        if parked {
            at.parked += 1;
        } else if was_empty {
            self.make_ready(lane, tenant_index, tag);
        }
    }

    fn make_ready(&mut self, lane: usize, tenant: u32, tag: u64) {
        let kept = if lane == Tier::Critical.index() {
            self.kept
        } else {
            0.0
        };
        let at = &mut self.lanes[lane];
        if at.ready.peek().is_none() {
            at.pass = at.pass.max(self.pass - kept);
        }
        at.ready.push(tenant, tag);
    }

    /// Takes a task out, from wherever it stands.
    pub(crate) fn remove(&mut self, slots: &mut Slots, tenants: &mut Tenants, index: u32, lane: usize) {
        let Slot {
            prev,
            next,
            older,
            newer,
            charge,
            bytes,
            tenant: tenant_index,
            ..
        } = slots[index];
        self.expiry.remove(index);
        self.bytes -= bytes;
        self.work -= charge;
        let tenant = &mut tenants[tenant_index];
        let parked = tenant.at_active_limit();
        tenant.turns[lane].work -= charge;
        let sub = &mut tenant.lanes[lane];
        sub.len -= 1;
        if prev == NONE {
            sub.head = next;
        } else {
            slots[prev].next = next;
        }
        if next == NONE {
            sub.tail = prev;
        } else {
            slots[next].prev = prev;
        }
        let empty = sub.head == NONE;
        let at = &mut self.lanes[lane];
        at.len -= 1;
        at.work -= charge;
        if older == NONE {
            at.oldest = newer;
        } else {
            slots[older].newer = newer;
        }
        if newer == NONE {
            at.newest = older;
        } else {
            slots[newer].older = older;
        }
        if parked {
            at.parked -= 1;
        } else if empty {
            at.ready.remove(tenant_index);
        }
    }

    /// The lanes in the order of their turns, the backlog last.
    pub(crate) fn turns(&self) -> [usize; LANES] {
        let mut order = [0, 1, 2, BACKLOG];
        // Stable: at equal passes the higher tier goes first.
        order[..BACKLOG].sort_by(|a, b| self.lanes[*a].pass.total_cmp(&self.lanes[*b].pass));
        order
    }

    /// The task whose turn it is in this lane.
    pub(crate) fn head(&self, tenants: &Tenants, lane: usize) -> Option<u32> {
        self.lanes[lane]
            .ready
            .peek()
            .map(|(_, tenant)| tenants[tenant].lanes[lane].head)
    }

    /// Takes the head out for a worker and charges the turn to its tenant and its lane.
    pub(crate) fn serve(&mut self, slots: &mut Slots, tenants: &mut Tenants, index: u32, lane: usize) {
        let (charge, tenant_index) = (slots[index].charge, slots[index].tenant);
        self.remove(slots, tenants, index, lane);
        let turn = &mut tenants[tenant_index].turns[lane];
        let at = &mut self.lanes[lane];
        at.served = at.served.max(turn.tag);
        turn.tag = turn.tag.saturating_add(charge);
        if at.ready.contains(tenant_index) {
            at.ready.push(tenant_index, turn.tag);
        }
        self.pass = self.pass.max(at.pass);
        at.pass += charge as f64 / at.weight;
    }

    /// The tenant reached its active limit: its work waits without standing in anybody's way.
    pub(crate) fn park(&mut self, tenants: &Tenants, tenant: u32) {
        for (lane, sub) in self.lanes.iter_mut().zip(&tenants[tenant].lanes) {
            lane.parked += sub.len;
            lane.ready.remove(tenant);
        }
    }

    /// The tenant is below its active limit again.
    pub(crate) fn unpark(&mut self, tenants: &mut Tenants, tenant: u32) {
        for lane in 0..LANES {
            let served = self.lanes[lane].served;
            let tenant_slot = &mut tenants[tenant];
            let len = tenant_slot.lanes[lane].len;
            self.lanes[lane].parked -= len;
            if len > 0 {
                // What it could not use meanwhile is not saved up.
                let turn = &mut tenant_slot.turns[lane];
                turn.tag = turn.tag.max(served);
                let tag = turn.tag;
                self.make_ready(lane, tenant, tag);
            }
        }
    }
}
