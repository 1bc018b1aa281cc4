//! Descriptions of tensors: types, shapes and positions of their bytes.

use std::io::{BufRead, Seek};

use super::{GgufError, reader::Reader};

const MAX_DIMENSIONS: u32 = 4;

/// A tensor's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Number of weights in each dimension; those of the first lie side by side.
    pub shape: Vec<u64>,
    /// Start of its bytes, relative to the start of the data.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl Tensor {
    /// Number of the layer it belongs to.
    pub fn layer(&self) -> Option<usize> {
        self.name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
    }
}

/// Weights in a block and bytes of a block, by the number of the type in the file.
fn block(kind: u32) -> Option<(u64, u64)> {
    Some(match kind {
        0 | 26 => (1, 4),
        1 | 25 | 30 => (1, 2),
        2 | 20 => (32, 18),
        3 => (32, 20),
        6 => (32, 22),
        7 => (32, 24),
        8 => (32, 34),
        9 => (32, 36),
        10 => (256, 84),
        11 | 21 => (256, 110),
        12 => (256, 144),
        13 => (256, 176),
        14 => (256, 210),
        15 => (256, 292),
        16 | 35 => (256, 66),
        17 => (256, 74),
        18 => (256, 98),
        19 => (256, 50),
        22 => (256, 82),
        23 => (256, 136),
        24 => (1, 1),
        27 | 28 => (1, 8),
        29 => (256, 56),
        34 => (256, 54),
        39 => (32, 17),
        40 => (64, 36),
        41 => (128, 18),
        42 => (64, 18),
        _ => return None,
    })
}

pub(super) fn read<R: BufRead + Seek>(reader: &mut Reader<R>, name: String) -> Result<Tensor, GgufError> {
    let wrong = |name: &str, what| GgufError::Tensor { name: name.to_owned(), what };
    let dimensions = reader.u32("a tensor's shape")?;
    if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
        return Err(wrong(&name, "one to four dimensions are possible"));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(reader.u64("a tensor's shape")?);
    }
    let kind = reader.u32("a tensor's type")?;
    let offset = reader.u64("a tensor's offset")?;
    let bytes = size(&shape, kind).map_err(|what| wrong(&name, what))?;
    Ok(Tensor { name, shape, offset, bytes })
}

fn size(shape: &[u64], kind: u32) -> Result<u64, &'static str> {
    let (weights, bytes) = block(kind).ok_or("its type is not known")?;
    if shape.contains(&0) {
        return Err("it is empty");
    }
    if !shape[0].is_multiple_of(weights) {
        return Err("its rows are not a whole number of blocks");
    }
    // llama.cpp counts in signed integers.
    let count = shape.iter().try_fold(1_u64, |product, &side| product.checked_mul(side));
    let count = count.filter(|&count| i64::try_from(count).is_ok()).ok_or("its size overflows")?;
    (count / weights)
        .checked_mul(bytes)
        .filter(|&bytes| i64::try_from(bytes).is_ok())
        .ok_or("its size overflows")
}

/// Tensors follow each other in their order, each at the next aligned position, and end inside `available` bytes of data.
pub(super) fn check_layout(tensors: &[Tensor], alignment: u64, available: u64) -> Result<(), GgufError> {
    let mut next = 0_u64;
    for tensor in tensors {
        let wrong = |what| GgufError::Tensor { name: tensor.name.clone(), what };
        if tensor.offset != next {
            return Err(wrong("its bytes do not follow those of the tensor before"));
        }
        let end = next.checked_add(tensor.bytes).ok_or_else(|| wrong("its end overflows"))?;
        if end > available {
            return Err(wrong("its bytes lie beyond the end of the file"));
        }
        next = end.checked_next_multiple_of(alignment).ok_or_else(|| wrong("its end overflows"))?;
    }
    Ok(())
}
