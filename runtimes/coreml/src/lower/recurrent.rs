//! Recurrent layers.

use island_runtimes_kit::error::EngineError;

use super::{
    Table,
    call::{Attr, Call, Operand, single, text, unsupported},
    shape::backwards,
};

pub(super) const OPERATIONS: Table = &[("gru", gru), ("lstm", lstm), ("rnn", rnn)];

/// Activations of gates for a layer with this number of directions: their names, and the two parameters of those that have any.
fn activations(gates: &[&'static str], directions: i64) -> [Attr; 3] {
    let all = gates.repeat(directions as usize);
    let numbers = |of_hard: f32, of_affine: f32| {
        all.iter()
            .filter_map(|&gate| match gate {
                "HardSigmoid" => Some(of_hard),
                "Affine" => Some(of_affine),
                _ => None,
            })
            .collect()
    };
    let (alpha, beta) = (numbers(0.2, 1.0), numbers(0.5, 0.0));
    [
        Attr::Texts("activations", all),
        Attr::Floats("activation_alpha", alpha),
        Attr::Floats("activation_beta", beta),
    ]
}

/// ONNX's name of an activation.
fn activation(call: &Call<'_, '_>, name: &str, usual: &str) -> Result<&'static str, EngineError> {
    Ok(match call.str_param(name, usual)?.as_str() {
        "sigmoid" => "Sigmoid",
        "tanh" => "Tanh",
        "relu" => "Relu",
        "hard_sigmoid" | "sigmoid_hard" => "HardSigmoid",
        "linear" => "Affine",
        other => return Err(unsupported(name, other)),
    })
}

/// Blocks of rows in another order, with a leading axis for the direction.
fn blocks(
    call: &mut Call<'_, '_>,
    given: &Operand,
    count: usize,
    order: &[usize],
) -> Result<String, EngineError> {
    let parts = call.nodes(
        "Split",
        &[&given.name],
        [Attr::Int("axis", 0), Attr::Int("num_outputs", count as i64)],
        count,
    );
    let ordered: Vec<&str> = order.iter().map(|&place| parts[place].as_str()).collect();
    let joined = call.node("Concat", &ordered, [Attr::Int("axis", 0)]);
    call.unsqueeze(&joined, &[0])
}

/// A vector of zeros with a leading axis for the direction.
fn zeros(call: &mut Call<'_, '_>, size: i64) -> Result<String, EngineError> {
    call.filled(&[1, size as u64], 0.0)
}

/// States of all directions, from adjacent to stacked.
fn parted(call: &mut Call<'_, '_>, given: &Operand, directions: i64) -> Result<String, EngineError> {
    if directions == 1 {
        return call.unsqueeze(&given.name, &[0]);
    }
    let apart = call.reshape(&given.name, &[0, directions, -1])?;
    Ok(call.transpose(&apart, vec![1, 0, 2]))
}

/// And back: `[directions, batch, hidden]` to `[batch, directions × hidden]`.
fn together(call: &mut Call<'_, '_>, name: &str, directions: i64) -> Result<String, EngineError> {
    if directions == 1 {
        return call.squeeze(name, &[0]);
    }
    let turned = call.transpose(name, vec![1, 0, 2]);
    call.reshape(&turned, &[0, -1])
}

/// All steps, or the last. A backward-only layer returns its steps in the order of computation; ONNX in the
/// order of the sequence.
fn steps(call: &mut Call<'_, '_>, all: &str, last: &str) -> Result<String, EngineError> {
    if !call.flag("output_sequence", false)? {
        return call.unsqueeze(last, &[0]);
    }
    let turned = call.transpose(all, vec![0, 2, 1, 3]);
    let every = call.reshape(&turned, &[0, 0, -1])?;
    let (direction, _) = direction(call)?;
    if direction == "reverse" { backwards(call, &every, &[0]) } else { Ok(every) }
}

fn direction(call: &Call<'_, '_>) -> Result<(&'static str, i64), EngineError> {
    let direction = call.choice("direction", &["forward", "reverse", "bidirectional"])?;
    let count = if direction == "bidirectional" { 2 } else { 1 };
    Ok((direction, count))
}

fn hidden(weight: &Operand) -> Result<i64, EngineError> {
    weight.size(1)
}

fn lstm(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    const ORDER: [usize; 4] = [0, 2, 1, 3];
    let (x, first_h, first_c) = (call.tensor("x")?, call.tensor("initial_h")?, call.tensor("initial_c")?);
    let (direction, directions) = direction(call)?;
    let suffixes: &[&str] = if directions == 2 { &["", "_back"] } else { &[""] };
    let (mut inputs, mut recurrent, mut biases, mut peepholes) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for suffix in suffixes {
        let (of_input, of_hidden) =
            (call.tensor(&format!("weight_ih{suffix}"))?, call.tensor(&format!("weight_hh{suffix}"))?);
        let size = hidden(&of_hidden)?;
        inputs.push(blocks(call, &of_input, 4, &ORDER)?);
        recurrent.push(blocks(call, &of_hidden, 4, &ORDER)?);
        let none = zeros(call, 4 * size)?;
        let bias = match call.optional(&format!("bias{suffix}"))? {
            Some(bias) => blocks(call, &bias, 4, &ORDER)?,
            None => none.clone(),
        };
        biases.push(call.node("Concat", &[&bias, &none], [Attr::Int("axis", 1)]));
        if let Some(peephole) = call.optional(&format!("peephole{suffix}"))? {
            peepholes.push(blocks(call, &peephole, 3, &[0, 2, 1])?);
        }
    }
    let mut joined = |parts: &[String]| {
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        if parts.is_empty() { String::new() } else { call.node("Concat", &parts, [Attr::Int("axis", 0)]) }
    };
    let (weight, recurrence, bias, peephole) =
        (joined(&inputs), joined(&recurrent), joined(&biases), joined(&peepholes));
    let (first_h, first_c) = (parted(call, &first_h, directions)?, parted(call, &first_c, directions)?);
    let gates = [
        activation(call, "recurrent_activation", "sigmoid")?,
        activation(call, "cell_activation", "tanh")?,
        activation(call, "activation", "tanh")?,
    ];
    // ONNX clips gates, not the cell.
    if call.known("clip")?.is_some() {
        return Err(unsupported("clip", call.float("clip", 0.0)?));
    }
    let mut set = vec![Attr::Int("hidden_size", hidden_of(call)?), text("direction", direction)];
    set.extend(activations(&gates, directions));
    let inputs = [&x.name, &weight, &recurrence, &bias, "", &first_h, &first_c, &peephole];
    let inputs: Vec<&str> = inputs.to_vec();
    let given = call.nodes("LSTM", &inputs, set, 3);
    let last = together(call, &given[1], directions)?;
    let memory = together(call, &given[2], directions)?;
    Ok(vec![steps(call, &given[0], &last)?, last, memory])
}

fn hidden_of(call: &mut Call<'_, '_>) -> Result<i64, EngineError> {
    let weight = call.tensor("weight_hh")?;
    hidden(&weight)
}

fn gru(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    const ORDER: [usize; 3] = [2, 0, 1];
    let (x, first) = (call.tensor("x")?, call.tensor("initial_h")?);
    let (of_input, of_hidden) = (call.tensor("weight_ih")?, call.tensor("weight_hh")?);
    let size = hidden(&of_hidden)?;
    let (weight, recurrence) = (blocks(call, &of_input, 3, &ORDER)?, blocks(call, &of_hidden, 3, &ORDER)?);
    let none = zeros(call, 3 * size)?;
    let mut half = |name: &str| match call.optional(name)? {
        Some(bias) => blocks(call, &bias, 3, &ORDER),
        None => Ok(none.clone()),
    };
    let (bias, of_input) = (half("bias")?, half("input_bias")?);
    let resets_after = call.flag("reset_after", false)?;
    // If the gate is applied last, the recurrent bias is added after the product.
    let parts = if resets_after { [&of_input, &bias] } else { [&bias, &of_input] };
    let bias = call.node("Concat", &[parts[0], parts[1]], [Attr::Int("axis", 1)]);
    let first = parted(call, &first, 1)?;
    let direction = call.choice("direction", &["forward", "reverse"])?;
    let gates =
        [activation(call, "recurrent_activation", "sigmoid")?, activation(call, "activation", "tanh")?];
    let mut set = vec![
        Attr::Int("hidden_size", size),
        text("direction", direction),
        Attr::Int("linear_before_reset", i64::from(resets_after)),
    ];
    set.extend(activations(&gates, 1));
    let given = call.nodes("GRU", &[&x.name, &weight, &recurrence, &bias, "", &first], set, 2);
    let last = together(call, &given[1], 1)?;
    Ok(vec![steps(call, &given[0], &last)?, last])
}

fn rnn(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, first) = (call.tensor("x")?, call.tensor("initial_h")?);
    let (of_input, of_hidden) = (call.tensor("weight_ih")?, call.tensor("weight_hh")?);
    let size = hidden(&of_hidden)?;
    let (weight, recurrence) =
        (call.unsqueeze(&of_input.name, &[0])?, call.unsqueeze(&of_hidden.name, &[0])?);
    let none = zeros(call, size)?;
    let bias = match call.optional("bias")? {
        Some(bias) => call.unsqueeze(&bias.name, &[0])?,
        None => none.clone(),
    };
    let bias = call.node("Concat", &[&bias, &none], [Attr::Int("axis", 1)]);
    let first = parted(call, &first, 1)?;
    let direction = call.choice("direction", &["forward", "reverse"])?;
    let mut set = vec![Attr::Int("hidden_size", size), text("direction", direction)];
    set.extend(activations(&[activation(call, "activation", "tanh")?], 1));
    let given = call.nodes("RNN", &[&x.name, &weight, &recurrence, &bias, "", &first], set, 2);
    let last = together(call, &given[1], 1)?;
    let all = steps(call, &given[0], &last)?;
    let mut outputs = single(all)?;
    outputs.push(last);
    Ok(outputs)
}
