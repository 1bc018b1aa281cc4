//! The middle of the autoencoder: two residual blocks with self-attention between.

use island_runtimes_kit::error::EngineError;

use super::coder::norms;
use crate::{
    compute::{Compute, Computed, Rows, Weight},
    ops::{GroupNorm, Linear},
    unet::Resnet,
    vae::Config,
    weights::Scope,
};

#[derive(Debug)]
pub(super) struct Middle<W> {
    resnets: [Resnet<W>; 2],
    attention: Option<Attention<W>>,
}

#[derive(Debug)]
struct Attention<W> {
    norm: GroupNorm<W>,
    query: Linear<W>,
    key: Linear<W>,
    value: Linear<W>,
    out: Linear<W>,
}

impl<W: Weight> Middle<W> {
    pub(super) fn load(config: &Config, width: usize, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let resnet = |at: usize| Resnet::load(&scope.at("resnets").at(at), width, width, norms(config));
        let inner = scope.at("attentions").at(0);
        let attention = config.mid_block_add_attention.then(|| Attention::load(config, width, &inner));
        Ok(Self { resnets: [resnet(0)?, resnet(1)?], attention: attention.transpose()? })
    }

    pub(super) fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        x: &C::Value,
    ) -> Computed<C::Value> {
        let mut x = self.resnets[0].forward(compute, x, None)?;
        if let Some(attention) = &self.attention {
            x = attention.forward(compute, &x)?;
        }
        self.resnets[1].forward(compute, &x, None)
    }
}

impl<W: Weight> Attention<W> {
    fn load(config: &Config, width: usize, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let layer = |names: &[&str]| Linear::load(&scope.first(names), width, width);
        let norm = norms(config);
        Ok(Self {
            norm: GroupNorm::load(&scope.at("group_norm"), width, norm.groups, norm.epsilon)?,
            query: layer(&["to_q", "query"])?,
            key: layer(&["to_k", "key"])?,
            value: layer(&["to_v", "value"])?,
            out: layer(&["to_out.0", "proj_attn"])?,
        })
    }

    fn forward<C: Compute<Weight = W>>(&self, compute: &mut C, x: &C::Value) -> Computed<C::Value> {
        let normed = compute.group_norm(&self.norm, x, false)?;
        let normed = compute.rows(&normed)?;
        let query = compute.linear(&self.query, &normed, None)?;
        let key = compute.linear(&self.key, &normed, None)?;
        let value = compute.linear(&self.value, &normed, None)?;
        let seen = compute.attention(&Rows {
            query: &query,
            key: &key,
            value: &value,
            heads: 1,
            width: self.query.outputs,
            causal: false,
            wide: false,
        })?;
        compute.linear_onto_image(&self.out, &seen, x)
    }
}
