//! The same layers composed of candle's operations, for GPUs. Sums of f16 are computed in f32 where their range is too small.

use candle_core::{D, DType, Result as Computed, Tensor};

use super::{Activation, Shape};
use crate::lora::Delta;

pub(super) fn linear(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    residual: Option<&Tensor>,
) -> Computed<Tensor> {
    let out = x.broadcast_matmul(&weight.t()?)?;
    let out = bias.map_or(Ok(out.clone()), |bias| out.broadcast_add(bias))?;
    residual.map_or(Ok(out.clone()), |residual| out.add(residual))
}

pub(super) fn delta(x: &Tensor, delta: &Delta) -> Computed<Tensor> {
    let (down, up) = (delta.down.to_dtype(x.dtype())?, delta.up.to_dtype(x.dtype())?);
    x.broadcast_matmul(&down.t()?)?.broadcast_matmul(&up.t()?)?.affine(f64::from(delta.scale), 0.0)
}

pub(super) fn conv(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, shape: Shape) -> Computed<Tensor> {
    let (inputs, outputs) = (x.dim(3)?, weight.dim(0)?);
    let weight = weight.reshape((outputs, shape.kernel, shape.kernel, inputs))?.permute((0, 3, 1, 2))?;
    let x = x.permute((0, 3, 1, 2))?;
    let x = x.pad_with_zeros(2, shape.before, shape.after)?.pad_with_zeros(3, shape.before, shape.after)?;
    let out = x.contiguous()?.conv2d(&weight.contiguous()?, 0, shape.stride, 1, 1)?;
    let out = out.permute((0, 2, 3, 1))?.contiguous()?;
    bias.map_or(Ok(out.clone()), |bias| out.broadcast_add(bias))
}

pub(super) fn conv_delta(x: &Tensor, delta: &Delta, shape: Shape) -> Computed<Tensor> {
    let (down, up) = (delta.down.to_dtype(x.dtype())?, delta.up.to_dtype(x.dtype())?);
    let narrow = conv(x, &down, None, shape)?;
    narrow.broadcast_matmul(&up.t()?)?.affine(f64::from(delta.scale), 0.0)
}

pub(super) fn sums(x: &Tensor, shift: Option<&Tensor>, residual: Option<&Tensor>) -> Computed<Tensor> {
    let x = shift.map_or(Ok(x.clone()), |shift| x.broadcast_add(&shift.unsqueeze(1)?.unsqueeze(1)?))?;
    residual.map_or(Ok(x.clone()), |residual| x.add(residual))
}

pub(super) fn enlarged(x: &Tensor, size: Option<(usize, usize)>) -> Computed<Tensor> {
    let Some((height, width)) = size else { return Ok(x.clone()) };
    let x = x.permute((0, 3, 1, 2))?.contiguous()?.upsample_nearest2d(height, width)?;
    x.permute((0, 2, 3, 1))?.contiguous()
}

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

pub(super) fn group_norm(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    groups: usize,
    epsilon: f64,
    silu: bool,
) -> Computed<Tensor> {
    let (batch, channels) = (x.dim(0)?, weight.elem_count());
    let pixels = x.elem_count() / batch / channels;
    let wide = x.to_dtype(DType::F32)?.reshape((batch, pixels, groups, channels / groups))?;
    let mean = wide.mean_keepdim(3)?.mean_keepdim(1)?;
    let centred = wide.broadcast_sub(&mean)?;
    let variance = centred.sqr()?.mean_keepdim(3)?.mean_keepdim(1)?;
    let normed = centred.broadcast_div(&(variance + epsilon)?.sqrt()?)?.reshape(x.shape())?;
    let (weight, bias) = (weight.to_dtype(DType::F32)?, bias.to_dtype(DType::F32)?);
    let normed = normed.broadcast_mul(&weight)?.broadcast_add(&bias)?;
    let normed = if silu { normed.silu()? } else { normed };
    normed.to_dtype(x.dtype())
}

pub(super) fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f64) -> Computed<Tensor> {
    let wide = x.to_dtype(DType::F32)?;
    let centred = wide.broadcast_sub(&wide.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let normed = centred.broadcast_div(&(variance + epsilon)?.sqrt()?)?;
    let (weight, bias) = (weight.to_dtype(DType::F32)?, bias.to_dtype(DType::F32)?);
    normed.broadcast_mul(&weight)?.broadcast_add(&bias)?.to_dtype(x.dtype())
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
    #[cfg(feature = "flash-attn")]
    if query.dtype() != DType::F32 && width <= 256 {
        let scale = 1.0 / (width as f32).sqrt();
        let out = candle_flash_attn::flash_attn(&query, &key, &value, scale, causal)?;
        return out.reshape((batch, rows, channels));
    }
    let by_head = |x: &Tensor| x.transpose(1, 2)?.contiguous();
    let (query, key, value) = (by_head(&query)?, by_head(&key)?, by_head(&value)?);
    let scores = query.matmul(&key.t()?)?.to_dtype(DType::F32)?.affine(1.0 / (width as f64).sqrt(), 0.0)?;
    let scores =
        if causal { scores.broadcast_add(&unseen(rows, key.dim(2)?, query.device())?)? } else { scores };
    let powers = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
    let weights = powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)?.to_dtype(query.dtype())?;
    weights.matmul(&value)?.transpose(1, 2)?.contiguous()?.reshape((batch, rows, channels))
}

/// Minus infinity where a row must not attend.
fn unseen(rows: usize, others: usize, device: &candle_core::Device) -> Computed<Tensor> {
    let mark = |at: usize| if at % others > at / others { f32::NEG_INFINITY } else { 0.0 };
    Tensor::from_vec((0..rows * others).map(mark).collect(), (rows, others), device)
}
