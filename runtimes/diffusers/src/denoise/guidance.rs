//! Classifier-free guidance: the prompt and the negative prompt in one batch.

use candle_core::Tensor;
use island_runtimes_kit::error::EngineError;

use crate::{
    error::compute_error,
    lora::Adapters,
    model::{Family, Model},
    request::{Framing, Request},
    text::prompt::Prompt,
    unet::Conditioning,
};

/// The conditioning of the network, and the combination of its predictions.
#[derive(Debug)]
pub(super) struct Guidance {
    conditioning: Conditioning,
    /// The guidance scale, if there is a negative prompt.
    scale: Option<f32>,
    rescale: f32,
}

impl Guidance {
    pub(super) fn new(model: &Model, request: &Request, adapters: &Adapters) -> Result<Self, EngineError> {
        let encode =
            |prompt: &str, skip| model.prompts.encode(model.networks.as_ref(), prompt, skip, adapters);
        let positive = encode(&request.prompt, request.clip_skip)?;
        let distilled = model.unet.time_cond_proj_dim.is_some();
        let scale = (request.guidance > 1.0 && !distilled).then_some(request.guidance as f32);
        let mut prompts = vec![Prompt::clone(&positive)];
        let mut sizes = sizes(request.framing, request);
        if scale.is_some() {
            let negative = match &request.negative_prompt {
                None if model.zeros_for_absent_negative && model.family == Family::Xl => positive.zeros()?,
                // `clip_skip` applies to the prompt only.
                negative => Prompt::clone(&*encode(negative.as_deref().unwrap_or_default(), None)?),
            };
            prompts.insert(0, negative);
            // Without its own sizes the negative prompt has those of the image.
            let own = request.negative_framing;
            let has_own_sizes = own.original.is_some() && own.target.is_some();
            let negative_sizes = if has_own_sizes { self::sizes(own, request) } else { sizes.clone() };
            sizes.splice(0..0, negative_sizes);
        }
        let joined = |part: Vec<&Tensor>| Tensor::cat(&part, 0).map_err(compute_error("join prompts"));
        let states = joined(prompts.iter().map(|prompt| &prompt.states).collect())?;
        let pooled: Vec<&Tensor> = prompts.iter().filter_map(|prompt| prompt.pooled.as_ref()).collect();
        let is_xl = model.family == Family::Xl;
        let conditioning = Conditioning {
            states: Some(states),
            pooled: is_xl.then(|| joined(pooled)).transpose()?,
            sizes: if is_xl { sizes } else { Vec::new() },
            guidance: distilled.then_some((request.guidance - 1.0) as f32),
        };
        Ok(Self { conditioning, scale, rescale: request.guidance_rescale as f32 })
    }

    pub(super) fn conditioning(&self) -> &Conditioning {
        &self.conditioning
    }

    /// Number of predictions for one sample.
    pub(super) fn batch(&self) -> usize {
        1 + usize::from(self.scale.is_some())
    }

    /// Combines the predictions of a batch.
    pub(super) fn cfg_combine(&self, mut predictions: Vec<f32>) -> Vec<f32> {
        let Some(scale) = self.scale else { return predictions };
        let conditional = predictions.split_off(predictions.len() / 2);
        let mut guided: Vec<f32> = predictions
            .iter()
            .zip(&conditional)
            .map(|(without, with)| without + scale * (with - without))
            .collect();
        if self.rescale > 0.0 {
            let ratio = (deviation(&conditional) / deviation(&guided)) as f32;
            let factor = self.rescale * ratio + (1.0 - self.rescale);
            guided.iter_mut().for_each(|value| *value *= factor);
        }
        guided
    }
}

fn deviation(values: &[f32]) -> f64 {
    let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Six numbers: original size, crop, and target size.
fn sizes(framing: Framing, request: &Request) -> Vec<f32> {
    let whole = [request.height as f64, request.width as f64];
    let parts = [
        framing.original.unwrap_or(whole),
        framing.crop.unwrap_or_default(),
        framing.target.unwrap_or(whole),
    ];
    parts.into_iter().flatten().map(|side| side as f32).collect()
}
