//! Convolutions: patches of the image are laid out as rows, a block at a time, and multiplied.

use candle_core::{Result as Computed, Tensor, bail};
use island_runtimes_kit::error::EngineError;
use rayon::prelude::*;

use super::{
    floats::Floats,
    linear::filled,
    product::{Matrix, product},
};
use crate::{compute::Weight, lora::Adapters, weights::Scope};

/// Elements of patches per task: those that fit into the second-level cache with the weights in use.
const BLOCK: usize = 1 << 19;

/// Geometry of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Kernel size.
    pub kernel: usize,
    /// Stride.
    pub stride: usize,
    /// Padding above and left.
    pub before: usize,
    /// Padding below and right.
    pub after: usize,
}

impl Shape {
    /// A patch around every pixel.
    pub const SAME: Self = Self { kernel: 3, stride: 1, before: 1, after: 1 };
    /// Every second one.
    pub const HALF: Self = Self { kernel: 3, stride: 2, before: 1, after: 1 };
    /// Every second pixel with padding only after the image, as in autoencoders.
    pub const HALF_AFTER: Self = Self { kernel: 3, stride: 2, before: 0, after: 1 };

    fn outputs(self, side: usize) -> usize {
        (side + self.before + self.after).saturating_sub(self.kernel) / self.stride + 1
    }
}

/// A convolution.
#[derive(Debug, Clone)]
pub struct Conv<W = Tensor> {
    /// Name of the layer in its repository.
    pub(crate) name: String,
    /// `[outputs, kernel · kernel · inputs]`, a patch in memory order; transposed in main memory.
    pub(crate) weight: W,
    pub(crate) bias: W,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) shape: Shape,
}

impl<W: Weight> Conv<W> {
    /// Loads the layer.
    pub fn load(scope: &Scope<'_>, inputs: usize, outputs: usize, shape: Shape) -> Result<Self, EngineError> {
        let weight = W::conv(scope, inputs, outputs, shape.kernel)?;
        let bias = W::plain(scope, "bias", &[outputs])?;
        Ok(Self { name: scope.name().to_owned(), weight, bias, inputs, outputs, shape })
    }
}

impl Conv {
    /// Applies the layer and adds `residual`.
    pub fn onto(&self, x: &Tensor, residual: &Tensor, adapters: &Adapters) -> Computed<Tensor> {
        self.with(x, None, Some(residual), None, adapters)
    }

    /// Applies the layer and adds `shift`, `[batch, outputs]`, to every pixel.
    pub fn shifted(&self, x: &Tensor, shift: Option<&Tensor>, adapters: &Adapters) -> Computed<Tensor> {
        self.with(x, shift, None, None, adapters)
    }

    /// Applies the layer to an image enlarged to `height` and `width` by repeating pixels, without storing that image.
    pub fn enlarged(&self, x: &Tensor, size: (usize, usize), adapters: &Adapters) -> Computed<Tensor> {
        self.with(x, None, None, Some(size), adapters)
    }

    fn with(
        &self,
        x: &Tensor,
        shift: Option<&Tensor>,
        residual: Option<&Tensor>,
        size: Option<(usize, usize)>,
        adapters: &Adapters,
    ) -> Computed<Tensor> {
        let (batch, height, width, inputs) = x.dims4()?;
        if inputs != self.inputs {
            bail!("{} takes {} channels, not {inputs}", self.name, self.inputs);
        }
        let deltas = adapters.of(&self.name);
        let view =
            View { batch, height, width, inputs, size: size.unwrap_or((height, width)), shape: self.shape };
        let (out_height, out_width) = view.outputs();
        let outputs = self.outputs;
        let values = Floats::of(x)?;
        let (weight, bias) = (Floats::of(&self.weight)?, Floats::of(&self.bias)?);
        let residual = residual.map(Floats::of).transpose()?;
        let pixels = out_height * out_width;
        let mut out = match shift.map(Floats::of).transpose()? {
            None => filled(batch * pixels * outputs, outputs, Some(&bias), residual.as_deref()),
            Some(shift) => {
                let sums = shift.chunks_exact(outputs).flat_map(|row| {
                    let sum: Vec<f32> = row.iter().zip(&*bias).map(|(one, other)| one + other).collect();
                    sum.repeat(pixels)
                });
                sums.collect()
            }
        };
        view.multiply(&mut out, outputs, &values, Matrix::rows(&weight, outputs), true, 1.0);
        for delta in deltas {
            let (down, up) = (Floats::of(&delta.down)?, Floats::of(&delta.up)?);
            let rank = up.len() / outputs;
            let mut narrow = vec![0.0; batch * pixels * rank];
            let down = Matrix::rows(&down, down.len() / rank).transposed();
            view.multiply(&mut narrow, rank, &values, down, false, 1.0);
            let (narrow, up) = (Matrix::rows(&narrow, rank), Matrix::rows(&up, rank).transposed());
            product(&mut out, outputs, (batch * pixels, outputs, rank), narrow, up, true, delta.scale, true);
        }
        Tensor::from_vec(out, (batch, out_height, out_width, outputs), x.device())
    }
}

/// `[outputs, inputs, kernel, kernel]` in the memory order of a patch.
pub(crate) fn patches_first(weight: &Tensor) -> Computed<Tensor> {
    let outputs = weight.dim(0)?;
    weight.permute((0, 2, 3, 1))?.contiguous()?.reshape((outputs, weight.elem_count() / outputs))
}

/// The input image.
struct View {
    batch: usize,
    height: usize,
    width: usize,
    inputs: usize,
    /// Height and width after enlarging.
    size: (usize, usize),
    shape: Shape,
}

impl View {
    fn outputs(&self) -> (usize, usize) {
        (self.shape.outputs(self.size.0), self.shape.outputs(self.size.1))
    }

    /// Multiplies all patches: those of a small image at once, otherwise a block of them per task.
    fn multiply(
        &self,
        out: &mut [f32],
        outputs: usize,
        values: &[f32],
        weight: Matrix<'_>,
        keep: bool,
        scale: f32,
    ) {
        let depth = self.shape.kernel * self.shape.kernel * self.inputs;
        let (out_height, out_width) = self.outputs();
        let pixels = self.batch * out_height * out_width;
        let even = pixels.div_ceil(rayon::current_num_threads());
        let rows = (BLOCK / depth).clamp(32, 1024).min(even.next_multiple_of(8));
        if pixels <= outputs {
            let mut patches = vec![0.0; pixels * depth];
            patches
                .par_chunks_mut(depth)
                .enumerate()
                .for_each(|(pixel, patch)| self.lay_out(patch, values, pixel));
            let size = (pixels, outputs, depth);
            return product(out, outputs, size, Matrix::rows(&patches, depth), weight, keep, scale, true);
        }
        out.par_chunks_mut(rows * outputs).enumerate().for_each_init(Vec::new, |patches, (block, out)| {
            let rows_here = out.len() / outputs;
            patches.resize(rows * depth, 0.0);
            for (row, patch) in patches.chunks_exact_mut(depth).take(rows_here).enumerate() {
                self.lay_out(patch, values, block * rows + row);
            }
            let size = (rows_here, outputs, depth);
            product(out, outputs, size, Matrix::rows(patches, depth), weight, keep, scale, false);
        });
    }

    /// The patch of one output pixel.
    fn lay_out(&self, patch: &mut [f32], values: &[f32], pixel: usize) {
        let Shape { kernel, stride, before, .. } = self.shape;
        let (out_height, out_width) = self.outputs();
        let (x, y, picture) =
            (pixel % out_width, pixel / out_width % out_height, pixel / out_width / out_height);
        let (full_height, full_width) = self.size;
        let is_plain = self.size == (self.height, self.width);
        let run = kernel * self.inputs;
        for (row, line) in patch.chunks_exact_mut(run).enumerate() {
            let Some(from_y) = (y * stride + row).checked_sub(before).filter(|y| *y < full_height) else {
                line.fill(0.0);
                continue;
            };
            let from_y = if is_plain { from_y } else { from_y * self.height / full_height };
            let start = (picture * self.height + from_y) * self.width;
            let left = x * stride;
            if is_plain && left >= before && left + kernel <= full_width + before {
                let at = (start + left - before) * self.inputs;
                line.copy_from_slice(&values[at..at + run]);
                continue;
            }
            for (column, pixel) in line.chunks_exact_mut(self.inputs).enumerate() {
                match (left + column).checked_sub(before).filter(|x| *x < full_width) {
                    Some(from_x) => {
                        let from_x = if is_plain { from_x } else { from_x * self.width / full_width };
                        let at = (start + from_x) * self.inputs;
                        pixel.copy_from_slice(&values[at..at + self.inputs]);
                    }
                    None => pixel.fill(0.0),
                }
            }
        }
    }
}
