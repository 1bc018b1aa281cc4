//! Encoder and decoder.

use island_runtimes_kit::error::EngineError;

use super::{Config, attention::Middle};
use crate::{
    compute::{Compute, Computed, Weight},
    ops::{Conv, GroupNorm, Shape},
    unet::{Norms, Resnet},
    weights::Scope,
};

/// Of all norms of an autoencoder.
const EPSILON: f64 = 1e-6;

pub(super) fn norms(config: &Config) -> Norms {
    Norms { groups: config.norm_num_groups, epsilon: EPSILON, time: None }
}

/// Residual blocks of one size, and the change to the next.
#[derive(Debug)]
struct Level<W> {
    resnets: Vec<Resnet<W>>,
    resize: Option<Conv<W>>,
}

impl<W: Weight> Level<W> {
    fn load(
        config: &Config,
        scope: &Scope<'_>,
        (inputs, width, count): (usize, usize, usize),
        resize: Option<(&str, Shape)>,
    ) -> Result<Self, EngineError> {
        let resnets = (0..count).map(|at| {
            let inputs = if at == 0 { inputs } else { width };
            Resnet::load(&scope.at("resnets").at(at), inputs, width, norms(config))
        });
        let resize = resize.map(|(name, shape)| Conv::load(&scope.at(name), width, width, shape));
        Ok(Self { resnets: resnets.collect::<Result<_, _>>()?, resize: resize.transpose()? })
    }

    fn resnets<C: Compute<Weight = W>>(&self, compute: &mut C, x: C::Value) -> Computed<C::Value> {
        self.resnets.iter().try_fold(x, |x, resnet| resnet.forward(compute, &x, None))
    }
}

#[derive(Debug)]
pub(super) struct Encoder<W> {
    first: Conv<W>,
    levels: Vec<Level<W>>,
    middle: Middle<W>,
    norm: GroupNorm<W>,
    last: Conv<W>,
}

impl<W: Weight> Encoder<W> {
    pub(super) fn load(config: &Config, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let widths = &config.block_out_channels;
        let end = widths.len() - 1;
        let levels = (0..=end).map(|at| {
            let resize = (at < end).then_some(("downsamplers.0.conv", Shape::HALF_AFTER));
            let sizes = (widths[at.saturating_sub(1)], widths[at], config.layers_per_block);
            Level::load(config, &scope.at("down_blocks").at(at), sizes, resize)
        });
        Ok(Self {
            first: Conv::load(&scope.at("conv_in"), config.in_channels, widths[0], Shape::SAME)?,
            levels: levels.collect::<Result<_, _>>()?,
            middle: Middle::load(config, widths[end], &scope.at("mid_block"))?,
            norm: GroupNorm::load(&scope.at("conv_norm_out"), widths[end], config.norm_num_groups, EPSILON)?,
            last: Conv::load(&scope.at("conv_out"), widths[end], 2 * config.latent_channels, Shape::SAME)?,
        })
    }

    pub(super) fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        x: &C::Value,
    ) -> Computed<C::Value> {
        let mut x = compute.conv(&self.first, x, None)?;
        for level in &self.levels {
            x = level.resnets(compute, x)?;
            if let Some(smaller) = &level.resize {
                x = compute.conv(smaller, &x, None)?;
            }
        }
        let x = self.middle.forward(compute, &x)?;
        let x = compute.group_norm(&self.norm, &x, true)?;
        compute.conv(&self.last, &x, None)
    }
}

#[derive(Debug)]
pub(super) struct Decoder<W> {
    first: Conv<W>,
    middle: Middle<W>,
    levels: Vec<Level<W>>,
    norm: GroupNorm<W>,
    last: Conv<W>,
}

impl<W: Weight> Decoder<W> {
    pub(super) fn load(config: &Config, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let widths = &config.block_out_channels;
        let end = widths.len() - 1;
        let levels = (0..=end).map(|at| {
            let mirror = end - at;
            let resize = (at < end).then_some(("upsamplers.0.conv", Shape::SAME));
            let sizes = (widths[(mirror + 1).min(end)], widths[mirror], config.layers_per_block + 1);
            Level::load(config, &scope.at("up_blocks").at(at), sizes, resize)
        });
        Ok(Self {
            first: Conv::load(&scope.at("conv_in"), config.latent_channels, widths[end], Shape::SAME)?,
            middle: Middle::load(config, widths[end], &scope.at("mid_block"))?,
            levels: levels.collect::<Result<_, _>>()?,
            norm: GroupNorm::load(&scope.at("conv_norm_out"), widths[0], config.norm_num_groups, EPSILON)?,
            last: Conv::load(&scope.at("conv_out"), widths[0], config.out_channels, Shape::SAME)?,
        })
    }

    pub(super) fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        x: &C::Value,
    ) -> Computed<C::Value> {
        let x = compute.conv(&self.first, x, None)?;
        let mut x = self.middle.forward(compute, &x)?;
        for level in &self.levels {
            x = level.resnets(compute, x)?;
            if let Some(larger) = &level.resize {
                x = compute.conv_enlarged(larger, &x, None)?;
            }
        }
        let x = compute.group_norm(&self.norm, &x, true)?;
        compute.conv(&self.last, &x, None)
    }
}
