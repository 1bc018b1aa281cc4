//! Tensors as the library's arrays. Their memory is only accessed inside the library's calls, which pass its length.
#![expect(unsafe_code, reason = "calls of Objective-C, and access to its memory")]

use std::{cell::RefCell, ffi::c_void, ptr::NonNull, slice};

use block2::RcBlock;
use objc2::{AnyThread as _, rc::Retained};
use objc2_core_ml::{MLMultiArray, MLMultiArrayDataType};
use objc2_foundation::{NSArray, NSNumber};

use super::{
    numbers::{self, Element, Read, Write},
    system::words,
};
use crate::model::Tensor;

/// A tensor as an array of this element type.
pub(super) fn of_tensor(tensor: &Tensor, element: Element) -> Result<Retained<MLMultiArray>, String> {
    if tensor.shape().is_empty() || tensor.shape().contains(&0) {
        return Err(format!("Core ML takes no array {:?}", tensor.shape()));
    }
    let shape: Vec<Retained<NSNumber>> =
        tensor.shape().iter().map(|&size| NSNumber::new_usize(size)).collect();
    let shape = NSArray::from_retained_slice(&shape);
    // SAFETY: the shape contains positive integers, and the library has this element type.
    let array =
        unsafe { MLMultiArray::initWithShape_dataType_error(MLMultiArray::alloc(), &shape, code(element)) };
    let array = array
        .map_err(|error| format!("Core ML cannot create an array {:?}: {}", tensor.shape(), words(&error)))?;
    let filled = RefCell::new(Err("Core ML does not give an array's memory".to_owned()));
    let handler =
        RcBlock::new(|memory: NonNull<c_void>, bytes: isize, strides: NonNull<NSArray<NSNumber>>| {
            // SAFETY: the strides outlive this call.
            let strides = unsafe { strides.as_ref() };
            // SAFETY: the memory has this number of bytes of that element, and no other reference during this call.
            let memory = unsafe { writable(memory, bytes, element) };
            let written = memory.and_then(|memory| numbers::scatter(tensor, memory, &sizes(strides)?));
            *filled.borrow_mut() = written;
        });
    // SAFETY: the handler is called only during this call, on this thread, while everything it borrows is alive.
    unsafe { array.getMutableBytesWithHandler(&handler) };
    drop(handler);
    filled.into_inner().map(|()| array)
}

/// The tensor of an array.
pub(super) fn to_tensor(array: &MLMultiArray) -> Result<Tensor, String> {
    // SAFETY: these only read properties of the array.
    let (code, shape, strides) = unsafe { (array.dataType().0, array.shape(), array.strides()) };
    let element =
        Element::of_code(code).ok_or_else(|| format!("an array has the unknown element type {code:#x}"))?;
    let (shape, strides) = (sizes(&shape)?, sizes(&strides)?);
    let seen = RefCell::new(Err("Core ML does not give an array's memory".to_owned()));
    let handler = RcBlock::new(|memory: NonNull<c_void>, bytes: isize| {
        // SAFETY: the memory has this number of bytes of that element, and nothing writes to it during this call.
        let memory = unsafe { readable(memory, bytes, element) };
        *seen.borrow_mut() = memory.and_then(|memory| numbers::gather(memory, &shape, &strides));
    });
    // SAFETY: the handler is called only during this call, on this thread, while everything it borrows is alive.
    unsafe { array.getBytesWithHandler(&handler) };
    drop(handler);
    seen.into_inner()
}

fn code(element: Element) -> MLMultiArrayDataType {
    match element {
        Element::F16 => MLMultiArrayDataType::Float16,
        Element::F32 => MLMultiArrayDataType::Float32,
        Element::F64 => MLMultiArrayDataType::Float64,
        Element::I8 => MLMultiArrayDataType::Int8,
        Element::I32 => MLMultiArrayDataType::Int32,
    }
}

/// Sizes or strides. An error if one is negative.
fn sizes(numbers: &NSArray<NSNumber>) -> Result<Vec<usize>, String> {
    let size = |number: Retained<NSNumber>| {
        let size = number.as_isize();
        usize::try_from(size).map_err(|_| format!("an array has the size or stride {size}"))
    };
    numbers.iter().map(size).collect()
}

/// The number of elements in this number of bytes. An error for sizes that memory cannot have.
fn count(memory: NonNull<c_void>, bytes: isize, element: Element) -> Result<usize, String> {
    if !memory.as_ptr().addr().is_multiple_of(element.bytes()) {
        return Err(format!("an array of {element:?} has the unaligned address {memory:p}"));
    }
    usize::try_from(bytes)
        .map(|bytes| bytes / element.bytes())
        .map_err(|_| format!("an array has {bytes} bytes"))
}

/// Memory as a slice of its element type.
///
/// # Safety
/// It must have this number of bytes that do not change for `'m`; any content is valid, since every bit pattern is a number.
unsafe fn readable<'m>(memory: NonNull<c_void>, bytes: isize, element: Element) -> Result<Read<'m>, String> {
    let count = count(memory, bytes, element)?;
    // SAFETY: by this function's contract; the alignment was checked, and the slice has no more elements than the bytes hold.
    Ok(unsafe {
        match element {
            Element::F16 => Read::F16(slice::from_raw_parts(memory.cast().as_ptr(), count)),
            Element::F32 => Read::F32(slice::from_raw_parts(memory.cast().as_ptr(), count)),
            Element::F64 => Read::F64(slice::from_raw_parts(memory.cast().as_ptr(), count)),
            Element::I8 => Read::I8(slice::from_raw_parts(memory.cast().as_ptr(), count)),
            Element::I32 => Read::I32(slice::from_raw_parts(memory.cast().as_ptr(), count)),
        }
    })
}

/// Memory to be filled, as a slice of its element type.
///
/// # Safety
/// It must have this number of bytes without another reference for `'m`, of any content.
unsafe fn writable<'m>(memory: NonNull<c_void>, bytes: isize, element: Element) -> Result<Write<'m>, String> {
    let count = count(memory, bytes, element)?;
    // SAFETY: by this function's contract; the alignment was checked, and the slice has no more elements than the bytes hold.
    Ok(unsafe {
        match element {
            Element::F16 => Write::F16(slice::from_raw_parts_mut(memory.cast().as_ptr(), count)),
            Element::F32 => Write::F32(slice::from_raw_parts_mut(memory.cast().as_ptr(), count)),
            Element::F64 => Write::F64(slice::from_raw_parts_mut(memory.cast().as_ptr(), count)),
            Element::I8 => Write::I8(slice::from_raw_parts_mut(memory.cast().as_ptr(), count)),
            Element::I32 => Write::I32(slice::from_raw_parts_mut(memory.cast().as_ptr(), count)),
        }
    })
}
