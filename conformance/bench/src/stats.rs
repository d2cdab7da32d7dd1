//! A machine that others use too is fast in one second and slow in the next, so a figure of one run against a figure
//! of another says little. What holds still is the ratio of two that ran side by side: each round gives one ratio, and
//! what is reported of them is the median and how far they spread. No model, no assumption about their distribution.

use serde::Serialize;

/// Where a list of figures lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// How many.
    pub n: usize,
    /// The middle one.
    pub median: f64,
    /// First quartile: a quarter lies below.
    pub q1: f64,
    /// Third quartile: a quarter lies above.
    pub q3: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// The spread of these figures; `None` where there are none. Figures that are no numbers are left out.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = figures
            .iter()
            .copied()
            .filter(|figure| figure.is_finite())
            .collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Self {
            n: sorted.len(),
            median: quantile(&sorted, 0.5)?,
            q1: quantile(&sorted, 0.25)?,
            q3: quantile(&sorted, 0.75)?,
            min: sorted.first().copied()?,
            max: sorted.last().copied()?,
        })
    }
}

/// The value below which this share of a sorted list lies, between its neighbours where it falls between them;
/// `None` where the list is empty.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = last as f64 * share.clamp(0.0, 1.0);
    let (below, above) = (sorted.get(at.floor() as usize)?, sorted.get(at.ceil() as usize)?);
    Some(below + (above - below) * at.fract())
}

/// Sorts, and takes the quantile.
pub fn quantile_of(figures: &mut [f64], share: f64) -> Option<f64> {
    figures.sort_unstable_by(f64::total_cmp);
    quantile(figures, share)
}

/// Each of `of` through the one of `to` that ran beside it; pairs without a measure are left out.
pub fn paired_ratios(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter()
        .zip(to)
        .filter(|(_, to)| **to > 0.0)
        .map(|(of, to)| of / to)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_between_its_neighbours() {
        let sorted = [1.0, 2.0, 3.0, 5.0];
        assert_eq!(quantile(&sorted, 0.5), Some(2.5));
        assert_eq!(quantile(&sorted, 0.0), Some(1.0));
        assert_eq!(quantile(&sorted, 1.0), Some(5.0));
        assert_eq!(quantile(&sorted, 7.0), Some(5.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[4.0], 0.99), Some(4.0));
    }

    #[test]
    fn a_spread_does_not_depend_on_the_order_of_the_figures() {
        let spread = Spread::of(&[5.0, 1.0, 3.0, f64::NAN, 2.0, 4.0]).unwrap();
        assert_eq!(
            spread,
            Spread {
                n: 5,
                median: 3.0,
                q1: 2.0,
                q3: 4.0,
                min: 1.0,
                max: 5.0
            }
        );
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[f64::NAN]), None);
    }

    #[test]
    fn ratios_are_of_what_ran_side_by_side() {
        // The second round was twice as slow for both: the ratio does not see it.
        assert_eq!(
            paired_ratios(&[11.0, 22.0, 5.0], &[10.0, 20.0, 0.0]),
            vec![1.1, 1.1]
        );
    }
}
