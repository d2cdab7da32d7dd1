//! An independent account of what calls hold and of what holds them off, for the property test.

use std::time::Instant;

use holdoff_contract::{Overload, Scope, Tier};
use holdoff_policy::{CallSpec, CallerKey};

use super::ms;

/// A second book of the budget and of the hold-offs.
#[derive(Default)]
pub(crate) struct Account(pub(crate) Books);

#[derive(Default)]
pub(crate) struct Books {
    pub(crate) tokens: u32,
    /// Each refusal that spoke for others.
    hold_offs: Vec<Held>,
    /// How many there were.
    pub(crate) holds: usize,
}

struct Held {
    instance: u8,
    /// `None`: everybody's calls.
    caller: Option<Option<CallerKey>>,
    tier: Tier,
    armed: Instant,
    until: Instant,
}

impl Held {
    fn covers(&self, spec: &CallSpec, instance: u8) -> bool {
        self.instance == instance
            && self.caller.is_none_or(|one| one == spec.caller)
            && effective(spec) >= self.tier
    }
}

impl Account {
    pub(crate) fn refund(&mut self, tokens: u32) {
        self.0.tokens = (self.0.tokens + tokens).min(100);
    }

    pub(crate) fn withdraw(&mut self, tokens: u32) {
        self.0.tokens = self.0.tokens.checked_sub(tokens).expect("more than there is");
    }

    pub(crate) fn arm(&mut self, spec: &CallSpec, instance: u8, overload: &Overload, at: (Instant, Instant)) {
        let (received, now) = at;
        let until = received + overload.hint.delay_or_zero().min(ms(30_000));
        let own = effective(spec);
        let tier = overload.tier.map_or(own, |used| used.max(own));
        let caller = match overload.scope {
            Scope::Request => return,
            Scope::Tenant => Some(spec.caller),
            Scope::Service => None,
        };
        if until > now {
            self.0.holds += 1;
            self.0.hold_offs.push(Held {
                instance,
                caller,
                tier,
                armed: received,
                until,
            });
        }
    }

    pub(crate) fn end(&mut self, spec: &CallSpec, instance: u8, sent: Instant) {
        self.0
            .hold_offs
            .retain(|held| !(held.covers(spec, instance) && held.armed < sent));
    }

    pub(crate) fn holds(&self, spec: &CallSpec, instance: u8, now: Instant) -> bool {
        let mut held = self.0.hold_offs.iter();
        held.any(|held| held.covers(spec, instance) && held.until > now)
    }
}

/// The tier that the wire says, or deferrable.
fn effective(spec: &CallSpec) -> Tier {
    let own = spec.tier.unwrap_or(Tier::Deferrable);
    if spec.incoming.is_some() {
        // The incoming requests of this test name no tier.
        Tier::Deferrable
    } else {
        own
    }
}
