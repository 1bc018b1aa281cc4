//! Layers of the models. Images and their features are `[batch, height, width, channels]`: the channels of a pixel are adjacent, so that
//! a convolution reads contiguous memory and attention needs no transposition.
//!
//! Each layer is one pass over memory, compiled for the instructions of the processor. GPUs run the same networks as graphs
//! ([`crate::lower`]), so only the settings and the loading of a layer are shared with them.

mod activation;
mod attention;
#[cfg(test)]
mod composed;
mod conv;
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
pub(crate) use product::turned;

#[cfg(test)]
mod tests;
