//! The initial image, and the part of it that is inpainted.

use candle_core::{D, Tensor};
use island_runtimes_kit::error::{EngineError, invalid_input};

use super::{Plan, tensor};
use crate::{
    error::compute_error,
    noise::{Noise, Purpose},
    request::{Request, Task},
    schedule::Scheduler,
};

/// The strength, if there is an initial image.
pub(super) fn strength(request: &Request) -> Option<f64> {
    (request.task != Task::Text).then_some(request.strength)
}

/// The initial image in latents.
#[derive(Debug)]
pub(super) struct InitialImage {
    /// Its latents.
    original: Option<Vec<f32>>,
    /// Whether the loop starts from pure noise.
    is_all_noise: bool,
    /// The mask, one number per latent pixel.
    mask: Vec<f32>,
    channels: usize,
    /// Mask and masked image, for inpainting networks.
    inpainting_inputs: Option<Tensor>,
}

impl InitialImage {
    pub(super) fn new(
        plan: &Plan<'_>,
        picture: usize,
        noise: &dyn Noise,
    ) -> Result<Option<Self>, EngineError> {
        let (height, width) = (plan.request.height, plan.request.width);
        let (rows, columns, channels) = plan.size;
        let is_inpainting_network = plan.model.unet.in_channels != channels;
        let encode = |pixels: Vec<f32>, purpose| {
            let noise = noise.draw(picture, purpose, rows * columns * channels);
            encode(plan, pixels, &noise)
        };
        match &plan.request.task {
            Task::Text if is_inpainting_network => {
                Err(invalid_input("this is an inpainting model: it needs an image and a mask_image"))
            }
            Task::Text => Ok(None),
            Task::Image(_) if is_inpainting_network => {
                Err(invalid_input("this is an inpainting model: it needs a mask_image"))
            }
            Task::Image(initial_image) => {
                let original = encode(initial_image.pixels(height, width), Purpose::Posterior)?;
                Ok(Some(Self {
                    original: Some(original),
                    is_all_noise: false,
                    mask: Vec::new(),
                    channels,
                    inpainting_inputs: None,
                }))
            }
            Task::Paint(initial_image, mask) => {
                let pixels = initial_image.pixels(height, width);
                let full_mask = mask.mask(height, width);
                let is_all_noise = plan.request.strength >= 1.0;
                let mask = smaller(&full_mask, (height, width), (rows, columns));
                let mut initial =
                    Self { original: None, is_all_noise, mask, channels, inpainting_inputs: None };
                if is_inpainting_network {
                    let masked = pixels.chunks_exact(3).zip(&full_mask).flat_map(|(pixel, mask)| {
                        let keep = if *mask < 0.5 { 1.0 } else { 0.0 };
                        [pixel[0] * keep, pixel[1] * keep, pixel[2] * keep]
                    });
                    let masked = encode(masked.collect(), Purpose::MaskedPosterior)?;
                    let masked = tensor(masked, (1, rows, columns, channels))?;
                    let mask = tensor(initial.mask.clone(), (1, rows, columns, 1))?;
                    let joined = Tensor::cat(&[&mask, &masked], D::Minus1);
                    initial.inpainting_inputs =
                        Some(joined.map_err(compute_error("join the mask and its image"))?);
                }
                if !is_inpainting_network || !is_all_noise {
                    initial.original = Some(encode(pixels, Purpose::Posterior)?);
                }
                Ok(Some(initial))
            }
        }
    }

    pub(super) fn original(&self) -> Option<&[f32]> {
        self.original.as_deref()
    }

    pub(super) fn is_all_noise(&self) -> bool {
        self.is_all_noise
    }

    pub(super) fn inpainting_inputs(&self) -> Option<&Tensor> {
        self.inpainting_inputs.as_ref()
    }

    /// Restores the initial image, with the noise of the next step, outside the mask.
    pub(super) fn keep_unmasked(
        &self,
        latents: &mut [f32],
        scheduler: &dyn Scheduler,
        next: Option<usize>,
        noise: &[f32],
    ) {
        let Some(original) =
            self.original.as_deref().filter(|_| self.inpainting_inputs.is_none() && !self.mask.is_empty())
        else {
            return;
        };
        let noised = next.map(|next| scheduler.add_noise(next, original, noise));
        let kept = noised.as_deref().unwrap_or(original);
        let pixels = latents.chunks_exact_mut(self.channels).zip(kept.chunks_exact(self.channels));
        for ((latent, kept), mask) in pixels.zip(&self.mask) {
            latent
                .iter_mut()
                .zip(kept)
                .for_each(|(value, kept)| *value = (1.0 - mask) * kept + mask * *value);
        }
    }
}

/// Latents of an image, sampled from the autoencoder's distribution.
fn encode(plan: &Plan<'_>, pixels: Vec<f32>, noise: &[f32]) -> Result<Vec<f32>, EngineError> {
    let shape = (1, plan.request.height, plan.request.width, 3);
    let flat = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
    let (mean, variance) = plan.model.latents(&tensor(pixels, shape)?, plan.tiles)?;
    let (mean, variance) = flat(&mean)
        .and_then(|mean| Ok((mean, flat(&variance)?)))
        .map_err(compute_error("encode the initial image"))?;
    let factor = plan.model.vae.scaling_factor;
    let terms = mean.iter().zip(&variance).zip(noise);
    Ok(terms
        .map(|((mean, log), noise)| ((f64::from(mean + (0.5 * log).exp() * noise)) * factor) as f32)
        .collect())
}

/// A mask scaled by nearest neighbors.
fn smaller(mask: &[f32], (height, width): (usize, usize), (rows, columns): (usize, usize)) -> Vec<f32> {
    let pixel = |row: usize, column: usize| mask[row * height / rows * width + column * width / columns];
    (0..rows)
        .flat_map(|row| (0..columns).map(move |column| (row, column)))
        .map(|(row, column)| pixel(row, column))
        .collect()
}
