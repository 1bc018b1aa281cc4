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

use block::{DownBlock, MidBlock, UpBlock};
use embedding::Embedding;

use crate::{
    lora::Adapters,
    ops::{Conv, GroupNorm, Shape},
    weights::Weights,
};

/// Conditioning of the network for a batch.
#[derive(Debug, Clone, Default)]
pub struct Conditioning {
    /// Encoded prompts, `[batch, tokens, width]`.
    pub states: Option<Tensor>,
    /// Pooled prompts, `[batch, width]`: SDXL.
    pub pooled: Option<Tensor>,
    /// Sizes and positions, six per image: SDXL.
    pub sizes: Vec<f32>,
    /// Guidance scale that was distilled into the network: LCM.
    pub guidance: Option<f32>,
}

/// The network.
#[derive(Debug)]
pub struct Unet {
    config: Config,
    embedding: Embedding,
    first: Conv,
    down_blocks: Vec<DownBlock>,
    mid_block: MidBlock,
    up_blocks: Vec<UpBlock>,
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
        let down_blocks =
            (0..widths.len()).map(|at| DownBlock::load(&config, at, &root.at("down_blocks").at(at)));
        let up_blocks = (0..widths.len()).map(|at| UpBlock::load(&config, at, &root.at("up_blocks").at(at)));
        Ok(Self {
            embedding: Embedding::load(&config, &root)?,
            first: Conv::load(&root.at("conv_in"), config.in_channels, first, Shape::SAME)?,
            down_blocks: down_blocks.collect::<Result<_, _>>()?,
            mid_block: MidBlock::load(&config, last, &root.at("mid_block"))?,
            up_blocks: up_blocks.collect::<Result<_, _>>()?,
            norm: GroupNorm::load(&root.at("conv_norm_out"), first, config.norm_num_groups, config.norm_eps)?,
            last: Conv::load(&root.at("conv_out"), first, config.out_channels, Shape::SAME)?,
            config,
        })
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its prediction for samples `[batch, height, width, channels]` at a timestep.
    pub fn forward(
        &self,
        sample: &Tensor,
        time: f64,
        conditioning: &Conditioning,
        adapters: &Adapters,
    ) -> Computed<Tensor> {
        let time = self.embedding.forward(sample, time, conditioning, adapters)?;
        let states = conditioning.states.as_ref();
        let mut x = self.first.forward(sample, adapters)?;
        let mut skips = vec![x.clone()];
        for down in &self.down_blocks {
            x = down.forward(&x, &time, states, &mut skips, adapters)?;
        }
        x = self.mid_block.forward(&x, &time, states, adapters)?;
        for up in &self.up_blocks {
            x = up.forward(&x, &time, states, &mut skips, adapters)?;
        }
        self.last.forward(&self.norm.silu(&x)?, adapters)
    }
}
