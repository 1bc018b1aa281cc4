//! The walk from noise to a picture.

mod guide;
mod source;

use candle_core::{D, DType, Device, Tensor};
use island_runtimes_kit::error::{EngineError, ErrorKind, invalid_input};

use guide::Guide;
use source::Given;

use crate::{
    error::compute_error,
    lora::Adapters,
    model::Model,
    noise::{Noise, Purpose},
    request::Request,
    schedule::{self, Scheduler},
    vae::Tiles,
};

/// A finished step.
#[derive(Debug, Clone, Copy)]
pub struct Step<'s> {
    /// Which picture, from 0.
    pub picture: usize,
    /// Steps of it that are done.
    pub done: usize,
    /// Steps that it takes.
    pub of: usize,
    /// Latents after the step, `[height, width, channels]`.
    pub latents: &'s [f32],
}

/// What watches a walk; an error ends it.
pub type Watch<'w> = dyn FnMut(Step<'_>) -> Result<(), EngineError> + 'w;

/// A request with everything that is decided before the first picture.
#[derive(Debug)]
pub struct Plan<'p> {
    model: &'p Model,
    request: &'p Request,
    schedule: schedule::Config,
    adapters: Adapters,
    guide: Guide,
    tiles: Option<Tiles>,
    /// Height, width and channels of the latents.
    size: (usize, usize, usize),
}

impl<'p> Plan<'p> {
    /// Encodes the prompt and refuses what the model cannot do. `tiled`: pictures pass the autoencoder in tiles.
    pub fn new(model: &'p Model, request: &'p Request, tiled: bool) -> Result<Self, EngineError> {
        let schedule = match &request.scheduler {
            Some(name) => model.schedule.chosen(name)?,
            None => model.schedule.clone(),
        };
        Self::with(model, request, schedule, tiled)
    }

    /// The same with a schedule of any kind.
    pub fn with(
        model: &'p Model,
        request: &'p Request,
        schedule: schedule::Config,
        tiled: bool,
    ) -> Result<Self, EngineError> {
        schedule::make(&schedule, request.steps, request.eta)?;
        let (adapters, named) = model.adapters(&request.adapters)?;
        let scale = model.vae.config().scale();
        let size = (request.height / scale, request.width / scale, model.vae.config().latent_channels);
        let tiles = Some(Tiles::of(model.vae.config())).filter(|tiles| tiled && tiles.split(size.0, size.1));
        let guide = Guide::new(model, request, &adapters, &named)?;
        Ok(Self { model, request, schedule, adapters, guide, tiles, size })
    }

    /// Steps that each picture takes.
    pub fn steps(&self) -> Result<usize, EngineError> {
        let scheduler = schedule::make(&self.schedule, self.request.steps, self.request.eta)?;
        Ok(scheduler.timesteps().len() - self.begin(scheduler.as_ref())?)
    }

    /// The step that a walk begins with: a given picture has only so much noise.
    fn begin(&self, scheduler: &dyn Scheduler) -> Result<usize, EngineError> {
        let Some(strength) = source::strength(self.request) else { return Ok(0) };
        let steps = self.request.steps;
        let begin = steps - ((steps as f64 * strength) as usize).min(steps);
        if begin >= scheduler.timesteps().len() {
            return Err(invalid_input(format!("a strength of {strength} leaves none of {steps} steps")));
        }
        Ok(begin)
    }

    /// Makes the picture of an index: `[height, width, 3]` in 0..1.
    pub fn paint(
        &self,
        picture: usize,
        noise: &dyn Noise,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<f32>, EngineError> {
        let mut scheduler = schedule::make(&self.schedule, self.request.steps, self.request.eta)?;
        let begin = self.begin(scheduler.as_ref())?;
        let (height, width, channels) = self.size;
        let count = height * width * channels;
        let given = Given::new(self, picture, noise)?;
        let start = noise.draw(picture, Purpose::Start, count);
        let mut latents = match given.as_ref().and_then(Given::original) {
            Some(original) if !given.as_ref().is_some_and(Given::is_all_noise) => {
                scheduler.add_noise(begin, original, &start)
            }
            _ => start.iter().map(|value| (f64::from(*value) * scheduler.start_scale()) as f32).collect(),
        };
        let timesteps = scheduler.timesteps().to_vec();
        let mut draws = 0;
        for (index, time) in timesteps.iter().enumerate().skip(begin) {
            let input = scheduler.scale_input(index, &latents);
            let output = self.predict(&input, given.as_ref(), *time)?;
            let mut draw = || {
                draws += 1;
                noise.draw(picture, Purpose::Step(draws - 1), count)
            };
            latents = scheduler.step(index, &output, &latents, &mut draw);
            if let Some(given) = &given {
                let next = (index + 1 < timesteps.len()).then_some(index + 1);
                given.keep_unmasked(&mut latents, scheduler.as_ref(), next, &start);
            }
            if latents.iter().any(|value| !value.is_finite()) {
                let message =
                    format!("the model's numbers overflowed at step {} of this picture", index + 1 - begin);
                return Err(EngineError::new(ErrorKind::InvalidOutput, message));
            }
            let of = timesteps.len() - begin;
            watch(Step { picture, done: index + 1 - begin, of, latents: &latents })?;
        }
        self.decode(latents)
    }

    /// What the network predicts for a sample, guided.
    fn predict(&self, input: &[f32], given: Option<&Given>, time: f64) -> Result<Vec<f32>, EngineError> {
        let (height, width, channels) = self.size;
        let shown = self.model.tensor(input.to_vec(), (1, height, width, channels))?;
        let shown = match given.and_then(Given::shown_besides) {
            None => shown,
            Some(others) => Tensor::cat(&[&shown, others], D::Minus1)
                .map_err(compute_error("join what the network is shown"))?,
        };
        let copies = vec![&shown; self.guide.batch()];
        let predicted = Tensor::cat(&copies, 0)
            .and_then(|batch| self.model.unet.forward(&batch, time, self.guide.told(), &self.adapters))
            .and_then(|out| out.to_dtype(DType::F32)?.to_device(&Device::Cpu)?.flatten_all()?.to_vec1())
            .map_err(compute_error("compute a step"))?;
        Ok(self.guide.mix(predicted))
    }

    fn decode(&self, mut latents: Vec<f32>) -> Result<Vec<f32>, EngineError> {
        let factor = self.model.vae.config().scaling_factor;
        latents.iter_mut().for_each(|value| *value = (f64::from(*value) / factor) as f32);
        let (height, width, channels) = self.size;
        let made = Tensor::from_vec(latents, (1, height, width, channels), &self.model.place.device)
            .and_then(|latents| self.model.vae.decode(&latents, self.tiles))
            .and_then(|picture| picture.to_device(&Device::Cpu)?.flatten_all()?.to_vec1::<f32>());
        let mut pixels = made.map_err(compute_error("decode the picture"))?;
        if pixels.iter().any(|value| !value.is_finite()) {
            return Err(EngineError::new(ErrorKind::InvalidOutput, "the autoencoder's numbers overflowed"));
        }
        pixels.iter_mut().for_each(|value| *value = (*value / 2.0 + 0.5).clamp(0.0, 1.0));
        Ok(pixels)
    }
}
