//! Down, middle and up blocks, with skip connections.

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
pub(super) struct DownBlock {
    layers: Vec<(Resnet, Option<Transformer>)>,
    downsample: Option<Conv>,
}

#[derive(Debug)]
pub(super) struct MidBlock {
    first: Resnet,
    layers: Vec<(Transformer, Resnet)>,
}

#[derive(Debug)]
pub(super) struct UpBlock {
    layers: Vec<(Resnet, Option<Transformer>)>,
    upsample: Option<Conv>,
}

fn norms(config: &Config) -> Norms {
    Norms { groups: config.norm_num_groups, epsilon: config.norm_eps, time: Some(config.time_width()) }
}

impl DownBlock {
    pub(super) fn load(config: &Config, at: usize, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let widths = &config.block_out_channels;
        let (inputs, width) = (widths[at.saturating_sub(1)], widths[at]);
        let has_cross_attention = config.down_block_types[at].starts_with("CrossAttn");
        let layers = (0..config.layers_per_block.at(at)).map(|layer| {
            let inputs = if layer == 0 { inputs } else { width };
            let resnet = Resnet::load(&scope.at("resnets").at(layer), inputs, width, norms(config))?;
            let scope = scope.at("attentions").at(layer);
            Ok::<_, EngineError>((
                resnet,
                has_cross_attention.then(|| Transformer::load(config, at, &scope)).transpose()?,
            ))
        });
        let has_downsample = at + 1 < widths.len();
        let downsample =
            has_downsample.then(|| Conv::load(&scope.at("downsamplers.0.conv"), width, width, Shape::HALF));
        Ok(Self { layers: layers.collect::<Result<_, EngineError>>()?, downsample: downsample.transpose()? })
    }

    pub(super) fn forward(
        &self,
        x: &Tensor,
        time: &Tensor,
        states: Option<&Tensor>,
        skips: &mut Vec<Tensor>,
        adapters: &Adapters,
    ) -> Computed<Tensor> {
        let mut x = x.clone();
        for (resnet, transformer) in &self.layers {
            x = resnet.forward(&x, Some(time), adapters)?;
            if let Some(transformer) = transformer {
                x = transformer.forward(&x, states, adapters)?;
            }
            skips.push(x.clone());
        }
        if let Some(downsample) = &self.downsample {
            x = downsample.forward(&x, adapters)?;
            skips.push(x.clone());
        }
        Ok(x)
    }
}

impl MidBlock {
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

impl UpBlock {
    pub(super) fn load(config: &Config, at: usize, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let widths = &config.block_out_channels;
        let last = widths.len() - 1;
        let mirror = last - at;
        let (width, below) = (widths[mirror], widths[(mirror + 1).min(last)]);
        // The skip connection of the last layer is the input of the counterpart's first.
        let above = widths[mirror.saturating_sub(1)];
        let has_cross_attention = config.up_block_types[at].starts_with("CrossAttn");
        let count = config.layers_per_block.at(mirror) + 1;
        let layers = (0..count).map(|layer| {
            let skip = if layer + 1 == count { above } else { width };
            let inputs = if layer == 0 { below } else { width } + skip;
            let resnet = Resnet::load(&scope.at("resnets").at(layer), inputs, width, norms(config))?;
            let scope = scope.at("attentions").at(layer);
            Ok::<_, EngineError>((
                resnet,
                has_cross_attention.then(|| Transformer::load(config, mirror, &scope)).transpose()?,
            ))
        });
        let upsample =
            (mirror > 0).then(|| Conv::load(&scope.at("upsamplers.0.conv"), width, width, Shape::SAME));
        Ok(Self { layers: layers.collect::<Result<_, EngineError>>()?, upsample: upsample.transpose()? })
    }

    pub(super) fn forward(
        &self,
        x: &Tensor,
        time: &Tensor,
        states: Option<&Tensor>,
        skips: &mut Vec<Tensor>,
        adapters: &Adapters,
    ) -> Computed<Tensor> {
        let mut x = x.clone();
        for (resnet, transformer) in &self.layers {
            let Some(other) = skips.pop() else { bail!("more up layers than skip connections") };
            x = resnet.forward(&Tensor::cat(&[&x, &other], D::Minus1)?, Some(time), adapters)?;
            if let Some(transformer) = transformer {
                x = transformer.forward(&x, states, adapters)?;
            }
        }
        match (&self.upsample, skips.last()) {
            // An odd side was rounded up by downsampling, so it is not always doubled.
            (Some(upsample), Some(next)) => {
                let (_, height, width, _) = next.dims4()?;
                upsample.enlarged(&x, (height, width), adapters)
            }
            _ => Ok(x),
        }
    }
}
