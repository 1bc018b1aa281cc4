//! Normalizations.

use island_runtimes_kit::error::EngineError;

use super::{
    Table,
    call::{Attr, Call, Operand, single},
};

pub(super) const OPERATIONS: Table = &[
    ("batch_norm", batch_norm),
    ("instance_norm", instance_norm),
    ("l2_norm", l2_norm),
    ("layer_norm", layer_norm),
    ("local_response_norm", local_response_norm),
];

/// A parameter with one number per channel: as given, or repeated.
fn channels(call: &mut Call<'_, '_>, name: &str, x: &Operand, usual: f32) -> Result<String, EngineError> {
    if let Some(given) = call.optional(name)? {
        return Ok(given.name);
    }
    let count = x.size(1)? as u64;
    call.filled(&[count], usual)
}

fn batch_norm(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, mean, variance) = (call.tensor("x")?, call.tensor("mean")?, call.tensor("variance")?);
    let (gamma, beta) = (channels(call, "gamma", &x, 1.0)?, channels(call, "beta", &x, 0.0)?);
    let epsilon = Attr::Float("epsilon", call.float("epsilon", 1e-5)?);
    single(call.node("BatchNormalization", &[&x.name, &gamma, &beta, &mean.name, &variance.name], [epsilon]))
}

fn instance_norm(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let (gamma, beta) = (channels(call, "gamma", &x, 1.0)?, channels(call, "beta", &x, 0.0)?);
    let epsilon = Attr::Float("epsilon", call.float("epsilon", 1e-5)?);
    single(call.node("InstanceNormalization", &[&x.name, &gamma, &beta], [epsilon]))
}

fn l2_norm(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, epsilon) = (call.tensor("x")?, call.float("epsilon", 1e-6)?);
    let (axes, epsilon) = (call.list(&[-3, -2, -1])?, call.real(epsilon)?);
    let sum = call.node("ReduceSumSquare", &[&x.name, &axes], [Attr::Int("keepdims", 1)]);
    let shifted = call.node("Add", &[&sum, &epsilon], []);
    let length = call.node("Sqrt", &[&shifted], []);
    single(call.node("Div", &[&x.name, &length], []))
}

fn layer_norm(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, epsilon) = (call.tensor("x")?, call.float("epsilon", 1e-5)?);
    let axes = call.ints("axes")?.unwrap_or_else(|| (0..x.rank() as i64).collect());
    let mut places = axes.iter().map(|&axis| x.axis(axis)).collect::<Result<Vec<usize>, EngineError>>()?;
    places.sort_unstable();
    let first = places.first().copied().unwrap_or(0);
    let (gamma, beta) = (call.optional("gamma")?, call.optional("beta")?);
    let is_at_the_end = places.iter().copied().eq(first..x.rank());
    if let Some(gamma) = gamma.as_ref().filter(|_| is_at_the_end) {
        let set = [Attr::Int("axis", first as i64), Attr::Float("epsilon", epsilon)];
        let inputs: Vec<&str> =
            [&x, gamma].into_iter().chain(&beta).map(|operand| operand.name.as_str()).collect();
        return single(call.node("LayerNormalization", &inputs, set));
    }
    let axes: Vec<i64> = places.iter().map(|&place| place as i64).collect();
    let (axes, epsilon) = (call.list(&axes)?, call.real(epsilon)?);
    let mean = call.node("ReduceMean", &[&x.name, &axes], [Attr::Int("keepdims", 1)]);
    let apart = call.node("Sub", &[&x.name, &mean], []);
    let squares = call.node("Mul", &[&apart, &apart], []);
    let variance = call.node("ReduceMean", &[&squares, &axes], [Attr::Int("keepdims", 1)]);
    let shifted = call.node("Add", &[&variance, &epsilon], []);
    let spread = call.node("Sqrt", &[&shifted], []);
    let mut result = call.node("Div", &[&apart, &spread], []);
    let spaced: Vec<i64> =
        (0..x.rank()).filter(|place| !places.contains(place)).map(|place| place as i64).collect();
    for (kind, given) in [("Mul", gamma), ("Add", beta)] {
        if let Some(given) = given {
            let wide = call.unsqueeze(&given.name, &spaced)?;
            result = call.node(kind, &[&result, &wide], []);
        }
    }
    single(result)
}

fn local_response_norm(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let set = [
        Attr::Int("size", call.int("size", 1)?),
        Attr::Float("alpha", call.float("alpha", 1e-4)?),
        Attr::Float("beta", call.float("beta", 0.75)?),
        Attr::Float("bias", call.float("k", 1.0)?),
    ];
    single(call.node("LRN", &[&x.name], set))
}
