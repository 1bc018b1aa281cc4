//! What the networks need of whatever computes them. A network is described once, in [`crate::unet`], [`crate::vae`] and [`crate::text`], and
//! computed at once on the processor ([`Eager`]) or written down as a graph ([`crate::lower`]).

mod eager;

use std::fmt::Debug;

use island_runtimes_kit::error::EngineError;

pub use eager::Eager;

use crate::{
    ops::{Activation, Conv, GroupNorm, LayerNorm, Linear},
    weights::Scope,
};

/// The result of a computation.
pub type Computed<T> = Result<T, EngineError>;

/// A weight in the form that a computation needs. Its shape is checked.
pub trait Weight: Sized + Debug + Send + Sync + 'static {
    /// A tensor in the form in which it is stored.
    fn plain(scope: &Scope<'_>, name: &str, shape: &[usize]) -> Result<Self, EngineError>;

    /// The weight of a fully connected layer, stored as `[outputs, inputs]` or as a convolution over single pixels.
    fn linear(scope: &Scope<'_>, inputs: usize, outputs: usize) -> Result<Self, EngineError>;

    /// The weight of a convolution, stored as `[outputs, inputs, kernel, kernel]`.
    fn conv(scope: &Scope<'_>, inputs: usize, outputs: usize, kernel: usize) -> Result<Self, EngineError>;
}

/// The operations of the networks. *Images* are the features of each pixel, *rows* the features of each token or pixel of a sequence,
/// *vectors* those of a whole image.
pub trait Compute {
    /// How it holds weights.
    type Weight: Weight;
    /// A tensor.
    type Value: Clone + Debug;

    /// A convolution of an image, with `shift`, a vector, added to each pixel.
    fn conv(
        &mut self,
        layer: &Conv<Self::Weight>,
        x: &Self::Value,
        shift: Option<&Self::Value>,
    ) -> Computed<Self::Value>;

    /// A convolution added to an image.
    fn conv_onto(
        &mut self,
        layer: &Conv<Self::Weight>,
        x: &Self::Value,
        residual: &Self::Value,
    ) -> Computed<Self::Value>;

    /// A convolution of an image that is enlarged, by repeating pixels, to the size of another one or twofold.
    fn conv_enlarged(
        &mut self,
        layer: &Conv<Self::Weight>,
        x: &Self::Value,
        size_of: Option<&Self::Value>,
    ) -> Computed<Self::Value>;

    /// A fully connected layer of rows or vectors, added to `residual`.
    fn linear(
        &mut self,
        layer: &Linear<Self::Weight>,
        x: &Self::Value,
        residual: Option<&Self::Value>,
    ) -> Computed<Self::Value>;

    /// A fully connected layer of the rows of an image, added to that image.
    fn linear_onto_image(
        &mut self,
        layer: &Linear<Self::Weight>,
        rows: &Self::Value,
        image: &Self::Value,
    ) -> Computed<Self::Value>;

    /// A fully connected layer of each pixel.
    fn pointwise(&mut self, layer: &Linear<Self::Weight>, x: &Self::Value) -> Computed<Self::Value>;

    /// Normalization over groups of channels of an image, followed by SiLU on request.
    fn group_norm(
        &mut self,
        layer: &GroupNorm<Self::Weight>,
        x: &Self::Value,
        silu: bool,
    ) -> Computed<Self::Value>;

    /// Normalization of each row.
    fn layer_norm(&mut self, layer: &LayerNorm<Self::Weight>, x: &Self::Value) -> Computed<Self::Value>;

    /// Attention of rows to others.
    fn attention(&mut self, rows: &Rows<'_, Self::Value>) -> Computed<Self::Value>;

    /// An activation function.
    fn activation(&mut self, kind: Activation, x: &Self::Value) -> Computed<Self::Value>;

    /// The first half of the features, times the GELU of the second.
    fn geglu(&mut self, x: &Self::Value) -> Computed<Self::Value>;

    /// Images or vectors with the features of both.
    fn join(&mut self, one: &Self::Value, other: &Self::Value) -> Computed<Self::Value>;

    /// The pixels of an image as rows.
    fn rows(&mut self, image: &Self::Value) -> Computed<Self::Value>;

    /// The embeddings of tokens, one row for each of `count`, plus those of their positions.
    fn embed(
        &mut self,
        tokens: &Self::Weight,
        positions: &Self::Weight,
        ids: &Self::Value,
        count: usize,
    ) -> Computed<Self::Value>;

    /// One of several values of equal shape, by its index.
    fn choose(&mut self, among: &[Self::Value], index: &Self::Value) -> Computed<Self::Value>;

    /// One row, by its index, as a vector.
    fn row(&mut self, rows: &Self::Value, index: &Self::Value) -> Computed<Self::Value>;
}

/// The inputs of an attention.
#[derive(Debug)]
pub struct Rows<'v, V> {
    /// What attends.
    pub query: &'v V,
    /// What is attended to.
    pub key: &'v V,
    /// What is returned of it.
    pub value: &'v V,
    /// Heads, which divide the features.
    pub heads: usize,
    /// Features of a row.
    pub width: usize,
    /// Whether a row attends only to itself and earlier rows.
    pub causal: bool,
    /// Whether scores must be computed in `f32`: those of some models exceed the range of `f16`.
    pub wide: bool,
}
