//! Euler's method on noise levels.

use super::{
    Draw, Scheduler, combine,
    config::{Config, Prediction, Spacing},
    sigmas, spacing, table,
};

#[derive(Debug)]
pub(super) struct Euler {
    timesteps: Vec<f64>,
    sigmas: Vec<f64>,
    start_scale: f64,
    prediction: Prediction,
}

impl Euler {
    pub(super) fn new(config: &Config, steps: usize) -> Self {
        let trained = sigmas::trained(&table::alphas_cumprod(config));
        let spacing = config.spacing(Spacing::Linspace);
        let mut timesteps = spacing::points(config, spacing, steps, false);
        let mut levels: Vec<f64> = timesteps.iter().map(|time| sigmas::at(&trained, *time)).collect();
        if let Some(curve) = sigmas::curve(config, levels[0], levels[steps - 1], steps) {
            timesteps =
                curve.iter().map(|sigma| f64::from(sigmas::time_of(*sigma, &trained) as f32)).collect();
            levels = curve;
        }
        let sigmas = sigmas::ended(config, levels, trained[0]);
        Self {
            start_scale: start_scale(&sigmas, spacing),
            timesteps,
            sigmas,
            prediction: config.prediction_type,
        }
    }
}

/// Scale of the initial noise for these levels.
pub(super) fn start_scale(sigmas: &[f64], spacing: Spacing) -> f64 {
    let highest = sigmas.iter().copied().fold(0.0, f64::max);
    if spacing == Spacing::Leading { (highest * highest + 1.0).sqrt() } else { highest }
}

/// The clean sample, as weights of the output and of the sample.
pub(super) fn clean_weights(prediction: Prediction, sigma: f64) -> (f64, f64) {
    let square = sigma * sigma + 1.0;
    match prediction {
        Prediction::Epsilon => (-sigma, 1.0),
        Prediction::Sample => (1.0, 0.0),
        Prediction::VPrediction => (-sigma / square.sqrt(), 1.0 / square),
    }
}

impl Scheduler for Euler {
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

    fn step(&mut self, index: usize, output: &[f32], sample: &[f32], _draw: &mut Draw<'_>) -> Vec<f32> {
        let (sigma, to) = (self.sigmas[index], self.sigmas[index + 1]);
        let (of_output, of_sample) = clean_weights(self.prediction, sigma);
        // sample + (sample - clean) / sigma · (to - sigma)
        let slope = (to - sigma) / sigma;
        combine([(1.0 + slope * (1.0 - of_sample), sample), (-slope * of_output, output)])
    }

    fn add_noise(&self, index: usize, clean: &[f32], noise: &[f32]) -> Vec<f32> {
        combine([(1.0, clean), (self.sigmas[index], noise)])
    }
}
