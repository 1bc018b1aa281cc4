//! Layers composed of candle's operations, against which the passes are tested.

use candle_core::{D, Result as Computed, Tensor};

use super::Activation;

pub(super) fn activation(kind: Activation, x: &Tensor) -> Computed<Tensor> {
    match kind {
        Activation::Silu => x.silu(),
        Activation::Gelu => x.gelu_erf(),
        Activation::QuickGelu => {
            let gate = ((x.affine(-1.702, 0.0)?.exp()? + 1.0)?).recip()?;
            x.mul(&gate)
        }
    }
}

pub(super) fn geglu(x: &Tensor) -> Computed<Tensor> {
    let half = x.dim(D::Minus1)? / 2;
    let gate = x.narrow(D::Minus1, half, half)?.contiguous()?.gelu_erf()?;
    x.narrow(D::Minus1, 0, half)?.contiguous()?.mul(&gate)
}

pub(super) fn attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    heads: usize,
    causal: bool,
) -> Computed<Tensor> {
    let (batch, rows, channels) = query.dims3()?;
    let width = channels / heads;
    let split = |x: &Tensor| x.reshape((batch, x.dim(1)?, heads, width));
    let (query, key, value) = (split(query)?, split(key)?, split(value)?);
    let by_head = |x: &Tensor| x.transpose(1, 2)?.contiguous();
    let (query, key, value) = (by_head(&query)?, by_head(&key)?, by_head(&value)?);
    let scores = query.matmul(&key.t()?)?.affine(1.0 / (width as f64).sqrt(), 0.0)?;
    let scores =
        if causal { scores.broadcast_add(&unseen(rows, key.dim(2)?, query.device())?)? } else { scores };
    let powers = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
    let weights = powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)?;
    weights.matmul(&value)?.transpose(1, 2)?.contiguous()?.reshape((batch, rows, channels))
}

/// Minus infinity where a row must not attend.
fn unseen(rows: usize, others: usize, device: &candle_core::Device) -> Computed<Tensor> {
    let mark = |at: usize| if at % others > at / others { f32::NEG_INFINITY } else { 0.0 };
    Tensor::from_vec((0..rows * others).map(mark).collect(), (rows, others), device)
}
