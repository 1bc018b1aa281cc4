//! Whether a device's own operation for attention computes correctly. Some drivers do not: it is tried before it is used.

use island_runtimes_graph::Feeds;
use island_runtimes_kit::error::EngineError;
use ndarray::{Array3, ArrayD};

use super::{Engine, Parts};
use crate::{
    compute::{Compute as _, Rows},
    lora::Adapters,
    lower::{Lowering, Options},
    weights::Weights,
};

/// Rows of the trial: more than a device computes at once, and no multiple of that number.
const ROWS: usize = 77;
const HEADS: usize = 2;
const BATCH: usize = 2;
/// Sums of this many products in half precision are wrong by some thousandths; results of a wrong operation, by some tenths.
const TOLERANCE: f32 = 0.05;

/// Tries attention with each width of the network's heads. The processor needs no trial, and an emulated GPU is not given one: it takes
/// minutes to compile the operation.
pub(super) fn fused_attention(engine: &Engine, parts: &Parts) -> Result<bool, EngineError> {
    let Some(gpu) = engine.resources.gpu else { return Ok(true) };
    if gpu.device().is_software {
        return Ok(false);
    }
    let (config, weights) = &parts.unet;
    for width in config.head_widths() {
        let apart = apart(engine, weights, width)?;
        if apart.is_nan() || apart > TOLERANCE {
            tracing::warn!(width, apart, "the device's own attention is wrong; it is composed instead");
            return Ok(false);
        }
    }
    Ok(true)
}

/// The largest difference from what attention is.
fn apart(engine: &Engine, weights: &Weights, width: usize) -> Result<f32, EngineError> {
    let adapters = Adapters::default();
    let options = Options { element: engine.element, fused_attention: true, pieces: 1 };
    let mut graph = Lowering::new(weights, &adapters, options);
    // An image of one row of pixels fixes the batch size.
    let image = graph.image_input("image", HEADS * width);
    let query = graph.rows(&image)?;
    let (key, value) = (graph.rows_input("key"), graph.rows_input("value"));
    let seen = graph.attention(&Rows {
        query: &query,
        key: &key,
        value: &value,
        heads: HEADS,
        width: HEADS * width,
        causal: false,
        wide: false,
    })?;
    graph.rows_output("seen", &seen);
    let graph = engine.load("a trial of attention", graph.finish(), 0)?;
    let shape = (BATCH, ROWS, HEADS * width);
    let (query, key, value) = (numbers(shape, 1), numbers(shape, 2), numbers(shape, 3));
    let image = query.clone().into_shape_with_order((BATCH, 1, ROWS, HEADS * width));
    let image = image.map_err(|error| EngineError::host("lay out a trial of attention").because(error))?;
    let feeds = Feeds::new()
        .floats("image", image.into_dyn())
        .floats("key", key.clone().into_dyn())
        .floats("value", value.clone().into_dyn());
    let seen: ArrayD<f32> = graph.run(feeds)?.floats("seen")?;
    let wanted = attention(&query, &key, &value, width);
    let differences = seen.iter().zip(&wanted).map(|(one, other)| (one - other).abs());
    Ok(differences.fold(0.0, |most: f32, apart| if apart > most || apart.is_nan() { apart } else { most }))
}

/// Numbers in -2..2 without a pattern.
fn numbers(shape: (usize, usize, usize), seed: u32) -> Array3<f32> {
    let mut state = seed;
    Array3::from_shape_simple_fn(shape, || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = (state >> 8) as f32 / (1 << 22) as f32 - 2.0;
        // As half precision holds it.
        half::f16::from_f32(number).to_f32()
    })
}

/// Attention in double precision, `[batch · rows, features]`.
fn attention(query: &Array3<f32>, key: &Array3<f32>, value: &Array3<f32>, width: usize) -> Vec<f32> {
    let scale = 1.0 / (width as f64).sqrt();
    let wide = |number: f32| f64::from(number);
    let mut out = Vec::with_capacity(query.len());
    for (batch, row) in (0..BATCH).flat_map(|batch| (0..ROWS).map(move |row| (batch, row))) {
        for head in 0..HEADS {
            let columns = head * width..(head + 1) * width;
            let score = |other: usize| {
                let products =
                    columns.clone().map(|at| wide(query[[batch, row, at]]) * wide(key[[batch, other, at]]));
                products.sum::<f64>() * scale
            };
            let shares: Vec<f64> = (0..ROWS).map(|other| score(other).exp()).collect();
            let sum: f64 = shares.iter().sum();
            for at in columns.clone() {
                let seen =
                    shares.iter().enumerate().map(|(other, share)| share * wide(value[[batch, other, at]]));
                out.push((seen.sum::<f64>() / sum) as f32);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::Element;

    #[test]
    fn trial_accepts_the_processors_attention() {
        let environment = island_runtimes_graph::library::open().expect("ONNX Runtime");
        let resources = island_runtimes_graph::Resources::cpu(1);
        let none = Weights::open("none", &[]).expect("no weights");
        for (element, least) in [(Element::F32, 1e-5), (Element::F16, TOLERANCE)] {
            let apart = apart(&Engine { environment, resources, element }, &none, 40).expect("it runs");
            assert!(apart < least, "{element:?}: {apart}");
        }
    }

    #[test]
    fn trial_recognizes_wrong_results() {
        let shape = (BATCH, ROWS, HEADS * 8);
        let (query, key, value) = (numbers(shape, 1), numbers(shape, 2), numbers(shape, 3));
        let right = attention(&query, &key, &value, 8);
        // The mean of all values, as without scores.
        let uniform = attention(&(query * 0.0), &key, &value, 8);
        let most = right.iter().zip(&uniform).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
        assert!(most > 10.0 * TOLERANCE, "{most}");
    }
}
