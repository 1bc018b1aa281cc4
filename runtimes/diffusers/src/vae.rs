//! The autoencoder between images and latents: `AutoencoderKL`.

mod attention;
mod coder;
mod tile;

use std::fmt;

use candle_core::{D, Tensor};
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::AUTOENCODER,
};
use serde::Deserialize;

use coder::{Decoder, Encoder};

use crate::{
    compute::{Compute, Computed, Weight},
    ops::Linear,
    weights::Weights,
};
pub use tile::Tiles;

/// `vae/config.json`. Settings that are not supported are refused by [`island_runtimes_kit::keys::AUTOENCODER`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    in_channels: usize,
    out_channels: usize,
    down_block_types: Vec<String>,
    up_block_types: Vec<String>,
    block_out_channels: Vec<usize>,
    layers_per_block: usize,
    /// Channels of latents.
    pub latent_channels: usize,
    norm_num_groups: usize,
    /// Side of the images in training, in pixels.
    pub sample_size: usize,
    /// Divisor of latents before decoding.
    pub scaling_factor: f64,
    use_quant_conv: bool,
    use_post_quant_conv: bool,
    mid_block_add_attention: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            in_channels: 3,
            out_channels: 3,
            down_block_types: vec!["DownEncoderBlock2D".to_owned()],
            up_block_types: vec!["UpDecoderBlock2D".to_owned()],
            block_out_channels: vec![64],
            layers_per_block: 1,
            latent_channels: 4,
            norm_num_groups: 32,
            sample_size: 32,
            scaling_factor: 0.18215,
            use_quant_conv: true,
            use_post_quant_conv: true,
            mid_block_add_attention: true,
        }
    }
}

impl Config {
    fn check(&self) -> Result<(), EngineError> {
        let widths = &self.block_out_channels;
        let blocks = widths.len();
        let all = |types: &[String], kind: &str| types.len() == blocks && types.iter().all(|one| one == kind);
        let fits_factor = self.scaling_factor.is_finite() && self.scaling_factor > 0.0;
        let fits_widths =
            (1..=6).contains(&blocks) && widths.iter().all(|width| (1..=1 << 14).contains(width));
        let fits_side = fits_widths && self.sample_size >= self.scale();
        let checks: [(&str, bool, &dyn fmt::Debug); 9] = [
            ("block_out_channels", fits_widths, widths),
            ("down_block_types", all(&self.down_block_types, "DownEncoderBlock2D"), &self.down_block_types),
            ("up_block_types", all(&self.up_block_types, "UpDecoderBlock2D"), &self.up_block_types),
            ("layers_per_block", (1..=8).contains(&self.layers_per_block), &self.layers_per_block),
            ("in_channels", self.in_channels == 3, &self.in_channels),
            ("out_channels", self.out_channels == 3, &self.out_channels),
            ("latent_channels", (1..=64).contains(&self.latent_channels), &self.latent_channels),
            ("scaling_factor", fits_factor, &self.scaling_factor),
            ("sample_size", fits_side, &self.sample_size),
        ];
        match checks.into_iter().find(|(_, fits, _)| !fits) {
            Some((key, _, value)) => {
                Err(invalid_model(format!("{}: {key} = {value:?} is not supported", AUTOENCODER.file)))
            }
            None => Ok(()),
        }
    }

    /// Pixels of an image per latent, along a side.
    pub fn scale(&self) -> usize {
        1 << (self.block_out_channels.len().max(1) - 1)
    }

    /// Width of its widest layer at full size.
    pub fn widest(&self) -> usize {
        let widths = &self.block_out_channels;
        widths.get(1).copied().unwrap_or(0).max(widths.first().copied().unwrap_or(0))
    }
}

/// The autoencoder. It computes in f32 on every device: f16 overflows in some of them.
#[derive(Debug)]
pub struct Vae<W = Tensor> {
    encoder: Encoder<W>,
    decoder: Decoder<W>,
    quant: Option<Linear<W>>,
    post_quant: Option<Linear<W>>,
}

impl<W: Weight> Vae<W> {
    /// Loads the autoencoder.
    pub fn load(config: &Config, weights: &Weights) -> Result<Self, EngineError> {
        config.check()?;
        let root = weights.root();
        let channels = config.latent_channels;
        let single = |is_there: bool, name: &str, width: usize| {
            is_there.then(|| Linear::load(&root.at(name), width, width)).transpose()
        };
        Ok(Self {
            encoder: Encoder::load(config, &root.at("encoder"))?,
            decoder: Decoder::load(config, &root.at("decoder"))?,
            quant: single(config.use_quant_conv, "quant_conv", 2 * channels)?,
            post_quant: single(config.use_post_quant_conv, "post_quant_conv", channels)?,
        })
    }

    /// Mean and log variance, joined, of the latents of images with three channels in -1..1.
    pub fn encode<C: Compute<Weight = W>>(&self, compute: &mut C, pictures: &C::Value) -> Computed<C::Value> {
        let moments = self.encoder.forward(compute, pictures)?;
        self.quant.as_ref().map_or(Ok(moments.clone()), |quant| compute.pointwise(quant, &moments))
    }

    /// Images of latents, which are scaled already.
    pub fn decode<C: Compute<Weight = W>>(&self, compute: &mut C, latents: &C::Value) -> Computed<C::Value> {
        let x = match &self.post_quant {
            Some(quant) => compute.pointwise(quant, latents)?,
            None => latents.clone(),
        };
        self.decoder.forward(compute, &x)
    }
}

/// Mean and log variance of moments `[batch, height, width, 2 · channels]`.
pub fn split(moments: &Tensor, channels: usize) -> candle_core::Result<(Tensor, Tensor)> {
    let mean = moments.narrow(D::Minus1, 0, channels)?.contiguous()?;
    let variance = moments.narrow(D::Minus1, channels, channels)?.contiguous()?;
    Ok((mean, variance.clamp(-30.0, 20.0)?))
}
