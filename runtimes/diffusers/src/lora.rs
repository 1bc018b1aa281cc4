//! Adapters of low rank, added beside the shared weights for one job.

mod keys;
mod read;

use std::{collections::BTreeMap, fmt};

use candle_core::Tensor;

pub use read::read;

/// What an adapter adds to one layer: `scale · up · down`.
#[derive(Debug, Clone)]
pub struct Delta {
    /// `[rank, inputs]`; of a convolution, patches as they lie in memory.
    pub down: Tensor,
    /// `[outputs, rank]`.
    pub up: Tensor,
    /// How much of it.
    pub scale: f32,
}

/// What a job's adapters add to the layers of a model, by their names.
#[derive(Clone, Default)]
pub struct Adapters {
    layers: BTreeMap<String, Vec<Delta>>,
}

impl Adapters {
    /// What is added to a layer.
    pub fn of(&self, layer: &str) -> &[Delta] {
        if self.layers.is_empty() {
            return &[];
        }
        self.layers.get(layer).map_or(&[], Vec::as_slice)
    }

    /// Names of the layers that are added to.
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.layers.keys().map(String::as_str)
    }

    /// Adds another adapter's.
    pub fn add(&mut self, layer: String, delta: Delta) {
        self.layers.entry(layer).or_default().push(delta);
    }
}

impl fmt::Debug for Adapters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.layers.keys()).finish()
    }
}
