//! The part of a call that looks beyond itself: what a refusal says about its neighbours, what theirs say about it,
//! and where else to go.

use std::time::Instant;

use holdoff_contract::{Scope, Tier};
use rand_core::Rng;

use super::{Call, Phase, Wait, emit_levels};
use crate::hold_off::Subject;
use crate::instances::{Held, Target};
use crate::judge::SEND_MARGIN;
use crate::{Action, Destination, Event, Events, Refusal, StopReason, Window};

impl Call {
    /// Passes the hold-offs, or waits behind one, or stops: `None` where it stopped.
    pub(super) fn pass_or_wait<R: Rng + ?Sized>(
        &mut self,
        now: Instant,
        destination: &mut Destination,
        rng: &mut R,
        events: &mut impl Events,
    ) -> Option<Action> {
        let subject = self.subject(self.next_instance());
        let held = match destination.hold_offs.holding(&subject, now) {
            None => return self.try_send(now, destination, events).map(Action::Send),
            Some(hold_off) => {
                self.held_until = Some(hold_off.until);
                if self.last.is_none() {
                    self.last = Some(hold_off.refusal.clone());
                }
                hold_off.release(now)
            }
        };
        match self.wait_behind(held, now, destination, rng, events) {
            Ok(until) => Some(Action::WaitUntil(until)),
            Err(why) => {
                self.stop(why, now, destination, events);
                None
            }
        }
    }

    /// Draws this call's own release. A relay that did not opt in to retries does not wait, nor does a call whose
    /// deadline does not allow it: they are answered at once, with nothing sent.
    fn wait_behind<R: Rng + ?Sized>(
        &mut self,
        release: Window,
        now: Instant,
        destination: &mut Destination,
        rng: &mut R,
        events: &mut impl Events,
    ) -> Result<Instant, StopReason> {
        let limit = self.time_to_wait(now);
        let relay = self.spec.incoming.is_some_and(|incoming| !incoming.retries);
        if relay || release.lo.saturating_add(SEND_MARGIN) >= limit {
            return Err(StopReason::HeldOff);
        }
        if destination.waiting >= self.policy.max_waiting {
            return Err(StopReason::TooManyWaiting);
        }
        let wait = release.draw(limit.saturating_sub(SEND_MARGIN), rng);
        let until = now.checked_add(wait).ok_or(StopReason::HeldOff)?;
        destination.waiting = destination.waiting.saturating_add(1);
        self.phase = Phase::Waiting(Wait { since: now, until });
        events.emit(Event::HeldBack { wait });
        emit_levels(destination, events);
        Ok(until)
    }

    /// Hears what a refusal says beside its answer to this call: the hold-off of a wider scope is armed even if this
    /// call stops, and an instance's own words are kept.
    pub(super) fn hear(
        &mut self,
        refusal: &Refusal,
        now: Instant,
        destination: &mut Destination,
        events: &mut impl Events,
    ) {
        let several = self.spec.instances.another();
        if refusal.overload.scope == Scope::Request && !several {
            return;
        }
        let hint = refusal.overload.hint;
        let window = self.policy.window(hint, self.attempts);
        if several {
            let hinted = !hint.delay_or_zero().is_zero();
            self.told
                .remember(self.instance, refusal.received, window, hinted);
        }
        let subject = self.subject(self.instance);
        if !destination.is_overflow && destination.hold_offs.arm(subject, refusal, window, now) {
            emit_hold_offs(destination, now, events);
        }
    }

    /// Where a retry=elsewhere leads from the instance that was asked last.
    pub(super) fn elsewhere(&self, now: Instant, destination: &mut Destination) -> Option<Target> {
        let held = |instance| {
            let hold_off = destination.hold_offs.holding(&self.subject(instance), now)?;
            let release = hold_off.release(now);
            Some(Held {
                not_before: hold_off.until,
                hinted: true,
                width: release.hi.saturating_sub(release.lo),
            })
        };
        self.told.another(self.spec.instances, self.instance, held)
    }

    /// Which instance the next send asks.
    pub(super) fn next_instance(&self) -> u8 {
        self.pending.map_or(self.instance, |retry| retry.instance)
    }

    pub(super) fn subject(&self, instance: u8) -> Subject {
        Subject {
            instance,
            caller: self.spec.caller,
            tier: self.spec.tier.unwrap_or(Tier::Deferrable),
        }
    }
}

/// What is left of an instance's own window when this refusal was received.
pub(super) fn window_of(held: Held, received: Instant) -> Option<(Window, bool)> {
    let lo = held
        .not_before
        .checked_duration_since(received)
        .filter(|lo| !lo.is_zero())?;
    let hi = lo.saturating_add(held.width);
    Some((Window { lo, hi, max: None }, held.hinted))
}

pub(super) fn emit_hold_offs(destination: &Destination, now: Instant, events: &mut impl Events) {
    let active = destination.hold_offs.active(now);
    events.emit(Event::HoldOffs { active });
}
