//! Which pieces of a file are on disk. Pure.

use crate::size::FileSize;

/// Bytes of a piece.
pub(crate) const PIECE: u64 = 8 << 20;

/// A file split into pieces, the last one shorter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pieces {
    total: u64,
    landed: Vec<bool>,
    taken: Vec<bool>,
}

impl Pieces {
    /// A file without pieces on disk.
    pub(crate) fn new(size: FileSize) -> Self {
        let total = size.bytes();
        let count = total.div_ceil(PIECE) as usize;
        Self { total, landed: vec![false; count], taken: vec![false; count] }
    }

    /// Reads the marks of a side file: a byte per piece, 1 for on disk.
    pub(crate) fn restore(&mut self, marks: &[u8]) {
        for (landed, mark) in self.landed.iter_mut().zip(marks) {
            *landed = *mark == 1;
        }
        self.taken.clone_from(&self.landed);
    }

    /// How many pieces there are.
    pub(crate) fn count(&self) -> usize {
        self.landed.len()
    }

    /// First byte and length of piece `index`.
    pub(crate) fn span(&self, index: usize) -> (u64, u64) {
        let start = index as u64 * PIECE;
        (start, PIECE.min(self.total - start))
    }

    /// Returns the first piece that is neither on disk nor being downloaded, and marks it as being downloaded.
    pub(crate) fn take(&mut self) -> Option<usize> {
        let index = self.taken.iter().position(|taken| !taken)?;
        self.taken[index] = true;
        Some(index)
    }

    /// Returns a piece that could not be downloaded.
    pub(crate) fn release(&mut self, index: usize) {
        self.taken[index] = self.landed[index];
    }

    /// Marks piece `index` as on disk.
    pub(crate) fn land(&mut self, index: usize) {
        self.landed[index] = true;
    }

    /// Bytes on disk without a hole from the start.
    pub(crate) fn prefix(&self) -> u64 {
        let whole = self.landed.iter().take_while(|landed| **landed).count();
        (whole as u64 * PIECE).min(self.total)
    }

    /// Bytes on disk.
    pub(crate) fn done(&self) -> u64 {
        let landed = (0..self.count()).filter(|&index| self.landed[index]);
        landed.map(|index| self.span(index).1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_byte_is_downloaded_once(total in 0_u64..(PIECE * 9), order in any::<u64>()) {
            let mut pieces = Pieces::new(FileSize::of(total));
            let mut taken = Vec::new();
            while let Some(index) = pieces.take() {
                taken.push(index);
            }
            prop_assert_eq!(taken.iter().map(|&index| pieces.span(index).1).sum::<u64>(), total);
            let count = taken.len().max(1);
            taken.rotate_left(order as usize % count);
            for index in taken {
                prop_assert!(pieces.done() < total);
                pieces.land(index);
                prop_assert!(pieces.prefix() <= pieces.done());
            }
            prop_assert_eq!((pieces.prefix(), pieces.done()), (total, total));
        }

        #[test]
        fn pieces_on_disk_are_not_downloaded_again(marks in prop::collection::vec(0_u8..3, 0..20)) {
            let mut pieces = Pieces::new(FileSize::of(PIECE * 10 - 5));
            pieces.restore(&marks);
            while let Some(index) = pieces.take() {
                prop_assert!(marks.get(index) != Some(&1));
            }
        }
    }
}
