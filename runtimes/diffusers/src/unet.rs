//! The network that predicts noise: `UNet2DConditionModel`.

mod block;
mod config;
mod embedding;
mod resnet;
mod transformer;

pub use config::Config;
pub(crate) use resnet::{Norms, Resnet};

use candle_core::Tensor;
use island_runtimes_kit::error::EngineError;

use block::{DownBlock, MidBlock, UpBlock};
use embedding::Embedding;

use crate::{
    compute::{Compute, Computed, Weight},
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

/// The inputs of the network for a batch.
#[derive(Debug, Clone)]
pub struct Inputs<V> {
    /// The samples, images of latents.
    pub sample: V,
    /// Encoded prompts, rows.
    pub states: Option<V>,
    /// The timestep as sines and cosines, a vector.
    pub time: V,
    /// The guidance scale in the same form: LCM.
    pub guidance: Option<V>,
    /// Pooled prompts, vectors: SDXL.
    pub pooled: Option<V>,
    /// Sizes and positions as sines and cosines, a vector: SDXL.
    pub sizes: Option<V>,
}

impl Inputs<Tensor> {
    /// The inputs for samples `[batch, height, width, channels]` at a timestep.
    pub fn new(
        config: &Config,
        sample: &Tensor,
        time: f64,
        conditioning: &Conditioning,
    ) -> Result<Self, EngineError> {
        embedding::inputs(config, sample, time, conditioning)
    }
}

/// The network.
#[derive(Debug)]
pub struct Unet<W = Tensor> {
    embedding: Embedding<W>,
    first: Conv<W>,
    down_blocks: Vec<DownBlock<W>>,
    mid_block: MidBlock<W>,
    up_blocks: Vec<UpBlock<W>>,
    norm: GroupNorm<W>,
    last: Conv<W>,
}

impl<W: Weight> Unet<W> {
    /// Loads the network.
    pub fn load(config: &Config, weights: &Weights) -> Result<Self, EngineError> {
        config.check()?;
        let root = weights.root();
        let widths = &config.block_out_channels;
        let (first, last) = (widths[0], widths[widths.len() - 1]);
        let down_blocks =
            (0..widths.len()).map(|at| DownBlock::load(config, at, &root.at("down_blocks").at(at)));
        let up_blocks = (0..widths.len()).map(|at| UpBlock::load(config, at, &root.at("up_blocks").at(at)));
        Ok(Self {
            embedding: Embedding::load(config, &root)?,
            first: Conv::load(&root.at("conv_in"), config.in_channels, first, Shape::SAME)?,
            down_blocks: down_blocks.collect::<Result<_, _>>()?,
            mid_block: MidBlock::load(config, last, &root.at("mid_block"))?,
            up_blocks: up_blocks.collect::<Result<_, _>>()?,
            norm: GroupNorm::load(&root.at("conv_norm_out"), first, config.norm_num_groups, config.norm_eps)?,
            last: Conv::load(&root.at("conv_out"), first, config.out_channels, Shape::SAME)?,
        })
    }

    /// Its prediction for the samples of a batch.
    pub fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        inputs: &Inputs<C::Value>,
    ) -> Computed<C::Value> {
        let time = self.embedding.forward(compute, inputs)?;
        let states = inputs.states.as_ref();
        let mut x = compute.conv(&self.first, &inputs.sample, None)?;
        let mut skips = vec![x.clone()];
        for down in &self.down_blocks {
            x = down.forward(compute, &x, &time, states, &mut skips)?;
        }
        x = self.mid_block.forward(compute, &x, &time, states)?;
        for up in &self.up_blocks {
            x = up.forward(compute, &x, &time, states, &mut skips)?;
        }
        let x = compute.group_norm(&self.norm, &x, true)?;
        compute.conv(&self.last, &x, None)
    }
}
