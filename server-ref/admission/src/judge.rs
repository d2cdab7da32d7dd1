//! The order of the test: what refuses this work, and which of it names the code.
//!
//! Every test is made, since the largest hint of all that refuse goes out; the first in this order names the code:
//! draining, fresh, the edge, hard caps, tenant, tier, deadline, wait bound. The edge ([`crate::edge`]) needs a caller,
//! and what it refuses is not tested further: that is its purpose.
//!
//! A code must name the true cause, and two limits look like others. A tenant's own limit of running tasks makes a wait
//! that looks like the server's; a deadline that is too short hides a limit that would refuse any deadline. So where one of
//! these may be it, the test is made once more without it (ADM-21, SRV-19).

use holdoff_contract::{Code, ServiceState, Tier};

use crate::ask::Ask;
use crate::estimator::Fares;
use crate::refuse::two_digits_up;
use crate::slots::{Nanos, Slot};
use crate::{Controller, DeadlineOf, TenantId};

/// The controller's data is too old beyond this: two periods of the 250 ms that an operator's own loop may take; the
/// tick comes more often.
pub(crate) const STALE_AFTER: Nanos = 500_000_000;
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
/// Tasks that a class in slow start may have waiting, however long they are.
const SLOW_START_LEAST: u64 = 2;

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
    /// With `deadline_unattainable`: the deadline that would have been admitted, where there is one.
    pub(crate) min_deadline: Option<Nanos>,
    /// What refuses cannot admit earlier than in this time.
    pub(crate) until: Nanos,
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
        let found = self.test(ask);
        match found.code {
            None
            | Some(Code::Draining | Code::ControllerStale | Code::DeadlineExpired | Code::TenantLimit) => {
                Findings {
                    min_deadline: None,
                    ..found
                }
            }
            Some(_) => self.with_true_cause(ask, found),
        }
    }

    /// Is it its tenant's own limit, or another one than the deadline?
    fn with_true_cause(&self, ask: &Ask, mut found: Findings) -> Findings {
        let room = self.pool.room(ask.tier, self.may_borrow(ask.class));
        let unlimited = ask.unlimited(self.is_first(ask.tier, room));
        if unlimited.is_some_and(|ask| self.test(&ask).code.is_none()) {
            return Findings {
                code: Some(Code::TenantLimit),
                own: true,
                until: found.until,
                ..Findings::default()
            };
        }
        if found.code != Some(Code::DeadlineUnattainable) {
            found.min_deadline = None;
            return found;
        }
        let least = two_digits_up(found.min_deadline.unwrap_or(Nanos::MAX));
        let remaining = least.min(self.classes[usize::from(ask.class.0)].max_deadline);
        let resent = self.test(&Ask {
            deadline: ask.now.saturating_add(remaining),
            deadline_of: DeadlineOf::Caller,
            remaining,
            ..*ask
        });
        found.min_deadline = Some(least).filter(|_| resent.code.is_none());
        // What refuses the deadline that would do, refuses any.
        found.code = resent.code.or(found.code);
        found.until = found.until.max(resent.until);
        found
    }

    /// The least deadline with which this work, that has just been taken out of its queue, would be admitted again now.
    pub(crate) fn least_deadline(&self, now: Nanos, slot: &Slot) -> Option<Nanos> {
        let mut ask = Ask {
            now,
            tenant: TenantId(slot.tenant),
            class: slot.class,
            tier: slot.tier,
            deadline: now,
            deadline_of: DeadlineOf::Caller,
            remaining: 1,
            charge: slot.charge,
            bytes: slot.bytes,
            may_defer: false,
            known: false,
            starts: false,
            waits_for_itself: false,
            wait: 0,
            wait_for_others: 0,
        };
        self.look_ahead(&mut ask);
        self.judge(&ask).min_deadline
    }

    /// Every test in its order.
    fn test(&self, ask: &Ask) -> Findings {
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
        let waiting = self.queues.len(ask.tier.index());
        if ask.tier == Tier::Deferrable && waiting >= self.profile.queue && !ask.waits_for_itself {
            found.until = self.first_worker(ask);
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

    fn judge_tenant(&self, ask: &Ask, found: &mut Findings) {
        if ask.starts {
            return;
        }
        let tenant = &self.tenants[ask.tenant.0];
        let work = tenant.queued_work().saturating_add(ask.charge);
        let no_place = self.queues.len(ask.tier.index()) >= self.bounds.queue[ask.tier.index()];
        if work > tenant.work_limit || (no_place && ask.waits_for_itself) {
            found.own(Code::TenantLimit);
            let quickest = tenant.queued_work().saturating_add(self.bounds.quickest);
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
            // What it has waiting in lower tiers takes nothing of this one.
            let work = tenant.work_down_to(ask.tier).saturating_add(ask.charge);
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
            found.until = found.until.max(self.first_worker(ask));
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
        // A deadline that its caller did not name is the server's own bound on a wait: that caller may come back. Where
        // nothing is waited for, only a longer deadline helps.
        found.general(if ask.deadline_of == DeadlineOf::Class && !ask.starts {
            Code::QueueAgeExceeded
        } else {
            Code::DeadlineUnattainable
        });
    }

    fn judge_wait(&self, ask: &Ask, found: &mut Findings) {
        // Critical is refused for load only by its own budget (ADM-05).
        if ask.starts || ask.tier == Tier::Critical || ask.remaining == 0 {
            return;
        }
        let lane = ask.tier.index();
        let bound = self.bounds.wait[lane];
        if ask.wait > bound || self.oldest_waiting(ask.now, lane) > bound.saturating_mul(2) {
            found.general(Code::QueueAgeExceeded);
        }
        let over = if ask.tier == Tier::Deferrable {
            self.over_slow_start(ask, bound)
        } else {
            0
        };
        if over > 0 {
            let passes = over / u64::from(self.pool.effective);
            found.until = found.until.max(self.first_worker(ask)).max(passes);
            found.general(Code::QueueAgeExceeded);
        }
    }

    /// How much more than a class without samples may have waiting would this class have? Its prior may be wrong, so for it
    /// the bound on time in queue is a tenth of the tier's; but never less than two tasks, else a class of long tasks could
    /// not use a short queue. A tenant's first task passes, so that one tenant cannot use it up for all.
    fn over_slow_start(&self, ask: &Ask, bound: Nanos) -> Nanos {
        let class = &self.classes[usize::from(ask.class.0)];
        if !class.in_slow_start() || self.tenants[ask.tenant.0].queued_work() == 0 {
            return 0;
        }
        let share = (SLOW_START_SHARE * bound as f64 * f64::from(self.pool.workers)) as Nanos;
        let least = ask.charge.saturating_mul(SLOW_START_LEAST);
        let waiting = class.queued_work.saturating_add(ask.charge);
        waiting.saturating_sub(share.max(least))
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
            && tenant.queued_work().saturating_add(ask.charge) <= tenant.work_limit
            && self.queues.bytes.saturating_add(ask.bytes) <= caps
            && self.queues.work.saturating_add(ask.charge) <= self.bounds.queue_work
    }
}
