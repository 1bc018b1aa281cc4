//! The elements of a tensor in main memory.

use std::ops::{Deref, Range};

use candle_core::{CpuStorage, Result as Computed, Storage, Tensor, bail};

/// A view of a tensor's elements, in order, with the lock that holds them.
pub(super) struct Floats<G> {
    storage: G,
    range: Range<usize>,
}

impl Floats<()> {
    /// The elements of a contiguous tensor of f32.
    pub(super) fn of(tensor: &Tensor) -> Computed<Floats<impl Deref<Target = Storage> + '_>> {
        let (storage, layout) = tensor.storage_and_layout();
        let Some((start, end)) = layout.contiguous_offsets() else { bail!("a tensor is not contiguous") };
        if !matches!(&*storage, Storage::Cpu(CpuStorage::F32(_))) {
            bail!("a tensor of {:?} is not f32 in main memory", tensor.dtype());
        }
        Ok(Floats { storage, range: start..end })
    }
}

impl<G: Deref<Target = Storage>> Deref for Floats<G> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.storage {
            Storage::Cpu(CpuStorage::F32(values)) => &values[self.range.clone()],
            _ => &[],
        }
    }
}
