//! PNDM without its Runge-Kutta start: linear multistep over the last four outputs.

use island_runtimes_kit::{
    error::EngineError,
    keys::{SCHEDULER, unsupported},
};

use super::{
    Draw, Scheduler, combine,
    config::{Config, Prediction, Spacing},
    spacing, table,
};

#[derive(Debug)]
pub(super) struct Pndm {
    alphas: Vec<f64>,
    last_alpha: f64,
    timesteps: Vec<f64>,
    /// Training timesteps between two steps.
    stride: i64,
    prediction: Prediction,
    /// Finished steps.
    taken: usize,
    outputs: Vec<Vec<f32>>,
    /// The sample that the second step repeats.
    first_sample: Vec<f32>,
}

impl Pndm {
    pub(super) fn new(config: &Config, steps: usize) -> Result<Self, EngineError> {
        if !config.skip_prk_steps {
            return Err(unsupported(SCHEDULER.file, "skip_prk_steps", &false.into())
                .followed_by("PNDM starts without Runge-Kutta steps here"));
        }
        if config.prediction_type == Prediction::Sample {
            return Err(unsupported(SCHEDULER.file, "prediction_type", &"sample".into())
                .followed_by("PNDM has no form for it"));
        }
        let alphas = table::alphas_cumprod(config);
        let mut timesteps = spacing::points(config, config.spacing(Spacing::Leading), steps, true);
        // The second step repeats the first one with the output at its result.
        if steps > 1 {
            timesteps.insert(2, timesteps[1]);
        }
        Ok(Self {
            last_alpha: if config.set_alpha_to_one.unwrap_or(false) { 1.0 } else { alphas[0] },
            alphas,
            timesteps,
            stride: (config.num_train_timesteps / steps) as i64,
            prediction: config.prediction_type,
            taken: 0,
            outputs: Vec::new(),
            first_sample: Vec::new(),
        })
    }

    fn alpha(&self, time: i64) -> f64 {
        usize::try_from(time).map_or(self.last_alpha, |at| self.alphas[at.min(self.alphas.len() - 1)])
    }

    fn previous(&self, sample: &[f32], time: i64, to: i64, output: &[f32]) -> Vec<f32> {
        let (alpha, alpha_to) = (self.alpha(time), self.alpha(to));
        let (beta, beta_to) = (1.0 - alpha, 1.0 - alpha_to);
        let noise = (alpha_to - alpha) / (alpha * beta_to.sqrt() + (alpha * beta * alpha_to).sqrt());
        let keep = (alpha_to / alpha).sqrt();
        match self.prediction {
            Prediction::VPrediction => {
                combine([(keep - noise * beta.sqrt(), sample), (-noise * alpha.sqrt(), output)])
            }
            Prediction::Epsilon | Prediction::Sample => combine([(keep, sample), (-noise, output)]),
        }
    }
}

impl Scheduler for Pndm {
    fn timesteps(&self) -> &[f64] {
        &self.timesteps
    }

    fn step(&mut self, index: usize, output: &[f32], sample: &[f32], _draw: &mut Draw<'_>) -> Vec<f32> {
        let (mut time, mut to) = (self.timesteps[index] as i64, self.timesteps[index] as i64 - self.stride);
        let is_second = self.taken == 1;
        if is_second {
            (time, to) = (time + self.stride, time);
        } else {
            if self.outputs.len() > 3 {
                self.outputs.remove(0);
            }
            self.outputs.push(output.to_vec());
        }
        let past = |back: usize| self.outputs[self.outputs.len() - back].as_slice();
        let mixed = match self.outputs.len() {
            1 if is_second => combine([(0.5, output), (0.5, past(1))]),
            0 | 1 => output.to_vec(),
            2 => combine([(1.5, past(1)), (-0.5, past(2))]),
            3 => combine([(23.0 / 12.0, past(1)), (-16.0 / 12.0, past(2)), (5.0 / 12.0, past(3))]),
            _ => combine([
                (55.0 / 24.0, past(1)),
                (-59.0 / 24.0, past(2)),
                (37.0 / 24.0, past(3)),
                (-9.0 / 24.0, past(4)),
            ]),
        };
        let from = if is_second { std::mem::take(&mut self.first_sample) } else { sample.to_vec() };
        let next = self.previous(&from, time, to, &mixed);
        if self.taken == 0 {
            self.first_sample = from;
        }
        self.taken += 1;
        next
    }

    fn add_noise(&self, index: usize, clean: &[f32], noise: &[f32]) -> Vec<f32> {
        let alpha = self.alpha(self.timesteps[index] as i64);
        combine([(alpha.sqrt(), clean), ((1.0 - alpha).sqrt(), noise)])
    }
}
