//! Latent consistency models: predict the clean sample at once, then add back less noise.

use island_runtimes_kit::error::{EngineError, invalid_input};

use super::{
    Draw, Scheduler, combine,
    config::{Config, Prediction},
    ddim, table,
};

/// Standard deviation of the data that the boundary condition assumes.
const DATA_DEVIATION: f64 = 0.5;

#[derive(Debug)]
pub(super) struct Lcm {
    alphas: Vec<f64>,
    timesteps: Vec<f64>,
    prediction: Prediction,
    clip: Option<f32>,
    scaling: f64,
}

impl Lcm {
    /// Steps on the last part of the schedule, `strength` of it: all of it without an initial image.
    pub(super) fn new(config: &Config, steps: usize, strength: f64) -> Result<Self, EngineError> {
        let (trained, distilled) = (config.num_train_timesteps, config.original_inference_steps);
        let part = (distilled.min(trained) as f64 * strength) as usize;
        if steps > part {
            return Err(invalid_input(format!(
                "num_inference_steps is {steps}; this model was distilled for at most {part} at a strength of {strength}"
            )));
        }
        let stride = trained / distilled.min(trained);
        let times: Vec<f64> = (1..=part).rev().map(|at| (at * stride - 1) as f64).collect();
        // In floating point, as in the reference, where 11 · (30 / 22) is less than 15.
        let share = times.len() as f64 / steps as f64;
        let chosen = |at: usize| times[(at as f64 * share) as usize];
        Ok(Self {
            alphas: table::alphas_cumprod(config),
            timesteps: (0..steps).map(chosen).collect(),
            prediction: config.prediction_type,
            clip: config.clip_sample.unwrap_or(false).then_some(config.clip_sample_range as f32),
            scaling: config.timestep_scaling,
        })
    }

    fn alpha(&self, time: f64) -> f64 {
        self.alphas[(time as usize).min(self.alphas.len() - 1)]
    }
}

impl Scheduler for Lcm {
    fn timesteps(&self) -> &[f64] {
        &self.timesteps
    }

    fn step(&mut self, index: usize, output: &[f32], sample: &[f32], draw: &mut Draw<'_>) -> Vec<f32> {
        let time = self.timesteps[index];
        let mut clean = ddim::clean(self.prediction, self.alpha(time), output, sample);
        if let Some(range) = self.clip {
            clean.iter_mut().for_each(|value| *value = value.clamp(-range, range));
        }
        let (scaled, data) = (time * self.scaling, DATA_DEVIATION * DATA_DEVIATION);
        let skip = data / (scaled * scaled + data);
        let take = scaled / (scaled * scaled + data).sqrt();
        let denoised = combine([(take, &clean), (skip, sample)]);
        match self.timesteps.get(index + 1) {
            Some(&next) => {
                let alpha = self.alpha(next);
                combine([(alpha.sqrt(), &denoised), ((1.0 - alpha).sqrt(), &draw())])
            }
            None => denoised,
        }
    }

    fn add_noise(&self, index: usize, clean: &[f32], noise: &[f32]) -> Vec<f32> {
        let alpha = self.alpha(self.timesteps[index]);
        combine([(alpha.sqrt(), clean), ((1.0 - alpha).sqrt(), noise)])
    }
}
