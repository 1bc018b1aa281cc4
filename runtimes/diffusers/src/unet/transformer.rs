//! Transformer blocks: attention among pixels and to the prompt.

use island_runtimes_kit::error::EngineError;

use super::Config;
use crate::{
    compute::{Compute, Computed, Rows, Weight},
    ops::{GroupNorm, LayerNorm, Linear},
    weights::Scope,
};

/// Of the norm before the first block, whatever the network's own.
const EPSILON: f64 = 1e-6;
/// Of the norms inside blocks.
const BLOCK_EPSILON: f64 = 1e-5;

#[derive(Debug)]
pub(super) struct Transformer<W> {
    norm: GroupNorm<W>,
    inwards: Linear<W>,
    blocks: Vec<Block<W>>,
    outwards: Linear<W>,
}

#[derive(Debug)]
struct Block<W> {
    norms: [LayerNorm<W>; 3],
    own: Attention<W>,
    cross: Attention<W>,
    widen: Linear<W>,
    narrow: Linear<W>,
}

#[derive(Debug)]
struct Attention<W> {
    query: Linear<W>,
    key: Linear<W>,
    value: Linear<W>,
    out: Linear<W>,
    heads: usize,
    wide: bool,
}

impl<W: Weight> Transformer<W> {
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

    pub(super) fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        x: &C::Value,
        states: Option<&C::Value>,
    ) -> Computed<C::Value> {
        let normed = compute.group_norm(&self.norm, x, false)?;
        let pixels = compute.rows(&normed)?;
        let mut inner = compute.linear(&self.inwards, &pixels, None)?;
        for block in &self.blocks {
            inner = block.forward(compute, &inner, states)?;
        }
        compute.linear_onto_image(&self.outwards, &inner, x)
    }
}

impl<W: Weight> Block<W> {
    fn load(config: &Config, at: usize, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let (width, heads) = (config.block_out_channels[at], config.heads(at));
        let wide = config.upcast_attention;
        let norm = |name: &str| LayerNorm::load(&scope.at(name), width, BLOCK_EPSILON);
        Ok(Self {
            norms: [norm("norm1")?, norm("norm2")?, norm("norm3")?],
            own: Attention::load(&scope.at("attn1"), width, (width, heads), wide)?,
            cross: Attention::load(
                &scope.at("attn2"),
                config.cross_attention_dim.at(at),
                (width, heads),
                wide,
            )?,
            widen: Linear::load(&scope.at("ff.net.0.proj"), width, 8 * width)?,
            narrow: Linear::load(&scope.at("ff.net.2"), 4 * width, width)?,
        })
    }

    fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        x: &C::Value,
        states: Option<&C::Value>,
    ) -> Computed<C::Value> {
        let normed = compute.layer_norm(&self.norms[0], x)?;
        let x = self.own.forward(compute, &normed, None, x)?;
        let normed = compute.layer_norm(&self.norms[1], &x)?;
        let x = self.cross.forward(compute, &normed, states, &x)?;
        let normed = compute.layer_norm(&self.norms[2], &x)?;
        let wide = compute.linear(&self.widen, &normed, None)?;
        let gated = compute.geglu(&wide)?;
        compute.linear(&self.narrow, &gated, Some(&x))
    }
}

impl<W: Weight> Attention<W> {
    fn load(
        scope: &Scope<'_>,
        states: usize,
        (width, heads): (usize, usize),
        wide: bool,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            query: Linear::load(&scope.at("to_q"), width, width)?,
            key: Linear::load(&scope.at("to_k"), states, width)?,
            value: Linear::load(&scope.at("to_v"), states, width)?,
            out: Linear::load(&scope.at("to_out.0"), width, width)?,
            heads,
            wide,
        })
    }

    /// Self-attention without other states.
    fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        x: &C::Value,
        states: Option<&C::Value>,
        residual: &C::Value,
    ) -> Computed<C::Value> {
        let states = states.unwrap_or(x);
        let query = compute.linear(&self.query, x, None)?;
        let key = compute.linear(&self.key, states, None)?;
        let value = compute.linear(&self.value, states, None)?;
        let seen = compute.attention(&Rows {
            query: &query,
            key: &key,
            value: &value,
            heads: self.heads,
            width: self.query.outputs,
            causal: false,
            wide: self.wide,
        })?;
        compute.linear(&self.out, &seen, Some(residual))
    }
}
