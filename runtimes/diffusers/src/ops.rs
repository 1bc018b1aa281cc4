//! Layers of the models. Images and their features are `[batch, height, width, channels]`: the channels of a pixel are adjacent, so that
//! a convolution reads contiguous memory and attention needs no transposition.
//!
//! On CPUs each layer is one pass over memory, compiled for the available instructions; on GPUs it is composed of candle's
//! operations (`device`), against which the passes are tested.

mod activation;
mod attention;
mod conv;
mod device;
mod floats;
mod linear;
mod math;
mod norm;
mod product;

pub use activation::{Activation, geglu};
pub use attention::attention;
pub(crate) use conv::patches_first;
pub use conv::{Conv, Shape};
pub use linear::Linear;
pub use norm::{GroupNorm, LayerNorm};

#[cfg(test)]
mod tests;
