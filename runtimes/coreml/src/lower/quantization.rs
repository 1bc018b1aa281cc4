//! Quantization of activations.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Table,
    call::{Call, Operand, single},
};
use crate::program::types::{Class, Element};

pub(super) const OPERATIONS: Table = &[("dequantize", dequantize), ("quantize", quantize)];

/// Scale and zero point along their axis.
fn scaling(call: &mut Call<'_, '_>, x: &Operand) -> Result<(String, Option<String>), EngineError> {
    let axis = call.ints("axis")?.and_then(|axis| axis.first().copied()).unwrap_or(0);
    let axis = if x.rank() == 0 { 0 } else { x.axis(axis)? };
    let scale = call.along("scale", axis, x.rank())?.ok_or_else(|| invalid_model("its scale is missing"))?;
    let Some(zero) = call.optional("zero_point")? else { return Ok((scale, None)) };
    let name = call.cast(&zero, Class::Float);
    if zero.rank() == 0 || x.rank() == 0 {
        return Ok((scale, Some(name)));
    }
    let mut shape = vec![1; x.rank()];
    shape[axis] = -1;
    Ok((scale, Some(call.reshape(&name, &shape)?)))
}

fn dequantize(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("input")?;
    let (scale, zero) = scaling(call, &x)?;
    let mut real = call.cast(&x, Class::Float);
    if let Some(zero) = zero {
        real = call.node("Sub", &[&real, &zero], []);
    }
    single(call.node("Mul", &[&real, &scale], []))
}

fn quantize(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, name) = (call.tensor("input")?, call.str_param("output_dtype", "int8")?);
    let element =
        Element::of_name(&name).filter(|element| element.class() == Class::Int && element.bits() <= 8);
    let element = element.ok_or_else(|| invalid_model(format!("{name:?} is not an 8-bit integer type")))?;
    let (scale, zero) = scaling(call, &x)?;
    let shares = call.node("Div", &[&x.name, &scale], []);
    let mut whole = call.node("Round", &[&shares], []);
    if let Some(zero) = zero {
        whole = call.node("Add", &[&whole, &zero], []);
    }
    let codes = 1_i64 << element.bits();
    let least = if element.is_signed() { -codes / 2 } else { 0 };
    let (least, most) = (call.real(least as f32)?, call.real((least + codes - 1) as f32)?);
    let clipped = call.node("Clip", &[&whole, &least, &most], []);
    single(call.cast_name(&clipped, Class::Int))
}
