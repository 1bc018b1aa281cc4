//! Noise schedules and the steps between them: pure arithmetic, after the schedulers of diffusers.
//!
//! Tables have the precision of those in diffusers, so that the smallest noise levels, which are differences of
//! nearly equal numbers, are equal.

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

/// Maximum number of steps.
pub const MAX_STEPS: usize = 500;

/// Draws standard normal noise, one number per element of a sample.
pub type Draw<'d> = dyn FnMut() -> Vec<f32> + 'd;

/// The steps from noise to an image. Samples are flat: a step treats all elements alike.
pub trait Scheduler: Send + std::fmt::Debug {
    /// The timestep of each step, in order.
    fn timesteps(&self) -> &[f64];

    /// Noise levels, one more than there are timesteps; empty for schedulers that use timesteps only.
    fn sigmas(&self) -> &[f64] {
        &[]
    }

    /// Scale of the initial noise.
    fn start_scale(&self) -> f64 {
        1.0
    }

    /// The network's input for a sample at a step.
    fn scale_input(&self, _index: usize, sample: &[f32]) -> Vec<f32> {
        sample.to_vec()
    }

    /// The sample after a step. Steps are in order, from any first one.
    fn step(&mut self, index: usize, output: &[f32], sample: &[f32], draw: &mut Draw<'_>) -> Vec<f32>;

    /// A clean sample with the noise of a step.
    fn add_noise(&self, index: usize, clean: &[f32], noise: &[f32]) -> Vec<f32>;
}

/// The scheduler of a configuration with this number of steps; `eta` is DDIM's share of fresh noise.
pub fn make(config: &Config, steps: usize, eta: f64) -> Result<Box<dyn Scheduler>, EngineError> {
    config.check()?;
    if steps == 0 || steps > MAX_STEPS || steps > config.num_train_timesteps {
        let most = MAX_STEPS.min(config.num_train_timesteps);
        return Err(invalid_input(format!("num_inference_steps is {steps}; it must be 1 to {most}")));
    }
    Ok(match config.kind()? {
        Kind::Pndm => Box::new(pndm::Pndm::new(config, steps)?),
        Kind::Ddim => Box::new(ddim::Ddim::new(config, steps, eta)),
        Kind::Euler => Box::new(euler::Euler::new(config, steps)),
        Kind::EulerAncestral => Box::new(euler_ancestral::EulerAncestral::new(config, steps)),
        Kind::Dpm => Box::new(dpm::Dpm::new(config, steps)?),
        Kind::Lcm => Box::new(lcm::Lcm::new(config, steps, 1.0)?),
        Kind::UniPc => Box::new(unipc::UniPc::new(config, steps)?),
    })
}

/// The scheduler of a consistency model for an initial image: all steps are on the last part of the schedule, where others skip their first
/// steps. `None` for a configuration of another scheduler.
pub fn make_consistency(
    config: &Config,
    steps: usize,
    strength: f64,
) -> Result<Option<Box<dyn Scheduler>>, EngineError> {
    config.check()?;
    if !matches!(config.kind()?, Kind::Lcm) {
        return Ok(None);
    }
    Ok(Some(Box::new(lcm::Lcm::new(config, steps, strength)?)))
}

/// The weighted sum of samples.
fn combine<const N: usize>(terms: [(f64, &[f32]); N]) -> Vec<f32> {
    let length = terms.first().map_or(0, |(_, values)| values.len());
    let sum = |at: usize| terms.iter().map(|(weight, values)| weight * f64::from(values[at])).sum::<f64>();
    (0..length).map(|at| sum(at) as f32).collect()
}

#[cfg(test)]
mod tests;
