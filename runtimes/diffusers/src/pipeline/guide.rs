//! Guidance: the prompt and its absence in one pass, and how much more the prompt counts.

use candle_core::Tensor;
use island_runtimes_kit::error::EngineError;

use crate::{
    error::compute_error,
    lora::Adapters,
    model::{Family, Model},
    request::{Framing, Request},
    text::prompt::Prompt,
    unet::Told,
};

/// What the network is told, and what is made of its answers.
#[derive(Debug)]
pub(super) struct Guide {
    told: Told,
    /// How much more the prompt counts, where its absence is asked for too.
    scale: Option<f32>,
    rescale: f32,
}

impl Guide {
    pub(super) fn new(
        model: &Model,
        request: &Request,
        adapters: &Adapters,
        named: &str,
    ) -> Result<Self, EngineError> {
        let encode = |prompt: &str, skip| model.prompts.encode(prompt, skip, adapters, named);
        let positive = encode(&request.prompt, request.clip_skip)?;
        let distilled = model.unet.config().time_cond_proj_dim.is_some();
        let scale = (request.guidance > 1.0 && !distilled).then_some(request.guidance as f32);
        let mut prompts = vec![Prompt::clone(&positive)];
        let mut sizes = sizes(request.framing, request);
        if scale.is_some() {
            let negative = match &request.negative_prompt {
                None if model.silent_when_absent && model.family == Family::Xl => positive.silent()?,
                // Layers are skipped for what is wanted alone.
                negative => Prompt::clone(&*encode(negative.as_deref().unwrap_or_default(), None)?),
            };
            prompts.insert(0, negative);
            // Without sizes of its own the negative prompt is told those of the picture.
            let own = request.negative_framing;
            let is_told = own.original.is_some() && own.target.is_some();
            let negative_sizes = if is_told { self::sizes(own, request) } else { sizes.clone() };
            sizes.splice(0..0, negative_sizes);
        }
        let joined = |part: Vec<&Tensor>| Tensor::cat(&part, 0).map_err(compute_error("join prompts"));
        let states = joined(prompts.iter().map(|prompt| &prompt.states).collect())?;
        let pooled: Vec<&Tensor> = prompts.iter().filter_map(|prompt| prompt.pooled.as_ref()).collect();
        let is_xl = model.family == Family::Xl;
        let told = Told {
            states: Some(states),
            pooled: is_xl.then(|| joined(pooled)).transpose()?,
            sizes: if is_xl { sizes } else { Vec::new() },
            guidance: distilled.then_some((request.guidance - 1.0) as f32),
        };
        Ok(Self { told, scale, rescale: request.guidance_rescale as f32 })
    }

    pub(super) fn told(&self) -> &Told {
        &self.told
    }

    /// Answers that the network gives for one sample.
    pub(super) fn batch(&self) -> usize {
        1 + usize::from(self.scale.is_some())
    }

    /// One answer of all.
    pub(super) fn mix(&self, mut answers: Vec<f32>) -> Vec<f32> {
        let Some(scale) = self.scale else { return answers };
        let prompted = answers.split_off(answers.len() / 2);
        let mut guided: Vec<f32> =
            answers.iter().zip(&prompted).map(|(without, with)| without + scale * (with - without)).collect();
        if self.rescale > 0.0 {
            let ratio = (deviation(&prompted) / deviation(&guided)) as f32;
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

/// Six numbers: height and width before and after, with what was cut off between them.
fn sizes(framing: Framing, request: &Request) -> Vec<f32> {
    let whole = [request.height as f64, request.width as f64];
    let parts = [
        framing.original.unwrap_or(whole),
        framing.crop.unwrap_or_default(),
        framing.target.unwrap_or(whole),
    ];
    parts.into_iter().flatten().map(|side| side as f32).collect()
}
