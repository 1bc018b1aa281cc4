//! Noise levels: the ratio of noise to signal.

use super::config::{Config, LastSigma};

/// Exponent of the curve of Karras et al.
const RHO: f64 = 7.0;

/// Noise levels of training in ascending order.
pub(super) fn trained(alphas_cumprod: &[f64]) -> Vec<f64> {
    let level = |alpha: &f64| {
        let alpha = *alpha as f32;
        f64::from(((1.0 - alpha) / alpha).sqrt())
    };
    alphas_cumprod.iter().map(level).collect()
}

/// The level at a fractional training timestep.
pub(super) fn at(trained: &[f64], time: f64) -> f64 {
    let low = (time.max(0.0) as usize).min(trained.len() - 1);
    let high = (low + 1).min(trained.len() - 1);
    trained[low] + (trained[high] - trained[low]) * (time - low as f64).clamp(0.0, 1.0)
}

/// Levels from `highest` to `lowest` along a curve, if the configuration has one.
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

/// The training timestep of a level. Logarithms of the training's levels have the precision of those in the reference: where it cuts the fraction
/// off, the highest level is not the last timestep but the one before.
pub(super) fn time_of(sigma: f64, trained: &[f64]) -> f64 {
    let level = sigma.max(1e-10).ln();
    let log = |other: f64| other.ln() as f32;
    let below = trained.iter().take_while(|other| f64::from(log(**other)) <= level).count();
    let low = below.saturating_sub(1).min(trained.len() - 2);
    let (from, to) = (log(trained[low]), log(trained[low + 1]));
    let share = ((f64::from(from) - level) / f64::from(from - to)).clamp(0.0, 1.0);
    (1.0 - share) * low as f64 + share * (low + 1) as f64
}

/// Levels with the last one, in the precision of storage.
pub(super) fn ended(config: &Config, mut sigmas: Vec<f64>, least: f64) -> Vec<f64> {
    sigmas.push(match config.final_sigmas_type {
        Some(LastSigma::SigmaMin) => least,
        Some(LastSigma::Zero) | None => 0.0,
    });
    sigmas.into_iter().map(|sigma| f64::from(sigma as f32)).collect()
}

/// Signal and noise of a level, with squares that sum to 1.
pub(super) fn shares(sigma: f64) -> (f64, f64) {
    let alpha = 1.0 / (sigma * sigma + 1.0).sqrt();
    (alpha, sigma * alpha)
}

/// Half the logarithm of the signal-to-noise ratio; infinite without noise.
pub(super) fn lambda(sigma: f64) -> f64 {
    let (alpha, sigma) = shares(sigma);
    alpha.ln() - sigma.ln()
}
