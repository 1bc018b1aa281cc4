//! Activations.

use island_runtimes_kit::error::EngineError;

use super::{
    Table,
    call::{Attr, Call, single, text},
};

pub(super) const OPERATIONS: Table = &[
    ("clamped_relu", clamped_relu),
    ("elu", elu),
    ("gelu", gelu),
    ("leaky_relu", leaky_relu),
    ("linear_activation", linear_activation),
    ("prelu", prelu),
    ("relu", |call| simple(call, "Relu")),
    ("relu6", relu6),
    ("scaled_tanh", scaled_tanh),
    ("sigmoid", |call| simple(call, "Sigmoid")),
    ("sigmoid_hard", sigmoid_hard),
    ("silu", silu),
    ("softmax", softmax),
    ("softplus", |call| simple(call, "Softplus")),
    ("softplus_parametric", softplus_parametric),
    ("softsign", |call| simple(call, "Softsign")),
    ("thresholded_relu", thresholded_relu),
];

fn simple(call: &mut Call<'_, '_>, kind: &str) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    single(call.node(kind, &[&x.name], []))
}

fn clamped_relu(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, alpha) = (call.tensor("x")?, call.float("alpha", 0.0)?);
    let beta = call.float("beta", 0.0)?;
    let most = call.real(beta)?;
    let bent = call.node("LeakyRelu", &[&x.name], [Attr::Float("alpha", alpha)]);
    single(call.node("Min", &[&bent, &most], []))
}

fn elu(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, alpha) = (call.tensor("x")?, call.float("alpha", 1.0)?);
    single(call.node("Elu", &[&x.name], [Attr::Float("alpha", alpha)]))
}

fn gelu(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    match call.choice("mode", &["EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"])? {
        "EXACT" => single(call.node("Gelu", &[&x.name], [])),
        "TANH_APPROXIMATION" => single(call.node("Gelu", &[&x.name], [text("approximate", "tanh")])),
        _ => {
            let slope = call.real(1.702)?;
            let steep = call.node("Mul", &[&x.name, &slope], []);
            let gate = call.node("Sigmoid", &[&steep], []);
            single(call.node("Mul", &[&x.name, &gate], []))
        }
    }
}

fn leaky_relu(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, alpha) = (call.tensor("x")?, call.float("alpha", 0.01)?);
    single(call.node("LeakyRelu", &[&x.name], [Attr::Float("alpha", alpha)]))
}

fn linear_activation(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, alpha, beta) = (call.tensor("x")?, call.float("alpha", 1.0)?, call.float("beta", 0.0)?);
    let (alpha, beta) = (call.real(alpha)?, call.real(beta)?);
    let scaled = call.node("Mul", &[&x.name, &alpha], []);
    single(call.node("Add", &[&scaled, &beta], []))
}

fn prelu(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let slope = call.along("alpha", 1, x.rank())?.unwrap_or_default();
    single(call.node("PRelu", &[&x.name, &slope], []))
}

fn relu6(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let (least, most) = (call.real(0.0)?, call.real(6.0)?);
    single(call.node("Clip", &[&x.name, &least, &most], []))
}

fn scaled_tanh(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, alpha, beta) = (call.tensor("x")?, call.float("alpha", 1.0)?, call.float("beta", 1.0)?);
    let (alpha, beta) = (call.real(alpha)?, call.real(beta)?);
    let scaled = call.node("Mul", &[&x.name, &beta], []);
    let bent = call.node("Tanh", &[&scaled], []);
    single(call.node("Mul", &[&bent, &alpha], []))
}

fn sigmoid_hard(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, alpha, beta) = (call.tensor("x")?, call.float("alpha", 0.2)?, call.float("beta", 0.5)?);
    single(call.node("HardSigmoid", &[&x.name], [Attr::Float("alpha", alpha), Attr::Float("beta", beta)]))
}

fn silu(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let gate = call.node("Sigmoid", &[&x.name], []);
    single(call.node("Mul", &[&x.name, &gate], []))
}

fn softmax(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, axis) = (call.tensor("x")?, call.int("axis", -1)?);
    single(call.node("Softmax", &[&x.name], [Attr::Int("axis", axis)]))
}

fn softplus_parametric(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let alpha = call.along("alpha", 1, x.rank())?.unwrap_or_default();
    let beta = call.along("beta", 1, x.rank())?.unwrap_or_default();
    let scaled = call.node("Mul", &[&x.name, &beta], []);
    let bent = call.node("Softplus", &[&scaled], []);
    single(call.node("Mul", &[&bent, &alpha], []))
}

fn thresholded_relu(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, alpha) = (call.tensor("x")?, call.float("alpha", 1.0)?);
    // ONNX's operator excludes the threshold itself.
    let (alpha, zero) = (call.real(alpha)?, call.real(0.0)?);
    let passes = call.node("GreaterOrEqual", &[&x.name, &alpha], []);
    single(call.node("Where", &[&passes, &x.name, &zero], []))
}
