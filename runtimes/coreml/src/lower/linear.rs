//! Matrix products.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Table,
    call::{Attr, Call, Operand, single},
    graph::Constant,
};
use crate::program::{types::Class, value::Data};

pub(super) const OPERATIONS: Table = &[
    ("einsum", einsum),
    ("linear", linear),
    ("matmul", matmul),
    ("scaled_dot_product_attention", attention),
];

fn linear(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let weight = if let Some(constant) = call.known("weight")? {
        let Constant { shape, data } = turned(&constant)?;
        call.floats_of(shape, data)?
    } else {
        let weight = call.tensor("weight")?;
        call.transpose(&weight.name, vec![1, 0])
    };
    let product = call.node("MatMul", &[&x.name, &weight], []);
    match call.optional("bias")? {
        Some(bias) => single(call.node("Add", &[&product, &bias.name], [])),
        None => single(product),
    }
}

/// Weights are stored by output; transposed once here, nothing is transposed at each run.
fn turned(constant: &Constant) -> Result<Constant, EngineError> {
    let (&[rows, columns], Data::Floats(numbers)) = (constant.shape.as_slice(), &constant.data) else {
        return Err(invalid_model("its weight is not a matrix of real numbers"));
    };
    let (height, width) = (rows as usize, columns as usize);
    let mut turned = vec![0.0; numbers.len()];
    for (row, line) in numbers.chunks_exact(width.max(1)).enumerate() {
        for (column, &number) in line.iter().enumerate() {
            turned[column * height + row] = number;
        }
    }
    Ok(Constant { shape: vec![columns, rows], data: Data::Floats(turned) })
}

/// Transposes the last two axes.
fn flipped(call: &mut Call<'_, '_>, operand: &Operand) -> Result<String, EngineError> {
    let rank = operand.rank() as i64;
    if rank < 2 {
        return Err(invalid_model("a vector cannot be transposed"));
    }
    let mut order: Vec<i64> = (0..rank).collect();
    order.swap(rank as usize - 1, rank as usize - 2);
    Ok(call.transpose(&operand.name, order))
}

fn matmul(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, y) = (call.tensor("x")?, call.tensor("y")?);
    let left = if call.flag("transpose_x", false)? { flipped(call, &x)? } else { x.name.clone() };
    let right = if call.flag("transpose_y", false)? { flipped(call, &y)? } else { y.name.clone() };
    single(call.node("MatMul", &[&left, &right], []))
}

fn einsum(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (values, equation) = (call.tensors("values")?, call.str_param("equation", "")?);
    let names: Vec<&str> = values.iter().map(|value| value.name.as_str()).collect();
    single(call.node("Einsum", &names, [Attr::Text("equation", equation)]))
}

fn attention(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (query, key, value) = (call.tensor("query")?, call.tensor("key")?, call.tensor("value")?);
    let width = query.size(query.rank().saturating_sub(1))?;
    let scale = call.real(1.0 / (width as f32).sqrt())?;
    let scaled = call.node("Mul", &[&query.name, &scale], []);
    let key = flipped(call, &key)?;
    let mut scores = call.node("MatMul", &[&scaled, &key], []);
    if let Some(mask) = call.optional("attn_mask")? {
        scores = match mask.class() {
            Class::Bool => {
                let never = call.real(f32::MIN)?;
                call.node("Where", &[&mask.name, &scores, &never], [])
            }
            _ => call.node("Add", &[&scores, &mask.name], []),
        };
    }
    let shares = call.node("Softmax", &[&scores], [Attr::Int("axis", -1)]);
    single(call.node("MatMul", &[&shares, &value.name], []))
}
