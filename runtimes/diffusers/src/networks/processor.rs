//! The networks on the processor.

use candle_core::{Device, Tensor};
use island_runtimes_kit::error::EngineError;

use super::{Costs, Networks, Parts};
use crate::{
    compute::{Computed, Eager},
    error::compute_error,
    lora::Adapters,
    text::clip::{self, ClipText, Encoded},
    unet::{self, Unet},
    vae::Vae,
    weights::Element,
};

/// Networks whose weights are in main memory, in the layout of the processor's products.
#[derive(Debug)]
pub struct Processor {
    texts: Vec<(clip::Config, ClipText)>,
    unet: Unet,
    vae: Vae,
    no_adapters: Adapters,
}

impl Processor {
    /// Reads all weights.
    pub fn load(parts: Parts) -> Result<Self, EngineError> {
        let texts = parts.texts.into_iter().map(|(config, weights)| {
            let model = ClipText::load(&config, &weights)?;
            Ok((config, model))
        });
        Ok(Self {
            texts: texts.collect::<Result<_, EngineError>>()?,
            unet: Unet::load(&parts.unet.0, &parts.unet.1)?,
            vae: Vae::load(&parts.vae.0, &parts.vae.1)?,
            no_adapters: Adapters::default(),
        })
    }
}

impl Networks for Processor {
    fn encode(
        &self,
        encoder: usize,
        ids: &[u32],
        layer: usize,
        adapters: &Adapters,
    ) -> Computed<Encoded<Tensor>> {
        let (config, model) = &self.texts[encoder];
        let numbers = |numbers: &[u32]| {
            Tensor::from_slice(numbers, numbers.len(), &Device::Cpu).map_err(compute_error("place a prompt"))
        };
        let inputs = clip::Inputs {
            ids: numbers(ids)?,
            end: numbers(&[config.end(ids) as u32])?,
            layer: numbers(&[layer as u32])?,
        };
        model.forward(&mut Eager { adapters }, &inputs, ids.len())
    }

    fn predict(&self, inputs: &unet::Inputs<Tensor>, adapters: &Adapters) -> Computed<Tensor> {
        self.unet.forward(&mut Eager { adapters }, inputs)
    }

    fn moments(&self, pictures: &Tensor) -> Computed<Tensor> {
        self.vae.encode(&mut Eager { adapters: &self.no_adapters }, pictures)
    }

    fn picture(&self, latents: &Tensor) -> Computed<Tensor> {
        self.vae.decode(&mut Eager { adapters: &self.no_adapters }, latents)
    }

    fn describe(&self) -> String {
        "candle on the CPU in f32".to_owned()
    }

    fn device(&self) -> Option<String> {
        None
    }

    fn gpu_bytes(&self) -> u64 {
        0
    }

    fn costs(&self) -> Costs {
        Costs { element: Element::F32, keeps_scores: false, keeps_vae_scores: false }
    }
}
