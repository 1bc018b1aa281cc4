//! One job: its images one after the other, with progress and previews.

use std::fmt::Write as _;

use island_protocol::{event::Image, host::Device};
use island_runtimes_kit::{error::EngineError, job::Job, media};
use rayon::ThreadPool;
use serde_json::{Value, json};

use crate::{
    denoise::{Plan, Step},
    model::{Family, Model},
    noise::Seeded,
    picture,
    request::{Defaults, Request, Task},
};

/// Phase of progress events.
const PHASE: &str = "denoise";

/// A model with its threads and limits.
#[derive(Debug)]
pub(super) struct Generator {
    pub(super) model: Model,
    /// What computes the networks.
    pub(super) device: Device,
    pub(super) pool: ThreadPool,
    /// Memory limit in bytes.
    pub(super) limit: Option<u64>,
    pub(super) slug: String,
    /// Maximum bytes of events of a job.
    pub(super) max_output_bytes: u64,
}

impl Generator {
    /// Defaults of an input.
    pub(super) fn defaults(&self) -> Defaults {
        Defaults { max_output_bytes: self.max_output_bytes, ..self.model.defaults() }
    }

    /// Generates the images of a request, and sends each as soon as it is done.
    pub(super) fn answer(&self, request: Request, job: &Job) -> Result<Value, EngineError> {
        self.pool.install(|| job.stop().within(|| self.generate(request, job)))
    }

    fn generate(&self, mut request: Request, job: &Job) -> Result<Value, EngineError> {
        // Small enough to be an integer in every JSON parser.
        let seed = *request.seed.get_or_insert_with(|| u64::from(rand::random::<u32>()));
        let held = self.model.bytes_with(&request.adapters)?;
        let tiled = self.model.need(&request).tiles(held, self.limit)?;
        job.step()?;
        let plan = Plan::new(&self.model, &request, tiled)?;
        let steps = plan.steps()?;
        let total = steps * request.images;
        job.progress(PHASE, 0, total as u64);
        let mut images = Vec::with_capacity(request.images);
        for index in 0..request.images {
            let mut on_step = |step: Step<'_>| {
                job.progress(PHASE, (index * steps + step.done) as u64, total as u64);
                if is_preview_due(request.previews, step.done, step.of) {
                    self.preview(&request, step.latents, seed, job)?;
                }
                job.step()
            };
            let pixels = plan.generate(index, &Seeded(seed), &mut on_step)?;
            let bytes: Vec<u8> = pixels.iter().map(|value| (value * 255.0).round_ties_even() as u8).collect();
            let parameters = self.parameters(&request, seed, index);
            let file = picture::png(&bytes, request.height, request.width, &parameters)?;
            let data = media::base64::encode(&file);
            job.image(image(data.clone(), (request.height, request.width), seed));
            images.push(json!({
                "index": index, "data": data, "format": "png", "width": request.width, "height": request.height,
                "seed": seed,
            }));
        }
        Ok(json!({
            "images": images, "seed": seed, "width": request.width, "height": request.height,
            "num_inference_steps": request.steps, "guidance_scale": request.guidance,
        }))
    }

    fn preview(&self, request: &Request, latents: &[f32], seed: u64, job: &Job) -> Result<(), EngineError> {
        let config = &self.model.vae;
        let (height, width) = (request.height / config.scale(), request.width / config.scale());
        let bytes = picture::preview(latents, config.latent_channels, self.model.family == Family::Xl);
        let file = picture::png(&bytes, height, width, "")?;
        job.image(Image { preview: true, ..image(media::base64::encode(&file), (height, width), seed) });
        Ok(())
    }

    /// Generation parameters, in the form that other programs read.
    fn parameters(&self, request: &Request, seed: u64, index: usize) -> String {
        let mut text = request.prompt.clone();
        if let Some(negative) = &request.negative_prompt {
            let _ = write!(text, "\nNegative prompt: {negative}");
        }
        let scheduler = request.scheduler.as_deref().unwrap_or("default");
        let _ = write!(
            text,
            "\nSteps: {}, Sampler: {scheduler}, CFG scale: {}, Seed: {seed}, Size: {}x{}, Model: {}",
            request.steps, request.guidance, request.width, request.height, self.slug
        );
        if request.task != Task::Text {
            let _ = write!(text, ", Denoising strength: {}", request.strength);
        }
        if request.images > 1 {
            let _ = write!(text, ", Image index: {index}");
        }
        for adapter in &request.adapters {
            let _ = write!(text, ", Lora: {} {}", adapter.name, adapter.scale);
        }
        text
    }
}

fn image(data: String, (height, width): (usize, usize), seed: u64) -> Image {
    Image {
        data,
        format: "png".to_owned(),
        width: Some(width as u32),
        height: Some(height as u32),
        seed: Some(seed),
        preview: false,
    }
}

/// Whether one of this number of previews, evenly spread over the steps, follows this step.
fn is_preview_due(previews: usize, done: usize, of: usize) -> bool {
    let before = |step: usize| step * (previews + 1) / of;
    done > 0 && done < of && before(done) > before(done - 1)
}

#[cfg(test)]
mod tests {
    use super::is_preview_due;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn previews_are_limited_by_the_steps(previews in 0_usize..20, of in 1_usize..60) {
            let due = (0..=of).filter(|&done| is_preview_due(previews, done, of)).count();
            prop_assert_eq!(due, previews.min(of - 1));
        }
    }
}
