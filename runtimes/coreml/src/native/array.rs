//! Numbers as the library's arrays. Its memory is only seen inside of its own calls, which say how long it is.
#![expect(unsafe_code, reason = "Objective-C is asked, and its memory read and written")]

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

/// A tensor as an array of these elements.
pub(super) fn of_tensor(tensor: &Tensor, element: Element) -> Result<Retained<MLMultiArray>, String> {
    if tensor.shape().is_empty() || tensor.shape().contains(&0) {
        return Err(format!("Core ML takes no array {:?}", tensor.shape()));
    }
    let shape: Vec<Retained<NSNumber>> =
        tensor.shape().iter().map(|&size| NSNumber::new_usize(size)).collect();
    let shape = NSArray::from_retained_slice(&shape);
    // SAFETY: the shape holds whole numbers above zero, and the type is one that the library has.
    let array =
        unsafe { MLMultiArray::initWithShape_dataType_error(MLMultiArray::alloc(), &shape, code(element)) };
    let array =
        array.map_err(|error| format!("Core ML makes no array {:?}: {}", tensor.shape(), words(&error)))?;
    let filled = RefCell::new(Err("Core ML does not give an array's memory".to_owned()));
    let handler =
        RcBlock::new(|memory: NonNull<c_void>, bytes: isize, strides: NonNull<NSArray<NSNumber>>| {
            // SAFETY: the strides live at least as long as this call.
            let strides = unsafe { strides.as_ref() };
            // SAFETY: the memory is so many bytes of that element, and nothing else is told of it during this call.
            let memory = unsafe { writable(memory, bytes, element) };
            let written = memory.and_then(|memory| numbers::scatter(tensor, memory, &sizes(strides)?));
            *filled.borrow_mut() = written;
        });
    // SAFETY: the handler is called during this call alone, on this thread, while all that it borrows lives.
    unsafe { array.getMutableBytesWithHandler(&handler) };
    drop(handler);
    filled.into_inner().map(|()| array)
}

/// The tensor that an array is.
pub(super) fn to_tensor(array: &MLMultiArray) -> Result<Tensor, String> {
    // SAFETY: these only read what the array says of itself.
    let (code, shape, strides) = unsafe { (array.dataType().0, array.shape(), array.strides()) };
    let element = Element::of_code(code)
        .ok_or_else(|| format!("an array's elements are of the unknown type {code:#x}"))?;
    let (shape, strides) = (sizes(&shape)?, sizes(&strides)?);
    let seen = RefCell::new(Err("Core ML does not give an array's memory".to_owned()));
    let handler = RcBlock::new(|memory: NonNull<c_void>, bytes: isize| {
        // SAFETY: the memory is so many bytes of that element, and nobody writes to it during this call.
        let memory = unsafe { readable(memory, bytes, element) };
        *seen.borrow_mut() = memory.and_then(|memory| numbers::gather(memory, &shape, &strides));
    });
    // SAFETY: the handler is called during this call alone, on this thread, while all that it borrows lives.
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

/// Sizes or strides, none of which is below zero.
fn sizes(numbers: &NSArray<NSNumber>) -> Result<Vec<usize>, String> {
    let size = |number: Retained<NSNumber>| {
        let size = number.as_isize();
        usize::try_from(size).map_err(|_| format!("an array has the size or stride {size}"))
    };
    numbers.iter().map(size).collect()
}

/// How many elements lie in so many bytes, if memory may hold them at all.
fn count(memory: NonNull<c_void>, bytes: isize, element: Element) -> Result<usize, String> {
    if !memory.as_ptr().addr().is_multiple_of(element.bytes()) {
        return Err(format!("an array of {element:?} lies at {memory:p}, between its elements"));
    }
    usize::try_from(bytes)
        .map(|bytes| bytes / element.bytes())
        .map_err(|_| format!("an array has {bytes} bytes"))
}

/// Memory as its elements are.
///
/// # Safety
/// It must be so many bytes that stay as they are for `'m`, of any content: every element is a number whatever its bits are.
unsafe fn readable<'m>(memory: NonNull<c_void>, bytes: isize, element: Element) -> Result<Read<'m>, String> {
    let count = count(memory, bytes, element)?;
    // SAFETY: by this function's contract; the alignment was checked, and no more elements are taken than the bytes hold.
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

/// Memory to be filled, as its elements are.
///
/// # Safety
/// It must be so many bytes that nobody else reads or writes for `'m`, of any content.
unsafe fn writable<'m>(memory: NonNull<c_void>, bytes: isize, element: Element) -> Result<Write<'m>, String> {
    let count = count(memory, bytes, element)?;
    // SAFETY: by this function's contract; the alignment was checked, and no more elements are taken than the bytes hold.
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
