//! The embedding of the time step and other conditioning of the whole image.

use candle_core::Tensor;
use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{Conditioning, Config, Inputs};
use crate::{
    compute::{Compute, Computed, Weight},
    error::compute_error,
    ops::{Activation, Linear},
    weights::Scope,
};

/// Maximum period of a time embedding in timesteps.
const LONGEST: f64 = 10_000.0;

#[derive(Debug)]
pub(super) struct Embedding<W> {
    time: [Linear<W>; 2],
    guidance: Option<Linear<W>>,
    added: Option<[Linear<W>; 2]>,
}

impl<W: Weight> Embedding<W> {
    pub(super) fn load(config: &Config, root: &Scope<'_>) -> Result<Self, EngineError> {
        let (width, out) = (config.block_out_channels[0], config.time_width());
        let pair = |name: &str, inputs: usize| -> Result<[Linear<W>; 2], EngineError> {
            let scope = root.at(name);
            Ok([
                Linear::load(&scope.at("linear_1"), inputs, out)?,
                Linear::load(&scope.at("linear_2"), out, out)?,
            ])
        };
        let added = config.addition_embed_type.as_ref().map(|_| {
            let width = config.addition_time_embed_dim.filter(|width| (2..=4096).contains(width));
            width.ok_or_else(|| invalid_model("unet/config.json: addition_time_embed_dim is missing"))?;
            pair("add_embedding", config.projection_class_embeddings_input_dim.unwrap_or(0))
        });
        let guidance = config
            .time_cond_proj_dim
            .map(|inputs| Linear::load(&root.at("time_embedding.cond_proj"), inputs, width));
        Ok(Self {
            time: pair("time_embedding", width)?,
            guidance: guidance.transpose()?,
            added: added.transpose()?,
        })
    }

    /// `[batch, width]`, after the SiLU that every block would apply to it.
    pub(super) fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        inputs: &Inputs<C::Value>,
    ) -> Computed<C::Value> {
        let lacks = |what: &str| EngineError::host(format!("the network needs {what}"));
        let mut embedded = inputs.time.clone();
        if let Some(layer) = &self.guidance {
            let guidance = inputs.guidance.as_ref().ok_or_else(|| lacks("a guidance scale"))?;
            embedded = compute.linear(layer, guidance, Some(&embedded))?;
        }
        embedded = through(compute, &self.time, &embedded, None)?;
        if let Some(layers) = &self.added {
            let pooled = inputs.pooled.as_ref().ok_or_else(|| lacks("a pooled prompt"))?;
            let sizes = inputs.sizes.as_ref().ok_or_else(|| lacks("the sizes of the image"))?;
            let joined = compute.join(pooled, sizes)?;
            embedded = through(compute, layers, &joined, Some(&embedded))?;
        }
        compute.activation(Activation::Silu, &embedded)
    }
}

/// Two layers with an activation between.
fn through<C: Compute>(
    compute: &mut C,
    layers: &[Linear<C::Weight>; 2],
    x: &C::Value,
    onto: Option<&C::Value>,
) -> Computed<C::Value> {
    let inner = compute.linear(&layers[0], x, None)?;
    let inner = compute.activation(Activation::Silu, &inner)?;
    compute.linear(&layers[1], &inner, onto)
}

/// The inputs of the network for samples `[batch, height, width, channels]` at a timestep.
pub(super) fn inputs(
    config: &Config,
    sample: &Tensor,
    time: f64,
    conditioning: &Conditioning,
) -> Result<Inputs<Tensor>, EngineError> {
    let failed = compute_error("embed a timestep");
    let batch = sample.dim(0).map_err(&failed)?;
    let place = |values: Vec<f32>| {
        let width = values.len() / batch.max(1);
        Tensor::from_vec(values, (batch, width), sample.device()).map_err(&failed)
    };
    let (flip, shift) = (config.flip_sin_to_cos, config.freq_shift);
    let guidance = config.time_cond_proj_dim.map(|width| {
        place(guidance_waves(f64::from(conditioning.guidance.unwrap_or(0.0)), width).repeat(batch))
    });
    let sizes =
        config.addition_time_embed_dim.filter(|_| config.addition_embed_type.is_some()).map(|width| {
            let waves =
                conditioning.sizes.iter().flat_map(|size| waves(f64::from(*size), width, flip, shift));
            place(waves.collect())
        });
    Ok(Inputs {
        sample: sample.clone(),
        states: conditioning.states.clone(),
        time: place(waves(time, config.block_out_channels[0], flip, shift).repeat(batch))?,
        guidance: guidance.transpose()?,
        pooled: conditioning.pooled.clone(),
        sizes: sizes.transpose()?,
    })
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
