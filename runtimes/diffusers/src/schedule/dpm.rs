//! DPM-Solver++ of first and second order, and its stochastic form.

use island_runtimes_kit::{
    error::EngineError,
    keys::{SCHEDULER, unsupported},
};

use super::{
    Draw, Scheduler, combine,
    config::{Config, LastSigma, Prediction, Spacing},
    sigmas, spacing, table,
};

/// With fewer steps the last ones have lower orders; otherwise they overshoot.
const SHORT: usize = 15;

#[derive(Debug)]
pub(super) struct Dpm {
    timesteps: Vec<f64>,
    sigmas: Vec<f64>,
    prediction: Prediction,
    order: usize,
    is_heun: bool,
    is_stochastic: bool,
    /// Whether the last step is of first order.
    ends_low: bool,
    /// The clean sample of the last step.
    before: Option<Vec<f32>>,
}

impl Dpm {
    pub(super) fn new(config: &Config, steps: usize) -> Result<Self, EngineError> {
        let is_stochastic = match config.algorithm_type.as_deref() {
            None | Some("dpmsolver++" | "deis") => false,
            Some("sde-dpmsolver++") => true,
            Some(other) => {
                return Err(unsupported(SCHEDULER.file, "algorithm_type", &other.into()));
            }
        };
        let trained = sigmas::trained(&table::alphas_cumprod(config));
        let (highest, lowest) = (trained[trained.len() - 1], trained[0]);
        let (timesteps, levels) = if let Some(levels) = sigmas::curve(config, highest, lowest, steps) {
            let times = levels.iter().map(|sigma| sigmas::time_of(*sigma, &trained));
            let whole = config.karras();
            (times.map(|time| if whole { time.round_ties_even() } else { time.trunc() }).collect(), levels)
        } else {
            let times = spacing::intervals(config, config.spacing(Spacing::Linspace), steps);
            let levels = times.iter().map(|time| sigmas::at(&trained, *time)).collect();
            (times, levels)
        };
        let to_zero = config.final_sigmas_type != Some(LastSigma::SigmaMin);
        Ok(Self {
            timesteps,
            sigmas: sigmas::ended(config, levels, lowest),
            prediction: config.prediction_type,
            order: config.order(2)?,
            is_heun: config.solver_type.as_deref() == Some("heun"),
            is_stochastic,
            ends_low: to_zero || config.euler_at_final || (config.lower_order_final && steps < SHORT),
            before: None,
        })
    }
}

/// The clean sample of a model's output at a noise level.
pub(super) fn clean(prediction: Prediction, sigma: f64, output: &[f32], sample: &[f32]) -> Vec<f32> {
    let (signal, noise) = sigmas::shares(sigma);
    match prediction {
        Prediction::Epsilon => combine([(1.0 / signal, sample), (-noise / signal, output)]),
        Prediction::Sample => output.to_vec(),
        Prediction::VPrediction => combine([(signal, sample), (-noise, output)]),
    }
}

impl Scheduler for Dpm {
    fn timesteps(&self) -> &[f64] {
        &self.timesteps
    }

    fn sigmas(&self) -> &[f64] {
        &self.sigmas
    }

    fn step(&mut self, index: usize, output: &[f32], sample: &[f32], draw: &mut Draw<'_>) -> Vec<f32> {
        let (sigma, to) = (self.sigmas[index], self.sigmas[index + 1]);
        let now = clean(self.prediction, sigma, output, sample);
        let before = self.before.replace(now.clone());
        let (signal_to, noise_to) = sigmas::shares(to);
        let (_, noise) = sigmas::shares(sigma);
        let h = sigmas::lambda(to) - sigmas::lambda(sigma);
        // The weight of the clean sample; 1 for a last level without noise.
        let (keep, gain, slope) = if self.is_stochastic {
            let gain = -(-2.0 * h).exp_m1();
            let slope = if self.is_heun { gain / (-2.0 * h) + 1.0 } else { 0.5 * gain };
            (noise_to / noise * (-h).exp(), signal_to * gain, signal_to * slope)
        } else {
            let gain = -(-h).exp_m1();
            let slope = if self.is_heun { 1.0 - gain / h } else { 0.5 * gain };
            (noise_to / noise, signal_to * gain, signal_to * slope)
        };
        let is_last = index + 1 == self.timesteps.len();
        let next = match before {
            Some(before) if self.order > 1 && !(is_last && self.ends_low) => {
                let ratio = (sigmas::lambda(sigma) - sigmas::lambda(self.sigmas[index - 1])) / h;
                combine([
                    (keep, sample),
                    (gain + slope / ratio, now.as_slice()),
                    (-slope / ratio, before.as_slice()),
                ])
            }
            _ => combine([(keep, sample), (gain, now.as_slice())]),
        };
        if self.is_stochastic {
            let fresh = noise_to * (-(-2.0 * h).exp_m1()).sqrt();
            return combine([(1.0, next.as_slice()), (fresh, &draw())]);
        }
        next
    }

    fn add_noise(&self, index: usize, clean: &[f32], noise: &[f32]) -> Vec<f32> {
        let (signal, level) = sigmas::shares(self.sigmas[index]);
        combine([(signal, clean), (level, noise)])
    }
}
