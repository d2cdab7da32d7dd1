//! normal -> congested -> shedding -> recovering -> normal.
//!
//! One good sample must not reopen everything, and one threshold for both directions flips. So there are two levels
//! with a band between them, a hold that any break starts again, and a ramp. Moved by the controller's own tick, so
//! an idle server recovers too (ADM-08, ADM-19).
//!
//! Load that swings round a threshold gets past any band that is worth having. So who relapses is believed less: what comes
//! back within a minute of recovering has to be low for twenty holds before it may recover again, and has to be over the
//! higher threshold for as long before it is shedding. Up to congested is at once, always. That costs little: the
//! gate is soft, so while the wait is short a state that lasts refuses nobody.

use holdoff_contract::ServiceState;

use crate::profile::Profile;
use crate::slots::Nanos;

/// Share of the deferrable wait bound while congested: deferrable work is refused before any other (B5).
const CONGESTED: f64 = 0.5;
/// The same while shedding, and where the ramp begins.
const SHEDDING: f64 = 0.1;
/// Overload that comes back so soon after it began to recover is a relapse, 60 s: one swing of load a minute is a change of
/// load, more are a swing.
const RELAPSE_WITHIN: Nanos = 60_000_000_000;
/// Holds that count for one after a relapse: 40 s at the default hold, longer than half of any swing that relapses.
const RELAPSED: Nanos = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Low,
    Between,
    Congested,
    Shedding,
}

/// The state and how long things have been low.
#[derive(Debug)]
pub(crate) struct Machine {
    state: ServiceState,
    since: Nanos,
    low_since: Option<Nanos>,
    /// How long things have been over the threshold of shedding.
    shed_since: Option<Nanos>,
    /// When it last began to recover.
    left: Option<Nanos>,
    /// The overload that lasts is a relapse.
    relapsed: bool,
    /// Time of the ramp that has passed; it runs only while low.
    ramped: Nanos,
    last: Nanos,
    pinned: bool,
    hold: Nanos,
    ramp: Nanos,
    depths: (u32, u32, u32),
    waits: (f64, f64, f64),
}

/// A change of state.
pub(crate) type Change = Option<(ServiceState, ServiceState)>;

impl Machine {
    pub(crate) fn new(profile: &Profile) -> Self {
        let t = &profile.thresholds;
        Self {
            state: ServiceState::Normal,
            since: 0,
            low_since: None,
            shed_since: None,
            left: None,
            relapsed: false,
            ramped: 0,
            last: 0,
            pinned: false,
            hold: profile.hold_ms * 1_000_000,
            ramp: profile.ramp_ms * 1_000_000,
            depths: profile.depths(),
            waits: (t.enter_wait, t.shed_wait, t.exit_wait),
        }
    }

    /// Takes another profile's thresholds; the state stays as it is until the next sample.
    pub(crate) fn reload(&mut self, profile: &Profile) {
        let new = Self::new(profile);
        self.hold = new.hold;
        self.ramp = new.ramp;
        self.ramped = self.ramped.min(new.ramp);
        self.depths = new.depths;
        self.waits = new.waits;
    }

    pub(crate) fn state(&self) -> ServiceState {
        self.state
    }

    pub(crate) fn age(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.since)
    }

    /// A pinned state gates strictly: it was asked for, whatever the wait.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Share of the deferrable wait bound that is open.
    pub(crate) fn open_share(&self) -> f64 {
        match self.state {
            ServiceState::Normal => 1.0,
            ServiceState::Congested => CONGESTED,
            ServiceState::Shedding => SHEDDING,
            ServiceState::Recovering if self.ramp == 0 => 1.0,
            ServiceState::Recovering => {
                SHEDDING + (1.0 - SHEDDING) * (self.ramped as f64 / self.ramp as f64).min(1.0)
            }
        }
    }

    /// Time until normal, if things stay low from now on.
    pub(crate) fn time_to_normal(&self, now: Nanos) -> Nanos {
        let held = self.low_since.map_or(0, |since| now.saturating_sub(since));
        match self.state {
            ServiceState::Normal => 0,
            ServiceState::Recovering => self.ramp.saturating_sub(self.ramped),
            _ => self.holds().saturating_sub(held) + self.ramp,
        }
    }

    /// How long it must be low before it may recover.
    fn holds(&self) -> Nanos {
        self.hold.saturating_mul(if self.relapsed { RELAPSED } else { 1 })
    }

    fn level(&self, depth: u32, wait: f64, pressed: bool) -> Level {
        let (enter, shed, exit) = self.depths;
        let (enter_wait, shed_wait, exit_wait) = self.waits;
        if depth >= shed || (pressed && wait >= shed_wait) {
            Level::Shedding
        } else if depth >= enter || (pressed && wait >= enter_wait) {
            Level::Congested
        } else if depth <= exit && wait <= exit_wait {
            Level::Low
        } else {
            Level::Between
        }
    }

    /// Takes a sample of depth and of wait (as a share of the deferrable wait bound) in. A long wait leads up only where
    /// somebody waits or was refused (`pressed`): one long task on the only worker is no overload.
    pub(crate) fn sample(&mut self, now: Nanos, depth: u32, wait: f64, pressed: bool) -> Change {
        let passed = now.saturating_sub(self.last);
        self.last = now;
        let level = self.level(depth, wait, pressed);
        if level == Level::Low {
            let since = *self.low_since.get_or_insert(now);
            if self.state == ServiceState::Recovering && since < now {
                self.ramped = (self.ramped + passed).min(self.ramp);
            }
        } else {
            self.low_since = None;
        }
        if level < Level::Shedding {
            self.shed_since = None;
        }
        let over_since = if level == Level::Shedding {
            *self.shed_since.get_or_insert(now)
        } else {
            now
        };
        if self.pinned {
            return None;
        }
        let low = self.low_since.map_or(0, |since| now - since);
        let low_for = |hold: Nanos| self.low_since.is_some() && low >= hold;
        let sheds = !self.relapsed || now - over_since >= self.holds();
        let next = match (self.state, level) {
            (ServiceState::Normal, Level::Congested | Level::Shedding) => ServiceState::Congested,
            (ServiceState::Congested, Level::Shedding) if sheds => ServiceState::Shedding,
            (ServiceState::Congested | ServiceState::Shedding, Level::Low) if low_for(self.holds()) => {
                ServiceState::Recovering
            }
            (ServiceState::Recovering, Level::Congested) => ServiceState::Congested,
            (ServiceState::Recovering, Level::Shedding) => ServiceState::Shedding,
            (ServiceState::Recovering, Level::Low) if low_for(self.hold) && self.ramped >= self.ramp => {
                ServiceState::Normal
            }
            (state, _) => state,
        };
        self.enter(now, next)
    }

    fn enter(&mut self, now: Nanos, next: ServiceState) -> Change {
        let from = self.state;
        if from == next {
            return None;
        }
        match (from, next) {
            (_, ServiceState::Recovering) => self.left = Some(now),
            (
                ServiceState::Normal | ServiceState::Recovering,
                ServiceState::Congested | ServiceState::Shedding,
            ) => {
                self.relapsed = self.left.is_some_and(|left| now - left < RELAPSE_WITHIN);
            }
            _ => {}
        }
        self.state = next;
        self.since = now;
        self.ramped = 0;
        Some((from, next))
    }

    /// Pins a state, or lets it go. Recovering is entered, not pinned: it is its ramp.
    pub(crate) fn force(&mut self, now: Nanos, state: Option<ServiceState>) -> Change {
        self.pinned = state.is_some_and(|state| state != ServiceState::Recovering);
        self.low_since = None;
        self.last = now;
        state.and_then(|state| self.enter(now, state))
    }
}

#[cfg(test)]
mod tests {
    use super::ServiceState::{Congested, Normal, Recovering, Shedding};
    use super::*;

    const MS: Nanos = 1_000_000;

    fn machine(enter: u32, exit: u32, hold_ms: u64, ramp_ms: u64) -> Machine {
        let mut profile = Profile {
            hold_ms,
            ramp_ms,
            ..Profile::default()
        };
        profile.thresholds.enter_depth = Some(enter);
        profile.thresholds.exit_depth = Some(exit);
        profile.validate().unwrap();
        Machine::new(&profile)
    }

    #[test]
    fn short_dips_do_not_reopen_and_the_ramp_only_grows() {
        // FC-REC-01
        let mut m = machine(8, 4, 2_000, 2_000);
        let dips = [10, 10, 10, 3, 10, 10, 3, 3, 10, 6, 3, 3, 3, 10];
        let (mut changes, mut last_high, mut now, mut share) = (Vec::new(), 0, 0, 0.0);
        for depth in dips.into_iter().chain(std::iter::repeat_n(3, 100)) {
            now += 100 * MS;
            if depth > 4 {
                last_high = now;
            }
            let was = m.state();
            changes.extend(m.sample(now, depth, 0.0, true));
            if m.state() == Recovering {
                if was == Recovering {
                    assert!(
                        m.open_share() >= share && m.open_share() - share < 0.06,
                        "at {now}"
                    );
                } else {
                    assert_eq!(m.open_share(), SHEDDING);
                }
                share = m.open_share();
            }
            assert!(
                m.state() != Normal || now >= last_high + 2_000 * MS || last_high == 0,
                "at {now}"
            );
        }
        assert_eq!(
            changes,
            [
                (Normal, Congested),
                (Congested, Shedding),
                (Shedding, Recovering),
                (Recovering, Normal)
            ]
        );
        assert!(
            m.since >= last_high + 4_000 * MS,
            "normal before hold and ramp were over"
        );
    }

    #[test]
    fn a_level_between_the_two_thresholds_changes_nothing() {
        // FC-REC-04
        let mut m = machine(80, 70, 2_000, 3_000);
        let mut changes = Vec::new();
        for n in 0..100 {
            changes.extend(m.sample(n * 100 * MS, if n % 2 == 0 { 79 } else { 81 }, 0.0, true));
        }
        assert!(changes.len() <= 2, "{changes:?}");
        assert!(
            changes.iter().all(|(_, to)| !matches!(to, Normal | Recovering)),
            "{changes:?}"
        );
    }

    #[test]
    fn a_relapse_goes_back_up_and_starts_the_hold_again() {
        let mut m = machine(8, 4, 1_000, 1_000);
        let mut now = 0;
        let mut run = |m: &mut Machine, depth, n: u64| {
            (0..n)
                .filter_map(|_| {
                    now += 100 * MS;
                    m.sample(now, depth, 0.0, true)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(run(&mut m, 10, 3), [(Normal, Congested), (Congested, Shedding)]);
        assert_eq!(run(&mut m, 2, 15), [(Shedding, Recovering)]);
        assert_eq!(run(&mut m, 9, 1), [(Recovering, Congested)]);
        assert_eq!(run(&mut m, 2, 199), []);
        assert_eq!(
            run(&mut m, 2, 25),
            [(Congested, Recovering), (Recovering, Normal)]
        );
    }

    #[test]
    fn after_a_relapse_shedding_needs_a_high_level_that_lasts_and_after_a_quiet_minute_it_does_not() {
        let mut m = machine(8, 4, 1_000, 1_000);
        let mut now = 0;
        let mut run = |m: &mut Machine, depth, n: u64| {
            (0..n)
                .filter_map(|_| {
                    now += 100 * MS;
                    m.sample(now, depth, 0.0, true)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(run(&mut m, 8, 1), [(Normal, Congested)]);
        assert_eq!(
            run(&mut m, 2, 30),
            [(Congested, Recovering), (Recovering, Normal)]
        );
        assert_eq!(run(&mut m, 20, 199), [(Normal, Congested)]);
        assert_eq!(run(&mut m, 20, 5), [(Congested, Shedding)]);
        assert_eq!(
            run(&mut m, 2, 230),
            [(Shedding, Recovering), (Recovering, Normal)]
        );
        assert_eq!(run(&mut m, 2, 600), []);
        assert_eq!(run(&mut m, 20, 2), [(Normal, Congested), (Congested, Shedding)]);
        assert_eq!(run(&mut m, 2, 30), [(Shedding, Recovering), (Recovering, Normal)]);
    }

    #[test]
    fn the_ramp_stands_still_between_the_levels() {
        let mut m = machine(8, 4, 1_000, 1_000);
        m.force(0, Some(Recovering));
        for n in 1..=5 {
            m.sample(n * 100 * MS, 0, 0.0, true);
        }
        let open = m.open_share();
        for n in 6..=50 {
            m.sample(n * 100 * MS, 6, 0.0, true);
        }
        assert_eq!((m.state(), m.open_share()), (Recovering, open));
    }

    #[test]
    fn wait_alone_leads_up_and_keeps_from_recovering() {
        let mut m = machine(80, 40, 0, 0);
        assert_eq!(m.sample(MS, 0, 0.6, true), Some((Normal, Congested)));
        assert_eq!(m.sample(2 * MS, 0, 1.5, true), Some((Congested, Shedding)));
        assert_eq!(m.sample(3 * MS, 0, 0.3, true), None);
        assert_eq!(m.sample(4 * MS, 0, 0.2, true), Some((Shedding, Recovering)));
    }

    #[test]
    fn a_long_wait_of_nobody_is_no_overload_but_keeps_one_from_ending() {
        let mut m = machine(80, 40, 0, 0);
        assert_eq!(m.sample(MS, 0, 5.0, false), None);
        m.sample(2 * MS, 0, 5.0, true);
        assert_eq!(m.sample(3 * MS, 0, 5.0, false), None);
        assert_eq!(m.state(), Congested);
    }

    #[test]
    fn a_pinned_state_stays_until_it_is_let_go_and_recovering_moves_on_by_itself() {
        let mut m = machine(8, 4, 500, 500);
        assert_eq!(m.force(0, Some(Shedding)), Some((Normal, Shedding)));
        for n in 1..=50 {
            assert_eq!(m.sample(n * 100 * MS, 0, 0.0, true), None);
        }
        m.force(5_000 * MS, Some(Recovering));
        assert!(!m.is_pinned());
        let changes: Vec<_> = (51..=80)
            .filter_map(|n| m.sample(n * 100 * MS, 0, 0.0, true))
            .collect();
        assert_eq!(changes, [(Recovering, Normal)]);
    }
}
