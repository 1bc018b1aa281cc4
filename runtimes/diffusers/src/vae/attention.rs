//! The middle of the autoencoder: two residual blocks with self-attention between.

use candle_core::{Result as Computed, Tensor};
use island_runtimes_kit::error::EngineError;

use super::coder::norms;
use crate::{
    lora::Adapters,
    ops::{GroupNorm, Linear, attention},
    unet::Resnet,
    vae::Config,
    weights::Scope,
};

#[derive(Debug)]
pub(super) struct Middle {
    resnets: [Resnet; 2],
    attention: Option<Attention>,
}

#[derive(Debug)]
struct Attention {
    norm: GroupNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
}

impl Middle {
    pub(super) fn load(config: &Config, width: usize, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let resnet = |at: usize| Resnet::load(&scope.at("resnets").at(at), width, width, norms(config));
        let inner = scope.at("attentions").at(0);
        let attention = config.mid_block_add_attention.then(|| Attention::load(config, width, &inner));
        Ok(Self { resnets: [resnet(0)?, resnet(1)?], attention: attention.transpose()? })
    }

    pub(super) fn forward(&self, x: &Tensor, adapters: &Adapters) -> Computed<Tensor> {
        let mut x = self.resnets[0].forward(x, None, adapters)?;
        if let Some(attention) = &self.attention {
            x = attention.forward(&x, adapters)?;
        }
        self.resnets[1].forward(&x, None, adapters)
    }
}

impl Attention {
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

    fn forward(&self, x: &Tensor, adapters: &Adapters) -> Computed<Tensor> {
        let (batch, height, width, channels) = x.dims4()?;
        let flat = |x: &Tensor| x.reshape((batch, height * width, channels));
        let normed = flat(&self.norm.forward(x)?)?;
        let project = |layer: &Linear| layer.forward(&normed, None, adapters);
        let (query, key, value) = (project(&self.query)?, project(&self.key)?, project(&self.value)?);
        let seen = attention(&query, &key, &value, 1, false)?;
        self.out.forward(&seen, Some(&flat(x)?), adapters)?.reshape((batch, height, width, channels))
    }
}
