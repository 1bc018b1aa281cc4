//! Adapters of low rank (LoRA), added to the shared weights for one job.

mod keys;
mod read;

use std::{collections::BTreeMap, fmt};

use candle_core::Tensor;

pub use read::read;

/// The change of one layer: `scale · up · down`.
#[derive(Debug, Clone)]
pub struct Delta {
    /// `[rank, inputs]`; of a convolution, patches in memory order.
    pub down: Tensor,
    /// `[outputs, rank]`.
    pub up: Tensor,
    /// Weight of the adapter.
    pub scale: f32,
}

/// The changes of a job's adapters by the names of layers.
#[derive(Clone, Default)]
pub struct Adapters {
    /// Files and factors: equal for equal changes.
    pub key: String,
    layers: BTreeMap<String, Vec<Delta>>,
}

impl Adapters {
    /// The changes of a layer.
    pub fn of(&self, layer: &str) -> &[Delta] {
        if self.layers.is_empty() {
            return &[];
        }
        self.layers.get(layer).map_or(&[], Vec::as_slice)
    }

    /// A key of the changes of a part's layers: empty without any.
    pub fn key_of(&self, part: &str) -> String {
        let of_part = |layer: &String| layer.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'));
        if self.layers.keys().any(of_part) { self.key.clone() } else { String::new() }
    }

    /// Names of the changed layers.
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.layers.keys().map(String::as_str)
    }

    /// Adds the change of another adapter.
    pub fn add(&mut self, layer: String, delta: Delta) {
        self.layers.entry(layer).or_default().push(delta);
    }
}

impl fmt::Debug for Adapters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.layers.keys()).finish()
    }
}
