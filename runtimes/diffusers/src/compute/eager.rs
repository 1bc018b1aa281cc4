//! Computation on the processor, at once, by candle's tensors.

use candle_core::{D, Tensor};
use island_runtimes_kit::{error::EngineError, stop};

use super::{Compute, Computed, Rows, Weight};
use crate::{
    error::compute_error,
    lora::Adapters,
    ops::{self, Activation, Conv, GroupNorm, LayerNorm, Linear},
    weights::Scope,
};

impl Weight for Tensor {
    fn plain(scope: &Scope<'_>, name: &str, shape: &[usize]) -> Result<Self, EngineError> {
        scope.get(name, shape)
    }

    fn linear(scope: &Scope<'_>, inputs: usize, outputs: usize) -> Result<Self, EngineError> {
        let weight = scope.get_as("weight", &[outputs, inputs], &[&[outputs, inputs, 1, 1]])?;
        ops::turned(&weight).map_err(compute_error("lay out a connection"))
    }

    fn conv(scope: &Scope<'_>, inputs: usize, outputs: usize, kernel: usize) -> Result<Self, EngineError> {
        let weight = scope.get("weight", &[outputs, inputs, kernel, kernel])?;
        let laid_out = ops::patches_first(&weight).and_then(|weight| ops::turned(&weight));
        laid_out.map_err(compute_error("lay out a convolution"))
    }
}

/// Computes with the adapters of a job.
#[derive(Debug, Clone, Copy)]
pub struct Eager<'a> {
    /// The adapters.
    pub adapters: &'a Adapters,
}

/// The result of an operation. An error as well if the job is cancelled: a step of large images takes minutes, an operation seconds.
fn failed<T>(result: candle_core::Result<T>) -> Computed<T> {
    stop::check()?;
    result.map_err(compute_error("compute a layer"))
}

fn flat(image: &Tensor) -> candle_core::Result<Tensor> {
    let (batch, height, width, channels) = image.dims4()?;
    image.reshape((batch, height * width, channels))
}

impl Compute for Eager<'_> {
    type Weight = Tensor;
    type Value = Tensor;

    fn conv(&mut self, layer: &Conv, x: &Tensor, shift: Option<&Tensor>) -> Computed<Tensor> {
        failed(layer.shifted(x, shift, self.adapters))
    }

    fn conv_onto(&mut self, layer: &Conv, x: &Tensor, residual: &Tensor) -> Computed<Tensor> {
        failed(layer.onto(x, residual, self.adapters))
    }

    fn conv_enlarged(&mut self, layer: &Conv, x: &Tensor, size_of: Option<&Tensor>) -> Computed<Tensor> {
        let size = match size_of {
            Some(other) => other.dims4().map(|(_, height, width, _)| (height, width)),
            None => x.dims4().map(|(_, height, width, _)| (2 * height, 2 * width)),
        };
        failed(size.and_then(|size| layer.enlarged(x, size, self.adapters)))
    }

    fn linear(&mut self, layer: &Linear, x: &Tensor, residual: Option<&Tensor>) -> Computed<Tensor> {
        failed(layer.forward(x, residual, self.adapters))
    }

    fn linear_onto_image(&mut self, layer: &Linear, rows: &Tensor, image: &Tensor) -> Computed<Tensor> {
        let made = flat(image).and_then(|residual| layer.forward(rows, Some(&residual), self.adapters));
        failed(made.and_then(|made| made.reshape(image.shape())))
    }

    fn pointwise(&mut self, layer: &Linear, x: &Tensor) -> Computed<Tensor> {
        failed(layer.forward(x, None, self.adapters))
    }

    fn group_norm(&mut self, layer: &GroupNorm, x: &Tensor, silu: bool) -> Computed<Tensor> {
        failed(if silu { layer.silu(x) } else { layer.forward(x) })
    }

    fn layer_norm(&mut self, layer: &LayerNorm, x: &Tensor) -> Computed<Tensor> {
        failed(layer.forward(x))
    }

    fn attention(&mut self, rows: &Rows<'_, Tensor>) -> Computed<Tensor> {
        failed(ops::attention(rows.query, rows.key, rows.value, rows.heads, rows.causal))
    }

    fn activation(&mut self, kind: Activation, x: &Tensor) -> Computed<Tensor> {
        failed(kind.of(x))
    }

    fn geglu(&mut self, x: &Tensor) -> Computed<Tensor> {
        failed(ops::geglu(x))
    }

    fn join(&mut self, one: &Tensor, other: &Tensor) -> Computed<Tensor> {
        failed(Tensor::cat(&[one, other], D::Minus1))
    }

    fn rows(&mut self, image: &Tensor) -> Computed<Tensor> {
        failed(flat(image))
    }

    fn embed(&mut self, tokens: &Tensor, positions: &Tensor, ids: &Tensor, count: usize) -> Computed<Tensor> {
        let sum = tokens.index_select(ids, 0).and_then(|rows| rows.add(&positions.narrow(0, 0, count)?));
        failed(sum.and_then(|rows| rows.unsqueeze(0)))
    }

    fn choose(&mut self, among: &[Tensor], index: &Tensor) -> Computed<Tensor> {
        let at = failed(index.to_vec1::<u32>())?.first().map_or(0, |index| *index as usize);
        among.get(at).cloned().ok_or_else(|| EngineError::host("choose a layer that there is not"))
    }

    fn row(&mut self, rows: &Tensor, index: &Tensor) -> Computed<Tensor> {
        failed(rows.index_select(index, 1).and_then(|row| row.squeeze(1)))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};
    use island_runtimes_kit::{error::ErrorKind, stop::Stop};
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn a_cancelled_job_ends_at_the_next_layer() {
        let (adapters, token) = (Adapters::default(), CancellationToken::new());
        let x = Tensor::zeros((1, 4, 4), DType::F32, &Device::Cpu).expect("a tensor");
        let layer = || Eager { adapters: &adapters }.geglu(&x);
        let job = Stop::new(token.clone());
        job.within(layer).expect("computed");
        token.cancel();
        let ended = job.within(layer).expect_err("cancelled");
        assert_eq!(ended.kind(), ErrorKind::Interrupted);
        layer().expect("computed for no job");
    }
}
