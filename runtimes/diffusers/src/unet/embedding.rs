//! The embedding of the time step and other conditioning of the whole image.

use candle_core::{Result as Computed, Tensor, bail};
use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{Conditioning, Config};
use crate::{
    lora::Adapters,
    ops::{Activation, Linear},
    weights::Scope,
};

/// Maximum period of a time embedding in timesteps.
const LONGEST: f64 = 10_000.0;

#[derive(Debug)]
pub(super) struct Embedding {
    width: usize,
    flip: bool,
    shift: f64,
    time: [Linear; 2],
    guidance: Option<(usize, Linear)>,
    added: Option<Added>,
}

#[derive(Debug)]
struct Added {
    width: usize,
    layers: [Linear; 2],
}

impl Embedding {
    pub(super) fn load(config: &Config, root: &Scope<'_>) -> Result<Self, EngineError> {
        let (width, out) = (config.block_out_channels[0], config.time_width());
        let pair = |name: &str, inputs: usize| -> Result<[Linear; 2], EngineError> {
            let scope = root.at(name);
            Ok([
                Linear::load(&scope.at("linear_1"), inputs, out)?,
                Linear::load(&scope.at("linear_2"), out, out)?,
            ])
        };
        let added = match (&config.addition_embed_type, config.addition_time_embed_dim) {
            (None, _) => None,
            (Some(_), Some(width)) if (2..=4096).contains(&width) => {
                let inputs = config.projection_class_embeddings_input_dim.unwrap_or(0);
                Some(Added { width, layers: pair("add_embedding", inputs)? })
            }
            (Some(_), _) => {
                return Err(invalid_model("unet/config.json: addition_time_embed_dim is missing"));
            }
        };
        let guidance = config.time_cond_proj_dim.map(|inputs| {
            Linear::load(&root.at("time_embedding.cond_proj"), inputs, width).map(|layer| (inputs, layer))
        });
        Ok(Self {
            width,
            flip: config.flip_sin_to_cos,
            shift: config.freq_shift,
            time: pair("time_embedding", width)?,
            guidance: guidance.transpose()?,
            added,
        })
    }

    /// `[batch, width]`, after the SiLU that every block would apply to it.
    pub(super) fn forward(
        &self,
        sample: &Tensor,
        time: f64,
        conditioning: &Conditioning,
        adapters: &Adapters,
    ) -> Computed<Tensor> {
        let batch = sample.dim(0)?;
        let place = |values: Vec<f32>| {
            let width = values.len() / batch;
            Tensor::from_vec(values, (batch, width), sample.device())?.to_dtype(sample.dtype())
        };
        let wave = waves(time, self.width, self.flip, self.shift);
        let mut embedded = place(wave.repeat(batch))?;
        if let Some((width, layer)) = &self.guidance {
            let guidance = guidance_waves(f64::from(conditioning.guidance.unwrap_or(0.0)), *width);
            embedded = layer.forward(&place(guidance.repeat(batch))?, Some(&embedded), adapters)?;
        }
        let through = |layers: &[Linear; 2], x: &Tensor, onto: Option<&Tensor>| {
            let inner = Activation::Silu.of(&layers[0].forward(x, None, adapters)?)?;
            layers[1].forward(&inner, onto, adapters)
        };
        embedded = through(&self.time, &embedded, None)?;
        if let Some(added) = &self.added {
            let Some(pooled) = &conditioning.pooled else { bail!("the network needs a pooled prompt") };
            let sizes = conditioning
                .sizes
                .iter()
                .flat_map(|size| waves(f64::from(*size), added.width, self.flip, self.shift));
            let joined = Tensor::cat(&[pooled, &place(sizes.collect())?], 1)?;
            embedded = through(&added.layers, &joined, Some(&embedded))?;
        }
        Activation::Silu.of(&embedded)
    }
}

/// A number as sines and cosines of growing periods.
fn waves(value: f64, width: usize, flip: bool, shift: f64) -> Vec<f32> {
    let half = width / 2;
    let angle = |at: usize| {
        let exponent = -(LONGEST.ln() as f32) * at as f32 / (half as f32 - shift as f32);
        value as f32 * exponent.exp()
    };
    let sines = (0..half).map(|at| angle(at).sin());
    let cosines = (0..half).map(|at| angle(at).cos());
    let mut waves: Vec<f32> =
        if flip { cosines.chain(sines).collect() } else { sines.chain(cosines).collect() };
    waves.resize(width, 0.0);
    waves
}

/// The guidance scale in the same form, as distilled.
fn guidance_waves(value: f64, width: usize) -> Vec<f32> {
    let half = width / 2;
    let angle = |at: usize| {
        let exponent = -(LONGEST.ln() as f32 / (half as f32 - 1.0)) * at as f32;
        (value * 1000.0) as f32 * exponent.exp()
    };
    let mut waves: Vec<f32> = (0..half).map(|at| angle(at).sin()).collect();
    waves.extend((0..half).map(|at| angle(at).cos()));
    waves.resize(width, 0.0);
    waves
}
