//! Products of matrices in main memory.

use gemm::Parallelism;

/// A matrix inside a slice.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'m> {
    pub(super) values: &'m [f32],
    /// Distance between rows.
    pub(super) row: usize,
    /// Distance between columns.
    pub(super) column: usize,
}

impl<'m> Matrix<'m> {
    /// One whose rows are together.
    pub(super) fn rows(values: &'m [f32], row: usize) -> Self {
        Self { values, row, column: 1 }
    }

    /// The other way around.
    pub(super) fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.values.len()
    }
}

/// Rows, columns, and how many products make up each number.
pub(super) type Size = (usize, usize, usize);

/// `out = scale · a · b`, added to what is there if `keep`. Rows of `out` are `stride` apart. With all threads of the pool, or one.
#[expect(clippy::too_many_arguments, reason = "the operands of a matrix product as every library has them")]
#[expect(unsafe_code, reason = "the kernel takes pointers")]
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
    let parallelism = if parallel { Parallelism::Rayon(0) } else { Parallelism::None };
    // SAFETY: the largest index that the kernel forms in each operand was just found to be inside its slice; `out` is borrowed alone,
    // and as its rows do not overlap no element of it is written by two threads.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            depth,
            out.as_mut_ptr(),
            1,
            stride as isize,
            keep,
            a.values.as_ptr(),
            a.column as isize,
            a.row as isize,
            b.values.as_ptr(),
            b.column as isize,
            b.row as isize,
            1.0,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}
