//! Noise schedules and the steps between them: pure arithmetic on numbers, after the schedulers of diffusers.
//!
//! Tables are made in the precision in which diffusers makes them, so that the smallest noise levels, which are differences of
//! nearly equal numbers, come out the same.

mod config;
mod ddim;
mod dpm;
mod euler;
mod euler_ancestral;
mod lcm;
mod pndm;
mod sigmas;
mod spacing;
mod table;
mod unipc;

pub use config::{Config, Kind, Prediction, Spacing};

use island_runtimes_kit::error::{EngineError, invalid_input};

/// Most steps that anyone may ask for.
pub const MAX_STEPS: usize = 500;

/// Draws of unit normal noise, one for every number of a sample.
pub type Draw<'d> = dyn FnMut() -> Vec<f32> + 'd;

/// One walk from noise to a picture. Samples are flat: what a step does to one number it does to all.
pub trait Scheduler: Send + std::fmt::Debug {
    /// What the model is told at each step, first step first.
    fn timesteps(&self) -> &[f64];

    /// Noise levels, one more than there are timesteps; empty where the scheduler counts in timesteps alone.
    fn sigmas(&self) -> &[f64] {
        &[]
    }

    /// By how much unit noise is scaled to begin with.
    fn start_scale(&self) -> f64 {
        1.0
    }

    /// What the model is shown of a sample at a step.
    fn scale_input(&self, _index: usize, sample: &[f32]) -> Vec<f32> {
        sample.to_vec()
    }

    /// The sample after a step. Steps are taken in order, from whichever the walk begins with.
    fn step(&mut self, index: usize, output: &[f32], sample: &[f32], draw: &mut Draw<'_>) -> Vec<f32>;

    /// A clean sample with the noise of a step.
    fn add_noise(&self, index: usize, clean: &[f32], noise: &[f32]) -> Vec<f32>;
}

/// The walk of `steps` steps that a configuration describes; `eta` is DDIM's share of fresh noise.
pub fn make(config: &Config, steps: usize, eta: f64) -> Result<Box<dyn Scheduler>, EngineError> {
    config.check()?;
    if steps == 0 || steps > MAX_STEPS || steps > config.num_train_timesteps {
        let most = MAX_STEPS.min(config.num_train_timesteps);
        return Err(invalid_input(format!("num_inference_steps is {steps}; it may be 1 to {most}")));
    }
    Ok(match config.kind()? {
        Kind::Pndm => Box::new(pndm::Pndm::new(config, steps)?),
        Kind::Ddim => Box::new(ddim::Ddim::new(config, steps, eta)),
        Kind::Euler => Box::new(euler::Euler::new(config, steps)),
        Kind::EulerAncestral => Box::new(euler_ancestral::EulerAncestral::new(config, steps)),
        Kind::Dpm => Box::new(dpm::Dpm::new(config, steps)?),
        Kind::Lcm => Box::new(lcm::Lcm::new(config, steps)?),
        Kind::UniPc => Box::new(unipc::UniPc::new(config, steps)?),
    })
}

/// The weighted sum of samples.
fn combine<const N: usize>(terms: [(f64, &[f32]); N]) -> Vec<f32> {
    let length = terms.first().map_or(0, |(_, values)| values.len());
    let sum = |at: usize| terms.iter().map(|(weight, values)| weight * f64::from(values[at])).sum::<f64>();
    (0..length).map(|at| sum(at) as f32).collect()
}

#[cfg(test)]
mod tests;
