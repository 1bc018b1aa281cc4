//! The network that predicts noise: `UNet2DConditionModel`.

mod block;
mod config;
mod embedding;
mod resnet;
mod transformer;

pub use config::Config;
pub(crate) use resnet::{Norms, Resnet};

use candle_core::{Result as Computed, Tensor};
use island_runtimes_kit::error::EngineError;

use block::{Down, Middle, Up};
use embedding::Embedding;

use crate::{
    lora::Adapters,
    ops::{Conv, GroupNorm, Shape},
    weights::Weights,
};

/// What the network is told besides the sample, for a batch.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// Encoded prompts, `[batch, tokens, width]`.
    pub states: Option<Tensor>,
    /// Pooled prompts, `[batch, width]`: SDXL.
    pub pooled: Option<Tensor>,
    /// Sizes and places, six for each picture: SDXL.
    pub sizes: Vec<f32>,
    /// Strength of guidance that was distilled into the network: LCM.
    pub guidance: Option<f32>,
}

/// The network.
#[derive(Debug)]
pub struct Unet {
    config: Config,
    embedding: Embedding,
    first: Conv,
    downs: Vec<Down>,
    middle: Middle,
    ups: Vec<Up>,
    norm: GroupNorm,
    last: Conv,
}

impl Unet {
    /// Loads the network.
    pub fn load(config: Config, weights: &Weights) -> Result<Self, EngineError> {
        config.check()?;
        let root = weights.root();
        let widths = &config.block_out_channels;
        let (first, last) = (widths[0], widths[widths.len() - 1]);
        let downs = (0..widths.len()).map(|at| Down::load(&config, at, &root.at("down_blocks").at(at)));
        let ups = (0..widths.len()).map(|at| Up::load(&config, at, &root.at("up_blocks").at(at)));
        Ok(Self {
            embedding: Embedding::load(&config, &root)?,
            first: Conv::load(&root.at("conv_in"), config.in_channels, first, Shape::SAME)?,
            downs: downs.collect::<Result<_, _>>()?,
            middle: Middle::load(&config, last, &root.at("mid_block"))?,
            ups: ups.collect::<Result<_, _>>()?,
            norm: GroupNorm::load(&root.at("conv_norm_out"), first, config.norm_num_groups, config.norm_eps)?,
            last: Conv::load(&root.at("conv_out"), first, config.out_channels, Shape::SAME)?,
            config,
        })
    }

    /// Its settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it predicts for samples `[batch, height, width, channels]` at a timestep.
    pub fn forward(&self, sample: &Tensor, time: f64, told: &Told, adapters: &Adapters) -> Computed<Tensor> {
        let time = self.embedding.forward(sample, time, told, adapters)?;
        let states = told.states.as_ref();
        let mut x = self.first.forward(sample, adapters)?;
        let mut kept = vec![x.clone()];
        for down in &self.downs {
            x = down.forward(&x, &time, states, &mut kept, adapters)?;
        }
        x = self.middle.forward(&x, &time, states, adapters)?;
        for up in &self.ups {
            x = up.forward(&x, &time, states, &mut kept, adapters)?;
        }
        self.last.forward(&self.norm.silu(&x)?, adapters)
    }
}
