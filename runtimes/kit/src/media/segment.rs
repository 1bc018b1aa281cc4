//! Segments of an image, as segmentation tasks return them.

use image::RgbImage;
use serde::Serialize;

use crate::error::{EngineError, invalid_input};

/// Maximum number of pixels of an image: every mask has as many.
pub const MAX_PIXELS: u64 = 16 << 20;

/// A part of the picture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Segment {
    /// What it is.
    pub label: String,
    /// How sure the model is, 0 to 1, where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f32>,
    /// Gray PNG in base64, as large as the picture.
    pub mask: String,
}

/// The picture, if masks of its size can be made.
pub fn small_enough(picture: RgbImage) -> Result<RgbImage, EngineError> {
    let pixels = u64::from(picture.width()) * u64::from(picture.height());
    if pixels > MAX_PIXELS {
        return Err(invalid_input(format!(
            "the image has {pixels} pixels; this task takes at most {MAX_PIXELS}"
        )));
    }
    Ok(picture)
}
