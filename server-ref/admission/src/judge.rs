//! The order of the test: what refuses this work, and which of it names the code.
//!
//! Every test is made, since the largest hint of all that refuse goes out; the first in this order names the code:
//! draining, fresh, the edge, hard caps, tenant, tier, deadline, wait bound. The edge ([`crate::edge`]) needs a caller,
//! and what it refuses is not tested further: that is its purpose.

use holdoff_contract::{Code, ServiceState, Tier};

use crate::estimator::Fares;
use crate::slots::Nanos;
use crate::wait::ahead;
use crate::{ClassId, Controller, TenantId, Work};

/// The controller's data is too old beyond this: two periods of the 250 ms that an operator's own loop may take; the
/// tick comes more often.
pub(crate) const STALE_AFTER: Nanos = 500_000_000;
/// Rounds of the prediction.
const ROUNDS: u32 = 3;
/// Share of W from which a tenant's share counts.
const TENANT_FROM: f64 = 0.1;
/// Share of W times capacity that the tenants divide.
const TENANT_SHARE: f64 = 0.7;
/// Critical work of a tenant that may come at once, as time at its share.
const CRITICAL_BURST: Nanos = 1_000_000_000;
/// A tenant may always have this many tasks' work waiting.
const TENANT_LEAST: f64 = 1.5;
/// Share of the pool's work that a class in slow start may have waiting.
const SLOW_START_SHARE: f64 = 0.1;

/// The work that asks, with what was looked up for it once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) now: Nanos,
    pub(crate) tenant: TenantId,
    pub(crate) class: ClassId,
    pub(crate) tier: Tier,
    pub(crate) deadline: Nanos,
    pub(crate) remaining: Nanos,
    pub(crate) charge: Nanos,
    pub(crate) bytes: u64,
    pub(crate) may_defer: bool,
    /// A worker is idle and nothing is ahead.
    pub(crate) starts: bool,
    pub(crate) wait: Nanos,
}

/// What refuses, if anything does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) code: Option<Code>,
    /// The tenant's own limit is among it, or a limit of everybody.
    pub(crate) own: bool,
    pub(crate) general: bool,
    /// The tenant's own declared limit refuses even its quickest task, so that the refusal speaks for all of its calls.
    pub(crate) all_of_tenant: bool,
    /// It is refused for load, not for its own deadline or limit.
    pub(crate) load: bool,
    pub(crate) min_deadline: Option<Nanos>,
    /// Admitted against the estimate, to measure it.
    pub(crate) probe: bool,
}

impl Findings {
    fn general(&mut self, code: Code) {
        self.general = true;
        self.load |= !matches!(
            code,
            Code::Draining | Code::DeadlineUnattainable | Code::DeadlineExpired
        );
        self.code.get_or_insert(code);
    }

    fn own(&mut self, code: Code) {
        self.own = true;
        self.code.get_or_insert(code);
    }
}

impl Controller {
    pub(crate) fn ask(&self, now: Nanos, work: &Work) -> Ask {
        let class = &self.classes[usize::from(work.class.0)];
        let deadline = self.nanos(work.deadline);
        let mut ask = Ask {
            now,
            tenant: work.tenant,
            class: work.class,
            tier: work.tier,
            deadline,
            remaining: deadline.saturating_sub(now),
            charge: class.charge(work.cost),
            bytes: work.bytes,
            may_defer: work.may_defer,
            starts: self.starts_at_once(work),
            wait: 0,
        };
        if !ask.starts {
            ask.wait = self.predict(&ask);
        }
        ask
    }

    /// Is a worker idle for this, with nothing ahead that would take it?
    fn starts_at_once(&self, work: &Work) -> bool {
        let room = self.pool.room(work.tier, self.may_borrow(work.class));
        if room == 0 || self.tenants[work.tenant.0].at_active_limit() {
            return false;
        }
        let ahead = Tier::ALL.iter().map(|tier| {
            let waiting = self.queues.startable(tier.index());
            if *tier == work.tier || waiting == 0 {
                waiting
            } else {
                waiting.min(self.pool.room(*tier, false))
            }
        });
        room > ahead.sum::<u32>()
    }

    fn predict(&self, ask: &Ask) -> Nanos {
        let lane = ask.tier.index();
        let tenant = &self.tenants[ask.tenant.0];
        let lanes = [0, 1, 2].map(|lane| self.queues.seen(lane, self.bounds.weights[lane]));
        let own = self.queues.own(tenant, lane);
        let workers = self.pool.residuals(ask.now, ask.tier, self.may_borrow(ask.class));
        // What comes while it waits depends on how long it waits; a few rounds are enough.
        let (mut wait, mut work) = (0, Nanos::MAX);
        for _ in 0..ROUNDS {
            let more = ahead(&lanes, lane, own, wait);
            if more == work {
                break;
            }
            work = more;
            wait = workers.fill(work);
        }
        if tenant.active_limit >= self.pool.workers || tenant.running + tenant.lanes[lane].len == 0 {
            return wait;
        }
        // It waits for itself: what runs of it is on average half done.
        let own = (tenant.queued_work + tenant.running_work / 2) / u64::from(tenant.active_limit);
        wait.max(own)
    }

    /// May this class have a worker that is reserved for critical? Only if its p95 fits critical's tightest slack.
    pub(crate) fn may_borrow(&self, class: ClassId) -> bool {
        self.classes[usize::from(class.0)].times.p95 <= self.bounds.critical_slack
    }

    pub(crate) fn margin(&self, class: ClassId) -> Nanos {
        let p95 = self.classes[usize::from(class.0)].times.p95;
        self.bounds
            .margin
            .max((p95 as f64 * self.profile.margin_share) as Nanos)
    }

    /// The wait bound for this work, as far as the state opens it.
    pub(crate) fn open_wait(&self, tier: Tier) -> Nanos {
        let bound = self.bounds.wait[tier.index()];
        if tier == Tier::Deferrable {
            (bound as f64 * self.machine.open_share()) as Nanos
        } else {
            bound
        }
    }

    pub(crate) fn is_stale(&self, now: Nanos) -> bool {
        now.saturating_sub(self.last_tick) > STALE_AFTER
    }

    pub(crate) fn judge(&self, ask: &Ask) -> Findings {
        let mut found = Findings::default();
        if self.draining {
            found.general(Code::Draining);
            return found;
        }
        self.judge_fresh(ask, &mut found);
        self.judge_caps(ask, &mut found);
        self.judge_tenant(ask, &mut found);
        self.judge_tier(ask, &mut found);
        self.judge_deadline(ask, &mut found);
        self.judge_wait(ask, &mut found);
        found
    }

    /// Fails closed: deferrable none, non-sheddable no more than was safe at the last tick, critical its own budget.
    fn judge_fresh(&self, ask: &Ask, found: &mut Findings) {
        let refuse = match ask.tier {
            Tier::Critical => false,
            Tier::NonSheddable => !ask.starts && self.queues.len(ask.tier.index()) >= self.safe_depth,
            Tier::Deferrable => true,
        };
        if refuse && self.is_stale(ask.now) {
            found.general(Code::ControllerStale);
        }
    }

    /// The share of a cap that a tier may use: the last eighth is critical's, the last quarter not deferrable's.
    fn tier_part(tier: Tier, cap: u64) -> u64 {
        match tier {
            Tier::Critical => cap,
            Tier::NonSheddable => cap - cap / 8,
            Tier::Deferrable => cap - cap / 4,
        }
    }

    fn judge_caps(&self, ask: &Ask, found: &mut Findings) {
        if ask.starts {
            return;
        }
        let waits_for_itself = self.waits_for_itself(ask);
        let waiting = self.queues.len(ask.tier.index());
        if ask.tier == Tier::Deferrable && waiting >= self.profile.queue && !waits_for_itself {
            found.general(if self.profile.queue == 0 {
                Code::ConcurrencyLimit
            } else {
                Code::QueueFull
            });
        }
        // A single payload or charge within its own limit always fits an empty queue.
        let over = |used: u64, more: u64, cap: u64| {
            used > 0 && used.saturating_add(more) > Self::tier_part(ask.tier, cap)
        };
        if over(self.queues.bytes, ask.bytes, self.profile.queue_bytes)
            || over(self.queues.work, ask.charge, self.bounds.queue_work)
        {
            found.general(Code::QueueFull);
        }
    }

    /// Nothing but the tenant's own active limit keeps it from a worker.
    fn waits_for_itself(&self, ask: &Ask) -> bool {
        self.tenants[ask.tenant.0].at_active_limit()
            && self.pool.can_start(ask.tier, self.may_borrow(ask.class))
    }

    fn judge_tenant(&self, ask: &Ask, found: &mut Findings) {
        if ask.starts {
            return;
        }
        let tenant = &self.tenants[ask.tenant.0];
        let work = tenant.queued_work.saturating_add(ask.charge);
        let no_place = self.queues.len(ask.tier.index()) >= self.bounds.queue[ask.tier.index()];
        if work > tenant.work_limit || (no_place && self.waits_for_itself(ask)) {
            found.own(Code::TenantLimit);
            let quickest = tenant.queued_work.saturating_add(self.bounds.quickest);
            found.all_of_tenant = no_place || quickest > tenant.work_limit;
            return;
        }
        // Alone, a tenant takes nobody's share; the wait bound holds it.
        let tenants = self.tenants.active();
        if ask.tier == Tier::Critical && tenants > 1 {
            let (rate, burst) = self.critical_share();
            if !tenant.critical.holds(ask.now, ask.charge, rate, burst) {
                found.own(Code::TenantLimit);
                return;
            }
        }
        let bound = self.bounds.wait[ask.tier.index()] as f64;
        if tenants > 1 && ask.wait as f64 > TENANT_FROM * bound {
            let mean = self.classes[usize::from(ask.class.0)].times.mean as f64;
            let share = TENANT_SHARE * bound * f64::from(self.pool.effective) / f64::from(tenants);
            if work as f64 > share.max(TENANT_LEAST * mean) {
                found.own(Code::TenantLimit);
            }
        }
    }

    /// What a tenant may have of the critical tier while others ask too, in workers, and how much of it may come at once: else
    /// one tenant that calls everything critical has the others' capacity. The rate is its fair share of the pool, all
    /// of which it may use for critical work. The burst is the same for all classes, two tasks of the longest, so that a
    /// tenant's long tasks do not use up what its short ones need.
    pub(crate) fn critical_share(&self) -> (f64, Nanos) {
        let rate = f64::from(self.pool.effective) / f64::from(self.tenants.active());
        let active = self
            .classes
            .iter()
            .filter(|class| class.active[Tier::Critical.index()]);
        let longest = active.map(|class| class.times.p95).max().unwrap_or(0);
        (
            rate,
            longest
                .saturating_mul(2)
                .max((rate * CRITICAL_BURST as f64) as Nanos),
        )
    }

    fn judge_tier(&self, ask: &Ask, found: &mut Findings) {
        let lane = ask.tier.index();
        let no_place = self.queues.len(lane) >= self.bounds.queue[lane];
        let over_work = self.queues.lane_work(lane).saturating_add(ask.charge) > self.bounds.tier_work[lane];
        if self.pool.is_closed(ask.tier) || (!ask.starts && (no_place || over_work)) {
            found.general(Code::TierBudgetExhausted);
        }
        if ask.tier != Tier::Deferrable {
            return;
        }
        let strict = self.machine.is_pinned();
        // Over the whole bound the gate is not the cause: the wait bound would refuse it wide open.
        let between = ask.wait > self.open_wait(ask.tier) && ask.wait <= self.bounds.wait[lane];
        let over_gate = between && (strict || self.is_put_off(ask));
        match self.machine.state() {
            ServiceState::Normal => {}
            ServiceState::Congested | ServiceState::Shedding if over_gate || strict => {
                found.general(Code::TierShed);
            }
            ServiceState::Recovering if over_gate => found.general(Code::Recovering),
            ServiceState::Congested | ServiceState::Shedding | ServiceState::Recovering => {}
        }
    }

    /// Does the gate put this off? Where the caller has no time to come back, it would not be put off but turned away, so those
    /// go first. But who is put off need not come back, so no class gains by that (ADM-16): one that was admitted more
    /// often than another of its tier is gated whatever its callers' time, and one that was admitted less often is not.
    fn is_put_off(&self, ask: &Ask) -> bool {
        match self.classes[usize::from(ask.class.0)].fares[ask.tier.index()] {
            Fares::Better => true,
            Fares::Alike => self.can_come_back(ask),
            Fares::Worse => false,
        }
    }

    fn judge_deadline(&self, ask: &Ask, found: &mut Findings) {
        if ask.remaining == 0 {
            found.general(Code::DeadlineExpired);
            return;
        }
        let class = &self.classes[usize::from(ask.class.0)];
        let margin = self.margin(ask.class);
        // With an idle worker, refusing saves nobody's time: only what is hopeless is refused.
        let service = if ask.starts {
            class.times.p25
        } else {
            class.times.p95
        };
        let need = ask.wait.saturating_add(service).saturating_add(margin);
        if need < ask.remaining {
            return;
        }
        if ask.starts && class.may_probe(ask.now, ask.remaining, margin) {
            found.probe = true;
            return;
        }
        found.min_deadline = Some(need);
        found.general(Code::DeadlineUnattainable);
    }

    fn judge_wait(&self, ask: &Ask, found: &mut Findings) {
        // Critical is refused for load only by its own budget (ADM-05).
        if ask.starts || ask.tier == Tier::Critical || ask.remaining == 0 {
            return;
        }
        let lane = ask.tier.index();
        let bound = self.bounds.wait[lane];
        let over = ask.wait > bound || self.oldest_waiting(ask.now, lane) > bound.saturating_mul(2);
        let slow_start = ask.tier == Tier::Deferrable && self.over_slow_start(ask, bound);
        if over || slow_start {
            found.general(Code::QueueAgeExceeded);
        }
    }

    /// Has this class more waiting than a class without samples may have? A tenant's first task passes, so that one
    /// tenant cannot use it up for all.
    fn over_slow_start(&self, ask: &Ask, bound: Nanos) -> bool {
        let class = &self.classes[usize::from(ask.class.0)];
        let share = (SLOW_START_SHARE * bound as f64 * f64::from(self.pool.workers)) as Nanos;
        class.in_slow_start()
            && class.queued_work > 0
            && self.tenants[ask.tenant.0].queued_work > 0
            && class.queued_work.saturating_add(ask.charge) > share
    }

    /// Age of the oldest of this lane that waits for a worker and not for its own tenant.
    fn oldest_waiting(&self, now: Nanos, lane: usize) -> Nanos {
        let waiting = self.queues.oldest(lane).map(|index| &self.slots[index]);
        let counted = waiting.filter(|slot| !self.tenants[slot.tenant].at_active_limit());
        counted.map_or(0, |slot| now.saturating_sub(slot.admitted))
    }

    /// May this be put off until the state is normal? Only what is deferrable, on a route that answers 202 anyway, while
    /// congested, and where the hard caps, its tenant and the backlog hold it.
    pub(crate) fn defers(&self, ask: &Ask) -> bool {
        let congested = self.machine.state() == ServiceState::Congested;
        if ask.tier != Tier::Deferrable || !ask.may_defer || !congested || self.draining || ask.remaining == 0
        {
            return false;
        }
        let tenant = &self.tenants[ask.tenant.0];
        let caps = Self::tier_part(ask.tier, self.profile.queue_bytes);
        (self.machine.is_pinned() || !ask.starts)
            && !self.is_stale(ask.now)
            && !self.pool.is_closed(ask.tier)
            && self.queues.len(crate::queues::BACKLOG) < self.bounds.backlog
            && tenant.queued_work.saturating_add(ask.charge) <= tenant.work_limit
            && self.queues.bytes.saturating_add(ask.bytes) <= caps
            && self.queues.work.saturating_add(ask.charge) <= self.bounds.queue_work
    }
}
