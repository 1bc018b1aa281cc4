//! Segments of an image, as segmentation tasks return them.

use image::RgbImage;
use serde::Serialize;

use crate::error::{EngineError, invalid_input};

/// Maximum number of pixels of an image: every mask has as many.
pub const MAX_PIXELS: u64 = 16 << 20;

/// A segment of an image.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Segment {
    /// What it shows.
    pub label: String,
    /// Score from 0 to 1, if the model computes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f32>,
    /// Grayscale PNG in base64, of the size of the image.
    pub mask: String,
}

/// Returns the image if masks of its size can be computed.
pub fn small_enough(picture: RgbImage) -> Result<RgbImage, EngineError> {
    let pixels = u64::from(picture.width()) * u64::from(picture.height());
    if pixels > MAX_PIXELS {
        return Err(invalid_input(format!(
            "the image has {pixels} pixels; this task takes at most {MAX_PIXELS}"
        )));
    }
    Ok(picture)
}
