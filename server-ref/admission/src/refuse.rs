//! From findings to a refusal: code, permission, window.

use std::time::{Duration, Instant};

use holdoff_contract::{Code, Hint, Overload, Retry, Scope, Tier};

use crate::ask::Ask;
use crate::bounds::whole;
use crate::edge::{Throttle, Told};
use crate::judge::Findings;
use crate::line::{self, At, LEAST, Line, Window};
use crate::slots::{Nanos, Slot};
use crate::{Caller, Controller, DeadlineOf, Event, Events, Rejection, Work};

impl Controller {
    /// The refusal of what asks at the door: books its place in the line, unless it cannot come back.
    pub(crate) fn refuse(&mut self, ask: &Ask, found: &Findings, code: Code) -> Rejection {
        let at = self.at(ask, found.until);
        let own_end = self.tenants[ask.tenant.0].line[at.tier];
        let general = if found.general {
            self.line.place(at, own_end)
        } else {
            0
        };
        let own = if found.own {
            Line::own_place(at, own_end)
        } else {
            0
        };
        let place = general.max(own);
        let ceiling = self.bounds.ceiling;
        let window = self.line.window(place, self.bounds.floor, ceiling);
        let retry = if self.holds(ask, window.after.max(self.turn(ask, place))) {
            code.default_retry()
        } else {
            code.default_retry().max(Retry::No)
        };
        if retry == Retry::After && place >= ceiling {
            if let Some(at) = self.behind(ask) {
                let end = &mut self.tenants[ask.tenant.0].line[at.tier];
                self.line.book(at, end);
            }
        } else if retry == Retry::After {
            let end = &mut self.tenants[ask.tenant.0].line[at.tier];
            if found.general {
                self.line.book(at, end);
            } else {
                Line::book_own(at, end);
            }
        }
        // Draining says `elsewhere`, which needs no time of this instance.
        let retry = if code == Code::Draining {
            Retry::Elsewhere
        } else {
            retry
        };
        let mut rejection = self.rejection(code, retry, ask.tier, window, Some(ask.wait), found.min_deadline);
        if !found.all_of_tenant {
            // The tenant's other tasks may well be admitted now: the hint is for this one alone.
            rejection.overload.scope = Scope::Request;
        }
        rejection
    }

    /// Would its deadline hold a return at the place in the line that a refusal gets now?
    pub(crate) fn can_come_back(&self, ask: &Ask) -> bool {
        let at = self.at(ask, 0);
        let place = self.line.place(at, self.tenants[ask.tenant.0].line[at.tier]);
        let after = line::latest(place, self.bounds.floor, self.bounds.ceiling);
        self.holds(ask, after.max(self.turn(ask, place)))
    }

    /// Its turn behind the ceiling, where its place in its tier's line is at the ceiling; else zero. Nothing is booked there, so
    /// who is told the ceiling stands somewhere behind it: whose deadline cannot hold that would come back for nothing.
    fn turn(&self, ask: &Ask, place: Nanos) -> Nanos {
        match self.behind(ask) {
            Some(at) if place >= self.bounds.ceiling => {
                self.line.place(at, self.tenants[ask.tenant.0].line[at.tier])
            }
            _ => 0,
        }
    }

    /// The line behind the ceiling, for whom it is: deferrable work that is known by its key. Without a key each refusal of one
    /// that hammers would take a place, and everybody else would be told not to come back.
    fn behind(&self, ask: &Ask) -> Option<At> {
        let mean = self.classes[usize::from(ask.class.0)].times.mean;
        (ask.known && ask.tier == Tier::Deferrable).then(|| At {
            now: ask.now,
            tier: line::BEHIND,
            base: self.bounds.ceiling,
            step: line::step_behind(mean, self.pool.workers),
            tenants: self.tenants.active(),
        })
    }

    /// Does its caller's deadline hold a return after this? One that its caller did not name forbids no return.
    fn holds(&self, ask: &Ask, after: Nanos) -> bool {
        let p95 = self.classes[usize::from(ask.class.0)].times.p95;
        ask.deadline_of == DeadlineOf::Class || after.saturating_add(p95) < ask.remaining
    }

    /// What one booking takes. Of all workers, held or not: how long those are held is in the wait, where the line begins, and who
    /// comes back after that meets them. A line at the pace of a pool that stands still ends beyond anybody's patience.
    fn step(&self, tier: usize, mean: Nanos) -> Nanos {
        line::step(tier, mean, self.pool.workers, self.demand.spare())
    }

    /// The refusal of what has a place when the instance goes: the window that the door gives to new work meanwhile, another
    /// one for each caller, so that those who waited here do not knock elsewhere all at once (SRV-11). It is no decision:
    /// nothing is counted.
    pub fn cut_off(&mut self, now: Instant, work: &Work) -> Rejection {
        self.drain();
        let ask = self.ask(self.nanos(now), work);
        let found = self.judge(&ask);
        self.refuse(&ask, &found, Code::Draining)
    }

    /// The refusal of the edge: what is left of the caller's own hint, or a place in its own line.
    pub(crate) fn throttle(
        &mut self,
        now: Nanos,
        work: &Work,
        caller: &Caller,
        throttle: Throttle,
        events: &mut impl Events,
    ) -> Rejection {
        self.tenants.touch(work.tenant);
        let code = Code::RetryThrottled;
        events.emit(Event::Decided {
            code: Some(code.clone()),
            deferred: false,
            tier: work.tier,
            class: work.class,
            tenant: work.tenant,
            predicted_wait: Duration::ZERO,
        });
        let times = self.classes[usize::from(work.class.0)].times;
        let tier = work.tier.index();
        let at = At {
            now,
            tier,
            base: LEAST,
            step: self.step(tier, times.mean),
            tenants: self.tenants.active(),
        };
        let (window, place) = match throttle {
            Throttle::Early { after, max } => (line::left(after, max, self.bounds.floor), None),
            Throttle::Empty => {
                // The tier's line does not know of it, so it moves at the pace of its own.
                let own = self.tenants[work.tenant.0].line[tier];
                let place = self.line.place(at, own).max(Line::own_place(at, own));
                let window = self.line.window(place, self.bounds.floor, self.bounds.ceiling);
                (window, Some(place).filter(|place| *place < self.bounds.ceiling))
            }
        };
        let remaining = self.nanos(work.deadline).saturating_sub(now);
        let holds =
            work.deadline_of == DeadlineOf::Class || window.after.saturating_add(times.p95) < remaining;
        let retry = if holds { Retry::After } else { Retry::No };
        if holds && place.is_some() {
            Line::book_own(at, &mut self.tenants[work.tenant.0].line[tier]);
        }
        if throttle == Throttle::Empty && holds {
            let told = Told::ToReturn(window.after, window.max);
            self.edge.refused(now, caller, work.tier, told, false);
        }
        self.rejection(code, retry, work.tier, window, None, None)
    }

    /// Tells the edge of a refusal by the test.
    pub(crate) fn account(&mut self, now: Nanos, caller: &Caller, tier: Tier, rejection: &Rejection) {
        let overload = &rejection.overload;
        let own_fault = matches!(
            overload.code,
            Some(Code::Draining | Code::DeadlineUnattainable | Code::DeadlineExpired)
        );
        let told = match overload.hint {
            Hint::Window { delay, max } if overload.retry == Retry::After => {
                Told::ToReturn(whole(delay), whole(max))
            }
            Hint::Window { delay, max } if !own_fault => Told::NotToReturn(whole(delay), whole(max)),
            _ => Told::Nothing,
        };
        self.edge.refused(now, caller, tier, told, !own_fault);
    }

    fn at(&self, ask: &Ask, until: Nanos) -> At {
        let tier = ask.tier.index();
        let admissible = if self.bounds.queue[tier] == 0 {
            0
        } else {
            self.open_wait(ask.tier)
        };
        let mean = self.classes[usize::from(ask.class.0)].times.mean;
        At {
            now: ask.now,
            tier,
            base: ask.wait.saturating_sub(admissible).max(until).max(LEAST),
            step: self.step(tier, mean),
            tenants: self.tenants.active(),
        }
    }

    /// The refusal of what waited, and has been taken out: it paces new work, and books nothing.
    pub(crate) fn refuse_queued(&mut self, now: Nanos, slot: &Slot, code: Code) -> Rejection {
        let tier = slot.tier;
        let min_deadline = if code == Code::DeadlineUnattainable {
            self.least_deadline(now, slot)
        } else {
            None
        };
        let at = At {
            now,
            tier: tier.index(),
            base: LEAST,
            step: self.step(tier.index(), self.classes[usize::from(slot.class.0)].times.mean),
            tenants: self.tenants.active(),
        };
        let place = self.line.place(at, self.tenants[slot.tenant].line[tier.index()]);
        let window = self.line.window(place, self.bounds.floor, self.bounds.ceiling);
        let retry = code.default_retry();
        self.rejection(code, retry, tier, window, None, min_deadline)
    }

    fn rejection(
        &self,
        code: Code,
        retry: Retry,
        tier: Tier,
        window: Window,
        wait: Option<Nanos>,
        min_deadline: Option<Nanos>,
    ) -> Rejection {
        let mut overload = Overload::new(code);
        overload.retry = retry;
        overload.tier = Some(tier);
        overload.state = Some(self.machine.state());
        overload.hint = Hint::Window {
            delay: Duration::from_nanos(window.after),
            max: Duration::from_nanos(window.max),
        };
        overload.predicted_wait = wait.map(Duration::from_nanos);
        overload.min_deadline = min_deadline.map(Duration::from_nanos);
        Rejection {
            overload: Box::new(overload),
        }
    }
}

/// Milliseconds, rounded up to two significant digits (SRV-19); one more first, since the test is "less than".
pub(crate) fn two_digits_up(t: Nanos) -> Nanos {
    let ms = (t / 1_000_000).saturating_add(1);
    let unit = std::iter::successors(Some(1_u64), |unit| unit.checked_mul(10))
        .find(|unit| ms.div_ceil(*unit) < 100)
        .unwrap_or(1);
    ms.div_ceil(unit).saturating_mul(unit).saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_deadline_is_rounded_up_to_two_digits() {
        for (ms, want) in [
            (0, 1),
            (8, 9),
            (98, 99),
            (99, 100),
            (100, 110),
            (109, 110),
            (1_234, 1_300),
            (99_500, 100_000),
        ] {
            assert_eq!(two_digits_up(ms * 1_000_000), want * 1_000_000, "{ms}");
        }
    }
}
