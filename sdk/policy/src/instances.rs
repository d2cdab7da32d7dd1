//! Several instances of one service: whom to ask after retry=elsewhere, and when.
//!
//! "Go elsewhere" helps as long as somewhere else has not said the same. When all have, coming back to the first must
//! still wait for what the first said (CLI-01), so a call remembers each instance's own not-before time.

use std::time::{Duration, Instant};

use crate::Window;

/// The instances of the service that a call is for, by their place in the adapter's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instances {
    known: u8,
    first: u8,
}

impl Instances {
    /// Instances of one service that a call can tell apart. More are a load balancer's work.
    pub const MAX: u8 = 16;
    /// One instance, or one address that stands for many: after retry=elsewhere the call waits like after `after`.
    pub const ONE: Self = Self { known: 1, first: 0 };

    /// So many instances, 1 to [`Self::MAX`], of which the call asks `first` first. Values outside are brought inside.
    pub const fn new(known: u8, first: u8) -> Self {
        let known = match known {
            0 => 1,
            known if known > Self::MAX => Self::MAX,
            known => known,
        };
        let first = if first < known { first } else { 0 };
        Self { known, first }
    }

    /// How many there are.
    pub const fn known(self) -> u8 {
        self.known
    }

    /// The one to ask first.
    pub const fn first(self) -> u8 {
        self.first
    }

    /// Is there another one than the one asked?
    pub const fn another(self) -> bool {
        self.known > 1
    }
}

impl Default for Instances {
    fn default() -> Self {
        Self::ONE
    }
}

/// What one instance said to this call.
#[derive(Clone, Copy, Debug)]
struct Said {
    instance: u8,
    not_before: Instant,
    /// It said so itself; otherwise it is the call's own backoff.
    hinted: bool,
    width: Duration,
}

/// Where a retry=elsewhere leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) instance: u8,
    /// Not before then, and spread over so much: what it said itself, or what holds it.
    pub(crate) held: Option<Held>,
}

/// When an instance that has spoken may be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) not_before: Instant,
    pub(crate) hinted: bool,
    pub(crate) width: Duration,
}

/// What the instances said to one call, at most one entry each. No heap until one of several has spoken.
#[derive(Debug, Default)]
pub(crate) struct Told(Vec<Said>);

impl Told {
    /// Keeps what an instance said; `window` is that of a retry there, from receipt. Never shortened.
    pub(crate) fn remember(&mut self, instance: u8, received: Instant, window: Window, hinted: bool) {
        let Some(not_before) = received.checked_add(window.lo) else {
            return;
        };
        let said = Said {
            instance,
            not_before,
            hinted,
            width: window.hi.saturating_sub(window.lo),
        };
        match self.0.iter_mut().find(|one| one.instance == instance) {
            Some(one) if one.not_before >= not_before => {}
            Some(one) => *one = said,
            None => self.0.push(said),
        }
    }

    /// The best instance but this one: the next that has said nothing, else the one that may be asked first. `held`
    /// tells until when a hold-off covers an instance.
    pub(crate) fn another(
        &self,
        instances: Instances,
        than: u8,
        mut held: impl FnMut(u8) -> Option<Held>,
    ) -> Option<Target> {
        let known = instances.known();
        let others = (1..known).map(|step| (than.saturating_add(step)) % known);
        let mut best: Option<Target> = None;
        for instance in others {
            let said = self.0.iter().find(|one| one.instance == instance);
            let said = said.map(|one| Held {
                not_before: one.not_before,
                hinted: one.hinted,
                width: one.width,
            });
            let later = [said, held(instance)]
                .into_iter()
                .flatten()
                .max_by_key(|held| held.not_before);
            let target = Target {
                instance,
                held: later,
            };
            let opens = |target: &Target| target.held.map(|held| held.not_before);
            if best.is_none_or(|best| opens(&target) < opens(&best)) {
                best = Some(target);
            }
        }
        best
    }
}
