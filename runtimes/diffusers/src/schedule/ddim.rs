//! DDIM: predicts the clean sample, and adds back a little less noise.

use super::{
    Draw, Scheduler, combine,
    config::{Config, Prediction, Spacing},
    spacing, table,
};

#[derive(Debug)]
pub(super) struct Ddim {
    alphas: Vec<f64>,
    last_alpha: f64,
    timesteps: Vec<f64>,
    stride: i64,
    prediction: Prediction,
    clip: Option<f32>,
    eta: f64,
}

impl Ddim {
    pub(super) fn new(config: &Config, steps: usize, eta: f64) -> Self {
        let alphas = table::alphas_cumprod(config);
        Self {
            last_alpha: if config.set_alpha_to_one.unwrap_or(true) { 1.0 } else { alphas[0] },
            alphas,
            timesteps: spacing::points(config, config.spacing(Spacing::Leading), steps, true),
            stride: (config.num_train_timesteps / steps) as i64,
            prediction: config.prediction_type,
            clip: config.clip_sample.unwrap_or(true).then_some(config.clip_sample_range as f32),
            eta,
        }
    }

    fn alpha(&self, time: i64) -> f64 {
        usize::try_from(time).map_or(self.last_alpha, |at| self.alphas[at.min(self.alphas.len() - 1)])
    }
}

/// The clean sample of a model's output.
pub(super) fn clean(prediction: Prediction, alpha: f64, output: &[f32], sample: &[f32]) -> Vec<f32> {
    let beta = 1.0 - alpha;
    match prediction {
        Prediction::Epsilon => combine([(1.0 / alpha.sqrt(), sample), (-(beta / alpha).sqrt(), output)]),
        Prediction::Sample => output.to_vec(),
        Prediction::VPrediction => combine([(alpha.sqrt(), sample), (-beta.sqrt(), output)]),
    }
}

impl Scheduler for Ddim {
    fn timesteps(&self) -> &[f64] {
        &self.timesteps
    }

    fn step(&mut self, index: usize, output: &[f32], sample: &[f32], draw: &mut Draw<'_>) -> Vec<f32> {
        let time = self.timesteps[index] as i64;
        let (alpha, alpha_to) = (self.alpha(time), self.alpha(time - self.stride));
        let (beta, beta_to) = (1.0 - alpha, 1.0 - alpha_to);
        let mut picture = clean(self.prediction, alpha, output, sample);
        let noise = match self.prediction {
            Prediction::Epsilon => output.to_vec(),
            Prediction::Sample => {
                combine([(1.0 / beta.sqrt(), sample), (-(alpha / beta).sqrt(), picture.as_slice())])
            }
            Prediction::VPrediction => combine([(alpha.sqrt(), output), (beta.sqrt(), sample)]),
        };
        if let Some(range) = self.clip {
            picture.iter_mut().for_each(|value| *value = value.clamp(-range, range));
        }
        let fresh = self.eta * ((beta_to / beta) * (1.0 - alpha / alpha_to)).max(0.0).sqrt();
        let direction = (beta_to - fresh * fresh).max(0.0).sqrt();
        let next = combine([(alpha_to.sqrt(), &picture), (direction, &noise)]);
        if fresh > 0.0 { combine([(1.0, &next), (fresh, &draw())]) } else { next }
    }

    fn add_noise(&self, index: usize, clean: &[f32], noise: &[f32]) -> Vec<f32> {
        let alpha = self.alpha(self.timesteps[index] as i64);
        combine([(alpha.sqrt(), clean), ((1.0 - alpha).sqrt(), noise)])
    }
}
