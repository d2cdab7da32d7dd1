//! When may a refused caller come back? A place in a virtual line.
//!
//! One hint for everybody is an appointment for a stampede. So each refusal books time at the pace at which its tier
//! could be served, and the next one gets the time after it. Tenants take turns in the line as they do in the queue:
//! before somebody's k-th booking go at most k of each other tenant, so nobody pushes others out (ADM-27).

use crate::slots::Nanos;

/// Pace of the line of each tier, in shares of the capacity. Together more than the whole, since some of those who stand in
/// line do not come back, and most of it for deferrable work, which alone has the patience to use a long line. Tried in the
/// simulator: 0.5, 0.7, 0.8 sends more attempts for the same goodput; 0.3, 0.4, 0.5 leaves workers idle after a stampede.
const PACE: [f64; 3] = [0.3, 0.2, 0.8];
/// Pace of those that were told the ceiling, in capacities. They come back over half of it, unbooked in their tier's line: more
/// of them than this would meet a full house again. Tried: 0.7 and 1.5; none at all gives 1.46 attempts a call at ten times the
/// load for 1.34.
const BEHIND_PACE: f64 = 1.0;
/// The line behind the ceiling of the last tier, deferrable, which alone has the patience for it.
pub(crate) const BEHIND: usize = PACE.len();
/// Lines: one a tier, and the one behind the ceiling.
pub(crate) const LINES: usize = PACE.len() + 1;
/// Least distance of the line from now.
pub(crate) const LEAST: Nanos = 250_000_000;
/// Fraction of a hint over which callers refused at the same place are scattered (SRV-11).
const SCATTER: f64 = 0.1;
/// Least width of a window.
const WIDTH: Nanos = 50_000_000;
/// Greatest width of a window (CONTRACT section 2).
const GREATEST_WIDTH: Nanos = 60_000_000_000;
const MS: Nanos = 1_000_000;

/// The end of each line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    until: [Nanos; LINES],
    drawn: u64,
}

/// A place in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) now: Nanos,
    /// A tier, or [`BEHIND`].
    pub(crate) tier: usize,
    /// Distance at which the line begins: max(0.25 s, wait - W).
    pub(crate) base: Nanos,
    /// What one booking takes.
    pub(crate) step: Nanos,
    /// Tenants that share the line.
    pub(crate) tenants: u32,
}

/// A window to come back in, whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) after: Nanos,
    pub(crate) max: Nanos,
}

/// Time one task of this length takes in a tier's line. The last tier, deferrable, moves by what newcomers leave (`spare`); the
/// patience of the others is too short for that.
pub(crate) fn step(tier: usize, mean: Nanos, workers: u32, spare: f64) -> Nanos {
    let pace = PACE[tier] * if tier + 1 == PACE.len() { spare } else { 1.0 };
    (mean as f64 / (pace * f64::from(workers.max(1)))) as Nanos
}

/// Time one task of this length takes in the line behind the ceiling.
pub(crate) fn step_behind(mean: Nanos, workers: u32) -> Nanos {
    (mean as f64 / (BEHIND_PACE * f64::from(workers.max(1)))) as Nanos
}

/// The latest start of a window for a place: see [`Line::window`].
pub(crate) fn latest(place: Nanos, floor: Nanos, ceiling: Nanos) -> Nanos {
    ((place.max(floor) as f64 * (1.0 + SCATTER)) as Nanos).min(ceiling)
}

/// What is left of a window that was given before.
pub(crate) fn left(after: Nanos, max: Nanos, floor: Nanos) -> Window {
    let after = after.max(floor).div_ceil(MS) * MS;
    Window {
        after,
        max: (max.div_ceil(MS) * MS).max(after + WIDTH),
    }
}

impl Line {
    /// Where somebody whose own line ends at `own` would stand.
    pub(crate) fn place(&self, at: At, own: Nanos) -> Nanos {
        let start = at.now + at.base;
        let booked = self.until[at.tier].saturating_sub(start);
        let tenants = u64::from(at.tenants.max(1));
        let mine = own.saturating_sub(start) / tenants;
        let turns = (tenants - 1).saturating_mul(mine.saturating_add(at.step));
        at.base
            .saturating_add(mine)
            .saturating_add(booked.saturating_sub(mine).min(turns))
    }

    /// Where somebody refused for its own limit stands: its own line runs at its own pace.
    pub(crate) fn own_place(at: At, own: Nanos) -> Nanos {
        at.base.saturating_add(own.saturating_sub(at.now + at.base))
    }

    /// Takes the place: the tier's line, and the tenant's own at its share of the pace.
    pub(crate) fn book(&mut self, at: At, own: &mut Nanos) {
        let start = at.now + at.base;
        let end = &mut self.until[at.tier];
        *end = (*end).max(start).saturating_add(at.step);
        Self::book_own(at, own);
    }

    /// Takes the place in the tenant's own line only.
    pub(crate) fn book_own(at: At, own: &mut Nanos) {
        *own = (*own)
            .max(at.now + at.base)
            .saturating_add(at.step.saturating_mul(u64::from(at.tenants.max(1))));
    }

    /// The window for a place. Callers at one place are scattered over a tenth of it by the golden ratio, which
    /// leaves no two of a hundred together; no entropy is needed.
    pub(crate) fn window(&mut self, place: Nanos, floor: Nanos, ceiling: Nanos) -> Window {
        self.drawn = self.drawn.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let scatter = (self.drawn >> 11) as f64 / (1_u64 << 53) as f64 * SCATTER;
        let whole = |t: Nanos| t.div_ceil(MS) * MS;
        let spread = (place.max(floor) as f64 * (1.0 + scatter)) as Nanos;
        // A place that only its scatter carries to the ceiling is at the ceiling too: clipped there, everybody behind
        // it would get one and the same window (SRV-11), and that not widened (SRV-28).
        let at_ceiling = whole(spread) >= ceiling;
        let after = if at_ceiling {
            (ceiling as f64 * (1.0 - scatter)) as Nanos
        } else {
            spread
        };
        let width = if at_ceiling {
            after / 2
        } else {
            (after / 5).max(WIDTH)
        };
        Window {
            after: whole(after),
            max: whole(after) + whole(width.min(GREATEST_WIDTH)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CEILING: Nanos = 30_000 * MS;

    fn at(tenants: u32, step_ms: Nanos) -> At {
        At {
            now: 5_000 * MS,
            tier: 2,
            base: LEAST,
            step: step_ms * MS,
            tenants,
        }
    }

    fn reject(line: &mut Line, at: At, own: &mut Nanos) -> Nanos {
        let place = line.place(at, *own);
        if place < CEILING {
            line.book(at, own);
        }
        place
    }

    #[test]
    fn each_refusal_of_one_tenant_stands_a_step_behind_the_last() {
        let (mut line, mut own) = (Line::default(), 0);
        let places: Vec<_> = (0..4)
            .map(|_| reject(&mut line, at(1, 100), &mut own) / MS)
            .collect();
        assert_eq!(places, [250, 350, 450, 550]);
    }

    #[test]
    fn each_of_a_hundred_tenants_gets_a_place_of_its_own() {
        let mut line = Line::default();
        let places: Vec<_> = (0..100)
            .map(|_| reject(&mut line, at(100, 100), &mut 0) / MS)
            .collect();
        assert_eq!((places[0], places[1], places[99]), (250, 350, 250 + 9_900));
    }

    #[test]
    fn a_thousand_refusals_of_one_tenant_leave_anothers_first_hint_short() {
        let (mut line, mut own) = (Line::default(), 0);
        for _ in 0..1_000 {
            reject(&mut line, at(1, 100), &mut own);
        }
        assert!(line.place(at(1, 100), own) >= CEILING - 200 * MS);
        let first = reject(&mut line, at(2, 100), &mut 0) / MS;
        assert!(first <= 350, "{first}");
    }

    #[test]
    fn the_line_behind_the_ceiling_begins_there_and_takes_nothing_of_the_tiers() {
        let (mut line, mut own) = (Line::default(), [0; LINES]);
        let behind = At {
            tier: BEHIND,
            base: CEILING,
            step: step_behind(100 * MS, 4),
            ..at(1, 100)
        };
        for n in 0..40 {
            assert_eq!(line.place(behind, own[BEHIND]), CEILING + n * 25 * MS);
            line.book(behind, &mut own[BEHIND]);
        }
        assert_eq!(line.place(at(1, 100), own[2]), LEAST);
        let later = At {
            now: behind.now + 600 * MS,
            ..behind
        };
        assert_eq!(line.place(later, own[BEHIND]), CEILING + 400 * MS);
    }

    #[test]
    fn only_the_line_of_deferrable_work_moves_by_what_newcomers_leave() {
        let steps = |spare| [0, 1, 2].map(|tier| step(tier, 100 * MS, 4, spare));
        let (full, slow) = (steps(1.0), steps(0.5));
        assert_eq!((slow[0], slow[1]), (full[0], full[1]));
        assert_eq!(slow[2], full[2] * 2);
    }

    #[test]
    fn the_line_drains_as_time_passes() {
        let (mut line, mut own) = (Line::default(), 0);
        for _ in 0..20 {
            reject(&mut line, at(1, 100), &mut own);
        }
        let later = At {
            now: 5_000 * MS + 1_500 * MS,
            ..at(1, 100)
        };
        assert_eq!(line.place(later, own) / MS, 250 + 2_000 - 1_500);
        let much_later = At {
            now: 60_000 * MS,
            ..at(1, 100)
        };
        assert_eq!(line.place(much_later, own), LEAST);
    }

    #[test]
    fn a_burst_at_one_place_gets_at_least_twenty_windows() {
        for place in [LEAST, 3_000 * MS, 29_000 * MS, CEILING] {
            let mut line = Line::default();
            let windows: std::collections::HashSet<_> = (0..100)
                .map(|_| line.window(place, 50 * MS, CEILING))
                .map(|w| (w.after, w.max))
                .collect();
            assert!(windows.len() >= 20, "{place}: {}", windows.len());
        }
    }

    #[test]
    fn the_window_keeps_floor_and_ceiling_and_widens_at_the_ceiling() {
        let mut line = Line::default();
        for place in [0, 40 * MS, 29_999 * MS, CEILING, 900_000 * MS] {
            let w = line.window(place, 50 * MS, CEILING);
            assert!((50 * MS..=CEILING).contains(&w.after), "{place}: {w:?}");
            assert!(
                w.max >= w.after + WIDTH && w.max <= w.after + GREATEST_WIDTH,
                "{place}: {w:?}"
            );
            assert!(
                place < CEILING || w.max >= w.after + w.after / 2,
                "{place}: {w:?}"
            );
        }
    }

    #[test]
    fn a_window_that_reaches_the_ceiling_is_widened_wherever_its_place_was() {
        let mut line = Line::default();
        for _ in 0..200 {
            let w = line.window(28_500 * MS, 50 * MS, CEILING);
            assert!(
                w.after < CEILING || w.max >= w.after + w.after / 2,
                "as the ceiling but not widened: {w:?}"
            );
        }
    }
}
