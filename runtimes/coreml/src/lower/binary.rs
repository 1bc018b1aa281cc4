//! Operations on two tensors, element by element.

use island_runtimes_kit::error::EngineError;

use super::{
    Table,
    call::{Call, single},
};
use crate::program::types::Class;

pub(super) const OPERATIONS: Table = &[
    ("add", |call| arithmetic(call, "Add")),
    ("equal", |call| compare(call, "Equal")),
    ("floor_div", floor_div),
    ("greater", |call| compare(call, "Greater")),
    ("greater_equal", |call| compare(call, "GreaterOrEqual")),
    ("less", |call| compare(call, "Less")),
    ("less_equal", |call| compare(call, "LessOrEqual")),
    ("logical_and", |call| logic(call, "And")),
    ("logical_or", |call| logic(call, "Or")),
    ("logical_xor", |call| logic(call, "Xor")),
    ("maximum", |call| arithmetic(call, "Max")),
    ("minimum", |call| arithmetic(call, "Min")),
    ("mod", modulo),
    ("mul", |call| arithmetic(call, "Mul")),
    ("not_equal", not_equal),
    ("pow", |call| arithmetic(call, "Pow")),
    ("real_div", |call| arithmetic(call, "Div")),
    ("sub", |call| arithmetic(call, "Sub")),
];

/// Both operands with elements of one class: real if one of them is.
fn both(call: &mut Call<'_, '_>) -> Result<(String, String, Class), EngineError> {
    let (x, y) = (call.tensor("x")?, call.tensor("y")?);
    let class = match (x.class(), y.class()) {
        (Class::Float, _) | (_, Class::Float) => Class::Float,
        (Class::Bool, Class::Bool) => Class::Bool,
        _ => Class::Int,
    };
    Ok((call.cast(&x, class), call.cast(&y, class), class))
}

fn arithmetic(call: &mut Call<'_, '_>, kind: &str) -> Result<Vec<String>, EngineError> {
    let (x, y, _) = both(call)?;
    single(call.node(kind, &[&x, &y], []))
}

fn compare(call: &mut Call<'_, '_>, kind: &str) -> Result<Vec<String>, EngineError> {
    let (x, y, class) = both(call)?;
    if class == Class::Bool && kind != "Equal" {
        let (x, y) = (call.cast_name(&x, Class::Int), call.cast_name(&y, Class::Int));
        return single(call.node(kind, &[&x, &y], []));
    }
    single(call.node(kind, &[&x, &y], []))
}

fn logic(call: &mut Call<'_, '_>, kind: &str) -> Result<Vec<String>, EngineError> {
    let (x, y) = (call.tensor("x")?, call.tensor("y")?);
    let (x, y) = (call.cast(&x, Class::Bool), call.cast(&y, Class::Bool));
    single(call.node(kind, &[&x, &y], []))
}

fn not_equal(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, y, _) = both(call)?;
    let same = call.node("Equal", &[&x, &y], []);
    single(call.node("Not", &[&same], []))
}

fn floor_div(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, y, class) = both(call)?;
    if class == Class::Float {
        let share = call.node("Div", &[&x, &y], []);
        return single(call.node("Floor", &[&share], []));
    }
    // ONNX divides integers towards zero; without its remainder a number divides evenly.
    let rest = call.node("Mod", &[&x, &y], []);
    let even = call.node("Sub", &[&x, &rest], []);
    single(call.node("Div", &[&even, &y], []))
}

/// The remainder has the sign of the divisor.
fn modulo(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, y, class) = both(call)?;
    if class != Class::Float {
        return single(call.node("Mod", &[&x, &y], []));
    }
    let share = call.node("Div", &[&x, &y], []);
    let times = call.node("Floor", &[&share], []);
    let even = call.node("Mul", &[&times, &y], []);
    single(call.node("Sub", &[&x, &even], []))
}
