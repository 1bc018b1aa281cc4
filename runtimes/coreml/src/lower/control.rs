//! Branches and loops.

use island_runtimes_graph::onnx::{Graph, ValueInfo};
use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Table,
    call::{Attr, Call, Operand},
    graph::Lowering,
};
use crate::program::{
    Block,
    types::{Class, Element, TensorType},
};

pub(super) const OPERATIONS: Table = &[("cond", cond), ("while_loop", while_loop)];

/// A block's outputs, declared by their names in the graph.
fn outputs<'p>(lowering: &mut Lowering<'p>, block: &'p Block) -> Result<Vec<ValueInfo>, EngineError> {
    let mut declared = Vec::with_capacity(block.outputs.len());
    for output in &block.outputs {
        let (name, ty) = lowering.feed_name(output)?;
        // An inner graph returns only values computed in it, not outer ones.
        let own = lowering.push("Identity", vec![name], Vec::new(), 1).remove(0);
        declared.push(lowering.declare(&own, &TensorType { shape: vec![None; ty.rank()], ..ty })?);
    }
    Ok(declared)
}

fn branch<'p>(lowering: &mut Lowering<'p>, block: &'p Block) -> Result<Graph, EngineError> {
    lowering.inner(Vec::new(), |lowering| {
        lowering.block(block)?;
        outputs(lowering, block)
    })
}

fn cond(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let which = call.tensor("pred")?;
    let [yes, no] = call.operation.blocks.as_slice() else {
        return Err(invalid_model("it does not have two branches"));
    };
    let which = call.cast(&which, Class::Bool);
    let (yes, no) = (branch(call.lowering, yes)?, branch(call.lowering, no)?);
    let count = call.operation.outputs.len();
    let set = [Attr::Graph("then_branch", yes), Attr::Graph("else_branch", no)];
    Ok(call.nodes("If", &[&which], set, count))
}

/// Binds a block's inputs to these values.
fn enter<'p>(lowering: &mut Lowering<'p>, block: &'p Block, names: &[String]) -> Result<(), EngineError> {
    if block.inputs.len() != names.len() {
        return Err(invalid_model("its number of values differs from that of its loop"));
    }
    block.inputs.iter().zip(names).try_for_each(|(named, name)| lowering.bind(named, name.clone()))
}

/// The condition for these values, without dimensions: in Core ML it may be an array of one element.
fn goes_on<'p>(
    lowering: &mut Lowering<'p>,
    block: &'p Block,
    names: &[String],
) -> Result<String, EngineError> {
    enter(lowering, block, names)?;
    lowering.block(block)?;
    let output = block.outputs.first().ok_or_else(|| invalid_model("its condition has no result"))?;
    let (name, ty) = lowering.feed_name(output)?;
    Ok(if ty.rank() == 0 { name } else { lowering.push("Squeeze", vec![name], Vec::new(), 1).remove(0) })
}

fn while_loop(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let first = call.tensors("loop_vars")?;
    let [condition, body] = call.operation.blocks.as_slice() else {
        return Err(invalid_model("it does not have a condition and a body"));
    };
    let names: Vec<String> = first.iter().map(|operand| operand.name.clone()).collect();
    let begins = goes_on(call.lowering, condition, &names)?;
    let flag = TensorType::scalar(Element::Bool);
    let (turn, still) = (call.lowering.fresh(), call.lowering.fresh());
    let mut inputs = vec![
        call.lowering.declare(&turn, &TensorType::scalar(Element::I64))?,
        call.lowering.declare(&still, &flag)?,
    ];
    let inner: Vec<String> = first.iter().map(|_| call.lowering.fresh()).collect();
    for (name, Operand { ty, .. }) in inner.iter().zip(&first) {
        let open = TensorType { element: ty.element, shape: vec![None; ty.rank()] };
        inputs.push(call.lowering.declare(name, &open)?);
    }
    let graph = call.lowering.inner(inputs, |lowering| {
        enter(lowering, body, &inner)?;
        lowering.block(body)?;
        let declared = outputs(lowering, body)?;
        let names: Vec<String> = declared.iter().filter_map(|info| info.name.clone()).collect();
        let next = goes_on(lowering, condition, &names)?;
        let next = lowering.push("Identity", vec![next], Vec::new(), 1).remove(0);
        let mut all = vec![lowering.declare(&next, &flag)?];
        all.extend(declared);
        Ok(all)
    })?;
    let mut given = vec!["", begins.as_str()];
    given.extend(names.iter().map(String::as_str));
    let count = call.operation.outputs.len();
    Ok(call.nodes("Loop", &given, [Attr::Graph("body", graph)], count))
}
