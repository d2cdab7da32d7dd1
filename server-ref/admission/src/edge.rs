//! Callers that come back before they were asked to, stopped before they cost anything.
//!
//! A refusal is cheap, but not free: whoever sends it again at once makes the server spend on refusals what it owes to
//! those who wait. Two looks into a table of hashes stop that, before a prediction is made: a retry is known by its
//! Idempotency-Key and may not come before its own hint; and a caller has, in each tier, a bucket of refusals that
//! refills at the pace at which it can be served anyway. Nobody is locked out: admissions take nothing, refusals by the
//! edge take nothing, and a probe passes whatever the bucket holds (ADM-13).
//!
//! What callers make of their hints is counted here too: honoured, early, late, not at all.

use holdoff_contract::Tier;

use crate::recent::Recent;
use crate::slots::Nanos;
use crate::{ClassId, Controller, Event, Events};

const MS: Nanos = 1_000_000;
/// A retry that is early by no more than this is on time: clocks and timers have a grain.
const TOLERANCE: Nanos = 20 * MS;
/// A return this long after the end of its window is late: the scheduling slack that the conformance suite grants.
const LATE: Nanos = 250 * MS;
/// A caller that has not come back this long after the end of its window is not expected any more.
const GONE: Nanos = 10_000 * MS;
/// A bucket holds the refill of this time. Admissions are counted over the same.
const SAVED: Nanos = 2_000 * MS;
/// A bucket holds at least this many refusals.
const LEAST_BURST: f64 = 4.0;
/// With an empty bucket one request passes in this time: the least distance of the line.
const PROBE_EVERY: Nanos = 250 * MS;
/// Callers, one entry a tier, and keys that are remembered.
const CALLERS: usize = 4_096;
const KEYS: usize = 8_192;
/// Hints of a caller without keys whose return is still expected; older ones are forgotten, not judged.
const EXPECTED: usize = 4;
/// Ticks in which all of both tables is looked at.
const SWEEP: usize = 64;

/// Who asks, in hashes: names are the adapter's, and it salts them. A caller is what can be told to slow down: a tenant, a
/// credential, an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Of the caller.
    pub id: u64,
    /// Of the operation's Idempotency-Key, with its owner.
    pub key: Option<u64>,
    /// `Overload-Attempt`: for statistics only, never for throttling (CONTRACT section 3).
    pub attempt: Option<u8>,
}

/// What became of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HintOutcome {
    /// The caller came back in its window.
    Honoured,
    /// It came back before.
    Early,
    /// It came back after.
    Late,
    /// It did not come back.
    NoReturn,
}

impl HintOutcome {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Honoured, Self::Early, Self::Late, Self::NoReturn];

    /// The label of the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Honoured => "honoured",
            Self::Early => "early",
            Self::Late => "late",
            Self::NoReturn => "no_return",
        }
    }
}

/// How one caller keeps to its hints in one tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compliance {
    /// Hash of the caller.
    pub caller: u64,
    /// Which tier.
    pub tier: Tier,
    /// Hints by what became of them, in the order of [`HintOutcome::ALL`].
    pub outcomes: [u32; 4],
    /// Refusals by the controller.
    pub refused: u32,
    /// Refusals by the edge.
    pub throttled: u32,
}

/// Why the edge refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Throttle {
    /// Its own hint has so long to run, and ends at the latest in `max`.
    Early { after: Nanos, max: Nanos },
    /// The caller's bucket of refusals is empty.
    Empty,
}

/// What a refusal said about coming back: the ends of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// To come back in it.
    ToReturn(Nanos, Nanos),
    /// Not to come back, since the deadline does not hold it. Who does all the same comes before the hint like anybody else: else
    /// one that is told `no` and asks again at once finds each gap before those who wait for theirs.
    NotToReturn(Nanos, Nanos),
    /// Nothing that speaks for the same request sent again: only another deadline or instance would help.
    Nothing,
}

/// A hint that was given.
#[derive(Clone, Copy, Debug, Default)]
struct Hint {
    not_before: Nanos,
    until: Nanos,
    /// Its caller is still expected.
    open: bool,
}

#[derive(Clone, Debug, Default)]
struct Key {
    /// Whose, to count what becomes of the hint.
    account: u64,
    hint: Hint,
}

/// A caller in one tier.
#[derive(Clone, Debug)]
struct Account {
    tier: Tier,
    /// Tokens taken and not yet refilled. Kept in place of what is left, so that the bucket may change its size.
    taken: f64,
    /// Its size by the last look.
    burst: f64,
    at: Nanos,
    /// Admissions, each fading over [`SAVED`].
    admitted: f64,
    probed: Nanos,
    /// It says which of its requests are retries.
    speaks: bool,
    expected: [Hint; EXPECTED],
    outcomes: [u32; 4],
    refused: u32,
    throttled: u32,
}

/// The tables.
#[derive(Debug)]
pub(crate) struct Edge {
    accounts: Recent<Account>,
    keys: Recent<Key>,
}

impl Default for Edge {
    fn default() -> Self {
        Self {
            accounts: Recent::new(CALLERS),
            keys: Recent::new(KEYS),
        }
    }
}

impl Default for Account {
    fn default() -> Self {
        Self {
            tier: Tier::Deferrable,
            taken: 0.0,
            burst: LEAST_BURST,
            at: 0,
            admitted: 0.0,
            probed: 0,
            speaks: false,
            expected: [Hint::default(); EXPECTED],
            outcomes: [0; 4],
            refused: 0,
            throttled: 0,
        }
    }
}

impl Hint {
    /// What a return now makes of it.
    fn judge(self, now: Nanos) -> HintOutcome {
        if now.saturating_add(TOLERANCE) < self.not_before {
            HintOutcome::Early
        } else if now <= self.until.saturating_add(LATE) {
            HintOutcome::Honoured
        } else {
            HintOutcome::Late
        }
    }

    /// Closes it when nobody is expected any more.
    fn is_over(&mut self, now: Nanos) -> bool {
        let over = self.open && now > self.until.saturating_add(GONE);
        self.open &= !over;
        over
    }
}

impl Account {
    /// Lets time pass; `fair` is the caller's fair share in tasks a nanosecond.
    fn refill(&mut self, now: Nanos, fair: f64) {
        let passed = now.saturating_sub(self.at) as f64;
        self.at = now;
        self.admitted *= (-passed / SAVED as f64).exp();
        let rate = fair.max(self.admitted / SAVED as f64);
        self.burst = (rate * SAVED as f64).max(LEAST_BURST);
        self.taken = (self.taken - passed * rate).max(0.0);
    }

    fn is_empty(&self) -> bool {
        self.taken + 1.0 > self.burst
    }

    fn count(&mut self, outcome: HintOutcome, events: &mut impl Events) {
        self.outcomes[outcome as usize] += 1;
        let tier = self.tier;
        events.emit(Event::HintEnded { tier, outcome });
    }

    /// A request that may be a return to one of the hints without a key: the one that it keeps best.
    fn returned(&mut self, now: Nanos, attempt: Option<u8>, events: &mut impl Events) {
        self.speaks |= attempt.is_some();
        if self.speaks && attempt.is_none_or(|attempt| attempt < 2) {
            return;
        }
        let open = self.expected.iter_mut().filter(|hint| hint.open);
        // The earliest to come due: the others may still be kept by whom they were given to.
        if let Some(hint) = open.min_by_key(|hint| hint.not_before) {
            hint.open = false;
            let outcome = hint.judge(now);
            self.count(outcome, events);
        }
    }

    fn expect(&mut self, hint: Hint) {
        // An open hint makes room only where all are open: the oldest is forgotten, not judged.
        let place = (0..EXPECTED).min_by_key(|at| (self.expected[*at].open, self.expected[*at].not_before));
        self.expected[place.unwrap_or(0)] = hint;
    }
}

/// One account a tier: what a caller does with its deferrable work must not stop its critical work.
fn account(caller: &Caller, tier: Tier) -> u64 {
    caller
        .id
        .wrapping_add((tier.index() as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

impl Edge {
    /// Does the edge refuse this? `fair` is the caller's fair share in tasks a nanosecond.
    pub(crate) fn check(
        &mut self,
        now: Nanos,
        caller: &Caller,
        tier: Tier,
        fair: f64,
        events: &mut impl Events,
    ) -> Option<Throttle> {
        let account = self.accounts.enter(account(caller, tier), now);
        account.tier = tier;
        account.refill(now, fair);
        let known = caller.key.and_then(|key| self.keys.find(key, now));
        let mut on_time = false;
        if let Some(Key { hint, .. }) = known {
            let outcome = hint.judge(now);
            on_time = outcome == HintOutcome::Honoured;
            let early = outcome == HintOutcome::Early;
            if hint.open || early {
                account.count(outcome, events);
            }
            // Who comes early is still expected, if it was.
            hint.open &= early;
            if early {
                account.throttled = account.throttled.saturating_add(1);
                return Some(Throttle::Early {
                    after: hint.not_before - now,
                    max: hint.until.saturating_sub(now),
                });
            }
        } else if caller.key.is_none() {
            account.returned(now, caller.attempt, events);
        }
        if on_time || !account.is_empty() {
            return None;
        }
        if now.saturating_sub(account.probed) >= PROBE_EVERY {
            account.probed = now;
            return None;
        }
        account.throttled = account.throttled.saturating_add(1);
        Some(Throttle::Empty)
    }

    /// It was admitted: nothing more is expected under its key.
    pub(crate) fn admitted(&mut self, now: Nanos, caller: &Caller, tier: Tier) {
        if let Some(account) = self.accounts.find(account(caller, tier), now) {
            account.admitted += 1.0;
        }
        if let Some(key) = caller.key.and_then(|key| self.keys.find(key, now)) {
            key.hint = Hint::default();
        }
    }

    /// It was refused and told this; `takes` where the refusal was for load.
    pub(crate) fn refused(&mut self, now: Nanos, caller: &Caller, tier: Tier, told: Told, takes: bool) {
        let id = account(caller, tier);
        let hint = match told {
            Told::ToReturn(after, max) | Told::NotToReturn(after, max) => Some(Hint {
                not_before: now.saturating_add(after),
                until: now.saturating_add(max),
                open: matches!(told, Told::ToReturn(..)),
            }),
            Told::Nothing => None,
        };
        if let Some(account) = self.accounts.find(id, now) {
            if takes {
                // A probe may be refused too; it takes nothing from an empty bucket.
                account.taken = (account.taken + 1.0).min(account.burst);
                account.refused = account.refused.saturating_add(1);
            }
            if let Some(hint) = hint.filter(|hint| hint.open && caller.key.is_none()) {
                account.expect(hint);
            }
        }
        if let (Some(key), Some(hint)) = (caller.key, hint) {
            *self.keys.enter(key, now) = Key { account: id, hint };
        }
    }

    /// Closes hints whose callers did not come back.
    pub(crate) fn tick(&mut self, now: Nanos, events: &mut impl Events) {
        let mut gone = |account: &mut Account| account.count(HintOutcome::NoReturn, events);
        self.accounts.sweep(SWEEP, |account| {
            for at in 0..EXPECTED {
                if account.expected[at].is_over(now) {
                    gone(account);
                }
            }
        });
        let accounts = &mut self.accounts;
        self.keys.sweep(SWEEP, |key| {
            if key.hint.is_over(now)
                && let Some(account) = accounts.peek(key.account)
            {
                gone(account);
            }
        });
    }
}

impl Controller {
    /// The callers of which the most hints were not honoured, at most `most`: early first, then late (ADM-23).
    pub fn worst_callers(&self, most: usize) -> Vec<Compliance> {
        let mut all: Vec<Compliance> = self
            .edge
            .accounts
            .iter()
            .filter(|(_, account)| account.refused > 0 || account.throttled > 0)
            .map(|(hash, account)| Compliance {
                caller: hash,
                tier: account.tier,
                outcomes: account.outcomes,
                refused: account.refused,
                throttled: account.throttled,
            })
            .collect();
        let blame = |c: &Compliance| {
            let [honoured, early, late, gone] = c.outcomes.map(u64::from);
            (early + u64::from(c.throttled), late, gone, honoured)
        };
        all.sort_by_key(|compliance| std::cmp::Reverse(blame(compliance)));
        all.truncate(most);
        all
    }

    /// A caller's fair share of the pool, in tasks a nanosecond. Reckoned in the quickest tasks that are asked for: a caller
    /// of many quick ones must not be measured by somebody's long one.
    pub(crate) fn fair_share(&self, class: ClassId) -> f64 {
        let mean = self.classes[usize::from(class.0)].times.mean;
        let quickest = mean.min(self.bounds.quickest).max(1);
        f64::from(self.pool.effective) / (quickest as f64 * f64::from(self.tenants.active()))
    }
}
