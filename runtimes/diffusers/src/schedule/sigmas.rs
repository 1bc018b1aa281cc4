//! Noise levels: how much noise there is for one part of signal.

use super::config::{Config, LastSigma};

/// The curve's exponent that Karras and others found best.
const RHO: f64 = 7.0;

/// Noise levels of the training, least first.
pub(super) fn trained(alphas_cumprod: &[f64]) -> Vec<f64> {
    let level = |alpha: &f64| {
        let alpha = *alpha as f32;
        f64::from(((1.0 - alpha) / alpha).sqrt())
    };
    alphas_cumprod.iter().map(level).collect()
}

/// The level at a timestep between those of the training.
pub(super) fn at(trained: &[f64], time: f64) -> f64 {
    let low = (time.max(0.0) as usize).min(trained.len() - 1);
    let high = (low + 1).min(trained.len() - 1);
    trained[low] + (trained[high] - trained[low]) * (time - low as f64).clamp(0.0, 1.0)
}

/// Levels from `highest` to `lowest` along the curve that a configuration asks for, if it does.
pub(super) fn curve(config: &Config, highest: f64, lowest: f64, steps: usize) -> Option<Vec<f64>> {
    let (highest, lowest) = (config.sigma_max.unwrap_or(highest), config.sigma_min.unwrap_or(lowest));
    let ramp = move |at: usize| if steps == 1 { 0.0 } else { at as f64 / (steps - 1) as f64 };
    if config.karras() {
        let (from, to) = (highest.powf(1.0 / RHO), lowest.powf(1.0 / RHO));
        return Some((0..steps).map(|at| (from + ramp(at) * (to - from)).powf(RHO)).collect());
    }
    if config.exponential() {
        let (from, to) = (highest.ln(), lowest.ln());
        return Some((0..steps).map(|at| (from + ramp(at) * (to - from)).exp()).collect());
    }
    None
}

/// The timestep at which the training had a level.
pub(super) fn time_of(sigma: f64, trained: &[f64]) -> f64 {
    let level = sigma.max(1e-10).ln();
    let below = trained.iter().take_while(|other| other.ln() <= level).count();
    let low = below.saturating_sub(1).min(trained.len() - 2);
    let (from, to) = (trained[low].ln(), trained[low + 1].ln());
    let share = ((from - level) / (from - to)).clamp(0.0, 1.0);
    (1.0 - share) * low as f64 + share * (low + 1) as f64
}

/// Levels with the last one, in the precision in which they are kept.
pub(super) fn ended(config: &Config, mut sigmas: Vec<f64>, least: f64) -> Vec<f64> {
    sigmas.push(match config.final_sigmas_type {
        Some(LastSigma::SigmaMin) => least,
        Some(LastSigma::Zero) | None => 0.0,
    });
    sigmas.into_iter().map(|sigma| f64::from(sigma as f32)).collect()
}

/// Signal and noise of a level, where both squared are one.
pub(super) fn shares(sigma: f64) -> (f64, f64) {
    let alpha = 1.0 / (sigma * sigma + 1.0).sqrt();
    (alpha, sigma * alpha)
}

/// Half the logarithm of the ratio of signal to noise; infinite without noise.
pub(super) fn lambda(sigma: f64) -> f64 {
    let (alpha, sigma) = shares(sigma);
    alpha.ln() - sigma.ln()
}
