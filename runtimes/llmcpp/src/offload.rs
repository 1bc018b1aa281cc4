//! Computes how many layers of a model fit on the GPU.

/// Sizes of a model's parts on the GPU, bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    /// Weights of each layer, first to last.
    pub layers: Vec<u64>,
    /// Cached keys and values, per layer.
    pub cache_per_layer: u64,
    /// Output weights: offloaded after all layers.
    pub output: u64,
}

/// Scratch memory that a GPU needs in addition.
const COMPUTE_BYTES: u64 = 512 << 20;

/// Number of layers to offload into `free` bytes, counted from the last one as in llama.cpp; one more than the number of layers includes
/// the output.
pub fn layers_that_fit(parts: &Parts, free: u64) -> u32 {
    let mut left = free.saturating_sub(COMPUTE_BYTES);
    let mut count = 0;
    for layer in parts.layers.iter().rev() {
        let Some(rest) = left.checked_sub(layer.saturating_add(parts.cache_per_layer)) else { return count };
        (left, count) = (rest, count + 1);
    }
    if count > 0 && parts.output <= left { count + 1 } else { count }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_chosen_layers_fit_and_one_more_does_not(
            layers in proptest::collection::vec(1_u64..1 << 30, 1..60),
            cache_per_layer in 0_u64..1 << 28,
            output in 0_u64..1 << 30,
            free in 0_u64..1 << 36,
        ) {
            let parts = Parts { layers, cache_per_layer, output };
            let cost = |count: u32| {
                let whole = (count as usize).min(parts.layers.len());
                let weights: u64 = parts.layers.iter().rev().take(whole).sum();
                let output = if count as usize > parts.layers.len() { parts.output } else { 0 };
                COMPUTE_BYTES + weights + whole as u64 * parts.cache_per_layer + output
            };
            let count = layers_that_fit(&parts, free);
            prop_assert!(count == 0 || cost(count) <= free);
            prop_assert!(count as usize > parts.layers.len() || cost(count + 1) > free);
        }
    }
}
