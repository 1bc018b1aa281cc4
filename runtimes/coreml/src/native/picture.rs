//! Images as the library's pixel buffers.
#![expect(unsafe_code, reason = "calls of Core Video, and access to its memory")]

use std::{
    ptr::{self, NonNull},
    slice,
};

use ndarray::ArrayD;
use objc2_core_foundation::CFRetained;
use objc2_core_video::{
    CVPixelBuffer, CVPixelBufferCreate, CVPixelBufferGetBaseAddress, CVPixelBufferGetBytesPerRow,
    CVPixelBufferGetHeight, CVPixelBufferGetPixelFormatType, CVPixelBufferGetWidth, CVPixelBufferIsPlanar,
    CVPixelBufferLockBaseAddress, CVPixelBufferLockFlags, CVPixelBufferUnlockBaseAddress, kCVReturnSuccess,
};

use super::pixels::{self, Format, Rows};
use crate::package::interface::Color;

/// `[1, channels, height, width]`, 0 to 255, as a buffer.
pub(super) fn of_planes(
    planes: &ArrayD<f32>,
    color: Color,
    format: Format,
) -> Result<CFRetained<CVPixelBuffer>, String> {
    let &[_, _, height, width] = planes.shape() else {
        return Err(format!("an array {:?} is not an image", planes.shape()));
    };
    let mut made = ptr::null_mut();
    // SAFETY: there are no allocator and no attributes, and the variable for the buffer outlives the call.
    let status =
        unsafe { CVPixelBufferCreate(None, width, height, format.code(), None, NonNull::from(&mut made)) };
    let made = NonNull::new(made).filter(|_| status == kCVReturnSuccess);
    let made = made.ok_or_else(|| {
        format!("Core Video cannot create a buffer of {width} × {height} pixels ({status})")
    })?;
    // SAFETY: a function named Create returns an owned reference.
    let buffer = unsafe { CFRetained::from_raw(made) };
    locked(&buffer, CVPixelBufferLockFlags::empty(), |memory, rows| {
        // SAFETY: the buffer is locked for writing, has this number of bytes, and has no other user yet.
        let memory = unsafe { slice::from_raw_parts_mut(memory.as_ptr(), bytes(rows)?) };
        pixels::draw(planes, color, memory, rows)
    })?;
    Ok(buffer)
}

/// The buffer as `[1, channels, height, width]`, 0 to 255.
pub(super) fn to_planes(buffer: &CVPixelBuffer, color: Color) -> Result<ArrayD<f32>, String> {
    locked(buffer, CVPixelBufferLockFlags::ReadOnly, |memory, rows| {
        // SAFETY: the buffer is locked for reading, has this number of bytes, and nothing writes to a model's output.
        let memory = unsafe { slice::from_raw_parts(memory.as_ptr(), bytes(rows)?) };
        pixels::see(memory, color, rows)
    })
}

/// Bytes of all rows.
fn bytes(rows: Rows) -> Result<usize, String> {
    rows.step.checked_mul(rows.height).ok_or_else(|| format!("the size of an image {rows:?} overflows"))
}

/// Accesses a buffer's memory while it is locked.
fn locked<T>(
    buffer: &CVPixelBuffer,
    flags: CVPixelBufferLockFlags,
    look: impl FnOnce(NonNull<u8>, Rows) -> Result<T, String>,
) -> Result<T, String> {
    let code = CVPixelBufferGetPixelFormatType(buffer);
    let format = Format::of_code(code).filter(|_| !CVPixelBufferIsPlanar(buffer));
    let format = format.ok_or_else(|| format!("unknown pixel format {code:#x}"))?;
    // SAFETY: the buffer is alive, and is unlocked below with the same flags.
    let status = unsafe { CVPixelBufferLockBaseAddress(buffer, flags) };
    if status != kCVReturnSuccess {
        return Err(format!("Core Video cannot lock an image ({status})"));
    }
    let rows = Rows {
        format,
        width: CVPixelBufferGetWidth(buffer),
        height: CVPixelBufferGetHeight(buffer),
        step: CVPixelBufferGetBytesPerRow(buffer),
    };
    let memory = NonNull::new(CVPixelBufferGetBaseAddress(buffer).cast());
    let looked =
        memory.ok_or_else(|| "an image has no memory".to_owned()).and_then(|memory| look(memory, rows));
    // SAFETY: it was locked above, and no reference to its memory is left.
    unsafe { CVPixelBufferUnlockBaseAddress(buffer, flags) };
    looked
}
