//! Euler's method with fresh noise at every step.

use super::{
    Draw, Scheduler, combine,
    config::{Config, Prediction, Spacing},
    euler::{clean_weights, start_scale},
    sigmas, spacing, table,
};

#[derive(Debug)]
pub(super) struct EulerAncestral {
    timesteps: Vec<f64>,
    sigmas: Vec<f64>,
    start_scale: f64,
    prediction: Prediction,
}

impl EulerAncestral {
    pub(super) fn new(config: &Config, steps: usize) -> Self {
        let trained = sigmas::trained(&table::alphas_cumprod(config));
        let spacing = config.spacing(Spacing::Linspace);
        let timesteps = spacing::points(config, spacing, steps, false);
        let levels = timesteps.iter().map(|time| sigmas::at(&trained, *time)).chain([0.0]);
        let sigmas: Vec<f64> = levels.map(|sigma| f64::from(sigma as f32)).collect();
        Self {
            start_scale: start_scale(&sigmas, spacing),
            timesteps,
            sigmas,
            prediction: config.prediction_type,
        }
    }
}

impl Scheduler for EulerAncestral {
    fn timesteps(&self) -> &[f64] {
        &self.timesteps
    }

    fn sigmas(&self) -> &[f64] {
        &self.sigmas
    }

    fn start_scale(&self) -> f64 {
        self.start_scale
    }

    fn scale_input(&self, index: usize, sample: &[f32]) -> Vec<f32> {
        let sigma = self.sigmas[index];
        combine([(1.0 / (sigma * sigma + 1.0).sqrt(), sample)])
    }

    fn step(&mut self, index: usize, output: &[f32], sample: &[f32], draw: &mut Draw<'_>) -> Vec<f32> {
        let (sigma, to) = (self.sigmas[index], self.sigmas[index + 1]);
        let up = (to * to * (sigma * sigma - to * to) / (sigma * sigma)).max(0.0).sqrt();
        let down = (to * to - up * up).max(0.0).sqrt();
        let (of_output, of_sample) = clean_weights(self.prediction, sigma);
        let slope = (down - sigma) / sigma;
        combine([(1.0 + slope * (1.0 - of_sample), sample), (-slope * of_output, output), (up, &draw())])
    }

    fn add_noise(&self, index: usize, clean: &[f32], noise: &[f32]) -> Vec<f32> {
        combine([(1.0, clean), (self.sigmas[index], noise)])
    }
}
