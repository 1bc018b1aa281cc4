//! The denoising loop.

mod guidance;
mod initial_image;

use candle_core::{D, Device, Tensor};
use island_runtimes_kit::error::{EngineError, ErrorKind, invalid_input};

use guidance::Guidance;
use initial_image::InitialImage;

use crate::{
    error::compute_error,
    lora::Adapters,
    model::Model,
    noise::{Noise, Purpose},
    request::{Request, Task},
    schedule::{self, Scheduler},
    unet,
    vae::Tiles,
};

/// A finished step.
#[derive(Debug, Clone, Copy)]
pub struct Step<'s> {
    /// Index of the image.
    pub picture: usize,
    /// Finished steps of the image.
    pub done: usize,
    /// Steps of the image.
    pub of: usize,
    /// Latents after the step, `[height, width, channels]`.
    pub latents: &'s [f32],
}

/// Called after every step; an error ends the loop.
pub type OnStep<'w> = dyn FnMut(Step<'_>) -> Result<(), EngineError> + 'w;

/// A request with everything that is computed before the first image.
#[derive(Debug)]
pub struct Plan<'p> {
    model: &'p Model,
    request: &'p Request,
    schedule: schedule::Config,
    adapters: Adapters,
    guidance: Guidance,
    tiles: Option<Tiles>,
    /// Height, width and channels of the latents.
    size: (usize, usize, usize),
}

impl<'p> Plan<'p> {
    /// Encodes the prompt. An error if the model does not support the request. `tiled`: the autoencoder works in tiles.
    pub fn new(model: &'p Model, request: &'p Request, tiled: bool) -> Result<Self, EngineError> {
        let schedule = match &request.scheduler {
            Some(name) => model.schedule.chosen(name)?,
            None => model.schedule.clone(),
        };
        Self::with(model, request, schedule, tiled)
    }

    /// The same with a given scheduler.
    pub fn with(
        model: &'p Model,
        request: &'p Request,
        schedule: schedule::Config,
        tiled: bool,
    ) -> Result<Self, EngineError> {
        let adapters = model.adapters(&request.adapters)?;
        let scale = model.vae.scale();
        let size = (request.height / scale, request.width / scale, model.vae.latent_channels);
        let tiles = Some(Tiles::of(&model.vae)).filter(|tiles| tiled && tiles.split(size.0, size.1));
        let guidance = Guidance::new(model, request, &adapters)?;
        let plan = Self { model, request, schedule, adapters, guidance, tiles, size };
        plan.scheduler()?;
        Ok(plan)
    }

    /// Steps of each image.
    pub fn steps(&self) -> Result<usize, EngineError> {
        let (scheduler, begin) = self.scheduler()?;
        Ok(scheduler.timesteps().len() - begin)
    }

    /// The scheduler and its first step: with an initial image, only a part of the noise is added.
    fn scheduler(&self) -> Result<(Box<dyn Scheduler>, usize), EngineError> {
        let steps = self.request.steps;
        let strength = initial_image::strength(self.request);
        if let Some(strength) = strength
            && matches!(self.request.task, Task::Image(_))
            && self.model.unet.time_cond_proj_dim.is_some()
            && let Some(scheduler) = schedule::make_consistency(&self.schedule, steps, strength)?
        {
            return Ok((scheduler, 0));
        }
        let scheduler = schedule::make(&self.schedule, steps, self.request.eta)?;
        let Some(strength) = strength else { return Ok((scheduler, 0)) };
        let begin = steps - ((steps as f64 * strength) as usize).min(steps);
        if begin >= scheduler.timesteps().len() {
            return Err(invalid_input(format!("a strength of {strength} leaves none of {steps} steps")));
        }
        Ok((scheduler, begin))
    }

    /// Generates the image with this index: `[height, width, 3]` in 0..1.
    pub fn generate(
        &self,
        picture: usize,
        noise: &dyn Noise,
        on_step: &mut OnStep<'_>,
    ) -> Result<Vec<f32>, EngineError> {
        let (mut scheduler, begin) = self.scheduler()?;
        let (height, width, channels) = self.size;
        let count = height * width * channels;
        let initial = InitialImage::new(self, picture, noise)?;
        let start = noise.draw(picture, Purpose::Start, count);
        let mut latents = match initial.as_ref().and_then(InitialImage::original) {
            Some(original) if !initial.as_ref().is_some_and(InitialImage::is_all_noise) => {
                scheduler.add_noise(begin, original, &start)
            }
            _ => start.iter().map(|value| (f64::from(*value) * scheduler.start_scale()) as f32).collect(),
        };
        let timesteps = scheduler.timesteps().to_vec();
        let mut draws = 0;
        for (index, time) in timesteps.iter().enumerate().skip(begin) {
            let input = scheduler.scale_input(index, &latents);
            let output = self.predict(&input, initial.as_ref(), *time)?;
            let mut draw = || {
                draws += 1;
                noise.draw(picture, Purpose::Step(draws - 1), count)
            };
            latents = scheduler.step(index, &output, &latents, &mut draw);
            if let Some(initial) = &initial {
                let next = (index + 1 < timesteps.len()).then_some(index + 1);
                initial.keep_unmasked(&mut latents, scheduler.as_ref(), next, &start);
            }
            if latents.iter().any(|value| !value.is_finite()) {
                let message =
                    format!("the model's numbers overflowed at step {} of this image", index + 1 - begin);
                return Err(EngineError::new(ErrorKind::InvalidOutput, message));
            }
            let of = timesteps.len() - begin;
            on_step(Step { picture, done: index + 1 - begin, of, latents: &latents })?;
        }
        self.decode(latents)
    }

    /// The guided prediction of the network for a sample.
    fn predict(
        &self,
        input: &[f32],
        initial: Option<&InitialImage>,
        time: f64,
    ) -> Result<Vec<f32>, EngineError> {
        let (height, width, channels) = self.size;
        let inputs = tensor(input.to_vec(), (1, height, width, channels))?;
        let inputs = match initial.and_then(InitialImage::inpainting_inputs) {
            None => inputs,
            Some(others) => Tensor::cat(&[&inputs, others], D::Minus1)
                .map_err(compute_error("join the network's inputs"))?,
        };
        let copies = vec![&inputs; self.guidance.batch()];
        let batch = Tensor::cat(&copies, 0).map_err(compute_error("join the network's inputs"))?;
        let inputs = unet::Inputs::new(&self.model.unet, &batch, time, self.guidance.conditioning())?;
        let predicted = self.model.networks.predict(&inputs, &self.adapters)?;
        let predicted = predicted.flatten_all().and_then(|all| all.to_vec1());
        Ok(self.guidance.cfg_combine(predicted.map_err(compute_error("compute a step"))?))
    }

    fn decode(&self, mut latents: Vec<f32>) -> Result<Vec<f32>, EngineError> {
        let factor = self.model.vae.scaling_factor;
        latents.iter_mut().for_each(|value| *value = (f64::from(*value) / factor) as f32);
        let (height, width, channels) = self.size;
        let latents = tensor(latents, (1, height, width, channels))?;
        let made = self.model.picture(&latents, self.tiles)?;
        let made = made.flatten_all().and_then(|all| all.to_vec1::<f32>());
        let mut pixels = made.map_err(compute_error("decode the image"))?;
        if pixels.iter().any(|value| !value.is_finite()) {
            return Err(EngineError::new(ErrorKind::InvalidOutput, "the autoencoder's numbers overflowed"));
        }
        pixels.iter_mut().for_each(|value| *value = (*value / 2.0 + 0.5).clamp(0.0, 1.0));
        Ok(pixels)
    }
}

/// A tensor in main memory.
fn tensor(values: Vec<f32>, shape: (usize, usize, usize, usize)) -> Result<Tensor, EngineError> {
    Tensor::from_vec(values, shape, &Device::Cpu).map_err(compute_error("place a sample"))
}
