//! Normalization over groups of channels, and over each row.

use candle_core::{Result as Computed, Tensor, bail};
use island_runtimes_kit::error::{EngineError, invalid_model};
use pulp::Arch;
use rayon::prelude::*;

use super::{floats::Floats, math};
use crate::{compute::Weight, weights::Scope};

/// Elements per task.
const PIECE: usize = 1 << 15;

/// Normalizes each group of channels over a whole image.
#[derive(Debug, Clone)]
pub struct GroupNorm<W = Tensor> {
    /// Factor of each channel.
    pub(crate) weight: W,
    /// Offset of each channel.
    pub(crate) bias: W,
    pub(crate) groups: usize,
    pub(crate) channels: usize,
    /// Added to the variance.
    pub(crate) epsilon: f64,
}

impl<W: Weight> GroupNorm<W> {
    /// Loads the layer.
    pub fn load(
        scope: &Scope<'_>,
        channels: usize,
        groups: usize,
        epsilon: f64,
    ) -> Result<Self, EngineError> {
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(invalid_model(format!(
                "{}: {channels} channels are not {groups} groups",
                scope.name()
            )));
        }
        let vector = |name| W::plain(scope, name, &[channels]);
        Ok(Self { weight: vector("weight")?, bias: vector("bias")?, groups, channels, epsilon })
    }
}

impl GroupNorm {
    /// Applies the layer to `[batch, …, channels]`.
    pub fn forward(&self, x: &Tensor) -> Computed<Tensor> {
        self.with(x, false)
    }

    /// Applies the layer and then SiLU.
    pub fn silu(&self, x: &Tensor) -> Computed<Tensor> {
        self.with(x, true)
    }

    fn with(&self, x: &Tensor, silu: bool) -> Computed<Tensor> {
        let (batch, channels) = (x.dim(0)?, self.weight.elem_count());
        let values = Floats::of(x)?;
        if batch == 0 || values.len() % (batch * channels) != 0 {
            bail!("{channels} channels are not the last dimension of {:?}", x.dims());
        }
        let (weight, bias) = (Floats::of(&self.weight)?, Floats::of(&self.bias)?);
        let picture = values.len() / batch;
        let mut out = vec![0.0; values.len()];
        let piece = (PIECE / channels).max(1) * channels;
        for (out, values) in out.chunks_exact_mut(picture).zip(values.chunks_exact(picture)) {
            let (scale, shift) = self.scale_and_shift(values, piece, &weight, &bias);
            out.par_chunks_mut(piece).zip(values.par_chunks(piece)).for_each(|(out, values)| {
                Arch::new().dispatch(|| {
                    for (out, values) in out.chunks_exact_mut(channels).zip(values.chunks_exact(channels)) {
                        apply(out, values, &scale, &shift, silu);
                    }
                });
            });
        }
        Tensor::from_vec(out, x.shape(), x.device())
    }

    /// Factor and offset of each channel of an image.
    fn scale_and_shift(
        &self,
        values: &[f32],
        piece: usize,
        weight: &[f32],
        bias: &[f32],
    ) -> (Vec<f32>, Vec<f32>) {
        let channels = weight.len();
        let none = || (vec![0.0_f64; channels], vec![0.0_f64; channels]);
        let sums = values.par_chunks(piece).map(|values| {
            let (mut sums, mut squares) = none();
            Arch::new().dispatch(|| {
                for row in values.chunks_exact(channels) {
                    for ((sum, square), value) in sums.iter_mut().zip(&mut squares).zip(row) {
                        let value = f64::from(*value);
                        *sum += value;
                        *square += value * value;
                    }
                }
            });
            (sums, squares)
        });
        let add = |mut one: Vec<f64>, other: Vec<f64>| {
            one.iter_mut().zip(other).for_each(|(one, other)| *one += other);
            one
        };
        // Collected first: a sum whose order depends on scheduling would differ from run to run.
        let parts: Vec<(Vec<f64>, Vec<f64>)> = sums.collect();
        let (sums, squares) =
            parts.into_iter().fold(none(), |(sums, squares), part| (add(sums, part.0), add(squares, part.1)));
        let width = channels / self.groups;
        let count = (values.len() / channels * width) as f64;
        let (mut scale, mut shift) = (vec![0.0; channels], vec![0.0; channels]);
        for group in 0..self.groups {
            let range = group * width..(group + 1) * width;
            let mean = sums[range.clone()].iter().sum::<f64>() / count;
            let variance = (squares[range.clone()].iter().sum::<f64>() / count - mean * mean).max(0.0);
            let inverse = 1.0 / (variance + self.epsilon).sqrt();
            for at in range {
                let gain = f64::from(weight[at]) * inverse;
                scale[at] = gain as f32;
                shift[at] = (f64::from(bias[at]) - mean * gain) as f32;
            }
        }
        (scale, shift)
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled for the instructions of its caller")]
fn apply(out: &mut [f32], values: &[f32], scale: &[f32], shift: &[f32], silu: bool) {
    let terms = values.iter().zip(scale).zip(shift);
    if silu {
        for (out, ((value, scale), shift)) in out.iter_mut().zip(terms) {
            let value = value * scale + shift;
            *out = value * math::sigmoid(value);
        }
    } else {
        for (out, ((value, scale), shift)) in out.iter_mut().zip(terms) {
            *out = value * scale + shift;
        }
    }
}

/// Normalizes each row.
#[derive(Debug, Clone)]
pub struct LayerNorm<W = Tensor> {
    /// Factor of each channel.
    pub(crate) weight: W,
    /// Offset of each channel.
    pub(crate) bias: W,
    pub(crate) width: usize,
    /// Added to the variance.
    pub(crate) epsilon: f64,
}

impl<W: Weight> LayerNorm<W> {
    /// Loads the layer.
    pub fn load(scope: &Scope<'_>, width: usize, epsilon: f64) -> Result<Self, EngineError> {
        let vector = |name| W::plain(scope, name, &[width]);
        Ok(Self { weight: vector("weight")?, bias: vector("bias")?, width, epsilon })
    }
}

impl LayerNorm {
    /// Applies the layer to `[…, width]`.
    pub fn forward(&self, x: &Tensor) -> Computed<Tensor> {
        let (weight, bias, values) = (Floats::of(&self.weight)?, Floats::of(&self.bias)?, Floats::of(x)?);
        let width = weight.len();
        let mut out = vec![0.0; values.len()];
        let piece = (PIECE / width).max(1) * width;
        out.par_chunks_mut(piece).zip(values.par_chunks(piece)).for_each(|(out, values)| {
            Arch::new().dispatch(|| {
                for (out, row) in out.chunks_exact_mut(width).zip(values.chunks_exact(width)) {
                    let mean = math::sum(row, |value| value) / width as f32;
                    let variance = math::sum(row, |value| (value - mean) * (value - mean)) / width as f32;
                    let inverse = 1.0 / (variance + self.epsilon as f32).sqrt();
                    let terms = row.iter().zip(&*weight).zip(&*bias);
                    for (out, ((value, weight), bias)) in out.iter_mut().zip(terms) {
                        *out = (value - mean) * inverse * weight + bias;
                    }
                }
            });
        });
        Tensor::from_vec(out, x.shape(), x.device())
    }
}
