//! The way down, the middle, and the way up again, where each layer sees what its counterpart kept.

use candle_core::{D, Result as Computed, Tensor, bail};
use island_runtimes_kit::error::EngineError;

use super::{
    Config,
    resnet::{Norms, Resnet},
    transformer::Transformer,
};
use crate::{
    lora::Adapters,
    ops::{Conv, Shape},
    weights::Scope,
};

#[derive(Debug)]
pub(super) struct Down {
    layers: Vec<(Resnet, Option<Transformer>)>,
    smaller: Option<Conv>,
}

#[derive(Debug)]
pub(super) struct Middle {
    first: Resnet,
    layers: Vec<(Transformer, Resnet)>,
}

#[derive(Debug)]
pub(super) struct Up {
    layers: Vec<(Resnet, Option<Transformer>)>,
    larger: Option<Conv>,
}

fn norms(config: &Config) -> Norms {
    Norms { groups: config.norm_num_groups, epsilon: config.norm_eps, time: Some(config.time_width()) }
}

impl Down {
    pub(super) fn load(config: &Config, at: usize, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let widths = &config.block_out_channels;
        let (inputs, width) = (widths[at.saturating_sub(1)], widths[at]);
        let looks = config.down_block_types[at].starts_with("CrossAttn");
        let layers = (0..config.layers_per_block.at(at)).map(|layer| {
            let inputs = if layer == 0 { inputs } else { width };
            let resnet = Resnet::load(&scope.at("resnets").at(layer), inputs, width, norms(config))?;
            let scope = scope.at("attentions").at(layer);
            Ok::<_, EngineError>((resnet, looks.then(|| Transformer::load(config, at, &scope)).transpose()?))
        });
        let shrinks = at + 1 < widths.len();
        let smaller =
            shrinks.then(|| Conv::load(&scope.at("downsamplers.0.conv"), width, width, Shape::HALF));
        Ok(Self { layers: layers.collect::<Result<_, EngineError>>()?, smaller: smaller.transpose()? })
    }

    pub(super) fn forward(
        &self,
        x: &Tensor,
        time: &Tensor,
        states: Option<&Tensor>,
        kept: &mut Vec<Tensor>,
        adapters: &Adapters,
    ) -> Computed<Tensor> {
        let mut x = x.clone();
        for (resnet, transformer) in &self.layers {
            x = resnet.forward(&x, Some(time), adapters)?;
            if let Some(transformer) = transformer {
                x = transformer.forward(&x, states, adapters)?;
            }
            kept.push(x.clone());
        }
        if let Some(smaller) = &self.smaller {
            x = smaller.forward(&x, adapters)?;
            kept.push(x.clone());
        }
        Ok(x)
    }
}

impl Middle {
    pub(super) fn load(config: &Config, width: usize, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let at = config.block_out_channels.len() - 1;
        let resnet = |index: usize| Resnet::load(&scope.at("resnets").at(index), width, width, norms(config));
        let layer = (Transformer::load(config, at, &scope.at("attentions").at(0))?, resnet(1)?);
        Ok(Self { first: resnet(0)?, layers: vec![layer] })
    }

    pub(super) fn forward(
        &self,
        x: &Tensor,
        time: &Tensor,
        states: Option<&Tensor>,
        adapters: &Adapters,
    ) -> Computed<Tensor> {
        let mut x = self.first.forward(x, Some(time), adapters)?;
        for (transformer, resnet) in &self.layers {
            x = transformer.forward(&x, states, adapters)?;
            x = resnet.forward(&x, Some(time), adapters)?;
        }
        Ok(x)
    }
}

impl Up {
    pub(super) fn load(config: &Config, at: usize, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let widths = &config.block_out_channels;
        let last = widths.len() - 1;
        let mirror = last - at;
        let (width, below) = (widths[mirror], widths[(mirror + 1).min(last)]);
        // What the last layer is shown was kept before the counterpart's first.
        let above = widths[mirror.saturating_sub(1)];
        let looks = config.up_block_types[at].starts_with("CrossAttn");
        let count = config.layers_per_block.at(mirror) + 1;
        let layers = (0..count).map(|layer| {
            let kept = if layer + 1 == count { above } else { width };
            let inputs = if layer == 0 { below } else { width } + kept;
            let resnet = Resnet::load(&scope.at("resnets").at(layer), inputs, width, norms(config))?;
            let scope = scope.at("attentions").at(layer);
            Ok::<_, EngineError>((
                resnet,
                looks.then(|| Transformer::load(config, mirror, &scope)).transpose()?,
            ))
        });
        let larger =
            (mirror > 0).then(|| Conv::load(&scope.at("upsamplers.0.conv"), width, width, Shape::SAME));
        Ok(Self { layers: layers.collect::<Result<_, EngineError>>()?, larger: larger.transpose()? })
    }

    pub(super) fn forward(
        &self,
        x: &Tensor,
        time: &Tensor,
        states: Option<&Tensor>,
        kept: &mut Vec<Tensor>,
        adapters: &Adapters,
    ) -> Computed<Tensor> {
        let mut x = x.clone();
        for (resnet, transformer) in &self.layers {
            let Some(other) = kept.pop() else { bail!("the way up is longer than the way down") };
            x = resnet.forward(&Tensor::cat(&[&x, &other], D::Minus1)?, Some(time), adapters)?;
            if let Some(transformer) = transformer {
                x = transformer.forward(&x, states, adapters)?;
            }
        }
        match (&self.larger, kept.last()) {
            // An odd side was rounded up on the way down, so it is not always twice as long.
            (Some(larger), Some(next)) => {
                let (_, height, width, _) = next.dims4()?;
                larger.enlarged(&x, (height, width), adapters)
            }
            _ => Ok(x),
        }
    }
}
