//! Layers of the models. Pictures and their features lie as `[batch, height, width, channels]`: a pixel's channels are together, so that
//! a convolution reads runs of memory and attention needs no transposing.
//!
//! On processors each layer is one pass over memory, compiled for the instructions at hand; elsewhere it is composed of candle's
//! operations (`device`), which are also what the passes are tested against.

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
