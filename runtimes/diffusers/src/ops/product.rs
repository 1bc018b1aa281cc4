//! Matrix products in main memory.
//!
//! Weights are transposed compared with files, inputs by outputs, so that the kernel reads them without packing. Threads divide the
//! larger side of a product: the product of a small image and many weights is bound by reading weights, and each is read once.

use candle_core::{Result as Computed, Tensor};
use gemm::Parallelism;
use rayon::prelude::*;

/// A matrix inside a slice.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'m> {
    pub(super) values: &'m [f32],
    /// Row stride.
    pub(super) row: usize,
    /// Column stride.
    pub(super) column: usize,
}

impl<'m> Matrix<'m> {
    /// A row-major matrix.
    pub(super) fn rows(values: &'m [f32], row: usize) -> Self {
        Self { values, row, column: 1 }
    }

    /// The transposed matrix.
    pub(super) fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.values.len()
    }
}

/// Rows, columns, and inner dimension.
pub(super) type Size = (usize, usize, usize);

/// Minimum number of multiplications for which threads pay off.
const WORTH: usize = 1 << 18;
/// Rows or columns of a thread are a multiple of this: the kernel's block.
const STEP: usize = 64;

/// `out = scale · a · b`, plus `out` if `keep`. Rows of `out` are `stride` apart. With all threads of the pool, or one.
#[expect(clippy::too_many_arguments, reason = "the usual operands of a matrix product")]
pub(super) fn product(
    out: &mut [f32],
    stride: usize,
    (rows, columns, depth): Size,
    a: Matrix<'_>,
    b: Matrix<'_>,
    keep: bool,
    scale: f32,
    parallel: bool,
) {
    let fits = Matrix::rows(out, stride).holds(rows, columns);
    assert!(fits && stride >= columns, "the product does not fit");
    assert!(a.holds(rows, depth) && b.holds(depth, columns), "the factors are too small");
    let threads = rayon::current_num_threads();
    let out = Out(out.as_mut_ptr());
    let parts = |side: usize| side.div_ceil(threads).next_multiple_of(STEP);
    let part =
        if parallel && rows * columns * depth >= WORTH { parts(rows.max(columns)) } else { usize::MAX };
    let divides_rows = rows >= columns;
    let count = rows.max(columns).div_ceil(part).max(1);
    let one = |index: usize| {
        let from = index.saturating_mul(part);
        let (row, column) = if divides_rows { (from, 0) } else { (0, from) };
        let size = (
            if divides_rows { part.min(rows - row) } else { rows },
            if divides_rows { columns } else { part.min(columns - column) },
            depth,
        );
        // SAFETY: the largest index that the kernel forms in each operand was checked above to be inside its slice; the parts of `out` do not
        // overlap, and this function borrows `out` exclusively.
        #[expect(unsafe_code, reason = "the kernel takes pointers")]
        unsafe {
            kernel(out.at(row * stride + column), stride, size, (a, row), (b, column), keep, scale);
        }
    };
    if count == 1 {
        one(0);
    } else {
        (0..count).into_par_iter().for_each(one);
    }
}

/// The output, written by several threads at disjoint positions.
#[derive(Clone, Copy)]
struct Out(*mut f32);

// SAFETY: threads write disjoint parts: see `product`.
#[expect(unsafe_code, reason = "a pointer that threads share")]
unsafe impl Send for Out {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a pointer that threads share")]
unsafe impl Sync for Out {}

impl Out {
    fn at(self, place: usize) -> *mut f32 {
        self.0.wrapping_add(place)
    }
}

/// The product of some rows of `a` and some columns of `b`, on one thread.
///
/// # Safety
///
/// `out` must have space for the product and no other user, and both factors must have the given size.
#[expect(unsafe_code, reason = "the kernel takes pointers")]
unsafe fn kernel(
    out: *mut f32,
    stride: usize,
    (rows, columns, depth): Size,
    (a, row): (Matrix<'_>, usize),
    (b, column): (Matrix<'_>, usize),
    keep: bool,
    scale: f32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            depth,
            out,
            1,
            stride as isize,
            keep,
            a.values.as_ptr().wrapping_add(row * a.row),
            a.column as isize,
            a.row as isize,
            b.values.as_ptr().wrapping_add(column * b.column),
            b.column as isize,
            b.row as isize,
            1.0,
            scale,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Sides of the squares in which a matrix is transposed: one of each fits into the first-level cache.
const SQUARE: usize = 32;

/// The transposed matrix.
pub(crate) fn turned(matrix: &Tensor) -> Computed<Tensor> {
    let (rows, columns) = matrix.dims2()?;
    let values = super::floats::Floats::of(matrix)?;
    let mut out = vec![0.0_f32; rows * columns];
    out.par_chunks_mut(SQUARE * rows.max(1)).enumerate().for_each(|(band, out)| {
        for from in (0..rows).step_by(SQUARE) {
            for (column, line) in out.chunks_exact_mut(rows).enumerate() {
                let upto = (from + SQUARE).min(rows);
                for (row, value) in line.iter_mut().enumerate().take(upto).skip(from) {
                    *value = values[row * columns + band * SQUARE + column];
                }
            }
        }
    });
    Tensor::from_vec(out, (columns, rows), matrix.device())
}
