//! Transformer blocks: attention among pixels and to the prompt.

use candle_core::{Result as Computed, Tensor};
use island_runtimes_kit::error::EngineError;

use super::Config;
use crate::{
    lora::Adapters,
    ops::{GroupNorm, LayerNorm, Linear, attention, geglu},
    weights::Scope,
};

/// Of the norm before the first block, whatever the network's own.
const EPSILON: f64 = 1e-6;
/// Of the norms inside blocks.
const BLOCK_EPSILON: f64 = 1e-5;

#[derive(Debug)]
pub(super) struct Transformer {
    norm: GroupNorm,
    inwards: Linear,
    blocks: Vec<Block>,
    outwards: Linear,
}

#[derive(Debug)]
struct Block {
    norms: [LayerNorm; 3],
    own: Attention,
    cross: Attention,
    widen: Linear,
    narrow: Linear,
}

#[derive(Debug)]
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    heads: usize,
}

impl Transformer {
    pub(super) fn load(config: &Config, at: usize, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let width = config.block_out_channels[at];
        let blocks = (0..config.transformer_layers_per_block.at(at))
            .map(|block| Block::load(config, at, &scope.at("transformer_blocks").at(block)));
        // Stored as convolutions over single pixels or as linear layers, which are the same.
        Ok(Self {
            norm: GroupNorm::load(&scope.at("norm"), width, config.norm_num_groups, EPSILON)?,
            inwards: Linear::load(&scope.at("proj_in"), width, width)?,
            blocks: blocks.collect::<Result<_, _>>()?,
            outwards: Linear::load(&scope.at("proj_out"), width, width)?,
        })
    }

    pub(super) fn forward(
        &self,
        x: &Tensor,
        states: Option<&Tensor>,
        adapters: &Adapters,
    ) -> Computed<Tensor> {
        let (batch, height, width, channels) = x.dims4()?;
        let pixels = self.norm.forward(x)?.reshape((batch, height * width, channels))?;
        let mut inner = self.inwards.forward(&pixels, None, adapters)?;
        for block in &self.blocks {
            inner = block.forward(&inner, states, adapters)?;
        }
        let residual = x.reshape((batch, height * width, channels))?;
        self.outwards.forward(&inner, Some(&residual), adapters)?.reshape((batch, height, width, channels))
    }
}

impl Block {
    fn load(config: &Config, at: usize, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let (width, heads) = (config.block_out_channels[at], config.heads(at));
        let norm = |name: &str| LayerNorm::load(&scope.at(name), width, BLOCK_EPSILON);
        Ok(Self {
            norms: [norm("norm1")?, norm("norm2")?, norm("norm3")?],
            own: Attention::load(&scope.at("attn1"), width, width, heads)?,
            cross: Attention::load(&scope.at("attn2"), width, config.cross_attention_dim.at(at), heads)?,
            widen: Linear::load(&scope.at("ff.net.0.proj"), width, 8 * width)?,
            narrow: Linear::load(&scope.at("ff.net.2"), 4 * width, width)?,
        })
    }

    fn forward(&self, x: &Tensor, states: Option<&Tensor>, adapters: &Adapters) -> Computed<Tensor> {
        let x = self.own.forward(&self.norms[0].forward(x)?, None, x, adapters)?;
        let x = self.cross.forward(&self.norms[1].forward(&x)?, states, &x, adapters)?;
        let wide = self.widen.forward(&self.norms[2].forward(&x)?, None, adapters)?;
        self.narrow.forward(&geglu(&wide)?, Some(&x), adapters)
    }
}

impl Attention {
    fn load(scope: &Scope<'_>, width: usize, states: usize, heads: usize) -> Result<Self, EngineError> {
        Ok(Self {
            query: Linear::load(&scope.at("to_q"), width, width)?,
            key: Linear::load(&scope.at("to_k"), states, width)?,
            value: Linear::load(&scope.at("to_v"), states, width)?,
            out: Linear::load(&scope.at("to_out.0"), width, width)?,
            heads,
        })
    }

    /// Self-attention without other states.
    fn forward(
        &self,
        x: &Tensor,
        states: Option<&Tensor>,
        residual: &Tensor,
        adapters: &Adapters,
    ) -> Computed<Tensor> {
        let states = states.unwrap_or(x);
        let query = self.query.forward(x, None, adapters)?;
        let (key, value) =
            (self.key.forward(states, None, adapters)?, self.value.forward(states, None, adapters)?);
        let seen = attention(&query, &key, &value, self.heads, false)?;
        self.out.forward(&seen, Some(residual), adapters)
    }
}
