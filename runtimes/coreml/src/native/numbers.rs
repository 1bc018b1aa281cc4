//! Arrays in the library's memory: with strides, and with padding after rows.

use half::f16;
use ndarray::{ArrayD, ArrayViewD, ArrayViewMutD, IxDyn, ShapeBuilder as _, Zip};

use crate::model::Tensor;

/// Element types of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub enum Element {
    F16,
    F32,
    F64,
    I8,
    I32,
}

impl Element {
    /// The element type of a number in the library: a class and a width in bits.
    pub fn of_code(code: isize) -> Option<Self> {
        Some(match code {
            0x1_0010 => Self::F16,
            0x1_0020 => Self::F32,
            0x1_0040 => Self::F64,
            0x2_0008 => Self::I8,
            0x2_0020 => Self::I32,
            _ => return None,
        })
    }

    /// Size in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::I8 => 1,
            Self::F16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 => 8,
        }
    }
}

/// Memory of an array by its element type.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub enum Read<'m> {
    F16(&'m [f16]),
    F32(&'m [f32]),
    F64(&'m [f64]),
    I8(&'m [i8]),
    I32(&'m [i32]),
}

/// Memory of an array to be filled, by its element type.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub enum Write<'m> {
    F16(&'m mut [f16]),
    F32(&'m mut [f32]),
    F64(&'m mut [f64]),
    I8(&'m mut [i8]),
    I32(&'m mut [i32]),
}

/// The tensor in this memory; strides count elements.
pub fn gather(memory: Read<'_>, shape: &[usize], strides: &[usize]) -> Result<Tensor, String> {
    Ok(match memory {
        Read::F16(memory) => Tensor::Floats(gathered(memory, shape, strides, f16::to_f32)?),
        Read::F32(memory) => Tensor::Floats(gathered(memory, shape, strides, |number| number)?),
        Read::F64(memory) => Tensor::Floats(gathered(memory, shape, strides, |number| number as f32)?),
        Read::I8(memory) => Tensor::Ints(gathered(memory, shape, strides, i64::from)?),
        Read::I32(memory) => Tensor::Ints(gathered(memory, shape, strides, i64::from)?),
    })
}

fn gathered<T: Copy, N>(
    memory: &[T],
    shape: &[usize],
    strides: &[usize],
    number: impl Fn(T) -> N,
) -> Result<ArrayD<N>, String> {
    forward(strides)?;
    let view = ArrayViewD::from_shape(IxDyn(shape).strides(IxDyn(strides)), memory)
        .map_err(|error| misfit(shape, strides, memory.len(), &error))?;
    // In row-major order.
    let numbers = view.iter().map(|&element| number(element)).collect();
    ArrayD::from_shape_vec(IxDyn(shape), numbers)
        .map_err(|error| misfit(shape, strides, memory.len(), &error))
}

/// Fills memory with a tensor; strides count elements.
pub fn scatter(tensor: &Tensor, memory: Write<'_>, strides: &[usize]) -> Result<(), String> {
    match (memory, tensor) {
        (Write::F16(memory), Tensor::Floats(array)) => scattered(array, memory, strides, f16::from_f32),
        (Write::F32(memory), Tensor::Floats(array)) => scattered(array, memory, strides, |number| number),
        (Write::F64(memory), Tensor::Floats(array)) => scattered(array, memory, strides, f64::from),
        (Write::F16(memory), Tensor::Ints(array)) => {
            scattered(array, memory, strides, |number| f16::from_f32(number as f32))
        }
        (Write::F32(memory), Tensor::Ints(array)) => {
            scattered(array, memory, strides, |number| number as f32)
        }
        (Write::F64(memory), Tensor::Ints(array)) => {
            scattered(array, memory, strides, |number| number as f64)
        }
        (Write::I8(memory), tensor) => scattered(&whole::<i8>(tensor)?, memory, strides, |number| number),
        (Write::I32(memory), tensor) => scattered(&whole::<i32>(tensor)?, memory, strides, |number| number),
    }
}

fn scattered<N: Copy, T>(
    array: &ArrayD<N>,
    memory: &mut [T],
    strides: &[usize],
    element: impl Fn(N) -> T,
) -> Result<(), String> {
    forward(strides)?;
    let (shape, length) = (array.shape(), memory.len());
    let view = ArrayViewMutD::from_shape(IxDyn(shape).strides(IxDyn(strides)), memory)
        .map_err(|error| misfit(shape, strides, length, &error))?;
    Zip::from(view).and(array).for_each(|place, &number| *place = element(number));
    Ok(())
}

/// A tensor in integers of a width. An error if a number does not fit.
fn whole<T: TryFrom<i64> + Copy>(tensor: &Tensor) -> Result<ArrayD<T>, String> {
    let narrow = |number: i64| {
        let bits = 8 * size_of::<T>();
        T::try_from(number).map_err(|_| format!("{number} does not fit {bits} bits"))
    };
    let numbers = match tensor {
        Tensor::Ints(array) => array.iter().map(|&number| narrow(number)).collect::<Result<Vec<T>, _>>()?,
        Tensor::Floats(array) => {
            array.iter().map(|&number| narrow(number as i64)).collect::<Result<Vec<T>, _>>()?
        }
    };
    ArrayD::from_shape_vec(IxDyn(tensor.shape()), numbers).map_err(|error| error.to_string())
}

/// Positive strides: larger values would be read as negative.
fn forward(strides: &[usize]) -> Result<(), String> {
    if strides.iter().all(|&stride| isize::try_from(stride).is_ok()) {
        return Ok(());
    }
    Err(format!("an array has the strides {strides:?}"))
}

fn misfit(shape: &[usize], strides: &[usize], length: usize, error: &ndarray::ShapeError) -> String {
    format!("an array {shape:?} with strides {strides:?} does not fit {length} elements: {error}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn floats(shape: &[usize], numbers: Vec<f32>) -> Tensor {
        Tensor::Floats(ArrayD::from_shape_vec(IxDyn(shape), numbers).expect("as many"))
    }

    #[test]
    fn padding_after_rows_is_skipped() {
        let memory: Vec<f16> = (0..8).map(|number| f16::from_f32(number as f32)).collect();
        let read = gather(Read::F16(&memory), &[2, 3], &[4, 1]).expect("fits");
        assert_eq!(read, floats(&[2, 3], vec![0.0, 1.0, 2.0, 4.0, 5.0, 6.0]));
        let turned = gather(Read::I32(&[1, 2, 3, 4]), &[2, 2], &[1, 2]).expect("fits");
        assert_eq!(
            turned,
            Tensor::Ints(ArrayD::from_shape_vec(IxDyn(&[2, 2]), vec![1, 3, 2, 4]).expect("four"))
        );
    }

    #[test]
    fn arrays_outside_their_memory_are_rejected() {
        assert!(gather(Read::F32(&[0.0; 5]), &[2, 3], &[3, 1]).is_err());
        assert!(gather(Read::F32(&[0.0; 6]), &[2, 3], &[4, 1]).is_err());
        assert!(gather(Read::F32(&[0.0; 6]), &[2, 3], &[usize::MAX, 1]).is_err());
        assert!(gather(Read::F32(&[0.0; 6]), &[2, 3], &[3]).is_err());
        assert!(scatter(&floats(&[2], vec![1.0, 2.0]), Write::F32(&mut [0.0; 1]), &[1]).is_err());
        let same_place = scatter(&floats(&[2], vec![1.0, 2.0]), Write::F32(&mut [0.0; 2]), &[0]);
        assert!(same_place.is_err(), "two elements at one address");
    }

    #[test]
    fn integers_that_do_not_fit_are_rejected() {
        let wide = Tensor::Ints(ArrayD::from_elem(IxDyn(&[1]), 1 << 31));
        let why = scatter(&wide, Write::I32(&mut [0]), &[1]).expect_err("too wide");
        assert!(why.contains("32 bits"), "{why}");
        assert!(scatter(&wide, Write::I8(&mut [0]), &[1]).is_err());
        let mut memory = [0.0];
        scatter(&wide, Write::F32(&mut memory), &[1]).expect("fits");
        assert_eq!(memory[0].to_bits(), 2_147_483_648.0_f32.to_bits());
    }

    #[test]
    fn element_types_have_the_numbers_of_the_library() {
        let known = [0x1_0010, 0x1_0020, 0x1_0040, 0x2_0008, 0x2_0020].map(Element::of_code);
        let all = [Element::F16, Element::F32, Element::F64, Element::I8, Element::I32];
        assert_eq!(known, all.map(Some));
        assert_eq!(all.map(Element::bytes), [2, 4, 8, 1, 4]);
        assert_eq!(Element::of_code(0x2_0010), None);
    }

    proptest! {
        #[test]
        fn written_arrays_are_read_back(
            shape in prop::collection::vec(1_usize..4, 1..4), room in 0_usize..3, seed in any::<u16>(),
        ) {
            let mut strides = vec![1; shape.len()];
            for axis in (0..shape.len() - 1).rev() {
                strides[axis] = strides[axis + 1] * shape[axis + 1] + room;
            }
            let count: usize = shape.iter().product();
            let tensor = floats(&shape, (0..count).map(|place| (place + usize::from(seed) % 512) as f32).collect());
            let mut memory = vec![f16::ZERO; strides[0] * shape[0]];
            prop_assert_eq!(scatter(&tensor, Write::F16(&mut memory), &strides), Ok(()));
            prop_assert_eq!(gather(Read::F16(&memory), &shape, &strides), Ok(tensor));
        }
    }
}
