//! The bounds that follow from what was measured, and the tick that measures.
//!
//! A bound that only admitted work updates is never updated again once everything is refused. So all of this moves on the
//! controller's own tick, traffic or not.

use std::time::{Duration, Instant};

use holdoff_contract::Tier;

use crate::estimator::{Class, Fares};
use crate::queues::BACKLOG;
use crate::slots::Nanos;
use crate::{ClassId, Controller, Event, Events, Profile};

/// Numbers of the profile in the controller's unit, and the bounds that follow from what was measured.
#[derive(Debug)]
pub(crate) struct Bounds {
    pub(crate) queue: [u32; 3],
    pub(crate) backlog: u32,
    pub(crate) backlog_age: Nanos,
    pub(crate) tier_work: [Nanos; 3],
    pub(crate) queue_work: Nanos,
    pub(crate) weights: [f64; 3],
    pub(crate) margin: Nanos,
    pub(crate) floor: Nanos,
    pub(crate) ceiling: Nanos,
    wait_range: [(Nanos, Nanos); 3],
    /// The wait bound W of each tier.
    pub(crate) wait: [Nanos; 3],
    /// Critical's tightest slack: what may borrow its workers fits inside.
    pub(crate) critical_slack: Nanos,
    /// Least mean of a class that is active in any tier.
    pub(crate) quickest: Nanos,
}

/// Length of the epochs in which arrivals and active tenants are counted.
pub(crate) const EPOCH: Nanos = 1_000_000_000;
/// A class is active in a tier from this share of the tier's recent arrivals.
const ACTIVE_SHARE: f64 = 0.01;

/// Classes of a tier whose rates of admission are nearer to each other than this fare alike. ADM-16 asks for 0.7 over a whole
/// run; rates are measured over some seconds.
const FAIR: f64 = 0.9;

pub(crate) fn whole(t: Duration) -> Nanos {
    Nanos::try_from(t.as_nanos()).unwrap_or(Nanos::MAX)
}

impl Bounds {
    pub(crate) fn new(profile: &Profile) -> Self {
        let tiers = [Tier::Critical, Tier::NonSheddable, Tier::Deferrable];
        let wait_range = tiers.map(|tier| {
            let (least, greatest) = profile.wait_bounds(tier);
            (whole(least), whole(greatest))
        });
        Self {
            queue: tiers.map(|tier| profile.queue_limit(tier)),
            backlog: profile.backlog_limit(),
            backlog_age: profile.backlog_age_ms * 1_000_000,
            tier_work: tiers.map(|tier| whole(profile.tier_work(tier))),
            queue_work: whole(profile.queue_work()),
            weights: tiers.map(|tier| profile.weight(tier)),
            margin: profile.margin_ms * 1_000_000,
            floor: profile.hint_floor_ms * 1_000_000,
            ceiling: profile.hint_ceiling_ms * 1_000_000,
            wait: wait_range.map(|(_, greatest)| greatest),
            wait_range,
            critical_slack: Nanos::MAX,
            quickest: Nanos::MAX,
        }
    }
}

impl Controller {
    /// Moves the state machine; call every [`Controller::TICK`], traffic or not (ADM-19).
    pub fn tick(&mut self, now: Instant, events: &mut impl Events) {
        let now = self.nanos(now);
        let passed = now.saturating_sub(self.last_tick);
        self.queues.measure(passed);
        self.last_tick = now;
        self.pool.measure(now);
        self.demand.measure(passed, self.pool.effective);
        self.safe_depth = self.queues.len(Tier::NonSheddable.index()).max(1);
        if now.saturating_sub(self.epoch) >= EPOCH {
            self.epoch = now;
            self.tenants.rotate();
            let fade = |n: u32| n - n.div_ceil(8);
            for class in &mut self.classes {
                class.recent = class.recent.map(|n| n / 2);
                class.asked = class.asked.map(fade);
                class.taken = class.taken.map(fade);
            }
        }
        self.edge.tick(now, events);
        self.ghosts.tick(now, &self.pool, &self.queues, events);
        for class in &mut self.classes {
            class.publish();
            class.settle(passed);
        }
        self.derive_bounds();
        self.compare_classes();
        let depth = (0..BACKLOG).map(|lane| self.queues.len(lane)).sum();
        let bound = self.bounds.wait[Tier::Deferrable.index()];
        let work = (0..BACKLOG).map(|lane| self.queues.lane_work(lane)).sum();
        let wait = self.pool.residuals(now, Tier::Critical, true).fill(work);
        let pressed = std::mem::take(&mut self.pressed) || depth > 0;
        let change = self.machine.sample(
            now,
            depth,
            wait as f64 / bound.max(1) as f64,
            pressed,
            self.demand.rate(),
        );
        Self::tell(change, events);
    }

    pub(crate) fn tell(change: crate::state::Change, events: &mut impl Events) {
        if let Some((from, to)) = change {
            events.emit(Event::Transition { from, to });
        }
    }

    /// Counts an arrival; a class that was not active is from its first one on.
    pub(crate) fn count_arrival(&mut self, class: ClassId, tier: Tier) {
        let class = &mut self.classes[usize::from(class.0)];
        let recent = &mut class.recent[tier.index()];
        *recent = recent.saturating_add(1);
        let asked = &mut class.asked[tier.index()];
        *asked = asked.saturating_add(1);
        if !class.active[tier.index()] {
            self.derive_bounds();
        }
    }

    /// Counts an arrival as admitted.
    pub(crate) fn count_admitted(&mut self, class: ClassId, tier: Tier) {
        let taken = &mut self.classes[usize::from(class.0)].taken[tier.index()];
        *taken = taken.saturating_add(1);
    }

    /// Measures how the classes of each tier fare beside each other (ADM-16).
    fn compare_classes(&mut self) {
        for tier in 0..3 {
            let active = self.classes.iter().filter(|class| class.active[tier]);
            let shares = active.map(|class| class.admitted_share(tier));
            let (least, greatest) = shares.fold((1.0_f64, 0.0_f64), |(least, greatest), share| {
                (share.min(least), share.max(greatest))
            });
            for class in &mut self.classes {
                let own = class.admitted_share(tier);
                class.fares[tier] = if !class.active[tier] {
                    Fares::Alike
                } else if own * FAIR > least {
                    Fares::Better
                } else if own < greatest * FAIR {
                    Fares::Worse
                } else {
                    Fares::Alike
                };
            }
        }
    }

    /// W of each tier from the tightest slack of its active classes, and critical's slack.
    pub(crate) fn derive_bounds(&mut self) {
        let slack = |class: &Class| {
            let margin = self
                .bounds
                .margin
                .max((class.times.p95 as f64 * self.profile.margin_share) as Nanos);
            class
                .deadline
                .saturating_sub(class.times.p95)
                .saturating_sub(margin)
        };
        let declared = self.classes.iter().map(slack).min().unwrap_or(Nanos::MAX);
        for tier in 0..3 {
            let all: u64 = self
                .classes
                .iter()
                .map(|class| u64::from(class.recent[tier]))
                .sum();
            let active =
                |class: &Class| f64::from(class.recent[tier]) >= (ACTIVE_SHARE * all as f64).max(1.0);
            let tightest = self.classes.iter().filter(|class| active(class)).map(slack).min();
            let (least, greatest) = self.bounds.wait_range[tier];
            self.bounds.wait[tier] = tightest.unwrap_or(Nanos::MAX).clamp(least, greatest);
            if tier == Tier::Critical.index() {
                self.bounds.critical_slack = tightest.unwrap_or(declared);
            }
            for class in &mut self.classes {
                class.active[tier] = f64::from(class.recent[tier]) >= (ACTIVE_SHARE * all as f64).max(1.0);
            }
        }
        let active = self.classes.iter().filter(|class| class.active.contains(&true));
        self.bounds.quickest = active.map(|class| class.times.mean).min().unwrap_or(Nanos::MAX);
    }
}
