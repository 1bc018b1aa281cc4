//! Gathering and scattering of elements by index.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Table,
    call::{Attr, Call, Operand, single, text, unsupported},
};
use crate::program::types::Class;

pub(super) const OPERATIONS: Table = &[
    ("gather", gather),
    ("gather_along_axis", gather_along_axis),
    ("gather_nd", gather_nd),
    ("scatter", scatter),
    ("scatter_along_axis", scatter_along_axis),
    ("scatter_nd", scatter_nd),
];

/// Indices as integers of any type.
fn places(call: &mut Call<'_, '_>) -> Result<Operand, EngineError> {
    let indices = call.tensor("indices")?;
    let name = call.cast(&indices, Class::Int);
    Ok(Operand { name, ..indices })
}

fn gather(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, indices) = (call.tensor("x")?, places(call)?);
    let (axis, shared) = (x.axis(call.int("axis", 0)?)?, call.int("batch_dims", 0)?);
    if shared == 0 {
        return single(call.node("Gather", &[&x.name, &indices.name], [Attr::Int("axis", axis as i64)]));
    }
    let shared = usize::try_from(shared).ok().filter(|&shared| shared <= axis && shared <= indices.rank());
    let shared = shared.ok_or_else(|| invalid_model("its batch_dims exceed the dimensions"))?;
    // The axis is moved behind the shared ones, gathered from by single indices, and the axes between are moved before the indices.
    let mut order: Vec<i64> = (0..x.rank() as i64).collect();
    let moved = order.remove(axis);
    order.insert(shared, moved);
    let ready = if axis == shared { x.name.clone() } else { call.transpose(&x.name, order) };
    let separate = call.unsqueeze(&indices.name, &[-1])?;
    let found = call.node("GatherND", &[&ready, &separate], [Attr::Int("batch_dims", shared as i64)]);
    let (between, of_places) = (axis - shared, indices.rank() - shared);
    if between == 0 {
        return single(found);
    }
    let rank = x.rank() - 1 + of_places;
    let start = shared + of_places;
    let order = (0..shared).chain(start..start + between).chain(shared..start).chain(start + between..rank);
    let order = order.map(|place| place as i64).collect();
    single(call.transpose(&found, order))
}

fn gather_along_axis(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, indices, axis) = (call.tensor("x")?, places(call)?, call.int("axis", 0)?);
    single(call.node("GatherElements", &[&x.name, &indices.name], [Attr::Int("axis", axis)]))
}

fn gather_nd(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, indices, shared) = (call.tensor("x")?, places(call)?, call.int("batch_dims", 0)?);
    single(call.node("GatherND", &[&x.name, &indices.name], [Attr::Int("batch_dims", shared)]))
}

/// What is scattered, and how it is combined with existing elements.
fn updates(call: &mut Call<'_, '_>) -> Result<(String, Option<Attr>), EngineError> {
    let updates = call.tensor("updates")?;
    let mode = call.str_param("mode", "add")?;
    let reduction = |how: &str| Some(text("reduction", how));
    Ok(match mode.as_str() {
        "update" => (updates.name, None),
        "add" | "mul" | "max" | "min" => (updates.name, reduction(&mode)),
        "sub" => (call.node("Neg", &[&updates.name], []), reduction("add")),
        "div" => (call.node("Reciprocal", &[&updates.name], []), reduction("mul")),
        _ => return Err(unsupported("mode", &mode)),
    })
}

/// Indices along one axis, equal for all others.
fn scatter(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (data, indices) = (call.tensor("data")?, places(call)?);
    let axis = data.axis(call.int("axis", 0)?)?;
    let (updates, reduction) = updates(call)?;
    let others: Vec<i64> =
        (0..data.rank()).filter(|&place| place != axis).map(|place| place as i64).collect();
    let wide = call.unsqueeze(&indices.name, &others)?;
    let shape = call.node("Shape", &[&updates], []);
    let every = call.node("Expand", &[&wide, &shape], []);
    let set = [Some(Attr::Int("axis", axis as i64)), reduction].into_iter().flatten();
    single(call.node("ScatterElements", &[&data.name, &every, &updates], set))
}

fn scatter_along_axis(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (data, indices, axis) = (call.tensor("data")?, places(call)?, call.int("axis", 0)?);
    let (updates, reduction) = updates(call)?;
    let set = [Some(Attr::Int("axis", axis)), reduction].into_iter().flatten();
    single(call.node("ScatterElements", &[&data.name, &indices.name, &updates], set))
}

fn scatter_nd(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (data, indices) = (call.tensor("data")?, places(call)?);
    let (updates, reduction) = updates(call)?;
    single(call.node("ScatterND", &[&data.name, &indices.name, &updates], reduction))
}
