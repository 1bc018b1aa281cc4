//! Compressed weights, expanded when a model is loaded.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::graph::{Bound, Codes, Constant, Lowering};
use crate::{
    package::{elements, weights},
    program::{Argument, Operation, value::Data},
};

/// Operations of compressed weights.
pub(super) const OPERATIONS: [&str; 7] = [
    "constexpr_affine_dequantize",
    "constexpr_blockwise_shift_scale",
    "constexpr_cast",
    "constexpr_lut_to_dense",
    "constexpr_lut_to_sparse",
    "constexpr_sparse_blockwise_shift_scale",
    "constexpr_sparse_to_dense",
];
/// Maximum nesting.
const MAX_DEPTH: usize = 3;
/// Maximum number of elements of an entry of a table.
const MAX_VECTOR: u64 = 64;

/// The result of an operation: one tensor, or a mask and the values under it.
pub(super) fn expand(
    lowering: &Lowering<'_>,
    operation: &Operation,
    depth: usize,
) -> Result<Vec<Constant>, EngineError> {
    if depth > MAX_DEPTH {
        return Err(invalid_model(format!("its weights are compressed more than {MAX_DEPTH} times over")));
    }
    let parts = Parts { lowering, operation, depth };
    let expanded = match operation.kind.as_str() {
        "constexpr_affine_dequantize" => parts.affine().map(|dense| vec![dense]),
        "constexpr_blockwise_shift_scale" => parts.blockwise().map(|dense| vec![dense]),
        "constexpr_cast" => parts.part("source_val").map(|dense| vec![dense]),
        "constexpr_lut_to_dense" => parts.table().map(|dense| vec![dense]),
        "constexpr_lut_to_sparse" => parts.sparse_table(),
        "constexpr_sparse_blockwise_shift_scale" => parts.sparse_blockwise(),
        _ => parts.sparse().map(|dense| vec![dense]),
    };
    expanded.map_err(|error| error.within(operation.title()))
}

/// The parts of a compressed weight: attributes up to iOS 17, inputs since.
struct Parts<'l, 'p> {
    lowering: &'l Lowering<'p>,
    operation: &'l Operation,
    depth: usize,
}

impl Parts<'_, '_> {
    fn optional(&self, name: &str) -> Result<Option<Constant>, EngineError> {
        if let Some(value) = self.operation.attributes.get(name) {
            return self.lowering.value(value).map(Some);
        }
        match self.operation.inputs.get(name).and_then(|given| given.first()) {
            None => Ok(None),
            Some(Argument::Value(value)) => self.lowering.value(value).map(Some),
            Some(Argument::Name(other)) => match self.lowering.by_name(other)? {
                Bound::Packed(inner, index) => {
                    let mut expanded = expand(self.lowering, inner, self.depth + 1)?;
                    if index >= expanded.len() {
                        return Err(invalid_model(format!("{other:?} is not one of its results")));
                    }
                    Ok(Some(expanded.swap_remove(index)))
                }
                bound => self.lowering.constant(&bound).map(Some),
            },
        }
    }

    fn part(&self, name: &str) -> Result<Constant, EngineError> {
        self.optional(name)?.ok_or_else(|| invalid_model(format!("its part {name} is missing")))
    }

    /// Shape and elements of a part that lies in a file, if its elements fit a byte.
    fn stored(&self, name: &str) -> Result<Option<Codes>, EngineError> {
        if let Some(value) = self.operation.attributes.get(name) {
            return self.lowering.codes(value);
        }
        match self.operation.inputs.get(name).and_then(|given| given.first()) {
            None => Ok(None),
            Some(Argument::Value(value)) => self.lowering.codes(value),
            Some(Argument::Name(other)) => match self.lowering.by_name(other)? {
                Bound::Fixed(value) => self.lowering.codes(value),
                _ => Ok(None),
            },
        }
    }

    /// Numbers from 0 to 255: codes, or the flags of a mask.
    fn codes(&self, name: &str) -> Result<Codes, EngineError> {
        if let Some(stored) = self.stored(name)? {
            return Ok(stored);
        }
        let Constant { shape, data } = self.part(name)?;
        let codes: Option<Vec<u8>> = match data {
            Data::Ints(ints) => ints.into_iter().map(|int| u8::try_from(int).ok()).collect(),
            Data::Bools(flags) => Some(flags.into_iter().map(u8::from).collect()),
            _ => None,
        };
        let codes =
            codes.ok_or_else(|| invalid_model(format!("its part {name} does not have 8-bit codes")))?;
        Ok((shape, codes))
    }

    fn numbers(&self, name: &str) -> Result<(Vec<u64>, Vec<f32>), EngineError> {
        if let Some((shape, codes)) = self.stored(name)? {
            return Ok((shape, codes.into_iter().map(f32::from).collect()));
        }
        let Constant { shape, data } = self.part(name)?;
        Ok((shape, floats(data)?))
    }

    fn whole(&self, name: &str) -> Result<(Vec<u64>, Vec<i64>), EngineError> {
        let Constant { shape, data } = self.part(name)?;
        match data {
            Data::Ints(ints) => Ok((shape, ints)),
            Data::Bools(flags) => Ok((shape, flags.into_iter().map(i64::from).collect())),
            _ => Err(invalid_model(format!("its part {name} does not have integers"))),
        }
    }

    fn affine(&self) -> Result<Constant, EngineError> {
        let (shape, data) = self.numbers("quantized_data")?;
        let (_, scale) = self.numbers("scale")?;
        let zero = self.optional("zero_point")?.map_or(Ok(vec![0.0]), |zero| floats(zero.data))?;
        let axis = self.optional("axis")?.map_or(0, |axis| match axis.data {
            Data::Ints(ints) => ints.first().copied().unwrap_or(0),
            _ => 0,
        });
        let place = if axis < 0 { axis + shape.len() as i64 } else { axis };
        let place = usize::try_from(place).ok().filter(|&place| place < shape.len());
        let place =
            place.ok_or_else(|| invalid_model(format!("its scales lie along the missing axis {axis}")))?;
        let size = shape[place] as usize;
        if [scale.len(), zero.len()].iter().any(|&count| count != 1 && count != size) {
            return Err(invalid_model(format!("it has {} scales for {size} elements", scale.len())));
        }
        let inner = shape[place + 1..].iter().product::<u64>().max(1) as usize;
        let of = |numbers: &[f32], at: usize| {
            if numbers.len() == 1 { numbers[0] } else { numbers[at / inner % size] }
        };
        let dense = data.iter().enumerate().map(|(at, number)| of(&scale, at) * (number - of(&zero, at)));
        Ok(Constant { data: Data::Floats(dense.collect()), shape })
    }

    fn blockwise(&self) -> Result<Constant, EngineError> {
        let (shape, data) = self.numbers("data")?;
        let blocks = self.blocks(&shape)?;
        let dense = data.iter().enumerate().map(|(at, number)| blocks.scaled(at, *number));
        Ok(Constant { data: Data::Floats(dense.collect()), shape })
    }

    fn blocks(&self, shape: &[u64]) -> Result<Blocks, EngineError> {
        let (sizes, scale) = self.numbers("scale")?;
        let offset = self.optional("offset")?.map(|offset| floats(offset.data)).transpose()?;
        let grid = Grid::new(shape, &sizes)?;
        if offset.as_ref().is_some_and(|offset| offset.len() != scale.len()) {
            return Err(invalid_model("its numbers of offsets and scales differ"));
        }
        Ok(Blocks { grid, scale, offset })
    }

    /// Codes as indices into a table, or into a table for each block.
    fn table(&self) -> Result<Constant, EngineError> {
        if self.operation.attributes.contains_key("shape") || self.operation.inputs.contains_key("shape") {
            return self.flat_table();
        }
        let (shape, codes) = self.codes("indices")?;
        let tables = self.tables(&shape)?;
        let axis = if tables.vector == 1 { shape.len() - 1 } else { self.vector_axis(shape.len())? };
        let vector = tables.vector;
        let mut wide = shape.clone();
        wide[axis] = wide[axis].saturating_mul(vector);
        let count = weights::count(&wide)
            .ok_or_else(|| invalid_model(format!("{wide:?} is too large for a tensor")))?;
        let inner: u64 = shape[axis + 1..].iter().product();
        let (mut dense, size) = (vec![0.0; count as usize], shape[axis]);
        for (at, &code) in codes.iter().enumerate() {
            let entry = tables.entry(at, code)?;
            let at = at as u64;
            let (outer, along, rest) = (at / inner / size, at / inner % size, at % inner);
            for (part, number) in entry.iter().enumerate() {
                let place = ((outer * size + along) * vector + part as u64) * inner + rest;
                dense[place as usize] = *number;
            }
        }
        Ok(Constant { shape: wide, data: Data::Floats(dense) })
    }

    /// The older form: codes packed into bytes, one table, and the shape.
    fn flat_table(&self) -> Result<Constant, EngineError> {
        let (_, packed) = self.codes("indices")?;
        let (_, table) = self.numbers("lut")?;
        let shape = self.shape()?;
        let count = weights::count(&shape)
            .ok_or_else(|| invalid_model(format!("{shape:?} is too large for a tensor")))?;
        let bits = table.len().trailing_zeros();
        if !table.len().is_power_of_two() || !(1..=8).contains(&bits) {
            return Err(invalid_model(format!("a table cannot have {} entries", table.len())));
        }
        if packed.len() as u64 != (count * u64::from(bits)).div_ceil(8) {
            return Err(invalid_model(format!(
                "{} bytes are not {count} codes of {bits} bits",
                packed.len()
            )));
        }
        let codes = elements::codes(&packed, bits, count as usize);
        let dense = codes.into_iter().map(|code| table[usize::from(code)]).collect();
        Ok(Constant { shape, data: Data::Floats(dense) })
    }

    fn shape(&self) -> Result<Vec<u64>, EngineError> {
        let (_, sizes) = self.whole("shape")?;
        let sizes: Option<Vec<u64>> = sizes.into_iter().map(|size| u64::try_from(size).ok()).collect();
        sizes.ok_or_else(|| invalid_model("its shape has a negative size"))
    }

    fn tables(&self, shape: &[u64]) -> Result<Tables, EngineError> {
        let (sizes, entries) = self.numbers("lut")?;
        let Some((grid, [count, vector])) = sizes.split_last_chunk::<2>() else {
            return Err(invalid_model("its table has too few dimensions"));
        };
        if !(1..=MAX_VECTOR).contains(vector) || *count == 0 {
            return Err(invalid_model(format!("a table cannot have {count} × {vector} numbers")));
        }
        Ok(Tables { grid: Grid::new(shape, grid)?, entries, count: *count, vector: *vector })
    }

    fn vector_axis(&self, rank: usize) -> Result<usize, EngineError> {
        let (_, axis) = self.whole("vector_axis")?;
        let axis = axis.first().copied().unwrap_or(0);
        let place = if axis < 0 { axis + rank as i64 } else { axis };
        let place = usize::try_from(place).ok().filter(|&place| place < rank);
        place.ok_or_else(|| invalid_model(format!("its vectors lie along the missing axis {axis}")))
    }

    /// Indices of the elements that are not zero, in order.
    fn places(mask: &[u8], count: usize) -> Result<Vec<usize>, EngineError> {
        let places: Vec<usize> = (0..mask.len()).filter(|&at| mask[at] != 0).collect();
        if places.len() != count {
            return Err(invalid_model(format!("its mask has {} indices for {count} numbers", places.len())));
        }
        Ok(places)
    }

    fn sparse_table(&self) -> Result<Vec<Constant>, EngineError> {
        let (shape, mask) = self.codes("indices_mask")?;
        let (_, codes) = self.codes("indices_nonzero_data")?;
        let tables = self.tables(&shape)?;
        if tables.vector != 1 {
            return Err(invalid_model(
                "tables of vectors under a mask are supported only by Apple's library",
            ));
        }
        let places = Self::places(&mask, codes.len())?;
        let entry = |(&at, &code): (&usize, &u8)| tables.entry(at, code).map(|entry| entry[0]);
        let numbers = places.iter().zip(&codes).map(entry).collect::<Result<Vec<f32>, EngineError>>()?;
        Ok(masked(shape, mask, numbers))
    }

    fn sparse_blockwise(&self) -> Result<Vec<Constant>, EngineError> {
        let (shape, mask) = self.codes("data_mask")?;
        let (_, data) = self.numbers("nonzero_data")?;
        let blocks = self.blocks(&shape)?;
        let places = Self::places(&mask, data.len())?;
        let numbers = places.iter().zip(&data).map(|(&at, &number)| blocks.scaled(at, number)).collect();
        Ok(masked(shape, mask, numbers))
    }

    fn sparse(&self) -> Result<Constant, EngineError> {
        let (_, numbers) = self.numbers("nonzero_data")?;
        let (mut shape, mut mask) = self.codes("mask")?;
        if self.operation.attributes.contains_key("shape") || self.operation.inputs.contains_key("shape") {
            shape = self.shape()?;
            let count = weights::count(&shape)
                .ok_or_else(|| invalid_model(format!("{shape:?} is too large for a tensor")))?;
            if mask.len() as u64 != count.div_ceil(8) {
                return Err(invalid_model(format!(
                    "a mask of {} bytes does not have {count} bits",
                    mask.len()
                )));
            }
            mask = elements::codes(&mask, 1, count as usize);
        }
        let places = Self::places(&mask, numbers.len())?;
        let mut dense = vec![0.0; mask.len()];
        for (place, number) in places.into_iter().zip(numbers) {
            dense[place] = number;
        }
        Ok(Constant { shape, data: Data::Floats(dense) })
    }
}

fn masked(shape: Vec<u64>, mask: Vec<u8>, numbers: Vec<f32>) -> Vec<Constant> {
    let data = Constant { shape: vec![numbers.len() as u64], data: Data::Floats(numbers) };
    let flags = mask.into_iter().map(|flag| flag != 0).collect();
    vec![Constant { shape, data: Data::Bools(flags) }, data]
}

fn floats(data: Data) -> Result<Vec<f32>, EngineError> {
    match data {
        Data::Floats(floats) => Ok(floats),
        Data::Ints(ints) => Ok(ints.into_iter().map(|int| int as f32).collect()),
        _ => Err(invalid_model("a compressed weight does not have numbers")),
    }
}

/// The block of an element.
struct Grid {
    /// By axis: the size of the tensor, of a block, and the stride in blocks.
    axes: Vec<(u64, u64, u64)>,
}

impl Grid {
    fn new(shape: &[u64], blocks: &[u64]) -> Result<Self, EngineError> {
        let fits = |(&size, &count): (&u64, &u64)| count > 0 && size % count == 0;
        if shape.is_empty() || shape.len() != blocks.len() || !shape.iter().zip(blocks).all(fits) {
            return Err(invalid_model(format!("{blocks:?} blocks do not divide {shape:?}")));
        }
        let (mut axes, mut step) = (Vec::new(), 1);
        for (&size, &count) in shape.iter().zip(blocks).rev() {
            axes.push((size, size / count, step));
            step *= count;
        }
        Ok(Self { axes })
    }

    fn block(&self, at: usize) -> usize {
        let (mut rest, mut block) = (at as u64, 0);
        for &(size, wide, step) in &self.axes {
            block += rest % size / wide * step;
            rest /= size;
        }
        block as usize
    }
}

struct Blocks {
    grid: Grid,
    scale: Vec<f32>,
    offset: Option<Vec<f32>>,
}

impl Blocks {
    fn scaled(&self, at: usize, number: f32) -> f32 {
        let block = self.grid.block(at);
        let offset = self.offset.as_ref().map_or(0.0, |offset| offset[block]);
        self.scale[block] * (number - offset)
    }
}

struct Tables {
    grid: Grid,
    entries: Vec<f32>,
    count: u64,
    vector: u64,
}

impl Tables {
    fn entry(&self, at: usize, code: u8) -> Result<&[f32], EngineError> {
        let code = u64::from(code);
        if code >= self.count {
            return Err(invalid_model(format!("a code exceeds {} entries", self.count)));
        }
        let first = ((self.grid.block(at) as u64 * self.count + code) * self.vector) as usize;
        Ok(&self.entries[first..first + self.vector as usize])
    }
}
