//! Operations on one tensor, element by element.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Table,
    call::{Call, Operand, single},
};
use crate::program::types::{Class, Element};

pub(super) const OPERATIONS: Table = &[
    ("abs", |call| simple(call, "Abs")),
    ("acos", |call| simple(call, "Acos")),
    ("asin", |call| simple(call, "Asin")),
    ("atan", |call| simple(call, "Atan")),
    ("atanh", |call| simple(call, "Atanh")),
    ("cast", cast),
    ("ceil", |call| simple(call, "Ceil")),
    ("clip", clip),
    ("cos", |call| simple(call, "Cos")),
    ("cosh", |call| simple(call, "Cosh")),
    ("erf", |call| simple(call, "Erf")),
    ("exp", |call| simple(call, "Exp")),
    ("exp2", exp2),
    ("floor", |call| simple(call, "Floor")),
    ("identity", |call| simple(call, "Identity")),
    ("inverse", inverse),
    ("log", log),
    ("logical_not", logical_not),
    ("round", |call| simple(call, "Round")),
    ("rsqrt", rsqrt),
    ("sign", |call| simple(call, "Sign")),
    ("sin", |call| simple(call, "Sin")),
    ("sinh", |call| simple(call, "Sinh")),
    ("sqrt", |call| simple(call, "Sqrt")),
    ("square", square),
    ("tan", |call| simple(call, "Tan")),
    ("tanh", |call| simple(call, "Tanh")),
    ("threshold", threshold),
];

fn simple(call: &mut Call<'_, '_>, kind: &str) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    single(call.node(kind, &[&x.name], []))
}

fn cast(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, name) = (call.tensor("x")?, call.str_param("dtype", "fp32")?);
    let element =
        Element::of_name(&name).ok_or_else(|| invalid_model(format!("unknown element type {name:?}")))?;
    // f16 to f32 and back: both are computed in f32.
    single(call.cast(&x, element.class()))
}

fn clip(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, least, most) = (call.tensor("x")?, call.float("alpha", 0.0)?, call.float("beta", 1.0)?);
    let (least, most) = (call.number(x.class(), least)?, call.number(x.class(), most)?);
    single(call.node("Clip", &[&x.name, &least, &most], []))
}

fn exp2(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let two = call.real(2.0)?;
    single(call.node("Pow", &[&two, &x.name], []))
}

/// With the term that keeps it positive.
fn shifted(call: &mut Call<'_, '_>, x: &Operand, usual: f32) -> Result<String, EngineError> {
    let epsilon = call.float("epsilon", usual)?;
    let epsilon = call.real(epsilon)?;
    Ok(call.node("Add", &[&x.name, &epsilon], []))
}

fn inverse(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let shifted = shifted(call, &x, 1e-4)?;
    single(call.node("Reciprocal", &[&shifted], []))
}

fn log(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let shifted = shifted(call, &x, 1e-45)?;
    single(call.node("Log", &[&shifted], []))
}

fn rsqrt(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let shifted = shifted(call, &x, 1e-12)?;
    let root = call.node("Sqrt", &[&shifted], []);
    single(call.node("Reciprocal", &[&root], []))
}

fn logical_not(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let x = call.cast(&x, Class::Bool);
    single(call.node("Not", &[&x], []))
}

fn square(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    single(call.node("Mul", &[&x.name, &x.name], []))
}

fn threshold(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, alpha) = (call.tensor("x")?, call.float("alpha", 0.0)?);
    let least = call.number(x.class(), alpha)?;
    single(call.node("Max", &[&x.name, &least], []))
}
