//! Down, middle and up blocks, with skip connections.

use island_runtimes_kit::error::EngineError;

use super::{
    Config,
    resnet::{Norms, Resnet},
    transformer::Transformer,
};
use crate::{
    compute::{Compute, Computed, Weight},
    ops::{Conv, Shape},
    weights::Scope,
};

#[derive(Debug)]
pub(super) struct DownBlock<W> {
    layers: Vec<(Resnet<W>, Option<Transformer<W>>)>,
    downsample: Option<Conv<W>>,
}

#[derive(Debug)]
pub(super) struct MidBlock<W> {
    first: Resnet<W>,
    layers: Vec<(Transformer<W>, Resnet<W>)>,
}

#[derive(Debug)]
pub(super) struct UpBlock<W> {
    layers: Vec<(Resnet<W>, Option<Transformer<W>>)>,
    upsample: Option<Conv<W>>,
}

fn norms(config: &Config) -> Norms {
    Norms { groups: config.norm_num_groups, epsilon: config.norm_eps, time: Some(config.time_width()) }
}

impl<W: Weight> DownBlock<W> {
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

    pub(super) fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        x: &C::Value,
        time: &C::Value,
        states: Option<&C::Value>,
        skips: &mut Vec<C::Value>,
    ) -> Computed<C::Value> {
        let mut x = x.clone();
        for (resnet, transformer) in &self.layers {
            x = resnet.forward(compute, &x, Some(time))?;
            if let Some(transformer) = transformer {
                x = transformer.forward(compute, &x, states)?;
            }
            skips.push(x.clone());
        }
        if let Some(downsample) = &self.downsample {
            x = compute.conv(downsample, &x, None)?;
            skips.push(x.clone());
        }
        Ok(x)
    }
}

impl<W: Weight> MidBlock<W> {
    pub(super) fn load(config: &Config, width: usize, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let at = config.block_out_channels.len() - 1;
        let resnet = |index: usize| Resnet::load(&scope.at("resnets").at(index), width, width, norms(config));
        let layer = (Transformer::load(config, at, &scope.at("attentions").at(0))?, resnet(1)?);
        Ok(Self { first: resnet(0)?, layers: vec![layer] })
    }

    pub(super) fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        x: &C::Value,
        time: &C::Value,
        states: Option<&C::Value>,
    ) -> Computed<C::Value> {
        let mut x = self.first.forward(compute, x, Some(time))?;
        for (transformer, resnet) in &self.layers {
            x = transformer.forward(compute, &x, states)?;
            x = resnet.forward(compute, &x, Some(time))?;
        }
        Ok(x)
    }
}

impl<W: Weight> UpBlock<W> {
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

    pub(super) fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        x: &C::Value,
        time: &C::Value,
        states: Option<&C::Value>,
        skips: &mut Vec<C::Value>,
    ) -> Computed<C::Value> {
        let mut x = x.clone();
        for (resnet, transformer) in &self.layers {
            let other = skips.pop();
            let other = other.ok_or_else(|| EngineError::host("more up layers than skip connections"))?;
            let joined = compute.join(&x, &other)?;
            x = resnet.forward(compute, &joined, Some(time))?;
            if let Some(transformer) = transformer {
                x = transformer.forward(compute, &x, states)?;
            }
        }
        match (&self.upsample, skips.last()) {
            // An odd side was rounded up by downsampling, so it is not always doubled.
            (Some(upsample), Some(next)) => compute.conv_enlarged(upsample, &x, Some(next)),
            _ => Ok(x),
        }
    }
}
