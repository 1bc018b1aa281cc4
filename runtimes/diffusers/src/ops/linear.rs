//! Fully connected layers, with adapters.

use candle_core::{Result as Computed, Tensor, bail};
use island_runtimes_kit::error::EngineError;

use super::{
    floats::Floats,
    product::{Matrix, product},
};
use crate::{compute::Weight, lora::Adapters, weights::Scope};

/// `y = x · Wᵀ + b`.
#[derive(Debug, Clone)]
pub struct Linear<W = Tensor> {
    /// Name of the layer in its repository.
    pub(crate) name: String,
    /// `[outputs, inputs]`; transposed in main memory.
    pub(crate) weight: W,
    pub(crate) bias: Option<W>,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
}

impl<W: Weight> Linear<W> {
    /// Loads the layer, with a bias if the file has one.
    pub fn load(scope: &Scope<'_>, inputs: usize, outputs: usize) -> Result<Self, EngineError> {
        let bias = scope.has("bias").then(|| W::plain(scope, "bias", &[outputs])).transpose()?;
        let weight = W::linear(scope, inputs, outputs)?;
        Ok(Self { name: scope.name().to_owned(), weight, bias, inputs, outputs })
    }
}

impl Linear {
    /// Applies the layer to `[…, inputs]`, and adds `residual` if there is one.
    pub fn forward(&self, x: &Tensor, residual: Option<&Tensor>, adapters: &Adapters) -> Computed<Tensor> {
        let deltas = adapters.of(&self.name);
        let (inputs, outputs) = (self.inputs, self.outputs);
        let mut shape = x.dims().to_vec();
        match shape.last_mut() {
            Some(width) if *width == inputs => *width = outputs,
            _ => bail!("{} takes {inputs} numbers, not {:?}", self.name, x.dims()),
        }
        let values = Floats::of(x)?;
        let rows = values.len() / inputs;
        let bias = self.bias.as_ref().map(Floats::of).transpose()?;
        let residual = residual.map(Floats::of).transpose()?;
        let mut out = filled(rows * outputs, outputs, bias.as_deref(), residual.as_deref());
        let keep = bias.is_some() || residual.is_some();
        let weight = Floats::of(&self.weight)?;
        let x = Matrix::rows(&values, inputs);
        let weight = Matrix::rows(&weight, outputs);
        product(&mut out, outputs, (rows, outputs, inputs), x, weight, keep, 1.0, true);
        for delta in deltas {
            let (down, up) = (Floats::of(&delta.down)?, Floats::of(&delta.up)?);
            let rank = down.len() / inputs;
            let mut narrow = vec![0.0; rows * rank];
            let down = Matrix::rows(&down, inputs).transposed();
            product(&mut narrow, rank, (rows, rank, inputs), x, down, false, 1.0, true);
            let (narrow, up) = (Matrix::rows(&narrow, rank), Matrix::rows(&up, rank).transposed());
            product(&mut out, outputs, (rows, outputs, rank), narrow, up, true, delta.scale, true);
        }
        Tensor::from_vec(out, shape, self.weight.device())
    }
}

/// What a product is added to: the bias and the residual, in one pass.
pub(super) fn filled(
    length: usize,
    width: usize,
    bias: Option<&[f32]>,
    residual: Option<&[f32]>,
) -> Vec<f32> {
    match (bias, residual) {
        (None, None) => vec![0.0; length],
        (None, Some(residual)) => residual.to_vec(),
        (Some(bias), None) => {
            let mut out = Vec::with_capacity(length);
            (0..length / width).for_each(|_| out.extend_from_slice(bias));
            out
        }
        (Some(bias), Some(residual)) => {
            let mut out = Vec::with_capacity(length);
            for row in residual.chunks_exact(width) {
                out.extend(row.iter().zip(bias).map(|(one, other)| one + other));
            }
            out
        }
    }
}
