//! Masks and depth maps out: grayscale PNG in base64.

use image::{ExtendedColorType, ImageEncoder, codecs::png::PngEncoder};
use ndarray::Array2;

use super::base64;
use crate::error::EngineError;

/// A grayscale plane as it appears in an output.
pub fn png(plane: &Array2<u8>) -> Result<String, EngineError> {
    let (height, width) = plane.dim();
    let pixels: Vec<u8> = plane.iter().copied().collect();
    let mut bytes = Vec::new();
    let written =
        PngEncoder::new(&mut bytes).write_image(&pixels, width as u32, height as u32, ExtendedColorType::L8);
    written.map_err(|error| EngineError::host("write a PNG").because(error))?;
    Ok(base64::encode(&bytes))
}

/// A mask: white where `plane` is true.
pub fn mask(plane: &Array2<bool>) -> Result<String, EngineError> {
    png(&plane.mapv(|holds| if holds { 255 } else { 0 }))
}
