//! Medians of per-round ratios.

use std::fmt;

/// Median, minimum and maximum of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of at min one figure.
    pub(crate) fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        Self { median: percentile(&figures, 50.0), min: figures[0], max: figures[figures.len() - 1] }
    }

    /// Of the ratios of two series, round by round.
    pub(crate) fn of_ratios(ours: &[f64], theirs: &[f64]) -> Self {
        Self::of(ours.iter().zip(theirs).map(|(a, b)| a / b).collect())
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ({:.3} to {:.3})", self.median, self.min, self.max)
    }
}

/// The figure in the middle.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    percentile(&figures, 50.0)
}

/// The figure below which `percent` of a sorted series lies.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let at = percent / 100.0 * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles() {
        let spread = Spread::of_ratios(&[2.0, 9.0, 4.0], &[1.0, 3.0, 4.0]);
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 3.0 });
        let sorted: Vec<f64> = (0..=100).map(f64::from).collect();
        assert!((percentile(&sorted, 99.0) - 99.0).abs() < 1e-9);
    }
}
