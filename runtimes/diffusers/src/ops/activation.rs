//! Activation functions.

use candle_core::{Result as Computed, Tensor};
use pulp::Arch;
use rayon::prelude::*;
use serde::Deserialize;

use super::{floats::Floats, math};

/// Elements per task.
const PIECE: usize = 1 << 14;

/// Functions by their names in settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x · sigmoid(x)`.
    #[serde(alias = "swish")]
    Silu,
    /// `x · Φ(x)`, exact.
    Gelu,
    /// `x · sigmoid(1.702 x)`.
    QuickGelu,
}

impl Activation {
    /// Applies the function to a tensor.
    pub fn of(self, x: &Tensor) -> Computed<Tensor> {
        let values = Floats::of(x)?;
        let mut out = vec![0.0; values.len()];
        out.par_chunks_mut(PIECE).zip(values.par_chunks(PIECE)).for_each(|(out, values)| {
            Arch::new().dispatch(|| match self {
                Self::Silu => each(out, values, |x| x * math::sigmoid(x)),
                Self::Gelu => each(out, values, math::gelu),
                Self::QuickGelu => each(out, values, |x| x * math::sigmoid(1.702 * x)),
            });
        });
        Tensor::from_vec(out, x.shape(), x.device())
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled for the instructions of its caller")]
fn each(out: &mut [f32], values: &[f32], of: impl Fn(f32) -> f32) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = of(*value);
    }
}

/// The first half of the last dimension, times the GELU of the second.
pub fn geglu(x: &Tensor) -> Computed<Tensor> {
    let mut shape = x.dims().to_vec();
    let Some(width) = shape.last_mut() else { return Ok(x.clone()) };
    *width /= 2;
    let half = *width;
    let values = Floats::of(x)?;
    let mut out = vec![0.0; values.len() / 2];
    out.par_chunks_mut(half).zip(values.par_chunks(2 * half)).for_each(|(out, values)| {
        let (value, gate) = values.split_at(half);
        Arch::new().dispatch(|| {
            for ((out, value), gate) in out.iter_mut().zip(value).zip(gate) {
                *out = value * math::gelu(*gate);
            }
        });
    });
    Tensor::from_vec(out, shape, x.device())
}
