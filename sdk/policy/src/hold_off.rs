//! Hold-offs: what a refusal says about the calls beside it (CONTRACT section 5, CLI-15 and CLI-16).
//!
//! One call waits politely while its neighbours go on hitting the service that just said stop; and when the wait is
//! over, all that were held leave in the same millisecond. So a refusal whose scope is wider than its request arms a
//! not-before time for every call that it speaks for, and each call held by it draws a release of its own.
//!
//! A hold-off speaks for one authority, one caller (scope tenant) or all of them (scope service), and one tier and those
//! below it: never for a more important one. It never gets shorter, never lasts longer than [`CEILING`], and ends early
//! when a call that it covers, sent after it was armed, succeeds. Each send asks, the first as well as every retry on
//! waking, since a hold-off may have grown while the call slept.
//!
//! ```text
//!   refused, scope service          until = receipt + min(D, 30 s)
//!        |---------- held ----------------|~~~~ releases, each drawn by its own call ~~~~|
//!                                         |<- width of the window, at least 200 ms ----->|
//! ```

use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

use holdoff_contract::{Applied, Overload, Scope, Tier};

use crate::{Refusal, Window};

/// Longest hold-off, 30 s (CONTRACT section 5): the ceiling of a server's own hints. A longer one would let one wrong
/// answer silence a caller for as long as it likes.
pub(crate) const CEILING: Duration = Duration::from_secs(30);
/// Least width that held calls are released over, 200 ms (CONTRACT section 5): a window of 50 ms is made for one call,
/// not for all of them.
pub(crate) const LEAST_RELEASE: Duration = Duration::from_millis(200);
/// Hold-offs of one destination at the same time: a caller that works for more tenants than this, all of them refused
/// at once, has the one that ends first replaced. 16 kB for a destination in that state, none for one at rest.
pub(crate) const MAX_HOLD_OFFS: usize = 256;

/// Whose call it is, for a hold-off with scope tenant: a hash of the tenant or the credential that the request is sent
/// with, never the name or secret itself (SEC-04).
///
/// Two callers with the same hash hold each other, which costs a wait and no more. Hash with a keyed hasher, so that
/// nobody can choose a name that collides with another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerKey(u64);

impl CallerKey {
    /// A key from a hash that was made elsewhere.
    pub const fn new(hash: u64) -> Self {
        Self(hash)
    }

    /// The key of this name or secret. Does not allocate.
    pub fn hashed(value: &(impl Hash + ?Sized), hasher: &impl BuildHasher) -> Self {
        Self(hasher.hash_one(value))
    }
}

/// Whom a hold-off looks at when a call comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// Which of the service's instances: each is an authority of its own.
    pub(crate) instance: u8,
    /// `None` is a caller too: the one that says nothing about itself.
    pub(crate) caller: Option<CallerKey>,
    pub(crate) tier: Tier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Covers {
    Everybody,
    Caller(Option<CallerKey>),
}

/// A not-before time, and for whom.
#[derive(Clone, Debug)]
pub(crate) struct HoldOff {
    instance: u8,
    covers: Covers,
    /// This tier and those below it.
    tier: Tier,
    /// Receipt of the refusal that spoke last.
    armed: Instant,
    pub(crate) until: Instant,
    /// What releases spread over.
    width: Duration,
    /// What a call is told that cannot wait so long.
    pub(crate) refusal: Refusal,
}

impl HoldOff {
    fn covers(&self, subject: &Subject) -> bool {
        let caller = match self.covers {
            Covers::Everybody => true,
            Covers::Caller(caller) => caller == subject.caller,
        };
        // The more important tier is the smaller.
        caller && self.instance == subject.instance && subject.tier >= self.tier
    }

    /// The window that a call held from `now` on draws its release from.
    pub(crate) fn release(&self, now: Instant) -> Window {
        let lo = self.until.saturating_duration_since(now);
        Window {
            lo,
            hi: lo.saturating_add(self.width.max(LEAST_RELEASE)),
            max: None,
        }
    }
}

/// The hold-offs of one destination, at most [`MAX_HOLD_OFFS`]. No heap while there is none.
#[derive(Debug, Default)]
pub(crate) struct HoldOffs(Vec<HoldOff>);

impl HoldOffs {
    pub(crate) const NONE: Self = Self(Vec::new());

    /// Arms or lengthens the hold-off that this refusal speaks of; true where it changed anything. `window` is that of
    /// a retry after it. A refusal without a delay, or for its own request only, holds nothing back.
    pub(crate) fn arm(&mut self, by: Subject, refusal: &Refusal, window: Window, now: Instant) -> bool {
        let overload = &*refusal.overload;
        let covers = match overload.scope {
            Scope::Request => return false,
            Scope::Tenant => Covers::Caller(by.caller),
            Scope::Service => Covers::Everybody,
        };
        let delay = overload.hint.delay_or_zero().min(CEILING);
        // A clock that ends within 30 s of now is none of ours.
        let until = refusal.received.checked_add(delay).filter(|until| *until > now);
        let Some(until) = until else { return false };
        // The tier that the server used, but never a higher one than the call had.
        let tier = overload.tier.map_or(by.tier, |used| used.max(by.tier));
        self.drop_ended(now);
        let new = HoldOff {
            instance: by.instance,
            covers,
            tier,
            armed: refusal.received,
            until,
            width: window.hi.saturating_sub(window.lo),
            refusal: of_itself(refusal),
        };
        let same =
            |one: &&mut HoldOff| (one.instance, one.covers, one.tier) == (new.instance, new.covers, new.tier);
        match self.0.iter_mut().find(same) {
            Some(old) if old.until >= new.until => {
                // A shorter hint shortens nothing, but it was said later than any success before it.
                old.armed = old.armed.max(new.armed);
                false
            }
            Some(old) => {
                *old = HoldOff {
                    armed: old.armed.max(new.armed),
                    ..new
                };
                true
            }
            None => self.insert(new),
        }
    }

    /// The hold-off that holds this call longest.
    pub(crate) fn holding(&mut self, subject: &Subject, now: Instant) -> Option<&HoldOff> {
        if self.0.is_empty() {
            return None;
        }
        self.drop_ended(now);
        self.0
            .iter()
            .filter(|one| one.covers(subject))
            .max_by_key(|one| one.until)
    }

    /// A call that was sent at `sent` has succeeded: what it covers and was armed before is over. Tells whether
    /// anything was.
    pub(crate) fn end(&mut self, subject: &Subject, sent: Instant) -> bool {
        let before = self.0.len();
        if before > 0 {
            self.0.retain(|one| !(one.covers(subject) && one.armed < sent));
            self.release_heap();
        }
        self.0.len() != before
    }

    /// How many are in force.
    pub(crate) fn active(&self, now: Instant) -> u32 {
        let active = self.0.iter().filter(|one| one.until > now).count();
        u32::try_from(active).unwrap_or(u32::MAX)
    }

    /// True where there is none, not even one that has ended and was not looked at since.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn insert(&mut self, new: HoldOff) -> bool {
        if self.0.len() < MAX_HOLD_OFFS {
            self.0.push(new);
            return true;
        }
        match self.0.iter_mut().min_by_key(|one| one.until) {
            Some(first) if first.until < new.until => {
                *first = new;
                true
            }
            _ => false,
        }
    }

    fn drop_ended(&mut self, now: Instant) {
        self.0.retain(|one| one.until > now);
        self.release_heap();
    }

    fn release_heap(&mut self) {
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }
}

/// What a refusal says to a call that it was not the answer to: why and when. What it says of its own call (detail, id,
/// wait, quotas, unknown members) may be another tenant's, and stays there (SEC-02). Nothing of the held call was sent.
fn of_itself(refusal: &Refusal) -> Refusal {
    let said = &*refusal.overload;
    let overload = Overload {
        status: said.status,
        code: said.code.clone(),
        retry: said.retry,
        applied: Applied::No,
        hint: said.hint,
        scope: said.scope,
        state: said.state,
        tier: said.tier,
        hop: said.hop,
        detail: None,
        instance: None,
        min_deadline: None,
        predicted_wait: None,
        origin: None,
        quotas: Vec::new(),
        extensions: Vec::new(),
        members: Vec::new(),
    };
    Refusal {
        overload: Box::new(overload),
        received: refusal.received,
    }
}
