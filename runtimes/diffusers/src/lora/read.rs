//! Reading the file of an adapter.

use std::{collections::BTreeMap, path::PathBuf};

use candle_core::Tensor;
use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Adapters, Delta,
    keys::{self, Part},
};
use crate::{error::compute_error, ops, weights::Weights};

/// Maximum rank: beyond it an adapter is not smaller than the layer.
const MAX_RANK: usize = 1024;

/// The factors of one layer in a file.
#[derive(Debug, Default)]
struct Stored {
    down: Option<String>,
    up: Option<String>,
    alpha: Option<String>,
}

/// Adds a file to `adapters`. `layers` are the shapes of the model's weights by layer.
pub fn read(
    (name, path): (&str, PathBuf),
    scale: f64,
    layers: &BTreeMap<String, Vec<usize>>,
    adapters: &mut Adapters,
) -> Result<(), EngineError> {
    let weights = Weights::open(name, &[(name.to_owned(), path)])?;
    let by_flat: BTreeMap<String, &String> = layers.keys().map(|layer| (keys::flat(layer), layer)).collect();
    let mut found: BTreeMap<&String, Stored> = BTreeMap::new();
    for tensor in weights.names() {
        let Some((layer, part)) = keys::split(tensor) else {
            return Err(invalid_model(format!(
                "the adapter {name} has a tensor {tensor}, which has an unknown name"
            )));
        };
        let Some(layer) = by_flat.get(&keys::flat(&layer)) else {
            return Err(invalid_model(format!("the adapter {name} changes {layer}, which this model lacks")));
        };
        let stored = found.entry(layer).or_default();
        let place = match part {
            Part::Down => &mut stored.down,
            Part::Up => &mut stored.up,
            Part::Alpha => &mut stored.alpha,
        };
        *place = Some(tensor.to_owned());
    }
    if found.is_empty() {
        return Err(invalid_model(format!("the adapter {name} changes no layer")));
    }
    for (layer, stored) in found {
        let delta = delta(&weights, layer, &stored, &layers[layer], scale)?;
        adapters.add(layer.clone(), delta);
    }
    Ok(())
}

fn delta(
    weights: &Weights,
    layer: &str,
    stored: &Stored,
    shape: &[usize],
    scale: f64,
) -> Result<Delta, EngineError> {
    let (Some(down), Some(up)) = (&stored.down, &stored.up) else {
        return Err(invalid_model(format!("an adapter has only one factor for {layer}")));
    };
    let misfit = || invalid_model(format!("an adapter does not fit the layer {layer}, which is {shape:?}"));
    let (down_shape, up_shape) =
        (weights.shape(down).ok_or_else(misfit)?.to_vec(), weights.shape(up).ok_or_else(misfit)?.to_vec());
    let rank = down_shape.first().copied().unwrap_or(0);
    let inner = |shape: &[usize]| shape.iter().skip(1).product::<usize>();
    let fits = (1..=MAX_RANK).contains(&rank)
        && shape.len() >= 2
        && inner(&down_shape) == inner(shape)
        && up_shape.first() == shape.first()
        && inner(&up_shape) == rank;
    if !fits {
        return Err(misfit());
    }
    let alpha = match &stored.alpha {
        None => rank as f64,
        Some(alpha) => number(&weights.tensor(alpha)?).ok_or_else(misfit)?,
    };
    let (down, up) = (weights.tensor(down)?, weights.tensor(up)?);
    let down = if down.dims().len() == 4 { ops::patches_first(&down) } else { Ok(down) };
    let down = down
        .and_then(|down| down.reshape((rank, inner(shape))))
        .map_err(compute_error("lay out an adapter"))?;
    let up = up.reshape((shape[0], rank)).map_err(compute_error("lay out an adapter"))?;
    Ok(Delta { down, up, scale: (scale * alpha / rank as f64) as f32 })
}

fn number(tensor: &Tensor) -> Option<f64> {
    tensor.flatten_all().ok()?.to_vec1::<f32>().ok()?.first().map(|alpha| f64::from(*alpha))
}
